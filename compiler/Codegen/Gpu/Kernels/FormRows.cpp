// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// rows-to-tile: which operations of a block work row by row together.
#include "compiler/Codegen/Gpu/Kernels/BuildRows.h"
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/RowGroup.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Pass/Pass.h"

#include "llvm/ADT/StringMap.h"

#include <map>

namespace millrace::gpu {

using namespace mlir;

namespace {

/// How many operations before and behind a reduction are looked at.
constexpr int kReach = 256;

/// Memories that an operation reads and writes. `isKnown`: these are all.
struct Effects {
  llvm::SmallPtrSet<Value, 4> reads, writes;
  bool isKnown = true;
};

Effects effectsOf(Operation *op) {
  Effects effects;
  const auto add = [](llvm::SmallPtrSet<Value, 4> &to, Value memory) {
    Value root = rootOf(memory);
    to.insert(root ? root : memory);
    return bool(root);
  };
  if (auto linalg = dyn_cast<linalg::LinalgOp>(op)) {
    for (OpOperand *input : linalg.getDpsInputOperands())
      if (isa<MemRefType>(input->get().getType()))
        effects.isKnown &= add(effects.reads, input->get());
    for (OpOperand &output : linalg.getDpsInitsMutable()) {
      if (linalg.payloadUsesValueFromOperand(&output))
        effects.isKnown &= add(effects.reads, output.get());
      effects.isKnown &= add(effects.writes, output.get());
    }
    for (Operation &inner : *linalg.getBlock())
      if (auto load = dyn_cast<memref::LoadOp>(inner))
        effects.isKnown &= add(effects.reads, load.getMemref());
    return effects;
  }
  if (isa<tile::LaunchOp>(op)) {
    for (Value operand : op->getOperands()) {
      effects.isKnown &= add(effects.reads, operand);
      add(effects.writes, operand);
    }
    return effects;
  }
  effects.isKnown = isMemoryEffectFree(op) || isa<memref::AllocOp, memref::DeallocOp>(op);
  return effects;
}

bool meets(const Effects &a, const Effects &b) {
  const auto share = [](const auto &x, const auto &y) {
    return llvm::any_of(x, [&](Value value) { return y.contains(value); });
  };
  return share(a.writes, b.reads) || share(a.writes, b.writes) || share(a.reads, b.writes);
}

class FormRows : public PassWrapper<FormRows, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FormRows)
  StringRef getArgument() const final { return "rows-to-tile"; }
  StringRef getDescription() const final {
    return "makes linalg operations on buffers that work row by row the launch of one kernel";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<arith::ArithDialect, math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                    tile::TileDialect>();
  }
  void runOnOperation() final {
    SmallVector<linalg::LinalgOp> seeds;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (RowGroup::isSeed(op))
        seeds.push_back(op);
    });
    for (linalg::LinalgOp seed : seeds)
      if (!taken.contains(seed))
        form(seed);
  }

