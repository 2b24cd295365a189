// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Fold.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

using Elements = SmallVector<Attribute>;

/// Values of tensors (one attribute per element, row major) and of scalars (one).
class Folder {
public:
  const Elements *evaluate(Value value);

private:
  bool compute(Value value, Elements &result);
  bool computeLinalg(linalg::LinalgOp op, Value value, Elements &result);
  bool computeBody(linalg::LinalgOp op, ArrayRef<int64_t> point, ArrayRef<const Elements *> inputs,
                   Elements &accumulator, int64_t at);
  bool computeExtract(tensor::ExtractOp op, DenseMap<Value, Attribute> &scalars, Attribute &result);
  bool computeSlice(tensor::ExtractSliceOp op, Elements &result);
  bool computeConcat(tensor::ConcatOp op, Elements &result);

  DenseMap<Value, Elements> known;
  DenseSet<Value> unknown;
};

int64_t linearIndex(ArrayRef<int64_t> point, ArrayRef<int64_t> shape) {
  int64_t index = 0;
  for (auto [i, extent] : llvm::zip_equal(point, shape))
    index = index * extent + i;
  return index;
}

/// Steps `point` to the next in row-major order; false after the last.
bool advance(MutableArrayRef<int64_t> point, ArrayRef<int64_t> extents) {
  for (size_t i = point.size(); i-- > 0;) {
    if (++point[i] < extents[i])
      return true;
    point[i] = 0;
  }
  return false;
}

/// A scalar of a body: computed before, or a constant from outside.
Attribute scalarOf(const DenseMap<Value, Attribute> &scalars, Value value) {
  Attribute constant = scalars.lookup(value);
  if (!constant)
    matchPattern(value, m_Constant(&constant));
  return constant;
}

const Elements *Folder::evaluate(Value value) {
  if (auto found = known.find(value); found != known.end())
    return &found->second;
  if (unknown.contains(value))
    return nullptr;
  auto type = dyn_cast<RankedTensorType>(value.getType());
  Elements result;
  if (!type || type.getNumElements() > largestFoldedElements || !compute(value, result)) {
    unknown.insert(value);
    return nullptr;
  }
  return &known.try_emplace(value, std::move(result)).first->second;
}

bool Folder::compute(Value value, Elements &result) {
  Operation *op = value.getDefiningOp();
  // Quantised weights stay integers: a later stage computes with them.
  if (!op || op->hasAttr("millrace.quant"))
    return false;
  DenseElementsAttr dense;
  if (matchPattern(value, m_Constant(&dense))) {
    llvm::append_range(result, dense.getValues<Attribute>());
    return true;
  }
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op)) {
    const Elements *source = evaluate(op->getOperand(0));
    if (source)
      result = *source;
    return source != nullptr;
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return computeSlice(slice, result);
  if (auto concat = dyn_cast<tensor::ConcatOp>(op))
    return computeConcat(concat, result);
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return computeLinalg(linalgOp, value, result);
  return false;
}

bool Folder::computeSlice(tensor::ExtractSliceOp op, Elements &result) {
  const Elements *source = evaluate(op.getSource());
  if (!source || op.getType().getNumElements() == 0)
    return false;
  ArrayRef<int64_t> sizes = op.getStaticSizes();
  SmallVector<int64_t> point(sizes.size(), 0), from(sizes.size());
  do {
    for (size_t i = 0; i < point.size(); ++i)
      from[i] = op.getStaticOffsets()[i] + point[i] * op.getStaticStrides()[i];
    result.push_back((*source)[linearIndex(from, op.getSourceType().getShape())]);
  } while (advance(point, sizes));
  return true;
}

bool Folder::computeConcat(tensor::ConcatOp op, Elements &result) {
  // References into `known` do not survive another evaluation, so all parts are evaluated first.
  for (Value input : op.getInputs())
    if (!evaluate(input))
      return false;
  ArrayRef<int64_t> shape = op.getResultType().getShape();
  uint64_t axis = op.getDim();
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < shape.size(); ++i)
    (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  for (int64_t i = 0; i < outer; ++i) {
    for (Value input : op.getInputs()) {
      int64_t length = cast<RankedTensorType>(input.getType()).getShape()[axis] * inner;
      llvm::append_range(result, ArrayRef<Attribute>(known[input]).slice(i * length, length));
    }
  }
  return true;
}

bool Folder::computeExtract(tensor::ExtractOp op, DenseMap<Value, Attribute> &scalars,
                            Attribute &result) {
  const Elements *source = evaluate(op.getTensor());
  if (!source)
    return false;
  SmallVector<int64_t> point;
  for (Value index : op.getIndices()) {
    auto attribute = dyn_cast_or_null<IntegerAttr>(scalarOf(scalars, index));
    if (!attribute)
      return false;
    point.push_back(attribute.getInt());
  }
  ArrayRef<int64_t> shape = op.getTensor().getType().getShape();
  for (auto [i, extent] : llvm::zip_equal(point, shape))
    if (i < 0 || i >= extent)
      return false;
  result = (*source)[linearIndex(point, shape)];
  return true;
}

