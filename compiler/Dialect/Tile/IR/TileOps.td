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
    element per lane, of the builtin type `vector<LANESxT>`. Elementwise work is `arith` and `math` on tiles; loops and
    branches are `scf` on scalars, which all lanes share. Tensors in global memory are memrefs of static shape and strides.

    `tile-to-loops` makes loops for a CPU of it, `tile-to-hopper` code of one GPU thread.
  }];
}

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

/// A tile, or a scalar that all lanes share.
def Tile_Index : AnyTypeOf<[Index, VectorOfRankAndType<[1], [Index]>], "an index, or a tile of indices">;
def Tile_Mask : VectorOfRankAndType<[1], [I1]>;
def Tile_Tile : VectorOfRankAndType<[1], [AnyType]>;

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
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<AnyMemRef>:$operands);
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
  let arguments = (ins AtomicRMWKindAttr:$kind, Tile_Tile:$tile);
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
  let arguments = (ins Tile_Tile:$value, Arg<AnyMemRef, "", [MemWrite]>:$target, Variadic<Tile_Index>:$indices,
      Optional<Tile_Mask>:$mask);
  let assemblyFormat = "$value `,` $target `[` $indices `]` (`where` $mask^)? attr-dict `:` type(operands)";
  let hasVerifier = 1;
}

#endif
