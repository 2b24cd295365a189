// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// tile-to-hopper: what one thread of a GPU does of a program.
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/Transforms/ExpandMath.h"
#include "compiler/Dialect/Tile/Transforms/FragmentCode.h"
#include "compiler/Dialect/Tile/Transforms/LaneAccess.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "compiler/Dialect/Tile/Transforms/WarpgroupCode.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
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

/// What both ways do once the body is written.
LogicalResult finish(KernelOp kernel, hopper::KernelOp function) {
  OpBuilder builder(function);
  function->setAttr(kProgramsAttribute, kernel.getProgramsAttr());
  function->setAttr(kWrittenAttribute, builder.getDenseI32ArrayAttr(writtenBy(kernel)));
  // Places are written once for each access.
  IRRewriter rewriter(builder.getContext());
  DominanceInfo dominance(function);
  eliminateCommonSubExpressions(rewriter, dominance, function);
  return expandMath(function);
}

/// One warpgroup that loads behind those that multiply, so that lanes are numbered from the first
/// thread on.
class WarpgroupLowering {
public:
  WarpgroupLowering(KernelOp kernel, const StagingPlan &plan)
      : kernel(kernel), plan(plan), b(kernel.getLoc(), kernel) {}

  LogicalResult run() {
    const unsigned groups = plan.consumers + 1, threads = groups * Limits::kWarpgroup;
    SmallVector<Type> arguments(kernel.getNumArguments(),
                                LLVM::LLVMPointerType::get(b.getContext(), 1));
    const size_t pointers = arguments.size();
    for (const LaunchMap &map : plan.maps)
      arguments.push_back(hopper::TensorMapType::get(b.getContext(), map.boxRows, map.boxColumns,
                                                     elementOf(map), 128,
                                                     unsigned(map.outer.size())));
    const unsigned registers = std::min(Limits::kRegisters / threads / 8 * 8, 240u);
    auto function = hopper::KernelOp::create(
        b, kernel.getSymName(), b.getFunctionType(arguments, {}), threads, registers,
        plan.sharedBytes(), /*cluster=*/1, ArrayAttr(), ArrayAttr());
    Block *body = b.createBlock(&function.getBody(), {}, arguments,
                                SmallVector<Location>(arguments.size(), b.getLoc()));
    initBarriers();
    Value group = hopper::WarpgroupIdOp::create(b, b.getI32Type());
    auto roles = scf::IfOp::create(b, isEqual(group, plan.consumers), /*withElseRegion=*/true);
    b.setInsertionPoint(roles.thenYield());
    if (const unsigned least = budget(registers, groups, false))
      hopper::SetMaxRegistersOp::create(b, hopper::RegisterChange::Decrease, least, 1);
    LoaderCode loader(b, kernel, plan, ValueRange(body->getArguments()).drop_front(pointers));
    mapPointers(loader, body);
    inOneThread([&] { loader.writeLoader(); });
    b.setInsertionPoint(roles.elseYield());
    if (const unsigned most = budget(registers, groups, true))
      hopper::SetMaxRegistersOp::create(b, hopper::RegisterChange::Increase, most, plan.consumers);
    WarpgroupCode code(b, kernel, plan);
    mapPointers(code, body);
    code.writeConsumer();
    b.setInsertionPointAfter(roles);
    hopper::ReturnOp::create(b);
    function->setAttr(kMapsAttribute, attributeOf(b, plan.maps));
    return finish(kernel, function);
  }

private:
  Value number(int64_t n) { return arith::ConstantIntOp::create(b, b.getI32Type(), n); }
  Value isEqual(Value x, int64_t n) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, number(n));
  }
  Type elementOf(const LaunchMap &map) {
    return cast<MemRefType>(kernel.getArgumentTypes()[map.argument]).getElementType();
  }
  void mapPointers(LaneCode &code, Block *body) {
    for (auto [from, to] : llvm::zip(kernel.getBody().getArguments(), body->getArguments()))
      code.map(from, to);
  }

  /// Registers of a thread that multiplies, or of one that loads; 0: those of the launch are right.
  unsigned budget(unsigned launched, unsigned groups, bool multiplies) const {
    constexpr unsigned kLeast = 24;
    if (plan.consumers == 1)
      return 0;
    return multiplies ? std::min((launched * groups - kLeast) / plan.consumers / 8 * 8, 240u)
                      : kLeast;
  }

  void initBarriers() {
    Value isFirst = isEqual(hopper::ThreadIdOp::create(b, b.getI32Type()), 0);
    auto branch = scf::IfOp::create(b, isFirst, /*withElseRegion=*/false);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      for (size_t product = 0; product < plan.products.size(); ++product)
        for (unsigned stage = 0; stage < plan.stages; ++stage) {
          hopper::MbarrierInitOp::create(b, number(plan.full(product) + 8 * stage), 1);
          hopper::MbarrierInitOp::create(b, number(plan.empty(product) + 8 * stage),
                                         plan.consumers);
        }
      hopper::FenceMbarrierInitOp::create(b);
    }
    hopper::CtaBarrierOp::create(b);
  }

  void inOneThread(llvm::function_ref<void()> body) {
    Value thread = hopper::ThreadIdOp::create(b, b.getI32Type());
    Value isFirstWarp = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ult,
        arith::SubIOp::create(b, thread, number(plan.consumers * Limits::kWarpgroup)),
        number(Limits::kWarp));
    auto warp = scf::IfOp::create(b, isFirstWarp, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(warp.thenBlock());
    auto one = scf::IfOp::create(b, hopper::ElectOp::create(b, b.getI1Type()),
                                 /*withElseRegion=*/false);
    b.setInsertionPointToStart(one.thenBlock());
    body();
  }

  KernelOp kernel;
  const StagingPlan &plan;
  ImplicitLocOpBuilder b;
};

LogicalResult lowerToHopper(KernelOp kernel, bool hasWarpgroups) {
  OpBuilder builder(kernel);
  const Location place = kernel.getLoc();
  if (hasWarpgroups)
    if (const std::optional<StagingPlan> plan = planStaging(kernel))
      return WarpgroupLowering(kernel, *plan).run();
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
  return finish(kernel, function);
}

class LowerToHopper : public PassWrapper<LowerToHopper, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerToHopper)
  explicit LowerToHopper(bool warpgroups = false) { hasWarpgroups = warpgroups; }
  LowerToHopper(const LowerToHopper &other) : PassWrapper(other) {}
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
      if (failed(lowerToHopper(kernel, hasWarpgroups)))
        return signalPassFailure();
      kernel.erase();
    }
  }

private:
  Option<bool> hasWarpgroups{
      *this, "warpgroups", llvm::cl::desc("multiply by wgmma what TMA can load: for sm_90a alone"),
      llvm::cl::init(false)};
};

} // namespace

std::unique_ptr<Pass> createLowerToHopperPass(bool hasWarpgroups) {
  return std::make_unique<LowerToHopper>(hasWarpgroups);
}

} // namespace millrace::tile