bool Folder::computeBody(linalg::LinalgOp op, ArrayRef<int64_t> point,
                         ArrayRef<const Elements *> inputs, Elements &accumulator, int64_t at) {
  Block *body = op.getBlock();
  DenseMap<Value, Attribute> scalars;
  for (auto [i, input] : llvm::enumerate(inputs)) {
    OpOperand *operand = op.getDpsInputOperand(i);
    SmallVector<int64_t> index = op.getMatchingIndexingMap(operand).compose(point);
    scalars[body->getArgument(i)] =
        (*input)[linearIndex(index, cast<RankedTensorType>(operand->get().getType()).getShape())];
  }
  scalars[body->getArguments().back()] = accumulator[at];
  for (Operation &inner : body->without_terminator()) {
    Attribute result;
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      result = IntegerAttr::get(IndexType::get(op.getContext()), point[index.getDim()]);
    } else if (auto extract = dyn_cast<tensor::ExtractOp>(inner)) {
      if (!computeExtract(extract, scalars, result))
        return false;
    } else {
      SmallVector<Attribute> operands;
      for (Value operand : inner.getOperands())
        operands.push_back(scalarOf(scalars, operand));
      SmallVector<OpFoldResult> folded;
      if (inner.getNumResults() != 1 || failed(inner.fold(operands, folded)) || folded.empty())
        return false;
      result = dyn_cast<Attribute>(folded.front());
      if (!result)
        result = scalarOf(scalars, cast<Value>(folded.front()));
    }
    if (!result)
      return false;
    scalars[inner.getResult(0)] = result;
  }
  Attribute result = scalarOf(scalars, body->getTerminator()->getOperand(0));
  if (!result)
    return false;
  accumulator[at] = result;
  return true;
}

bool Folder::computeLinalg(linalg::LinalgOp op, Value value, Elements &result) {
  if (op.getNumDpsInits() != 1)
    return false;
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  constexpr int64_t mostPoints = 4 * largestFoldedElements;
  int64_t points = 1;
  for (int64_t extent : extents) {
    points *= extent;
    if (points == 0 || points > mostPoints)
      return false;
  }
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<Elements> copies;
  for (OpOperand *operand : op.getDpsInputOperands()) {
    Attribute scalar;
    if (isa<RankedTensorType>(operand->get().getType())) {
      const Elements *elements = evaluate(operand->get());
      if (!elements)
        return false;
      copies.push_back(*elements);
    } else if (matchPattern(operand->get(), m_Constant(&scalar))) {
      copies.push_back({scalar});
    } else {
      return false;
    }
  }
  if (isa<linalg::FillOp>(op)) {
    result.assign(type.getNumElements(), copies[0][0]);
    return true;
  }
  OpOperand *init = op.getDpsInitOperand(0);
  if (init->get().getDefiningOp<tensor::EmptyOp>()) {
    result.assign(type.getNumElements(),
                  Builder(op.getContext()).getZeroAttr(type.getElementType()));
  } else {
    const Elements *initial = evaluate(init->get());
    if (!initial)
      return false;
    result = *initial;
  }
  SmallVector<const Elements *> inputs;
  for (const Elements &copy : copies)
    inputs.push_back(&copy);
  AffineMap map = op.getMatchingIndexingMap(init);
  SmallVector<int64_t> point(extents.size(), 0);
  do {
    if (!computeBody(op, point, inputs, result, linearIndex(map.compose(point), type.getShape())))
      return false;
  } while (advance(point, extents));
  return true;
}

} // namespace

ElementsAttr foldValue(Value value) {
  ElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant;
  Folder folder;
  const Elements *elements = folder.evaluate(value);
  if (!elements)
    return {};
  return DenseElementsAttr::get(cast<RankedTensorType>(value.getType()), *elements);
}

void foldConstants(Operation *root) {
  Folder folder;
  SmallVector<std::pair<Value, ElementsAttr>> folded;
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isa<linalg::LinalgOp>(op) && !isa<linalg::FillOp>(op)) {
      Value result = op->getNumResults() == 1 ? op->getResult(0) : Value();
      if (const Elements *elements = result ? folder.evaluate(result) : nullptr)
        folded.push_back(
            {result, DenseElementsAttr::get(cast<RankedTensorType>(result.getType()), *elements)});
      return WalkResult::skip();
    }
    if (isa<tensor::ExtractSliceOp, tensor::ConcatOp, tensor::CollapseShapeOp,
            tensor::ExpandShapeOp>(op)) {
      if (const Elements *elements = folder.evaluate(op->getResult(0)))
        folded.push_back({op->getResult(0),
                          DenseElementsAttr::get(cast<RankedTensorType>(op->getResult(0).getType()),
                                                 *elements)});
    }
    return WalkResult::advance();
  });
  for (auto [value, constant] : folded) {
    OpBuilder builder(value.getDefiningOp());
    value.replaceAllUsesWith(arith::ConstantOp::create(builder, value.getLoc(), constant));
  }
}

} // namespace millrace::onnx_import
