// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults of kernels of the hopper level: in their barriers, bytes, fences, waits, addresses or
// budgets. Tests count those that are noticed.
#pragma once

#include "compiler/Codegen/Gpu/Emulator/Emulator.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"

#include <functional>
#include <iostream>

namespace millrace::gpu::mutants {

using namespace mlir;
using namespace millrace::hopper;

/// One fault: what it does to the operation number `op` of a walk.
struct Mutation {
  std::string name;
  unsigned op;
  std::function<void(Operation *)> apply;
};

inline void erase(Operation *op) {
  op->replaceAllUsesWith(op->getOperands().take_front(op->getNumResults()));
  op->erase();
}

/// Adds a number to an operand of type i32 or i64.
inline std::function<void(Operation *)> shift(unsigned operand, int64_t by) {
  return [=](Operation *op) {
    OpBuilder builder(op);
    Value old = op->getOperand(operand);
    auto attribute = builder.getIntegerAttr(old.getType(), by);
    Value number = arith::ConstantOp::create(builder, op->getLoc(), attribute);
    op->setOperand(operand, arith::AddIOp::create(builder, op->getLoc(), old, number));
  };
}

inline std::function<void(Operation *)> change(const char *attribute, int32_t by) {
  return [=](Operation *op) {
    auto old = op->getAttrOfType<IntegerAttr>(attribute);
    op->setAttr(attribute, Builder(op).getI32IntegerAttr(int32_t(old.getInt()) + by));
  };
}

inline std::function<void(Operation *)> swap(unsigned first, unsigned second) {
  return [=](Operation *op) {
    Value held = op->getOperand(first);
    op->setOperand(first, op->getOperand(second));
    op->setOperand(second, held);
  };
}

inline std::function<void(Operation *)> replaceBy(unsigned operand) {
  return [=](Operation *op) {
    op->getResult(0).replaceAllUsesWith(op->getOperand(operand));
    op->erase();
  };
}

inline void duplicate(Operation *op) { OpBuilder(op).clone(*op); }

inline void flipParity(Operation *op) {
  OpBuilder builder(op);
  Value one = arith::ConstantOp::create(builder, op->getLoc(), builder.getI32IntegerAttr(1));
  op->setOperand(1, arith::XOrIOp::create(builder, op->getLoc(), op->getOperand(1), one));
}

/// What follows a wait, up to the end of the block, comes before it.
inline void delayToEnd(Operation *op) { op->moveBefore(op->getBlock()->getTerminator()); }

using Variant = std::pair<const char *, std::function<void(Operation *)>>;

/// Whether a larger budget of one warpgroup still fits, and so is no fault.
inline bool hasRegistersLeft(KernelOp kernel) {
  unsigned wanted = 8;
  kernel.walk([&](SetMaxRegistersOp op) { wanted += op.getRegisters() * op.getWarpgroups(); });
  return wanted * 128 <= kernel.getRegisters() * kernel.getThreads();
}

/// The faults that an operation can have. Left out: those that are no faults, such as a wait for
/// more groups than needed, a smaller budget of registers, or a full wait where reads would do.
inline std::vector<Variant> variantsOf(Operation *op) {
  if (isa<KernelOp>(op))
    return {{"less shared memory", change("shared_memory", -8)}};
  if (isa<MbarrierInitOp>(op))
    return {{"count + 1", change("count", 1)}, {"count - 1", change("count", -1)}};
  if (isa<MbarrierArriveExpectOp>(op))
    return {{"bytes + 16", change("bytes", 16)},
            {"bytes - 16", change("bytes", -16)},
            {"erased", erase}};
  if (isa<MbarrierArriveOp>(op))
    return {{"erased", erase}, {"twice", duplicate}, {"next barrier", shift(0, 8)}};
  if (isa<MbarrierWaitOp>(op))
    return {{"erased", erase}, {"other parity", flipParity}, {"next barrier", shift(0, 8)}};
  if (isa<TmaLoadOp>(op))
    return {{"erased", erase},
            {"row + 1", shift(1, 1)},
            {"column + 8", shift(2, 8)},
            {"address + 1024", shift(3, 1024)},
            {"next barrier", shift(4, 8)}};
  if (isa<TmaStoreOp>(op))
    return {{"erased", erase}, {"row + 1", shift(2, 1)}, {"column + 8", shift(3, 8)}};
  if (isa<FenceMbarrierInitOp, FenceAsyncOp, CtaBarrierOp, TmaStoreCommitOp, WgmmaCommitOp,
          ClusterArriveOp, ClusterWaitOp>(op))
    return {{"erased", erase}};
  if (isa<TmaStoreWaitOp>(op))
    return {{"erased", erase}, {"one group more", change("groups", 1)}};
  if (isa<NamedBarrierArriveOp>(op))
    return {{"erased", erase}, {"next barrier", change("number", 1)}};
  if (isa<NamedBarrierOp>(op))
    return {{"erased", erase}, {"half the threads", change("threads", -128)}};
  if (isa<WgmmaOp>(op))
    return {{"erased", erase},
            {"swapped", swap(1, 2)},
            {"A 32 bytes on", shift(1, 2)},
            {"B 32 bytes on", shift(2, 2)}};
  if (isa<WgmmaRsOp>(op))
    return {{"erased", erase}, {"swapped", swap(1, 2)}, {"B 32 bytes on", shift(5, 2)}};
  if (isa<WgmmaWaitOp>(op))
    return {{"one group more", change("groups", 1)}, {"after the release", delayToEnd}};
  if (isa<MatrixDescriptorOp>(op))
    return {{"stride - 512", change("stride", -512)}, {"address + 1024", shift(0, 1024)}};
  if (auto read = dyn_cast<AccumulatorReadOp>(op))
    return {{"neighbour", change("index", read.getIndex() % 2 ? -1 : 1)}};
  if (isa<PackOp>(op))
    return {{"swapped", swap(0, 1)}};
  if (isa<StmatrixOp>(op))
    return {{"address + 128", shift(0, 128)}, {"swapped", swap(2, 3)}};
  if (isa<SetMaxRegistersOp>(op)) {
    std::vector<Variant> all = {{"a warpgroup more", change("warpgroups", 1)}};
    if (!hasRegistersLeft(op->getParentOfType<KernelOp>()))
      all.emplace_back("8 registers more", change("registers", 8));
    return all;
  }
  // Of numbers and addresses: others are what the kernel computes.
  if (op->getNumResults() != 1 || !op->getResult(0).getType().isInteger(32))
    return {};
  if (isa<arith::XOrIOp>(op))
    return {{"left out", replaceBy(0)}}; // swizzles and turned parities
  if (isa<arith::SelectOp>(op))
    return {{"never", replaceBy(2)}, {"always", replaceBy(1)}};
  return {};
}

inline std::vector<Mutation> mutationsOf(ModuleOp module) {
  std::vector<Mutation> all;
  unsigned number = 0;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (const auto &[text, apply] : variantsOf(op)) {
      // A wait that only its results follow cannot come later; every other release is a fault.
      if (isa<WgmmaWaitOp>(op) && apply.target<void (*)(Operation *)>() &&
          !isa<scf::ForOp>(op->getParentOp()))
        continue;
      all.push_back({op->getName().getStringRef().str() + " " + text, number, apply});
    }
    ++number;
  });
  return all;
}

