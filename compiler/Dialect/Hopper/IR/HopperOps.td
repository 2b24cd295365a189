// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One operation per hardware action of a Hopper streaming multiprocessor, as much of it as a matrix product needs.
// docs/dialects/hopper.md shows a kernel and says which rules the verifier holds.

#ifndef MILLRACE_DIALECT_HOPPER_OPS
#define MILLRACE_DIALECT_HOPPER_OPS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Hopper_Dialect : Dialect {
  let name = "hopper";
  let cppNamespace = "::millrace::hopper";
  let summary = "hardware actions of one Hopper streaming multiprocessor";
  let description = [{
    Code of this level runs once per thread, as CUDA code does. Beside these operations a kernel uses `arith`, `scf`,
    and `llvm` for loads from global memory. An address in shared memory is an i32: bytes from the begin of the
    kernel's shared memory, which is aligned to 1024 bytes.

    `hopper-to-nvvm` lowers it to NVVM, `hopper-to-emulator` to calls of the functional emulator.
  }];
  let useDefaultTypePrinterParser = 1;
}

//===-- Types -------------------------------------------------------------------------------------------------------===//

def Hopper_AccumulatorType : TypeDef<Hopper_Dialect, "Accumulator"> {
  let mnemonic = "accumulator";
  let summary = "a warpgroup's 64 x columns fp32 accumulator, in registers";
  let description = [{
    `!hopper.accumulator<64x256xf32>`: each of the 128 threads holds columns / 2 values of it. Register i of lane l in
    warp w holds row 16 w + l / 4 + 8 (i / 2 mod 2) and column 8 (i / 4) + 2 (l mod 4) + i mod 2 (PTX ISA, "Register
    Fragments for wgmma.mma_async"). While `in_flight` the registers belong to the tensor cores: such a value has one
    use, and only wgmma_fence, wgmma, wgmma_rs and wgmma_wait take it.
  }];
  let parameters = (ins "unsigned":$columns, "bool":$inFlight);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Rows of every accumulator; what one wgmma makes.
    static constexpr unsigned kRows = 64;
    /// Threads that hold an accumulator together.
    static constexpr unsigned kThreads = 128;
    /// fp32 registers of one thread.
    unsigned registersPerThread() const { return getColumns() / 2; }
    AccumulatorType asInFlight() const { return get(getContext(), getColumns(), true); }
    AccumulatorType asReady() const { return get(getContext(), getColumns(), false); }
  }];
}

def Hopper_TensorMapType : TypeDef<Hopper_Dialect, "TensorMap"> {
  let mnemonic = "tensor_map";
  let summary = "how TMA moves boxes of the matrices of one tensor in global memory";
  let description = [{
    `!hopper.tensor_map<128x64xbf16, swizzle 128>`: boxes of 128 rows and 64 columns; columns lie side by side in
    memory. `<128x64xbf16, swizzle 128, outer 2>`: of a tensor that has such a matrix for each index of two more
    dimensions. With `swizzle 128` the inner extent of a box is 128 bytes, and the 16-byte chunk c of row r lies in shared
    memory at chunk c xor (r mod 8). Base, shape and strides are known at launch only. Elements: bf16, f16, f32. At
    most three outer dimensions.
  }];
  let parameters = (ins "unsigned":$rows, "unsigned":$columns, "::mlir::Type":$elementType, "unsigned":$swizzle,
      "unsigned":$outer);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let builders = [TypeBuilder<(ins "unsigned":$rows, "unsigned":$columns, "::mlir::Type":$elementType,
      "unsigned":$swizzle), [{ return $_get($_ctxt, rows, columns, elementType, swizzle, 0u); }]>];
  let extraClassDeclaration = [{
    unsigned elementBytes() const { return getElementType().getIntOrFloatBitWidth() / 8; }
    /// Bytes that one box has in shared memory; boxes beyond the matrix count whole.
    unsigned boxBytes() const { return getRows() * getColumns() * elementBytes(); }
  }];
}

def Hopper_Axis : I32EnumAttr<"Axis", "an axis of the grid", [
    I32EnumAttrCase<"X", 0, "x">, I32EnumAttrCase<"Y", 1, "y">, I32EnumAttrCase<"Z", 2, "z">]> {
  let cppNamespace = "::millrace::hopper";
}