private:
  using Members = SmallVector<linalg::LinalgOp>;

  /// What stands between members and is none of them happens before all of them.
  bool canWait(const Members &members) {
    SmallVector<const Effects *> before;
    size_t next = 0;
    for (Operation *op = members.front(); next < members.size(); op = op->getNextNode()) {
      const Effects &own = effectsOfOne(op);
      if (op == members[next]) {
        before.push_back(&own);
        ++next;
        continue;
      }
      if (!own.isKnown ||
          llvm::any_of(before, [&](const Effects *other) { return meets(own, *other); }))
        return false;
    }
    return true;
  }
  const Effects &effectsOfOne(Operation *op) {
    auto found = known.find(op);
    return found != known.end() ? found->second : known.emplace(op, effectsOf(op)).first->second;
  }

  /// Whether one makes what the other reads or writes.
  bool areConnected(const Members &members, Operation *op) {
    const Effects &own = effectsOfOne(op);
    return llvm::any_of(members,
                        [&](linalg::LinalgOp member) { return meets(effectsOfOne(member), own); });
  }

  bool tryToAdd(Members &members, Operation *op) {
    auto candidate = dyn_cast<linalg::LinalgOp>(op);
    if (!candidate || taken.contains(op) || llvm::is_contained(members, candidate) ||
        !areConnected(members, op))
      return false;
    Members more = members;
    more.push_back(candidate);
    llvm::sort(more, [](linalg::LinalgOp a, linalg::LinalgOp b) { return a->isBeforeInBlock(b); });
    if (!canWait(more) || !RowGroup::create(more))
      return false;
    members = std::move(more);
    return true;
  }

  void form(linalg::LinalgOp seed) {
    // Alone it may be none: what it begins with is often written by another.
    Members members{seed};
    for (bool grew = true; grew;) {
      grew = false;
      Operation *before = seed, *behind = seed;
      for (int distance = 0; distance < kReach && (before || behind); ++distance) {
        before = before ? before->getPrevNode() : nullptr;
        behind = behind ? behind->getNextNode() : nullptr;
        for (Operation *op : {before, behind})
          if (op)
            grew |= tryToAdd(members, op);
      }
    }
    if (RowGroup::create(members))
      replace(members);
  }

  /// Memories of the group that someone reads after it.
  SmallVector<Value> storedOf(const RowGroup &group, const Members &members) {
    const llvm::DenseSet<Operation *> inside(members.begin(), members.end());
    SmallVector<Value> stored;
    for (const auto &entry : group.written) {
      SmallVector<Value> views{entry.first};
      // What another block allocates may be read when this one runs again.
      auto alloc = entry.first.getDefiningOp<memref::AllocOp>();
      bool isRead = !alloc || alloc->getBlock() != members.front()->getBlock();
      while (!views.empty() && !isRead)
        for (Operation *user : views.pop_back_val().getUsers()) {
          if (inside.contains(user) || isa<memref::DeallocOp>(user))
            continue;
          if (user->getNumResults() == 1 && rootOf(user->getResult(0)) == entry.first)
            views.push_back(user->getResult(0));
          else
            isRead |= user->getBlock() != members.front()->getBlock() ||
                      !user->isBeforeInBlock(members.front());
        }
      if (isRead)
        stored.push_back(entry.first);
    }
    return stored;
  }

  void replace(const Members &members) {
    const std::optional<RowGroup> group = RowGroup::create(members);
    const SmallVector<Value> stored = storedOf(*group, members);
    linalg::LinalgOp last = members.back();
    if (!stored.empty()) {
      OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
      // All are built under one name, so that equal ones print equally.
      BuiltKernel built = buildRows(*group, stored, builder, "kernel");
      std::string text;
      llvm::raw_string_ostream out(text);
      built.kernel->print(out);
      auto [found, isNew] = kernels.try_emplace(text, built.kernel);
      if (isNew)
        built.kernel.setSymName(("rows_" + Twine(kernels.size())).str());
      else
        built.kernel.erase();
      launch(last, found->second, built.operands);
    }
    for (linalg::LinalgOp member : members) {
      taken.insert(member);
      member->erase();
    }
    removeUnused(*group);
    known.clear(); // addresses come back
  }

  void launch(linalg::LinalgOp last, tile::KernelOp kernel, ArrayRef<Value> operands) {
    OpBuilder builder(last);
    SmallVector<Value> passed;
    for (auto [root, type] : llvm::zip(operands, kernel.getArgumentTypes()))
      passed.push_back(root.getType() == type
                           ? root
                           : memref::ReinterpretCastOp::create(
                                 builder, last.getLoc(), cast<MemRefType>(type), root, 0,
                                 cast<MemRefType>(type).getShape(), ArrayRef<int64_t>{1}));
    auto launched = tile::LaunchOp::create(builder, last.getLoc(), kernel.getSymName(), passed);
    // What the block frees on the way is freed behind.
    for (Value root : operands)
      for (Operation *user : llvm::make_early_inc_range(root.getUsers()))
        if (isa<memref::DeallocOp>(user) && user->getBlock() == launched->getBlock() &&
            user->isBeforeInBlock(launched))
          user->moveAfter(launched);
  }

  void removeUnused(const RowGroup &group) {
    for (const auto &entry : group.written) {
      auto alloc = entry.first.getDefiningOp<memref::AllocOp>();
      if (!alloc || !llvm::all_of(alloc->getUsers(),
                                  [](Operation *user) { return isa<memref::DeallocOp>(user); }))
        continue;
      for (Operation *user : llvm::make_early_inc_range(alloc->getUsers()))
        user->erase();
      alloc->erase();
    }
  }

  llvm::DenseSet<Operation *> taken;
  std::map<Operation *, Effects> known;    ///< by operation
  llvm::StringMap<tile::KernelOp> kernels; ///< by their text
};

} // namespace

std::unique_ptr<Pass> createFormRowsPass() { return std::make_unique<FormRows>(); }

} // namespace millrace::gpu