inline OwningOpRef<ModuleOp> mutate(ModuleOp module, const Mutation &mutation) {
  OwningOpRef<ModuleOp> clone = module.clone();
  Operation *found = nullptr;
  unsigned number = 0;
  clone->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (number++ == mutation.op)
      found = op;
  });
  mutation.apply(found);
  return clone;
}

struct Kills {
  unsigned byVerifier = 0, byReport = 0, byValue = 0;
  std::vector<std::string> survivors;
  size_t all() const { return byVerifier + byReport + byValue + survivors.size(); }
};

/// Runs all mutants of a kernel, which is right itself. `findFault`: what some choice of the
/// adversary finds wrong with a module, or nothing; values that are wrong begin with "C[".
inline Kills hunt(ModuleOp module, const std::function<std::string(ModuleOp)> &findFault) {
  Kills kills;
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
  for (const Mutation &mutation : mutationsOf(module)) {
    OwningOpRef<ModuleOp> mutant = mutate(module, mutation);
    if (failed(verify(*mutant))) {
      ++kills.byVerifier;
      continue;
    }
    const std::string wrong = findFault(*mutant);
    if (wrong.empty())
      kills.survivors.push_back(mutation.name + " (operation " + std::to_string(mutation.op) + ")");
    else
      ++(wrong.starts_with("C[") ? kills.byValue : kills.byReport);
  }
  std::cout << kills.all() << " mutants: " << kills.byVerifier << " refused by the verifier, "
            << kills.byReport << " reported by the emulator, " << kills.byValue
            << " with other values, " << kills.survivors.size() << " survive; kill rate "
            << 100 * (kills.all() - kills.survivors.size()) / kills.all() << " %\n";
  for (const std::string &survivor : kills.survivors)
    std::cout << "  survives: " << survivor << "\n";
  return kills;
}

} // namespace millrace::gpu::mutants
