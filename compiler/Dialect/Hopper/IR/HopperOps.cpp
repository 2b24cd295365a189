// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the verifier refuses: addresses, boxes and counts that the machine does not take, and uses
// of registers that belong to the tensor cores. docs/dialects/hopper.md lists the rules.
#include "compiler/Dialect/Hopper/IR/Hopper.h"

#include "mlir/IR/Matchers.h"

#define GET_OP_CLASSES
#include "compiler/Dialect/Hopper/IR/HopperOps.cpp.inc"

namespace millrace::hopper {

using namespace mlir;

namespace {

KernelOp kernelOf(Operation *op) { return op->getParentOfType<KernelOp>(); }

/// Checks what is known of `bytes` bytes at an address: of one that is computed at run time,
/// nothing.
LogicalResult verifyAddress(Operation *op, Value address, int64_t bytes, int64_t alignment,
                            StringRef what) {
  APInt known;
  if (!matchPattern(address, m_ConstantInt(&known)))
    return success();
  const int64_t at = known.getSExtValue();
  if (at % alignment)
    return op->emitOpError() << "has " << what << " at " << at << ", which is no multiple of "
                             << alignment;
  KernelOp kernel = kernelOf(op);
  if (kernel && (at < 0 || at + bytes > int64_t(kernel.getSharedMemory())))
    return op->emitOpError() << "has " << what << " of " << bytes << " bytes at " << at
                             << ", and the kernel has " << kernel.getSharedMemory()
                             << " bytes of shared memory";
  return success();
}

LogicalResult verifyBarrier(Operation *op, Value address) {
  return verifyAddress(op, address, 8, 8, "a barrier");
}

LogicalResult verifyBox(Operation *op, Value address, TensorMapType map) {
  return verifyAddress(op, address, map.boxBytes(), map.getSwizzle() ? 1024 : 128, "a box");
}

/// What takes registers of the tensor cores takes them alone: a second use would copy them.
LogicalResult verifyOnlyUse(Operation *op, Value accumulator) {
  if (!cast<AccumulatorType>(accumulator.getType()).getInFlight() || accumulator.hasOneUse())
    return success();
  const auto uses = std::distance(accumulator.use_begin(), accumulator.use_end());
  return op->emitOpError() << "takes an accumulator that has " << uses
                           << " uses while it is in flight; use the result of the last operation "
                              "that took it";
}

LogicalResult verifyPairs(Operation *op, ValueRange accumulators, ValueRange results) {
  if (accumulators.empty() || accumulators.size() != results.size())
    return op->emitOpError() << "takes " << accumulators.size() << " accumulators and returns "
                             << results.size() << "; name each once on both sides";
  for (auto [from, to] : llvm::zip(accumulators, results)) {
    if (cast<AccumulatorType>(from.getType()).getColumns() !=
        cast<AccumulatorType>(to.getType()).getColumns())
      return op->emitOpError() << "makes " << to.getType() << " of " << from.getType();
    if (failed(verifyOnlyUse(op, from)))
      return failure();
  }
  return success();
}

LogicalResult verifyWarpgroups(Operation *op) {
  KernelOp kernel = kernelOf(op);
  if (kernel && kernel.getThreads() % Limits::kWarpgroup)
    return op->emitOpError() << "needs whole warpgroups of 128 threads, and the kernel has "
                             << kernel.getThreads() << " threads";
  return success();
}

LogicalResult verifyMultiplication(Operation *op, Value accumulator, Type operands) {
  if (!cast<AccumulatorType>(accumulator.getType()).getInFlight())
    return op->emitOpError("takes an accumulator that is not in flight; put hopper.wgmma_fence "
                           "between the last write to it and this");
  if (!operands.isBF16() && !operands.isF16())
    return op->emitOpError() << "multiplies " << operands << "; bf16 and f16 are supported";
  if (failed(verifyWarpgroups(op)))
    return failure();
  return verifyOnlyUse(op, accumulator);
}

LogicalResult verifyCluster(Operation *op) {
  KernelOp kernel = kernelOf(op);
  if (kernel && kernel.getCluster() == 1)
    return op->emitOpError("is for clusters, and the kernel's have one CTA; set its attribute "
                           "'cluster'");
  return success();
}

} // namespace

//===-- Barriers in shared memory
//-----------------------------------------------------------------===//

LogicalResult MbarrierInitOp::verify() {
  if (getCount() < 1 || getCount() > Limits::kBarrierCount)
    return emitOpError() << "has count " << static_cast<int32_t>(getCount())
                         << "; a phase ends after 1 to 1048575 arrivals";
  return verifyBarrier(*this, getAddress());
}

LogicalResult MbarrierArriveExpectOp::verify() {
  if (getBytes() < 1 || getBytes() > Limits::kBarrierCount)
    return emitOpError() << "expects " << static_cast<int32_t>(getBytes())
                         << " bytes; a phase counts 1 to 1048575";
  int64_t loads = 0, bytes = 0;
  for (Operation *user : getAddress().getUsers())
    if (auto load = dyn_cast<TmaLoadOp>(user);
        load && load->getBlock() == (*this)->getBlock() && load.getBarrier() == getAddress()) {
      ++loads;
      // Of a multicast every CTA of the cluster gets its share from each.
      bytes += int64_t(load.getMap().getType().boxBytes()) *
               (load.getMask() && kernelOf(load) ? kernelOf(load).getCluster() : 1);
    }
  if (loads && bytes != getBytes())
    return emitOpError() << "expects " << getBytes() << " bytes, and the " << loads
                         << " loads on this barrier bring " << bytes;
  return verifyBarrier(*this, getAddress());
}

LogicalResult MbarrierArriveOp::verify() {
  if (getCta() && failed(verifyCluster(*this)))
    return failure();
  return verifyBarrier(*this, getAddress());
}

LogicalResult MbarrierWaitOp::verify() { return verifyBarrier(*this, getAddress()); }

//===-- TMA
//-----------------------------------------------------------------------------------------===//

LogicalResult TmaLoadOp::verify() {
  if (getMask() && failed(verifyCluster(*this)))
    return failure();
  if (failed(verifyBarrier(*this, getBarrier())))
    return failure();
  if (getOuter().size() != getMap().getType().getOuter())
    return emitOpError() << "has " << getOuter().size() << " indices of outer dimensions, and "
                         << getMap().getType() << " takes " << getMap().getType().getOuter();
  return verifyBox(*this, getAddress(), getMap().getType());
}

LogicalResult TmaStoreOp::verify() {
  if (getMap().getType().getOuter())
    return emitOpError("stores to matrices of a tensor with outer dimensions; give a map of one");
  return verifyBox(*this, getAddress(), getMap().getType());
}

LogicalResult TmaStoreWaitOp::verify() {
  if (getGroups() > 63)
    return emitOpError() << "leaves " << static_cast<int32_t>(getGroups())
                         << " groups; 0 to 63 are supported";
  return success();
}

//===-- Tensor cores
//--------------------------------------------------------------------------------===//

LogicalResult MatrixDescriptorOp::verify() {
  // The field has 14 bits, of 16 bytes each.
  if (getStride() < 16 || getStride() % 16 || getStride() >= (1u << 18))
    return emitOpError() << "has stride " << static_cast<int32_t>(getStride())
                         << "; a descriptor holds multiples of 16 up to 262128";
  if (getLeading() < 16 || getLeading() % 16 || getLeading() >= (1u << 18))
    return emitOpError() << "has leading " << static_cast<int32_t>(getLeading())
                         << "; a descriptor holds multiples of 16 up to 262128";
  return verifyAddress(*this, getAddress(), 16, 16, "an operand");
}

LogicalResult ShuffleXorOp::verify() {
  if (getMask() < 1 || getMask() >= Limits::kWarp)
    return emitOpError() << "has mask " << static_cast<int32_t>(getMask())
                         << "; a warp has lanes 0 to 31";
  return success();
}

LogicalResult SharedStoreOp::verify() { return verifyAddress(*this, getAddress(), 4, 4, "a word"); }
LogicalResult SharedLoadOp::verify() { return verifyAddress(*this, getAddress(), 4, 4, "a word"); }

LogicalResult AccumulatorZeroOp::verify() {
  if (getType().getInFlight())
    return emitOpError("makes an accumulator that is not in flight");
  return success();
}

/// A vector of a thread's registers of the accumulator, which the tensor cores do not own.
static LogicalResult verifyValues(Operation *op, AccumulatorType type, VectorType values) {
  if (type.getInFlight())
    return op->emitOpError("has an accumulator in flight; put hopper.wgmma_wait before it");
  if (values.getNumElements() != type.registersPerThread())
    return op->emitOpError() << "has " << values << " for the " << type.registersPerThread()
                             << " registers of a thread";
  return success();
}
LogicalResult AccumulatorOfOp::verify() {
  return verifyValues(*this, getType(), getValues().getType());
}
LogicalResult AccumulatorValuesOp::verify() {
  return verifyValues(*this, getAccumulator().getType(), getType());
}

LogicalResult AccumulatorReadOp::verify() {
  AccumulatorType type = getAccumulator().getType();
  if (type.getInFlight())
    return emitOpError("reads an accumulator in flight; put hopper.wgmma_wait before it");
  if (getIndex() >= type.registersPerThread())
    return emitOpError() << "reads register " << static_cast<int32_t>(getIndex()) << " of "
                         << type.registersPerThread();
  return success();
}

LogicalResult WgmmaFenceOp::verify() {
  if (failed(verifyWarpgroups(*this)) ||
      failed(verifyPairs(*this, getAccumulators(), getResults())))
    return failure();
  for (Value result : getResults())
    if (!cast<AccumulatorType>(result.getType()).getInFlight())
      return emitOpError() << "returns " << result.getType() << "; it hands accumulators over, so "
                           << "they are in flight";
  return success();
}

LogicalResult WgmmaOp::verify() {
  return verifyMultiplication(*this, getAccumulator(), getOperands());
}

LogicalResult WgmmaRsOp::verify() {
  return verifyMultiplication(*this, getAccumulator(), getOperands());
}

LogicalResult MmaOp::verify() {
  if (!getOperands().isBF16() && !getOperands().isF16())
    return emitOpError() << "multiplies " << getOperands() << "; bf16 and f16 are supported";
  if (KernelOp kernel = kernelOf(*this); kernel && kernel.getThreads() % Limits::kWarp)
    return emitOpError() << "needs whole warps, and the kernel has " << kernel.getThreads()
                         << " threads";
  return success();
}

LogicalResult WgmmaCommitOp::verify() { return verifyWarpgroups(*this); }

LogicalResult WgmmaWaitOp::verify() {
  if (failed(verifyWarpgroups(*this)))
    return failure();
  if (getGroups() > 7)
    return emitOpError() << "leaves " << static_cast<int32_t>(getGroups())
                         << " groups; 0 to 7 are supported";
  if (failed(verifyPairs(*this, getAccumulators(), getResults())))
    return failure();
  for (auto [from, to] : llvm::zip(getAccumulators(), getResults())) {
    if (!cast<AccumulatorType>(from.getType()).getInFlight())
      return emitOpError("takes an accumulator that is not in flight; nothing is to be waited for");
    if (!getGroups() && cast<AccumulatorType>(to.getType()).getInFlight())
      return emitOpError("leaves no group, and returns an accumulator in flight");
  }
  return success();
}

//===-- Registers to shared memory
//------------------------------------------------------------------===//

LogicalResult PackOp::verify() {
  if (!getType().isBF16() && !getType().isF16())
    return emitOpError() << "rounds to " << getType() << "; bf16 and f16 are supported";
  return success();
}

LogicalResult StmatrixOp::verify() { return verifyAddress(*this, getAddress(), 16, 16, "a row"); }

//===-- Synchronisation of threads
//------------------------------------------------------------------===//

template <class Barrier> static LogicalResult verifyNamed(Barrier op) {
  const uint32_t number = op.getNumber(), threads = op.getThreads();
  if (number < 1 || number >= Limits::kNamedBarriers)
    return op.emitOpError() << "has number " << static_cast<int32_t>(number)
                            << "; named barriers are 1 to 15, and 0 is hopper.cta_barrier";
  KernelOp kernel = kernelOf(op);
  if (threads < 1 || threads % Limits::kWarp || (kernel && threads > kernel.getThreads()))
    return op.emitOpError() << "waits for " << static_cast<int32_t>(threads)
                            << " threads; a barrier takes multiples of 32 up to the CTA's "
                            << (kernel ? kernel.getThreads() : Limits::kThreads);
  return success();
}
LogicalResult NamedBarrierOp::verify() { return verifyNamed(*this); }
LogicalResult NamedBarrierArriveOp::verify() { return verifyNamed(*this); }

LogicalResult ClusterArriveOp::verify() { return verifyCluster(*this); }
LogicalResult ClusterWaitOp::verify() { return verifyCluster(*this); }

LogicalResult SetMaxRegistersOp::verify() {
  if (getRegisters() < 24 || getRegisters() > 256 || getRegisters() % 8)
    return emitOpError() << "asks for " << static_cast<int32_t>(getRegisters())
                         << " registers; setmaxnreg takes multiples of 8 from 24 to 256";
  if (getWarpgroups() < 1 || getWarpgroups() > Limits::kThreads / Limits::kWarpgroup)
    return emitOpError() << "is for " << static_cast<int32_t>(getWarpgroups())
                         << " warpgroups; 1 to 8 fit a CTA";
  if ((*this)->getPrevNode())
    return emitOpError(
        "is not the first of its block; give each role a branch that begins with it");
  KernelOp kernel = kernelOf(*this);
  if (!kernel)
    return success();
  const bool increases = getChange() == RegisterChange::Increase;
  if (increases ? getRegisters() < kernel.getRegisters() : getRegisters() > kernel.getRegisters())
    return emitOpError() << "makes " << getRegisters() << " registers of the launch's "
                         << kernel.getRegisters() << ", which is no "
                         << stringifyRegisterChange(getChange());
  return success();
}

} // namespace millrace::hopper
