// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// tile-to-loops: kernels for a CPU. All programs one after another, in each all lanes one after
// another; where lanes meet in a reduction, the loop over lanes ends and another begins.
#include "compiler/Dialect/Tile/Transforms/LoopRows.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/Pass.h"

namespace millrace::tile {

using namespace mlir;

namespace {

/// Whether any lane differs from another in it: if not, it is done once for all.
bool isUniform(Operation *op) {
  return !op->walk([](Operation *inner) {
              const auto tiles = [](TypeRange types) { return llvm::any_of(types, isTile); };
              return isa<StoreOp, StoreRowsOp>(inner) || tiles(inner->getOperandTypes()) ||
                             tiles(inner->getResultTypes())
                         ? WalkResult::interrupt()
                         : WalkResult::advance();
            }).wasInterrupted();
}

/// Constants and lane numbers are made where they are wanted.
bool isMadeAnew(Operation *op) { return op->hasTrait<OpTrait::ConstantLike>() || isa<IotaOp>(op); }

class LoopCode : public LoopRows {
public:
  LoopCode(OpBuilder &builder, KernelOp kernel, Block *entry, Value programNumber)
      : LoopRows(builder, entry), kernel(kernel), programNumber(programNumber) {}

  void writeBody() {
    SmallVector<Operation *> phase;
    for (Operation &op : kernel.getBody().front().without_terminator()) {
      if (!isUniform(&op) && !isa<ReduceOp>(op)) {
        phase.push_back(&op);
        continue;
      }
      // What all lanes share may stand before the loop in which it is used, unless it is made of
      // lanes.
      if (isa<ReduceOp>(op)) {
        writePhase(phase);
        phase.clear();
      }
      write(&op);
    }
    writePhase(phase);
  }

protected:
  Value program() override { return programNumber; }
  Value firstLane() override { return laneNumber; }
  Value load(Location place, Value memory, Indices indices) override {
    return memref::LoadOp::create(builder, place, lookup(memory), indices);
  }
  void store(Location place, Value value, Value memory, Indices indices) override {
    memref::StoreOp::create(builder, place, value, lookup(memory), indices);
  }
  Value reduce(ReduceOp op) override {
    const Location place = op.getLoc();
    Value first = arith::getIdentityValue(op.getKind(), op.getResult().getType(), builder, place);
    return lanes(place, first,
                 [&](Value sum) {
                   Value next = ofEarlierPhase(op.getTile());
                   return arith::getReductionOp(op.getKind(), builder, place, sum, next);
                 })
        .getResult(0);
  }

private:
  /// The lane's element of a tile, in a loop that does not make it.
  Value ofEarlierPhase(Value tile) {
    Operation *made = tile.getDefiningOp();
    if (!isMadeAnew(made))
      return memref::LoadOp::create(builder, tile.getLoc(), kept.at(tile), laneNumber);
    write(made);
    return lookup(tile);
  }

  /// A loop over all lanes that carries a value.
  scf::ForOp lanes(Location place, ValueRange first, llvm::function_ref<Value(Value)> body) {
    const auto number = [&](int64_t n) -> Value {
      return arith::ConstantIndexOp::create(builder, place, n);
    };
    Value begin = number(0), end = number(kernel.getLanes()), step = number(1);
    auto loop = scf::ForOp::create(builder, place, begin, end, step, first);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    laneNumber = loop.getInductionVar();
    Value next = body(first.empty() ? Value() : Value(loop.getRegionIterArg(0)));
    if (next)
      scf::YieldOp::create(builder, place, next);
    return loop;
  }

  void writePhase(ArrayRef<Operation *> phase) {
    if (phase.empty())
      return;
    const llvm::DenseSet<Operation *> inside(phase.begin(), phase.end());
    const auto isInside = [&](Operation *op) {
      return inside.contains(kernel.getBody().front().findAncestorOpInBlock(*op));
    };
    // Memory for what later phases read, the same for all programs.
    SmallVector<Value> leaving;
    for (Operation *op : phase)
      for (Value result : op->getResults())
        if (!isMadeAnew(op) && !llvm::all_of(result.getUsers(), isInside)) {
          leaving.push_back(result);
          const auto type = cast<VectorType>(result.getType());
          OpBuilder::InsertionGuard guard(builder);
          builder.setInsertionPointToStart(entry);
          kept[result] = memref::AllocaOp::create(
              builder, op->getLoc(), MemRefType::get(type.getShape(), type.getElementType()));
        }
    lanes(phase.front()->getLoc(), {}, [&](Value) {
      bringIn(phase, isInside);
      for (Operation *op : phase)
        write(op);
      for (Value value : leaving)
        memref::StoreOp::create(builder, value.getLoc(), lookup(value), kept[value], laneNumber);
      return Value();
    });
  }

  /// Tiles of earlier phases that this one uses.
  void bringIn(ArrayRef<Operation *> phase, llvm::function_ref<bool(Operation *)> isInside) {
    llvm::DenseSet<Value> done;
    for (Operation *op : phase)
      op->walk([&](Operation *inner) {
        for (Value operand : inner->getOperands()) {
          Operation *made = operand.getDefiningOp();
          if (!isTile(operand.getType()) || !made || isInside(made) || !done.insert(operand).second)
            continue;
          map(operand, ofEarlierPhase(operand));
        }
      });
  }

  KernelOp kernel;
  Value programNumber, laneNumber;
  llvm::DenseMap<Value, Value> kept; ///< tiles of earlier phases, in memory
};

void lowerToLoops(KernelOp kernel) {
  OpBuilder builder(kernel);
  const Location place = kernel.getLoc();
  auto function = func::FuncOp::create(builder, place, kernel.getSymName(),
                                       cast<FunctionType>(kernel.getFunctionType()));
  function.setPrivate();
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  Value begin = arith::ConstantIndexOp::create(builder, place, 0);
  Value end = arith::ConstantIndexOp::create(builder, place, kernel.getPrograms());
  Value step = arith::ConstantIndexOp::create(builder, place, 1);
  auto programs = scf::ForOp::create(builder, place, begin, end, step);
  func::ReturnOp::create(builder, place);
  builder.setInsertionPointToStart(programs.getBody());
  LoopCode code(builder, kernel, entry, programs.getInductionVar());
  for (auto [from, to] : llvm::zip(kernel.getBody().getArguments(), entry->getArguments()))
    code.map(from, to);
  code.writeBody();
}

class LowerToLoops : public PassWrapper<LowerToLoops, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerToLoops)
  StringRef getArgument() const final { return "tile-to-loops"; }
  StringRef getDescription() const final {
    return "lowers the tile level to functions with loops, for a CPU";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<arith::ArithDialect, func::FuncDialect, memref::MemRefDialect, scf::SCFDialect,
                    vector::VectorDialect>();
  }
  void runOnOperation() final {
    for (KernelOp kernel : llvm::make_early_inc_range(getOperation().getOps<KernelOp>())) {
      lowerToLoops(kernel);
      kernel.erase();
    }
    getOperation().walk([](LaunchOp launch) {
      OpBuilder builder(launch);
      func::CallOp::create(builder, launch.getLoc(), launch.getKernel(), TypeRange(),
                           launch.getOperands());
      launch.erase();
    });
  }
};

} // namespace

std::unique_ptr<Pass> createLowerToLoopsPass() { return std::make_unique<LowerToLoops>(); }

} // namespace millrace::tile
