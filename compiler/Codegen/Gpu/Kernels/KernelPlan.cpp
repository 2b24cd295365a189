// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/KernelPlan.h"

#include "compiler/Codegen/Gpu/Attention/KindAttribute.h"
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

double elementsOf(Type type) {
  auto tile = dyn_cast<VectorType>(type);
  return tile ? double(tile.getNumElements()) : 1;
}

/// How often the loop's body runs; nothing if that is data.
std::optional<int64_t> tripsOf(scf::ForOp loop) {
  IntegerAttr bounds[3];
  const Value values[] = {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()};
  for (size_t i = 0; i < 3; ++i)
    if (!matchPattern(values[i], m_Constant(&bounds[i])))
      return std::nullopt;
  const int64_t from = bounds[0].getInt(), to = bounds[1].getInt(), step = bounds[2].getInt();
  return to > from && step > 0 ? (to - from + step - 1) / step : 0;
}

/// Adds what a program does in the block, so many times.
void count(Block &block, double times, LaunchWork &work) {
  for (Operation &op : block) {
    if (auto dot = dyn_cast<tile::DotOp>(op)) {
      const auto rows = cast<VectorType>(dot.getRows().getType());
      work.matrixFlops +=
          times * 2 * elementsOf(dot.getResult().getType()) * double(rows.getDimSize(1));
    } else if (isa<tile::ReduceOp, tile::ReduceRowsOp>(op)) {
      if (isa<FloatType>(getElementTypeOrSelf(op.getOperand(0).getType())))
        work.otherFlops += times * elementsOf(op.getOperand(0).getType());
    } else if (op.getNumResults() == 1 && !op.hasTrait<OpTrait::ConstantLike>() &&
               OpTrait::hasElementwiseMappableTraits(&op) &&
               isa<FloatType>(getElementTypeOrSelf(op.getResult(0).getType()))) {
      work.otherFlops += times * elementsOf(op.getResult(0).getType());
    }
    double inside = times;
    if (auto table = dyn_cast<tile::ComputeTableOp>(op)) // by each of the warps, 16 lanes a warp
      inside *= elementsOf(table.getResult().getType()) *
                double(table->getParentOfType<tile::KernelOp>().getLanes()) / 16;
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      const std::optional<int64_t> trips = tripsOf(loop);
      work.isWhole &= trips.has_value();
      inside *= double(trips.value_or(1));
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        count(inner, inside, work);
  }
}

std::string typeName(MemRefType memory) {
  std::string text;
  llvm::raw_string_ostream(text) << memory.getElementType();
  return text;
}

LaunchWork workOf(tile::LaunchOp launch) {
  LaunchWork work;
  work.kernel = launch.getKernel().str();
  for (Type type : launch.getOperands().getTypes()) {
    const auto memory = cast<MemRefType>(type);
    work.bytes +=
        double(memory.getNumElements()) * std::max(8u, memory.getElementTypeBitWidth()) / 8;
  }
  auto kernel =
      SymbolTable::lookupNearestSymbolFrom<tile::KernelOp>(launch, launch.getKernelAttr());
  work.programs = kernel.getPrograms();
  count(kernel.getBody().front(), work.programs, work);
  const auto result = cast<MemRefType>(launch.getOperands().back().getType());
  work.kind = kindOf(kernel).value_or(KernelKind{opOf(work.kernel), typeName(result), {}});
  work.kind.sizes["bytes"] = int64_t(work.bytes);
  return work;
}

} // namespace

OwningOpRef<ModuleOp> withFunction(ModuleOp module, StringRef entry) {
  OwningOpRef<ModuleOp> copy = module.clone();
  for (auto function : llvm::make_early_inc_range(copy->getOps<func::FuncOp>()))
    if (function.getSymName() != entry && SymbolTable::symbolKnownUseEmpty(function, *copy))
      function.erase();
  return copy;
}

Expected<KernelPlan> planKernels(ModuleOp module, StringRef entry, const std::string &multiplied,
                                 const TuningTable &table) {
  MLIRContext *context = module.getContext();
  registerReferenceDialects(*context);
  DialectRegistry registry;
  hopper::registerLoweringDialects(registry);
  registry.insert<tile::TileDialect>();
  context->appendDialectRegistry(registry);
  OwningOpRef<ModuleOp> copy = withFunction(module, entry);
  std::string text;
  ScopedDiagnosticHandler collect(context, [&](Diagnostic &diagnostic) {
    if (text.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error)
      text = diagnostic.str();
    return success();
  });
  KernelPlan plan;
  auto constants = reference::lowerTensors(*copy, entry, [&](OpPassManager &passes) {
    addTensorForms(passes, multiplied, &plan.notes, table);
  });
  if (!constants)
    return Error{"cannot make kernels of '" + entry.str() + "': " + constants.error()};
  PassManager passes(context);
  reference::addBufferization(passes);
  addBufferForms(passes);
  if (failed(passes.run(*copy)))
    return Error{"cannot make kernels of '" + entry.str() + "': " + text};
  copy->walk([&](Operation *op) {
    if (auto launch = dyn_cast<tile::LaunchOp>(op))
      plan.launches.push_back(workOf(launch));
    else if (auto why = op->getAttrOfType<StringAttr>(kLeftAttribute))
      plan.left.push_back(op->getName().getStringRef().str() + " " + why.str());
  });
  return plan;
}

} // namespace millrace::gpu
