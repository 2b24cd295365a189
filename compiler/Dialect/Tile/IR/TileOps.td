// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels as programs on tiles: one value per lane of a CTA, no threads. docs/dialects/tile.md shows a kernel and says
// which rules the verifier holds.

#ifndef MILLRACE_DIALECT_TILE_OPS
#define MILLRACE_DIALECT_TILE_OPS

include "mlir/Dialect/Arith/IR/ArithBase.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::millrace::tile";
  let summary = "kernels as programs on tiles";
  let description = [{
    A kernel runs as a number of programs that know nothing of each other. Each works on tiles: immutable values with one
    element per lane, of the builtin type `vector<LANESxT>`, or with a row of N elements per lane, `vector<LANESxNxT>`:
    the operands and results of matrix products. Elementwise work is `arith` and `math` on tiles; loops and
    branches are `scf` on scalars, which all lanes share. Tensors in global memory are memrefs of static shape and strides.

    `tile-to-loops` makes loops for a CPU of it, `tile-to-hopper` code of one GPU thread.
  }];
}

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

/// A tile, or a scalar that all lanes share.
def Tile_Index : AnyTypeOf<[Index, VectorOfRankAndType<[1], [Index]>], "an index, or a tile of indices">;
def Tile_Mask : VectorOfRankAndType<[1], [I1]>;
def Tile_Lanes : VectorOfRankAndType<[1], [AnyType]>;
def Tile_Rows : VectorOfRankAndType<[2], [AnyType]>;
def Tile_Tile : VectorOfRankAndType<[1, 2], [AnyType]>;

//===-- Kernels -----------------------------------------------------------------------------------------------------===//