def Hopper_RegisterChange : I32EnumAttr<"RegisterChange", "whether a warpgroup gives registers or takes them", [
    I32EnumAttrCase<"Decrease", 0, "decrease">, I32EnumAttrCase<"Increase", 1, "increase">]> {
  let cppNamespace = "::millrace::hopper";
}

def Hopper_Address : Type<I32.predicate, "address in shared memory (i32, bytes)">,
    BuildableType<"$_builder.getI32Type()">;

class Hopper_Op<string mnemonic, list<Trait> traits = []> : Op<Hopper_Dialect, mnemonic, traits>;

//===-- Kernels -----------------------------------------------------------------------------------------------------===//

def Hopper_KernelOp : Hopper_Op<"kernel", [FunctionOpInterface, IsolatedFromAbove]> {
  let summary = "a kernel, and what a launch of it takes of the machine";
  let description = [{
    `threads` per CTA, `registers` per thread at launch (a multiple of 8; ptxas is held to it), `shared_memory` in bytes,
    `cluster`: CTAs along x that run together (1 by default). Errors: more than 1024 threads, 65,536 registers, 227 KiB
    or 8 CTAs; register budgets of warpgroups whose sum exceeds the launch's (such a kernel would hang).

    ```mlir
    hopper.kernel @copy(%from: !hopper.tensor_map<64x64xbf16, swizzle 128>) attributes {
        threads = 128 : i32, registers = 168 : i32, shared_memory = 8200 : i32} {
      hopper.return
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type, I32Attr:$threads,
      I32Attr:$registers, I32Attr:$shared_memory, DefaultValuedAttr<I32Attr, "1">:$cluster,
      OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region AnyRegion:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
    ::llvm::LogicalResult verifyType() { return ::mlir::success(); }
  }];
}

def Hopper_ReturnOp : Hopper_Op<"return", [Pure, HasParent<"KernelOp">, ReturnLike, Terminator]> {
  let summary = "ends the thread";
  let assemblyFormat = "attr-dict";
}

//===-- Places ------------------------------------------------------------------------------------------------------===//

class Hopper_IndexOp<string mnemonic, string text> : Hopper_Op<mnemonic, [Pure]> {
  let summary = text;
  let results = (outs I32:$result);
  let assemblyFormat = "attr-dict";
}

def Hopper_ThreadIdOp : Hopper_IndexOp<"thread_id", "the thread's number in its CTA">;
def Hopper_WarpgroupIdOp : Hopper_IndexOp<"warpgroup_id", "thread_id / 128, in a form that is known to be equal in a warp">;
def Hopper_ClusterRankOp : Hopper_IndexOp<"cluster_rank", "the CTA's number in its cluster">;

def Hopper_CtaIdOp : Hopper_Op<"cta_id", [Pure]> {
  let summary = "the CTA's number along one axis of the grid";
  let arguments = (ins Hopper_Axis:$axis);
  let results = (outs I32:$result);
  let assemblyFormat = "$axis attr-dict";
}

def Hopper_ElectOp : Hopper_Op<"elect"> {
  let summary = "true in one thread of a warp, which is converged (elect.sync)";
  let results = (outs I1:$result);
  let assemblyFormat = "attr-dict";
}

//===-- Barriers in shared memory -----------------------------------------------------------------------------------===//

def Hopper_MbarrierInitOp : Hopper_Op<"mbarrier_init"> {
  let summary = "makes 8 bytes of shared memory a barrier whose phases end after so many arrivals";
  let description = [{
    Phase 0 begins. Others may use the barrier after `fence_mbarrier_init` of this thread and a barrier of the CTA (or
    cluster). Errors: an address that is not a multiple of 8; a count outside 1 to 2^20 - 1.
  }];
  let arguments = (ins Hopper_Address:$address, I32Attr:$count);
  let assemblyFormat = "$address `count` $count attr-dict";
  let hasVerifier = 1;
}

def Hopper_FenceMbarrierInitOp : Hopper_Op<"fence_mbarrier_init"> {
  let summary = "makes this thread's mbarrier_init visible to the cluster and to TMA";
  let assemblyFormat = "attr-dict";
  let hasCanonicalizeMethod = 1;
}

def Hopper_MbarrierArriveExpectOp : Hopper_Op<"mbarrier_arrive_expect"> {
  let summary = "one arrival that also lets the phase wait for so many bytes of TMA";
  let description = [{
    Errors: bytes that are not the sum of the boxes which `tma_load`s of the same block put on the same barrier; 0 or
    more than 2^20 - 1 bytes.
  }];
  let arguments = (ins Hopper_Address:$address, I32Attr:$bytes);
  let assemblyFormat = "$address `bytes` $bytes attr-dict";
  let hasVerifier = 1;
}

def Hopper_MbarrierArriveOp : Hopper_Op<"mbarrier_arrive"> {
  let summary = "one arrival, at the barrier of this CTA or at the same address of another CTA of the cluster";
  let arguments = (ins Hopper_Address:$address, Optional<I32>:$cta);
  let assemblyFormat = "$address (`cta` $cta^)? attr-dict";
  let hasVerifier = 1;
}

def Hopper_MbarrierWaitOp : Hopper_Op<"mbarrier_wait"> {
  let summary = "waits until the phase of this parity is complete";
  let description = [{
    Parity 0 stands for phases 0, 2, ...; a fresh barrier lets pass who waits for parity 1.
  }];
  let arguments = (ins Hopper_Address:$address, I32:$parity);
  let assemblyFormat = "$address `parity` $parity attr-dict";
  let hasVerifier = 1;
}

//===-- TMA ---------------------------------------------------------------------------------------------------------===//

def Hopper_TmaLoadOp : Hopper_Op<"tma_load", [AttrSizedOperandSegments]> {
  let summary = "begins to copy a box from global to shared memory; its bytes complete the barrier's phase";
  let description = [{
    The box begins at `[row, column]`, of the matrix at the indices `of` outer dimensions; what lies outside the matrix arrives as 0 and counts as bytes. With `multicast`
    the box arrives at the same address in every CTA of the cluster whose bit is set in the i16 mask, and at the
    barrier there. One thread issues it. Errors: an address that is not a multiple of 1024 (swizzle 128) or 128 (none);
    a box that ends outside the kernel's shared memory; multicast in a kernel without a cluster.
  }];
  let arguments = (ins Hopper_TensorMapType:$map, I32:$row, I32:$column, Hopper_Address:$address,
      Hopper_Address:$barrier, Optional<I16>:$mask, Variadic<I32>:$outer);
  let assemblyFormat = [{
    $map `[` $row `,` $column `]` (`of` `[` $outer^ `]`)? `to` $address `signal` $barrier (`multicast` $mask^)? attr-dict `:` qualified(type($map))
  }];
  let hasVerifier = 1;
}

def Hopper_TmaStoreOp : Hopper_Op<"tma_store"> {
  let summary = "begins to copy a box from shared to global memory; what lies outside the matrix is left out";
  let description = [{
    Of a row's last 16 bytes all are written, also those behind the last column (seen on an H200).
    Writes of threads to the box need `fence_async` by the writers, then a barrier, before. It belongs to this thread's
    next `tma_store_commit`. Errors: as of `tma_load`.
  }];
  let arguments = (ins Hopper_Address:$address, Hopper_TensorMapType:$map, I32:$row, I32:$column);
  let assemblyFormat = "$address `to` $map `[` $row `,` $column `]` attr-dict `:` qualified(type($map))";
  let hasVerifier = 1;
}

def Hopper_TmaStoreCommitOp : Hopper_Op<"tma_store_commit"> {
  let summary = "makes a group of this thread's stores since the last commit";
  let assemblyFormat = "attr-dict";
}

def Hopper_TmaStoreWaitOp : Hopper_Op<"tma_store_wait"> {
  let summary = "waits until at most so many of this thread's groups of stores are incomplete";
  let description = [{
    With `read`, until their source is read: then shared memory may be written again. A thread that leaves before that
    frees memory which TMA still reads.
  }];
  let arguments = (ins I32Attr:$groups, UnitAttr:$read);
  let assemblyFormat = "$groups (`read` $read^)? attr-dict";
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

//===-- Tensor cores ------------------------------------------------------------------------------------------------===//

def Hopper_MatrixDescriptorOp : Hopper_Op<"matrix_descriptor", [Pure]> {
  let summary = "the 64-bit descriptor of an operand in shared memory with 128-byte swizzle";
  let description = [{
    Rows of 128 bytes; groups of eight rows lie `stride` bytes apart (1024 where they are dense). Adding bytes / 16 to
    the descriptor moves where it begins. A row of memory is one of the operand (K-major), or, where wgmma transposes it,
    has 64 of its rows at one place along K; then the next 64 rows begin `leading` bytes further. PTX ISA, "Matrix
    Descriptor Format" and "Strides".
  }];
  let arguments = (ins Hopper_Address:$address, DefaultValuedAttr<I32Attr, "1024">:$stride,
      DefaultValuedAttr<I32Attr, "16">:$leading);
  let results = (outs I64:$result);
  let assemblyFormat = "$address `stride` $stride (`leading` $leading^)? attr-dict";
  let hasVerifier = 1;
}

def Hopper_AccumulatorZeroOp : Hopper_Op<"accumulator_zero", [Pure]> {
  let summary = "an accumulator of zeros";
  let results = (outs Hopper_AccumulatorType:$result);
  let assemblyFormat = "attr-dict `:` qualified(type($result))";
  let hasVerifier = 1;
}

def Hopper_AccumulatorOfOp : Hopper_Op<"accumulator_of", [Pure]> {
  let summary = "an accumulator that has the vector's elements in this thread's registers, in their order";
  let arguments = (ins VectorOfRankAndType<[1], [F32]>:$values);
  let results = (outs Hopper_AccumulatorType:$result);
  let assemblyFormat = "$values attr-dict `:` type($values) `->` qualified(type($result))";
  let hasVerifier = 1;
}

def Hopper_AccumulatorValuesOp : Hopper_Op<"accumulator_values", [Pure]> {
  let summary = "this thread's registers of an accumulator that is not in flight, as a vector";
  let arguments = (ins Hopper_AccumulatorType:$accumulator);
  let results = (outs VectorOfRankAndType<[1], [F32]>:$result);
  let assemblyFormat = "$accumulator attr-dict `:` qualified(type($accumulator)) `->` type($result)";
  let hasVerifier = 1;
}

def Hopper_AccumulatorReadOp : Hopper_Op<"accumulator_read", [Pure]> {
  let summary = "one of this thread's registers of an accumulator that is not in flight";
  let arguments = (ins Hopper_AccumulatorType:$accumulator, I32Attr:$index);
  let results = (outs F32:$result);
  let assemblyFormat = "$accumulator `[` $index `]` attr-dict `:` qualified(type($accumulator))";
  let hasVerifier = 1;
}

def Hopper_WgmmaFenceOp : Hopper_Op<"wgmma_fence"> {
  let summary = "orders this warpgroup's register accesses before its next wgmma, and hands the accumulators over";
  let description = [{
    wgmma takes accumulators in flight only, so that no wgmma can follow a write to its registers without a fence.
  }];
  let arguments = (ins Variadic<Hopper_AccumulatorType>:$accumulators);
  let results = (outs Variadic<Hopper_AccumulatorType>:$results);
  let assemblyFormat = "$accumulators attr-dict `:` functional-type($accumulators, $results)";
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

def Hopper_WgmmaOp : Hopper_Op<"wgmma", [AllTypesMatch<["accumulator", "result"]>]> {
  let summary = "begins accumulator += A B^T of 64 x columns x 16; A and B lie in shared memory";
  let description = [{
    Four converged warps of one warpgroup issue it. `operands` is the element type of A and B: bf16 or f16. Of a
    transposed operand, places along K lie behind one another in memory, not beside one another (`matrix_descriptor`).

    ```mlir
    %1 = hopper.wgmma %0, %a, %b bf16 : !hopper.accumulator<64x256xf32, in_flight>
    ```
  }];
  let arguments = (ins Hopper_AccumulatorType:$accumulator, I64:$a, I64:$b, TypeAttr:$operands,
      UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let results = (outs Hopper_AccumulatorType:$result);
  let assemblyFormat = [{
    $accumulator `,` $a (`transposed` $transpose_a^)? `,` $b (`transposed` $transpose_b^)? $operands attr-dict `:`
    qualified(type($accumulator))
  }];
  let hasVerifier = 1;
}

def Hopper_WgmmaRsOp : Hopper_Op<"wgmma_rs", [AllTypesMatch<["accumulator", "result"]>]> {
  let summary = "as wgmma, with A in four registers of each thread";
  let description = [{
    Register j of lane l in warp w holds row 16 w + l / 4 + 8 (j mod 2), columns 2 (l mod 4) + 8 (j / 2) and the next,
    the lower column in the low half. They may not be written before the wait of this group.
  }];
  let arguments = (ins Hopper_AccumulatorType:$accumulator, I32:$a0, I32:$a1, I32:$a2, I32:$a3, I64:$b,
      TypeAttr:$operands, UnitAttr:$transpose_b);
  let results = (outs Hopper_AccumulatorType:$result);
  let assemblyFormat = [{
    $accumulator `,` `[` $a0 `,` $a1 `,` $a2 `,` $a3 `]` `,` $b (`transposed` $transpose_b^)? $operands attr-dict `:` qualified(type($accumulator))
  }];
  let hasVerifier = 1;
}

def Hopper_WgmmaCommitOp : Hopper_Op<"wgmma_commit"> {
  let summary = "makes a group of this warpgroup's wgmmas since the last commit";
  let assemblyFormat = "attr-dict";
  let hasVerifier = 1;
}

def Hopper_WgmmaWaitOp : Hopper_Op<"wgmma_wait"> {
  let summary = "waits until at most so many of this warpgroup's groups are incomplete";
  let description = [{
    Takes the accumulators in flight; gives back those that are complete by then, and in flight those that are not.
    Errors: a result that is complete although its group may be among those left (found by the emulator).
  }];
  let arguments = (ins I32Attr:$groups, Variadic<Hopper_AccumulatorType>:$accumulators);
  let results = (outs Variadic<Hopper_AccumulatorType>:$results);
  let assemblyFormat = "$groups `,` $accumulators attr-dict `:` functional-type($accumulators, $results)";
  let hasVerifier = 1;
}

def Hopper_MmaOp : Hopper_Op<"mma"> {
  let summary = "a converged warp adds 16 x 8 x 16 products to fp32 sums in its registers (mma.sync m16n8k16)";
  let description = [{
    `operands` is the element type of A and B: bf16 or f16. Of lane l, g = l / 4 and c = 2 (l mod 4): register j of A holds
    row g + 8 (j mod 2), columns c + 8 (j / 2) and the next; register j of B rows (k) c + 8 j and the next of column g;
    sum i row g + 8 (i / 2), column c + i mod 2. The lower k is in the low half. Any chip from sm_80 on.

    ```mlir
    %d:4 = hopper.mma [%a0, %a1, %a2, %a3], [%b0, %b1], [%c0, %c1, %c2, %c3] f16
    ```
  }];
  let arguments = (ins I32:$a0, I32:$a1, I32:$a2, I32:$a3, I32:$b0, I32:$b1, F32:$c0, F32:$c1, F32:$c2, F32:$c3,
      TypeAttr:$operands);
  let results = (outs F32:$d0, F32:$d1, F32:$d2, F32:$d3);
  let assemblyFormat = [{
    `[` $a0 `,` $a1 `,` $a2 `,` $a3 `]` `,` `[` $b0 `,` $b1 `]` `,` `[` $c0 `,` $c1 `,` $c2 `,` $c3 `]` $operands attr-dict
  }];
  let hasVerifier = 1;
}

//===-- Registers to shared memory ----------------------------------------------------------------------------------===//

def Hopper_PackOp : Hopper_Op<"pack", [Pure]> {
  let summary = "rounds two fp32 values to nearest even and packs them, the first in the low half";
  let arguments = (ins F32:$low, F32:$high, TypeAttr:$type);
  let results = (outs I32:$result);
  let assemblyFormat = "$low `,` $high $type attr-dict";
  let hasVerifier = 1;
}

def Hopper_Exp2Op : Hopper_Op<"exp2", [Pure]> {
  let summary = "2 to the power of a number, to a relative error of 2^-22 (ex2.approx.ftz)";
  let description = [{ Numbers below the least normal one are 0, of the exponent and of the result. }];
  let arguments = (ins F32:$exponent);
  let results = (outs F32:$result);
  let assemblyFormat = "$exponent attr-dict";
}

def Hopper_StmatrixOp : Hopper_Op<"stmatrix"> {
  let summary = "a converged warp stores four 8 x 8 matrices of 16-bit elements";
  let description = [{
    Lane 8 m + r gives the address of row r of matrix m (a multiple of 16); register m of lane l holds elements
    2 (l mod 4) and the next of row l / 4.
  }];
  let arguments = (ins Hopper_Address:$address, I32:$r0, I32:$r1, I32:$r2, I32:$r3);
  let assemblyFormat = "$address `,` `[` $r0 `,` $r1 `,` $r2 `,` $r3 `]` attr-dict";
  let hasVerifier = 1;
}

//===-- Exchange between threads ------------------------------------------------------------------------------------===//

def Hopper_ShuffleXorOp : Hopper_Op<"shuffle_xor"> {
  let summary = "what lane (own xor mask) of the converged warp gives (shfl.sync.bfly)";
  let description = [{ The mask is 1 to 31. }];
  let arguments = (ins I32:$value, I32Attr:$mask);
  let results = (outs I32:$result);
  let assemblyFormat = "$value `mask` $mask attr-dict";
  let hasVerifier = 1;
}

def Hopper_SharedStoreOp : Hopper_Op<"shared_store"> {
  let summary = "writes four bytes of shared memory; a barrier shows them to other threads";
  let arguments = (ins I32:$value, Hopper_Address:$address);
  let assemblyFormat = "$value `to` $address attr-dict";
  let hasVerifier = 1;
}

def Hopper_SharedLoadOp : Hopper_Op<"shared_load"> {
  let summary = "reads four bytes of shared memory";
  let arguments = (ins Hopper_Address:$address);
  let results = (outs I32:$result);
  let assemblyFormat = "$address attr-dict";
  let hasVerifier = 1;
}

//===-- Synchronisation of threads ----------------------------------------------------------------------------------===//

def Hopper_FenceAsyncOp : Hopper_Op<"fence_async"> {
  let summary = "makes this thread's writes to shared memory visible to TMA and wgmma (fence.proxy.async)";
  let assemblyFormat = "attr-dict";
  let hasCanonicalizeMethod = 1;
}

def Hopper_CtaBarrierOp : Hopper_Op<"cta_barrier"> {
  let summary = "waits for all threads of the CTA (barrier 0)";
  let assemblyFormat = "attr-dict";
}

def Hopper_NamedBarrierOp : Hopper_Op<"named_barrier"> {
  let summary = "waits for so many threads at one of the barriers 1 to 15";
  let description = [{
    The number is constant: with one that is not, ptxas reserves all 16. `after`: what is computed before the thread waits;
    arithmetic without it may be moved behind a barrier. Errors: another number; threads that are no multiple of 32 or more
    than the CTA has.
  }];
  let arguments = (ins I32Attr:$number, I32Attr:$threads, Variadic<I32>:$after);
  let assemblyFormat = "$number `threads` $threads (`after` $after^)? attr-dict";
  let hasVerifier = 1;
}

def Hopper_NamedBarrierArriveOp : Hopper_Op<"named_barrier_arrive"> {
  let summary = "arrives at one of the barriers 1 to 15 for those who wait there, and goes on";
  let description = [{
    Counts among the threads of the `named_barrier`s of this number. Errors: as of `named_barrier`.
  }];
  let arguments = (ins I32Attr:$number, I32Attr:$threads);
  let assemblyFormat = "$number `threads` $threads attr-dict";
  let hasVerifier = 1;
}

def Hopper_ClusterArriveOp : Hopper_Op<"cluster_arrive"> {
  let summary = "arrives at the barrier of all threads of the cluster";
  let assemblyFormat = "attr-dict";
  let hasVerifier = 1;
}

def Hopper_ClusterWaitOp : Hopper_Op<"cluster_wait"> {
  let summary = "waits until all threads of the cluster arrived";
  let assemblyFormat = "attr-dict";
  let hasVerifier = 1;
}

def Hopper_SetMaxRegistersOp : Hopper_Op<"set_max_registers"> {
  let summary = "changes the registers per thread of the warpgroups that execute it (setmaxnreg)";
  let description = [{
    `warpgroups` says how many do. An increase waits until others gave enough. It is the first operation of its block:
    one branch per role. Errors: registers that are no multiple of 8 between 24 and 256.

    ```mlir
    hopper.set_max_registers increase 240 warpgroups 2
    ```
  }];
  let arguments = (ins Hopper_RegisterChange:$change, I32Attr:$registers, I32Attr:$warpgroups);
  let assemblyFormat = "$change $registers `warpgroups` $warpgroups attr-dict";
  let hasVerifier = 1;
}

#endif // MILLRACE_DIALECT_HOPPER_OPS
