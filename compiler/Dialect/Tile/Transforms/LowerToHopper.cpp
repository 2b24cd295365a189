// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// tile-to-hopper: what one thread of a GPU does of a program.
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/Transforms/ExpandMath.h"
#include "compiler/Dialect/Tile/Transforms/FragmentCode.h"
#include "compiler/Dialect/Tile/Transforms/LaneAccess.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Transforms/CSE.h"

#include "llvm/ADT/SetVector.h"

namespace millrace::tile {

using namespace mlir;

namespace {

using Limits = hopper::Limits;

/// Numbers of the arguments that the kernel stores to, ascending.
SmallVector<int32_t> writtenBy(KernelOp kernel) {
  llvm::SmallSetVector<Value, 4> targets;
  kernel.walk([&](StoreOp store) { targets.insert(store.getTarget()); });
  kernel.walk([&](StoreRowsOp store) { targets.insert(store.getTarget()); });
  SmallVector<int32_t> written;
  for (BlockArgument argument : kernel.getBody().getArguments())
    if (targets.contains(argument))
      written.push_back(int32_t(argument.getArgNumber()));
  return written;
}

LogicalResult lowerToHopper(KernelOp kernel) {
  OpBuilder builder(kernel);
  const Location place = kernel.getLoc();
  const bool isOfRows = hasRows(kernel);
  const unsigned width = isOfRows ? FragmentCode::kLanes : chooseWidth(kernel);
  const unsigned threads = isOfRows ? kernel.getLanes() / FragmentCode::kWarpRows * Limits::kWarp
                                    : kernel.getLanes() / width;
  if (threads > Limits::kThreads)
    return kernel.emitError() << "has " << kernel.getLanes()
                              << " lanes, which do not spread over at most 1024 threads";
  const SmallVector<Type> arguments(kernel.getNumArguments(),
                                    LLVM::LLVMPointerType::get(builder.getContext(), 1));
  // As many as a thread can have: ptxas takes those that it uses.
  unsigned registers = std::min(255u, Limits::kRegisters / threads / 8 * 8);
  if (auto most = kernel->getAttrOfType<IntegerAttr>(kRegistersAttribute))
    registers = std::min(registers, unsigned(most.getInt()));
  auto function = hopper::KernelOp::create(
      builder, place, kernel.getSymName(), builder.getFunctionType(arguments, {}), threads,
      registers, /*shared_memory=*/0, /*cluster=*/1, ArrayAttr(), ArrayAttr());
  Block *body = builder.createBlock(&function.getBody());
  const std::unique_ptr<ThreadCode> code =
      isOfRows ? std::unique_ptr<ThreadCode>(new FragmentCode(builder, kernel))
               : std::make_unique<ThreadCode>(builder, kernel, width);
  for (auto [argument, type] : llvm::zip(kernel.getBody().getArguments(), arguments))
    code->map(argument, body->addArgument(type, argument.getLoc()));
  code->writeBody();
  hopper::ReturnOp::create(builder, place);
  function.setSharedMemory(code->sharedBytes());
  function->setAttr(kProgramsAttribute, kernel.getProgramsAttr());
  function->setAttr(kWrittenAttribute, builder.getDenseI32ArrayAttr(writtenBy(kernel)));
  // Places are written once for each access.
  IRRewriter rewriter(builder.getContext());
  DominanceInfo dominance(function);
  eliminateCommonSubExpressions(rewriter, dominance, function);
  return expandMath(function);
}

class LowerToHopper : public PassWrapper<LowerToHopper, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerToHopper)
  StringRef getArgument() const final { return "tile-to-hopper"; }
  StringRef getDescription() const final {
    return "lowers the tile level to code of one GPU thread";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    hopper::registerLoweringDialects(registry);
    registry.insert<math::MathDialect, vector::VectorDialect>();
  }
  void runOnOperation() final {
    for (KernelOp kernel : llvm::make_early_inc_range(getOperation().getOps<KernelOp>())) {
      if (failed(lowerToHopper(kernel)))
        return signalPassFailure();
      kernel.erase();
    }
  }
};

} // namespace

std::unique_ptr<Pass> createLowerToHopperPass() { return std::make_unique<LowerToHopper>(); }

} // namespace millrace::tile