def Tile_KernelOp : Tile_Op<"kernel", [FunctionOpInterface, IsolatedFromAbove]> {
  let summary = "a kernel: what each of its programs does";
  let description = [{
    `lanes`: elements of every tile in it, a multiple of 32 up to 4096. `programs`: how many run. Arguments are tensors in
    global memory: memrefs of static shape and strides, of i1, i8, i16, i32, i64, f16, bf16, f32 or f64; different arguments
    that a launch writes do not overlap with others.

    ```mlir
    tile.kernel @twice(%x: memref<100xf32>, %y: memref<100xf32>) attributes {lanes = 32 : i32, programs = 4 : i32} {
      %program = tile.program_id
      %lane = tile.iota : vector<32xindex>
      ...
      tile.return
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type, I32Attr:$lanes,
      I32Attr:$programs, OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region AnyRegion:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    static constexpr unsigned kMostLanes = 4096;
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
    ::llvm::LogicalResult verifyType() { return ::mlir::success(); }
  }];
}

def Tile_ReturnOp : Tile_Op<"return", [Pure, HasParent<"KernelOp">, ReturnLike, Terminator]> {
  let summary = "ends the program";
  let assemblyFormat = "attr-dict";
}

def Tile_LaunchOp : Tile_Op<"launch", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "runs all programs of a kernel; what comes behind it sees what they wrote";
  let arguments = (ins FlatSymbolRefAttr:$kernel, Arg<Variadic<AnyMemRef>, "", [MemRead, MemWrite]>:$operands);
  let assemblyFormat = "$kernel `(` $operands `)` attr-dict `:` type($operands)";
}

//===-- Places ------------------------------------------------------------------------------------------------------===//

def Tile_ProgramIdOp : Tile_Op<"program_id", [Pure]> {
  let summary = "the program's number, from 0";
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Tile_IotaOp : Tile_Op<"iota", [Pure]> {
  let summary = "each lane's number, from 0";
  let results = (outs VectorOfRankAndType<[1], [Index]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

//===-- Values ------------------------------------------------------------------------------------------------------===//

def Tile_BroadcastOp : Tile_Op<"broadcast", [Pure,
    TypesMatchWith<"the value is an element of the result", "result", "value",
                   "::llvm::cast<::mlir::VectorType>($_self).getElementType()">]> {
  let summary = "a tile that has the scalar in every lane";
  let arguments = (ins AnyType:$value);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
}

def Tile_ReduceOp : Tile_Op<"reduce", [Pure,
    TypesMatchWith<"the result is an element of the tile", "tile", "result",
                   "::llvm::cast<::mlir::VectorType>($_self).getElementType()">]> {
  let summary = "combines all lanes to a scalar, in no stated order";
  let description = [{
    `kind` is addf, addi, mulf, muli, maximumf, minimumf (NaN propagates), maxs, mins, maxu, minu, andi, ori or xori. It stands
    in the block of the kernel itself: every thread takes part.

    ```mlir
    %most = tile.reduce maximumf %x : vector<256xf32>
    ```
  }];
  let arguments = (ins AtomicRMWKindAttr:$kind, Tile_Lanes:$tile);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$kind $tile attr-dict `:` type($tile)";
  let hasVerifier = 1;
}

//===-- Global memory -----------------------------------------------------------------------------------------------===//

def Tile_LoadOp : Tile_Op<"load", [AttrSizedOperandSegments]> {
  let summary = "reads one element per lane, or one for all";
  let description = [{
    One index per dimension, a scalar or a tile: so it reads rows, columns, every n-th element, or gathers at data. In lanes
    where `mask` is false nothing is read and the result is `other`. If all indices are scalars and there is no mask, the
    result may be a scalar. An index outside of the tensor in a lane that reads is an error that the emulator reports.

    ```mlir
    %v = tile.load %x[%row, %column] where %inside else %zero
        : (memref<4x100xf32>, index, vector<32xindex>, vector<32xi1>, f32) -> vector<32xf32>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Tile_Index>:$indices, Optional<Tile_Mask>:$mask,
      Optional<AnyType>:$other);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$source `[` $indices `]` (`where` $mask^ `else` $other)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Tile_StoreOp : Tile_Op<"store", [AttrSizedOperandSegments]> {
  let summary = "writes one element per lane where the mask is true";
  let description = [{
    No two lanes of any programs of a launch write one element, and no lane reads what another writes.

    ```mlir
    tile.store %v, %y[%row, %column] where %inside
        : vector<32xf32>, memref<4x100xf32>, index, vector<32xindex>, vector<32xi1>
    ```
  }];
  let arguments = (ins Tile_Lanes:$value, Arg<AnyMemRef, "", [MemWrite]>:$target, Variadic<Tile_Index>:$indices,
      Optional<Tile_Mask>:$mask);
  let assemblyFormat = "$value `,` $target `[` $indices `]` (`where` $mask^)? attr-dict `:` type(operands)";
  let hasVerifier = 1;
}

//===-- A row per lane ----------------------------------------------------------------------------------------------===//

def Tile_LoadRowsOp : Tile_Op<"load_rows", [AttrSizedOperandSegments]> {
  let summary = "reads a row of neighbouring elements per lane";
  let description = [{
    Element c of a lane's row is the one at the indices, c further in dimension `along`; behind the end of that dimension
    it is 0. One index per dimension, a scalar or a tile, that of `along` a scalar. Rows where `mask` is false are 0.

    ```mlir
    %q = tile.load_rows %x[%row, %first] along 1 where %inside
        : (memref<100x70xf16>, vector<32xindex>, index, vector<32xi1>) -> vector<32x64xf16>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Tile_Index>:$indices, Optional<Tile_Mask>:$mask,
      I32Attr:$along);
  let results = (outs Tile_Rows:$result);
  let assemblyFormat = [{
    $source `[` $indices `]` `along` $along (`where` $mask^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Tile_StoreRowsOp : Tile_Op<"store_rows", [AttrSizedOperandSegments]> {
  let summary = "writes a row of neighbouring elements per lane";
  let description = [{ As `load_rows`; what lies behind the end of dimension `along`, and rows where `mask` is false, are not written. }];
  let arguments = (ins Tile_Rows:$value, Arg<AnyMemRef, "", [MemWrite]>:$target, Variadic<Tile_Index>:$indices,
      Optional<Tile_Mask>:$mask, I32Attr:$along);
  let assemblyFormat = [{
    $value `,` $target `[` $indices `]` `along` $along (`where` $mask^)? attr-dict `:` type(operands)
  }];
  let hasVerifier = 1;
}

def Tile_LoadTableOp : Tile_Op<"load_table"> {
  let summary = "names a matrix in memory that all lanes multiply their rows by";
  let description = [{
    Element (n, k) of the table is the one at the indices, n further in dimension `rows` and k further in dimension
    `columns` of the tensor; behind the end of either it is 0. Only `dot` takes tables. The tensor is not written in the
    launch, so that a table may be read when it is multiplied.

    ```mlir
    %k = tile.load_table %x[%batch, %key, %c0] along [1, 2] : (memref<4x100x64xf16>, index, index, index) -> vector<32x64xf16>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$indices, I32Attr:$rows, I32Attr:$columns);
  let results = (outs Tile_Rows:$result);
  let assemblyFormat = [{
    $source `[` $indices `]` `along` `[` $rows `,` $columns `]` attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Tile_ComputeTableOp : Tile_Op<"compute_table", [RecursiveMemoryEffects,
    SingleBlock]> {
  let summary = "a matrix that all lanes multiply their rows by, computed where it is multiplied";
  let description = [{
    Element (n, k) of the table is what the region gives for `row` + n and `column` + k; from `row_end` and `column_end` on
    it is 0, and nothing is read for it. The region is elementwise on scalars, with loads of scalars: conversions of what
    lies in memory, numbers that are packed, scales of blocks. As of `load_table`, only `dot` takes the result, and no tensor
    that it reads is written in the launch. It is computed anew by each warp that multiplies by it.

    ```mlir
    %w = tile.compute_table [%n0, %k0] upto [100, 70] : vector<64x32xf16> {
    ^bb0(%n: index, %k: index):
      %q = tile.load %codes[%n, %k] : (memref<100x70xi8>, index, index) -> i8
      %x = arith.sitofp %q : i8 to f16
      %s = tile.load %scales[%n] : (memref<100xf16>, index) -> f16
      %y = arith.mulf %x, %s : f16
      tile.yield %y : f16
    }
    ```
  }];
  let arguments = (ins Index:$row, Index:$column, I64Attr:$row_end, I64Attr:$column_end);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Tile_Rows:$result);
  let assemblyFormat = [{
    `[` $row `,` $column `]` `upto` `[` $row_end `,` $column_end `]` attr-dict `:` type($result) $body
  }];
  let hasRegionVerifier = 1;
}

def Tile_YieldOp : Tile_Op<"yield", [Pure, HasParent<"ComputeTableOp">, ReturnLike, Terminator]> {
  let summary = "gives an element of a computed table";
  let arguments = (ins AnyType:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Tile_DotOp : Tile_Op<"dot", [Pure, AllTypesMatch<["accumulator", "result"]>]> {
  let summary = "adds the products of each lane's row with all rows of a table";
  let description = [{
    Element n of a lane's result is its accumulator plus the sum over k of the lane's element k times the table's element
    (n, k): f16 or bf16 operands, exact products, sums in fp32 in no stated order.

    ```mlir
    %s = tile.dot %q, %k, %zero : vector<32x64xf16>, vector<16x64xf16>, vector<32x16xf32>
    ```
  }];
  let arguments = (ins Tile_Rows:$rows, Tile_Rows:$table, Tile_Rows:$accumulator);
  let results = (outs Tile_Rows:$result);
  let assemblyFormat = "$rows `,` $table `,` $accumulator attr-dict `:` type($rows) `,` type($table) `,` type($accumulator)";
  let hasVerifier = 1;
}

def Tile_ReduceRowsOp : Tile_Op<"reduce_rows", [Pure]> {
  let summary = "combines each lane's row, in no stated order";
  let description = [{ `kind` as in `reduce`. It may stand in loops and branches. }];
  let arguments = (ins AtomicRMWKindAttr:$kind, Tile_Rows:$rows);
  let results = (outs Tile_Lanes:$result);
  let assemblyFormat = "$kind $rows attr-dict `:` type($rows) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_SpreadOp : Tile_Op<"spread", [Pure]> {
  let summary = "each lane's value in all elements of its row";
  let arguments = (ins Tile_Lanes:$lanes);
  let results = (outs Tile_Rows:$result);
  let assemblyFormat = "$lanes attr-dict `:` type($lanes) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_ColumnsOp : Tile_Op<"columns", [Pure]> {
  let summary = "each element's place in its row, from 0";
  let results = (outs VectorOfRankAndType<[2], [I32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

#endif
