// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Devices/FindWork.h"

#include "compiler/Codegen/Gpu/Attention/FindAttention.h"
#include "compiler/Codegen/Gpu/Selection/FindTopK.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace millrace::devices {

using namespace mlir;

std::span<const WorkName> workNames() {
  static constexpr WorkName names[kWorks] = {
      {"attention", "softmax of scores times values, with both products"},
      {"ffn", "a product with weights of nonlinear functions of products with weights, with these"},
      {"embedding", "rows of a constant table at indices that are data"},
      {"sampling", "the first elements of rows, and where they stand: top-k, argmax"},
      {"norm", "rows divided by the root of the mean of their squares, perhaps about their mean"},
      {"product", "products with weights that are none of the others"}};
  return names;
}

namespace {

bool isView(Operation *op) {
  return isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, linalg::TransposeOp>(op);
}
bool isConstant(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (op->hasTrait<OpTrait::ConstantLike>() || isa<linalg::FillOp>(op))
      return true;
    if (!isView(op))
      return false;
    value = op->getOperand(0);
  }
  return false;
}
linalg::LinalgOp mapOf(Operation *op) {
  auto map = dyn_cast_or_null<linalg::LinalgOp>(op);
  return map && map.getNumDpsInputs() && !map.getNumReductionLoops() && op->getNumResults() == 1 &&
                 map.getBlock()->getOps<tensor::ExtractOp>().empty() && !isView(op)
             ? map
             : linalg::LinalgOp();
}
/// A sum of products of two tensors, without windows.
bool isProduct(Operation *op) {
  auto product = dyn_cast_or_null<linalg::LinalgOp>(op);
  return product && linalg::isaContractionOpInterface(product) && product.getNumDpsInputs() == 2;
}
/// One of them of a constant with more than one dimension beside size 1.
bool isOfWeights(Operation *op) {
  return isProduct(op) && (isConstant(op->getOperand(0)) != isConstant(op->getOperand(1)));
}
Value behindViews(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

class Finder {
public:
  Finder(func::FuncOp function, std::vector<std::string> *left) : function(function), left(left) {}

  std::vector<FoundWork> run() {
    std::vector<gpu::LeftAttention> others;
    for (const gpu::FoundAttention &found : gpu::findAttention(function, &others)) {
      SmallVector<Operation *> operations;
      for (Operation *op : found.operations)
        if (isa<linalg::LinalgOp, tensor::ConcatOp>(op))
          operations.push_back(op);
      claim(Work::Attention, operations);
    }
    if (left)
      for (const gpu::LeftAttention &other : others)
        left->push_back("'" + other.node + "' is no attention: " + other.why);
    each([&](linalg::LinalgOp op) { feedForward(op); });
    each([&](linalg::LinalgOp op) {
      if (isEmbedding(op))
        claim(Work::Embedding, op.getOperation());
    });
    for (const gpu::FoundTopK &found : gpu::findTopK(function))
      claim(Work::Sampling, found.operations);
    each([&](linalg::LinalgOp op) { norm(op); });
    each([&](linalg::LinalgOp op) {
      if (isOfWeights(op))
        claim(Work::Product, op.getOperation());
    });
    return std::move(all);
  }

private:
  void each(llvm::function_ref<void(linalg::LinalgOp)> visit) {
    for (auto op : function.getBody().front().getOps<linalg::LinalgOp>())
      visit(op);
  }
  void claim(Work work, ArrayRef<Operation *> operations) {
    if (llvm::any_of(operations, [&](Operation *op) { return taken.contains(op); }))
      return;
    taken.insert(operations.begin(), operations.end());
    all.push_back({work, SmallVector<Operation *>(operations)});
  }

  static bool isEmbedding(linalg::LinalgOp op) {
    if (op.getNumReductionLoops() || op->getNumResults() != 1)
      return false;
    for (auto extract : op.getBlock()->getOps<tensor::ExtractOp>())
      if (isConstant(extract.getTensor()) && op.getNumDpsInputs() == 1)
        return true;
    return false;
  }

  /// Something that is no sum, difference or multiple of its operands.
  static bool isNonlinear(linalg::LinalgOp map) {
    for (Operation &op : map.getBlock()->without_terminator()) {
      if (op.getName().getDialectNamespace() == "math" ||
          isa<arith::MaximumFOp, arith::MaxNumFOp, arith::MinimumFOp, arith::SelectOp,
              arith::DivFOp>(op))
        return true;
      if (isa<arith::MulFOp>(op) && isa<BlockArgument>(op.getOperand(0)) &&
          isa<BlockArgument>(op.getOperand(1)))
        return true;
    }
    return false;
  }

  void feedForward(linalg::LinalgOp op) {
    if (!isOfWeights(op))
      return;
    constexpr size_t kMostOperations = 64;
    SetVector<Operation *> region;
    region.insert(op);
    SmallVector<Value> open = {isConstant(op->getOperand(0)) ? op->getOperand(1)
                                                             : op->getOperand(0)};
    bool hasNonlinear = false, hasProduct = false;
    while (!open.empty()) {
      const Value value = behindViews(open.pop_back_val());
      if (isConstant(value))
        continue;
      Operation *source = value.getDefiningOp();
      if (!source || taken.contains(source) || region.size() > kMostOperations)
        return;
      if (!region.insert(source))
        continue;
      if (isOfWeights(source)) {
        hasProduct = true;
        continue;
      }
      auto map = mapOf(source);
      if (!map)
        return;
      hasNonlinear |= isNonlinear(map);
      for (OpOperand *operand : map.getDpsInputOperands())
        if (isa<RankedTensorType>(operand->get().getType()))
          open.push_back(operand->get());
    }
    if (hasNonlinear && hasProduct)
      claim(Work::FeedForward, region.getArrayRef());
  }

  /// The sum of rows that a value of each row is a function of, and what leads there.
  static linalg::LinalgOp rowSum(Value value, SetVector<Operation *> &region) {
    for (constexpr unsigned kMostMaps = 8; value && region.size() < 3 * kMostMaps;) {
      Operation *op = behindViews(value).getDefiningOp();
      auto form = dyn_cast_or_null<linalg::LinalgOp>(op);
      if (!form)
        return {};
      region.insert(op);
      if (form.getNumReductionLoops())
        return !isProduct(op) && form.getNumDpsInputs() == 1 && op->getNumResults() == 1 &&
                       isa_and_nonnull<arith::AddFOp>(
                           form.getBlock()->getTerminator()->getOperand(0).getDefiningOp())
                   ? form
                   : linalg::LinalgOp();
      if (!mapOf(op))
        return {};
      Value next;
      for (OpOperand *operand : form.getDpsInputOperands())
        if (isa<RankedTensorType>(operand->get().getType()) && !isConstant(operand->get())) {
          if (next)
            return {};
          next = operand->get();
        }
      value = next;
    }
    return {};
  }
  static bool hasRoot(ArrayRef<Operation *> operations) {
    return llvm::any_of(operations, [](Operation *op) {
      auto form = cast<linalg::LinalgOp>(op);
      return llvm::any_of(*form.getBlock(),
                          [](Operation &inner) { return isa<math::SqrtOp, math::RsqrtOp>(inner); });
    });
  }
  static int64_t elements(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.hasStaticShape() ? type.getNumElements() : 0;
  }

  /// op: rows times, or over, a function of a root of the sum of their squares.
  void norm(linalg::LinalgOp op) {
    auto map = mapOf(op);
    if (!map)
      return;
    SmallVector<Value> inputs;
    for (OpOperand *operand : map.getDpsInputOperands())
      if (!isConstant(operand->get()))
        inputs.push_back(operand->get());
    if (inputs.size() != 2 || llvm::none_of(*map.getBlock(), [](Operation &inner) {
          return isa<arith::MulFOp, arith::DivFOp>(inner);
        }))
      return;
    if (elements(inputs[0]) < elements(inputs[1]))
      std::swap(inputs[0], inputs[1]);
    SetVector<Operation *> region;
    region.insert(op);
    linalg::LinalgOp sum = rowSum(inputs[1], region);
    if (!sum || !hasRoot(region.getArrayRef()))
      return;
    // Squares, in the sum itself or before it.
    Value rows = behindViews(sum.getDpsInputOperand(0)->get());
    const auto isSquare = [](linalg::LinalgOp form) {
      return llvm::any_of(*form.getBlock(), [](Operation &inner) {
        return isa<arith::MulFOp>(inner) && inner.getOperand(0) == inner.getOperand(1);
      });
    };
    if (!isSquare(sum)) {
      auto squares = mapOf(rows.getDefiningOp());
      if (!squares || !isSquare(squares))
        return;
      region.insert(squares);
      rows = behindViews(squares.getDpsInputOperand(0)->get());
    }
    if (rows != behindViews(inputs[0]))
      return;
    // About their mean?
    if (auto centred = mapOf(rows.getDefiningOp()); centred && centred.getNumDpsInputs() == 2) {
      SetVector<Operation *> mean;
      const Value x = centred.getDpsInputOperand(0)->get();
      linalg::LinalgOp total = rowSum(centred.getDpsInputOperand(1)->get(), mean);
      if (total && behindViews(total.getDpsInputOperand(0)->get()) == behindViews(x) &&
          llvm::any_of(*centred.getBlock(),
                       [](Operation &inner) { return isa<arith::SubFOp>(inner); })) {
        region.insert(centred);
        region.insert(mean.begin(), mean.end());
      }
    }
    claim(Work::Norm, region.getArrayRef());
  }

  func::FuncOp function;
  std::vector<std::string> *left;
  std::vector<FoundWork> all;
  DenseSet<Operation *> taken;
};

} // namespace

std::vector<FoundWork> findWork(func::FuncOp function, std::vector<std::string> *left) {
  return Finder(function, left).run();
}

} // namespace millrace::devices
