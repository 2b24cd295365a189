// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Selection/FormTopK.h"

#include "compiler/Codegen/Gpu/Attention/TensorBuffers.h"
#include "compiler/Codegen/Gpu/Attention/Trace.h"
#include "compiler/Codegen/Gpu/Selection/FindTopK.h"
#include "compiler/Codegen/Gpu/Selection/TopKKernel.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"

#include "llvm/ADT/StringMap.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

class FormTopK : public PassWrapper<FormTopK, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FormTopK)
  explicit FormTopK(std::vector<std::string> *left) : left(left) {}
  StringRef getArgument() const final { return "top-k-to-tile"; }
  StringRef getDescription() const final {
    return "makes the choice of the first elements of rows at the tensor level the launch of one "
           "kernel of the tile level";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<arith::ArithDialect, bufferization::BufferizationDialect, memref::MemRefDialect,
                    scf::SCFDialect, tensor::TensorDialect, tile::TileDialect>();
  }
  void runOnOperation() final {
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      if (!function.isExternal())
        for (FoundTopK &found : findTopK(function))
          replace(found);
  }

private:
  /// What the places are used as: an integer, if nothing but its conversion reads them.
  static linalg::LinalgOp conversionOf(const FoundTopK &found, Value places) {
    if (!places || !places.hasOneUse())
      return {};
    auto map = dyn_cast<linalg::LinalgOp>(*places.getUsers().begin());
    if (!map || !llvm::is_contained(found.operations, map.getOperation()) ||
        !llvm::hasNItems(*map.getBlock(), 2))
      return {};
    Operation &cast = map.getBlock()->front();
    const bool converts =
        isa<arith::FPToSIOp>(cast) && cast.getOperand(0) == map.getBlock()->getArgument(0) &&
        map.getBlock()->getTerminator()->getOperand(0) == cast.getResult(0) &&
        llvm::all_of(map.getIndexingMapsArray(), [](AffineMap each) { return each.isIdentity(); });
    return converts ? map : linalg::LinalgOp();
  }

  void replace(FoundTopK &found) {
    Operation *first = found.operations.front();
    const auto input = cast<RankedTensorType>(found.input.getType());
    Value places = found.allPlaces            ? found.allPlaces
                   : found.places.size() == 1 ? found.places[0]
                                              : Value();
    if (linalg::LinalgOp conversion = conversionOf(found, places))
      found.allPlaces = places = conversion->getResult(0);
    TopKProblem problem;
    problem.columns = found.columns();
    problem.rows = input.getNumElements() / std::max<int64_t>(problem.columns, 1);
    problem.k = found.k;
    problem.isLargest = found.isLargest;
    problem.lastWins = found.lastWins;
    problem.isUnsigned = found.isUnsigned;
    problem.element = input.getElementType();
    const auto isRead = [&](Value all, ArrayRef<Value> parts) {
      return (all && !all.use_empty()) || llvm::any_of(parts, [&](Value part) {
               return llvm::any_of(part.getUsers(), [&](Operation *user) {
                 return !llvm::is_contained(found.operations, user);
               });
             });
    };
    problem.hasValues = isRead(found.allValues, found.values);
    problem.hasPlaces = isRead(found.allPlaces, found.places);
    const Value anyPlace = places ? places : found.places.empty() ? Value() : found.places[0];
    Builder types(&getContext());
    problem.place = anyPlace ? getElementTypeOrSelf(anyPlace.getType()) : types.getI32Type();
    if (!problem.hasValues && !problem.hasPlaces)
      return;

    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    // All are built under one name, so that equal ones print equally.
    Expected<tile::KernelOp> built = buildTopK(problem, builder, "kernel");
    if (!built) {
      first->emitRemark() << "the choice at '" << nodeOf(first) << "' is left: " << built.error();
      if (left)
        left->push_back("'" + nodeOf(first) +
                        "' is chosen without a kernel of its own: " + built.error());
      return;
    }
    tile::KernelOp kernel = shared(*built);
    launch(found, problem, kernel, places);
  }

  tile::KernelOp shared(tile::KernelOp kernel) {
    std::string text;
    llvm::raw_string_ostream out(text);
    kernel->print(out);
    auto [found, isNew] = kernels.try_emplace(text, kernel);
    if (isNew)
      kernel.setSymName(("top_k_" + Twine(kernels.size())).str());
    else
      kernel.erase();
    return found->second;
  }

  void launch(FoundTopK &found, const TopKProblem &problem, tile::KernelOp kernel, Value places) {
    OpBuilder builder(&getContext());
    if (Operation *source = found.input.getDefiningOp())
      builder.setInsertionPointAfter(source);
    else
      builder.setInsertionPointToStart(found.operations.front()->getBlock());
    const Location place = found.operations.front()->getLoc();
    SmallVector<Value> operands = {
        bufferOf(builder, place, found.input, cast<MemRefType>(kernel.getArgumentTypes()[0]))};
    for (Type type : kernel.getArgumentTypes().drop_front())
      operands.push_back(memref::AllocOp::create(builder, place, cast<MemRefType>(type)));
    tile::LaunchOp::create(builder, place, kernel.getSymName(), operands);
    if (problem.hasValues)
      give(builder, found, operands[1], found.allValues, found.values);
    if (problem.hasPlaces)
      give(builder, found, operands.back(), places, found.places);
    eraseUnused(found);
  }

  /// All of them at once; then those parts that something else reads.
  void give(OpBuilder &builder, FoundTopK &found, Value memory, Value all, ArrayRef<Value> parts) {
    const Location place = memory.getLoc();
    SmallVector<int64_t> rows(cast<RankedTensorType>(found.input.getType()).getShape().drop_back());
    SmallVector<int64_t> shape(rows);
    shape.push_back(found.k);
    if (all) {
      Value whole =
          tensorOf(builder, place, memory, cast<RankedTensorType>(all.getType()).getShape());
      all.replaceAllUsesWith(whole);
      eraseUnused(found);
      return;
    }
    Value whole = tensorOf(builder, place, memory, shape);
    for (size_t k = 0; k < parts.size(); ++k) {
      Value part = parts[k];
      SmallVector<OpFoldResult> offsets(shape.size(), builder.getIndexAttr(0)), sizes,
          strides(shape.size(), builder.getIndexAttr(1));
      offsets.back() = builder.getIndexAttr(int64_t(k));
      for (int64_t size : rows)
        sizes.push_back(builder.getIndexAttr(size));
      sizes.push_back(builder.getIndexAttr(1));
      Value slice = tensor::ExtractSliceOp::create(
          builder, place, cast<RankedTensorType>(part.getType()), whole, offsets, sizes, strides);
      part.replaceUsesWithIf(slice, [&](OpOperand &use) {
        return !llvm::is_contained(found.operations, use.getOwner());
      });
    }
  }

  /// What was computed for the choice alone, and views of it.
  static void eraseUnused(FoundTopK &found) {
    for (bool isDone = false; !isDone;) {
      isDone = true;
      for (size_t i = found.operations.size(); i-- > 0;) {
        Operation *op = found.operations[i];
        for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
          if (isView(user) && user->use_empty())
            user->erase();
        if (!op->use_empty())
          continue;
        op->erase();
        found.operations.erase(found.operations.begin() + long(i));
        isDone = false;
      }
    }
  }

  std::vector<std::string> *left = nullptr;
  llvm::StringMap<tile::KernelOp> kernels; ///< by their text
};

} // namespace

std::unique_ptr<Pass> createFormTopKPass(std::vector<std::string> *left) {
  return std::make_unique<FormTopK>(left);
}

} // namespace millrace::gpu
