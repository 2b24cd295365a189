// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/FoldBody.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

#include <cstring>
#include <limits>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Points of a row that are computed at a time: rows of all steps of a body stay in the cache.
constexpr int64_t mostRowPoints = 512;

/// Row-major distances between elements.
SmallVector<int64_t> pitchesOf(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> pitches(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    pitches[i - 1] = pitches[i] * shape[i];
  return pitches;
}

/// The value of an index expression of loops and constants.
int64_t valueOf(AffineExpr expr, ArrayRef<int64_t> point) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return point[dim.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  auto binary = cast<AffineBinaryOpExpr>(expr);
  const int64_t x = valueOf(binary.getLHS(), point), y = valueOf(binary.getRHS(), point);
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return x + y;
  case AffineExprKind::Mul:
    return x * y;
  case AffineExprKind::FloorDiv:
    return llvm::divideFloorSigned(x, y);
  case AffineExprKind::CeilDiv:
    return llvm::divideCeilSigned(x, y);
  default:
    return llvm::mod(x, y);
  }
}

/// Whether `valueOf` can be asked: no symbols, and divisors that are positive constants.
bool hasValue(AffineExpr expr) {
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return !isa<AffineSymbolExpr>(expr);
  const bool divides =
      expr.getKind() != AffineExprKind::Add && expr.getKind() != AffineExprKind::Mul;
  auto divisor = dyn_cast<AffineConstantExpr>(binary.getRHS());
  return hasValue(binary.getLHS()) && hasValue(binary.getRHS()) &&
         (!divides || (divisor && divisor.getValue() > 0));
}

/// Whether the expression is a sum of multiples of loops and a constant.
bool isLinear(AffineExpr expr) {
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return true;
  return (expr.getKind() == AffineExprKind::Add || expr.getKind() == AffineExprKind::Mul) &&
         isLinear(binary.getLHS()) && isLinear(binary.getRHS());
}

/// Functions of the C library, which take the grid a chain of instructions, and arithmetic that it
/// has none for: of more than 32 bits, or quotients and shifts of integers.
bool isCostlyScalar(Operation &op) {
  const auto isWide = [](Type type) { return type.isIndex() || type.getIntOrFloatBitWidth() > 32; };
  if (llvm::any_of(op.getOperandTypes(), isWide) || llvm::any_of(op.getResultTypes(), isWide))
    return true;
  if (op.getDialect()->getNamespace() == "math")
    return !isa<math::AbsFOp, math::AbsIOp, math::FloorOp, math::CeilOp, math::TruncOp,
                math::RoundOp, math::RoundEvenOp, math::CopySignOp>(op);
  return isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::RemFOp,
             arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp>(op);
}

} // namespace

ConstantView ownConstant(RankedTensorType type, std::vector<char> bytes) {
  const unsigned size = elementBytes(type.getElementType());
  const bool splat = bytes.size() > size &&
                     std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
  if (splat)
    bytes.resize(size);
  auto own = std::make_shared<const std::vector<char>>(std::move(bytes));
  return {type, ArrayRef<char>(*own), splat, own};
}

FoldedTensor ownTensor(RankedTensorType type, std::vector<char> bytes,
                       std::vector<char> isUnknown) {
  FoldedTensor tensor{ownConstant(type, std::move(bytes)), std::nullopt};
  if (llvm::is_contained(isUnknown, 1))
    tensor.unknown =
        ownConstant(type.clone(IntegerType::get(type.getContext(), 8)), std::move(isUnknown));
  return tensor;
}

std::optional<unsigned> FoldBody::addRow(Value scalar) {
  const std::optional<NumberType> type = NumberType::of(scalar.getType());
  if (!type)
    return std::nullopt;
  rowTypes.push_back(*type);
  return rows[scalar] = static_cast<unsigned>(rowTypes.size()) - 1;
}

/// The row of a scalar that was computed before, or is a constant.
std::optional<unsigned> FoldBody::rowOf(Value scalar) {
  if (auto found = rows.find(scalar); found != rows.end())
    return found->second;
  Attribute constant;
  if (!matchPattern(scalar, m_Constant(&constant)) || !isa<IntegerAttr, FloatAttr>(constant))
    return std::nullopt;
  const std::optional<unsigned> row = addRow(scalar);
  if (row)
    fixed.push_back({constant, *row});
  return row;
}

bool FoldBody::addOperands(linalg::LinalgOp op) {
  Block &body = *op.getBlock();
  for (OpOperand *operand : op.getDpsInputOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(operand);
    Attribute constant;
    if (matchPattern(operand->get(), m_Constant(&constant)) &&
        isa<IntegerAttr, FloatAttr>(constant)) {
      const std::optional<unsigned> row = addRow(argument);
      if (!row)
        return false;
      fixed.push_back({constant, *row});
      continue;
    }
    if (!isa<RankedTensorType>(operand->get().getType()))
      return false;
    if (argument.use_empty())
      continue;
    const std::optional<unsigned> row = addRow(argument);
    if (!row)
      return false;
    inputs.push_back({operand->get(), op.getMatchingIndexingMap(operand), *row});
    tensors.push_back(operand->get());
  }
  OpOperand *init = op.getDpsInitOperand(0);
  const std::optional<unsigned> row = addRow(body.getArguments().back());
  if (!row)
    return false;
  result = Operand{init->get(), op.getMatchingIndexingMap(init), *row};
  readsResult = !body.getArguments().back().use_empty();
  const bool isWritten = result->map.isProjectedPermutation(/*allowZeroInResults=*/true) &&
                         result->map.getNumResults() == result->map.getNumDims();
  if ((readsResult || !isWritten) && !init->get().getDefiningOp<tensor::EmptyOp>()) {
    initial = init->get();
    tensors.push_back(initial);
  }
  const auto isSum = [](utils::IteratorType type) {
    return type == utils::IteratorType::reduction;
  };
  costly |= llvm::any_of(op.getIteratorTypesArray(), isSum);
  return llvm::all_of(
             inputs,
             [](const Operand &input) { return llvm::all_of(input.map.getResults(), hasValue); }) &&
         llvm::all_of(result->map.getResults(), hasValue);
}

bool FoldBody::addOperation(Operation &op) {
  if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    const std::optional<unsigned> row = addRow(index.getResult());
    indices.push_back({static_cast<unsigned>(index.getDim()), *row});
    costly = true;
    return true;
  }
  if (isa<arith::ConstantOp>(op))
    return true; // rowOf looks it up where it is used
  std::vector<unsigned> arguments;
  auto extract = dyn_cast<tensor::ExtractOp>(op);
  for (Value operand : extract ? ValueRange(extract.getIndices()) : ValueRange(op.getOperands())) {
    const std::optional<unsigned> row = rowOf(operand);
    if (!row)
      return false;
    arguments.push_back(*row);
  }
  std::optional<RowStep> step = extract ? RowStep() : rowStepOf(&op);
  const std::optional<unsigned> row = step ? addRow(op.getResult(0)) : std::nullopt;
  if (!row)
    return false;
  order.push_back({extract != nullptr, extract ? lookups.size() : steps.size()});
  if (extract) {
    tensors.push_back(extract.getTensor());
    lookups.push_back({extract.getTensor(), std::move(arguments), *row});
    costly = true;
    return true;
  }
  step->arguments = std::move(arguments);
  step->result = *row;
  steps.push_back(std::move(*step));
  costly |= isCostlyScalar(op);
  return true;
}

/// The longest parallel loop that the results have a dimension for. Results of a row differ, so
/// that each is summed in the order of the other loops.
void FoldBody::chooseRowLoop(linalg::LinalgOp op) {
  for (auto [loop, type] : llvm::enumerate(op.getIteratorTypesArray())) {
    const AffineExpr dim = getAffineDimExpr(static_cast<unsigned>(loop), op.getContext());
    if (type == utils::IteratorType::parallel &&
        llvm::is_contained(result->map.getResults(), dim) &&
        llvm::all_of(result->map.getResults(), isLinear) &&
        (!rowLoop || extents[loop] > extents[*rowLoop]))
      rowLoop = static_cast<unsigned>(loop);
  }
}

std::optional<FoldBody> FoldBody::create(linalg::LinalgOp op) {
  FoldBody body;
  body.extents = op.getStaticLoopRanges();
  auto resultType = op->getNumResults() == 1
                        ? dyn_cast<RankedTensorType>(op->getResult(0).getType())
                        : RankedTensorType();
  if (op.getNumDpsInits() != 1 || !resultType || llvm::is_contained(body.extents, 0) ||
      llvm::any_of(body.extents, ShapedType::isDynamic) ||
      op.getBlock()->getNumArguments() != op->getNumOperands())
    return std::nullopt;
  body.resultType = resultType;
  if (!body.addOperands(op))
    return std::nullopt;
  for (Operation &inner : op.getBlock()->without_terminator())
    if (!body.addOperation(inner))
      return std::nullopt;
  Value value = op.getBlock()->getTerminator()->getOperand(0);
  const std::optional<unsigned> row = body.rowOf(value);
  if (!row)
    return std::nullopt;
  body.yielded = *row;
  body.copies = llvm::any_of(body.inputs, [&](const Operand &x) { return x.row == *row; });
  body.chooseRowLoop(op);
  return body;
}

int64_t FoldBody::work() const {
  auto work = static_cast<int64_t>(inputs.size() + order.size() + indices.size()) + 1 + readsResult;
  for (int64_t extent : extents)
    if (__builtin_mul_overflow(work, extent, &work))
      return std::numeric_limits<int64_t>::max();
  return work;
}

/// One evaluation.
struct FoldBody::Run {
  const FoldBody &body;
  ConstantOf constantOf;
  std::vector<Row> rows;
  std::vector<char> bytes;     ///< of the result
  std::vector<char> isUnknown; ///< of its elements, or empty

  /// An operand's elements at the points of a row.
  struct Reach {
    const Operand &operand;
    SmallVector<int64_t> pitches;
    bool isLinear;
    int64_t count; ///< elements that there are
    ConstantView numbers;
    std::optional<ConstantView> unknown; ///< of an input's
  };
  std::vector<Reach> reaches;

  Run(const FoldBody &body, ConstantOf constantOf);
  bool row(MutableArrayRef<int64_t> point, size_t count);
  void lookUp(const Lookup &lookup, size_t count);
  void loadUnknown(const Reach &reach, const Row::Part &part);
  void store(const Row::Part &part);
  int64_t at(const Reach &reach, ArrayRef<int64_t> point) const;
  template <class Visit>
  bool forParts(const Reach &reach, MutableArrayRef<int64_t> point, size_t count, Visit visit);
  static Reach reachOf(const Operand &operand, const ConstantView &numbers);
};

FoldBody::Run::Reach FoldBody::Run::reachOf(const Operand &operand, const ConstantView &numbers) {
  return {operand,
          pitchesOf(numbers.type.getShape()),
          llvm::all_of(operand.map.getResults(), millrace::onnx_import::isLinear),
          numbers.type.getNumElements(),
          numbers,
          std::nullopt};
}

FoldBody::Run::Run(const FoldBody &body, ConstantOf constantOf)
    : body(body), constantOf(constantOf) {
  const auto elements = static_cast<size_t>(body.resultType.getNumElements());
  bytes.resize(elements * elementBytes(body.resultType.getElementType()));
  const auto repeat = [](const ConstantView &from, std::vector<char> &to) {
    for (size_t i = 0; i < to.size(); i += from.bytes.size())
      std::memcpy(&to[i], from.bytes.data(), from.bytes.size());
  };
  if (body.initial) {
    const FoldedTensor &from = constantOf(body.initial);
    repeat(from.numbers, bytes);
    if (from.unknown) {
      isUnknown.resize(elements);
      repeat(*from.unknown, isUnknown);
    }
  }
  for (const Operand &input : body.inputs) {
    const FoldedTensor &from = constantOf(input.tensor);
    reaches.push_back(reachOf(input, from.numbers));
    reaches.back().unknown = from.unknown;
  }
  reaches.push_back(
      reachOf(*body.result, {body.resultType, ArrayRef<char>(bytes), false, nullptr}));
  for (NumberType type : body.rowTypes)
    rows.emplace_back(type, static_cast<size_t>(mostRowPoints));
  for (const Fixed &one : body.fixed)
    rows[one.row].set(one.value);
}

int64_t FoldBody::Run::at(const Reach &reach, ArrayRef<int64_t> point) const {
  int64_t element = 0;
  for (auto [expr, pitch] : llvm::zip_equal(reach.operand.map.getResults(), reach.pitches))
    element += valueOf(expr, point) * pitch;
  return element;
}

/// Calls `visit` for the parts of a row whose elements lie evenly; false if an element lies outside
/// of the tensor.
template <class Visit>
bool FoldBody::Run::forParts(const Reach &reach, MutableArrayRef<int64_t> point, size_t count,
                             Visit visit) {
  const auto isInside = [&](int64_t element) { return element >= 0 && element < reach.count; };
  const int64_t first = at(reach, point);
  if (!isInside(first))
    return false;
  if (count == 1) {
    visit(Row::Part{0, 1, first, 0});
    return true;
  }
  int64_t &position = point[*body.rowLoop];
  const int64_t begin = position;
  bool inside = true;
  if (reach.isLinear) {
    ++position;
    const int64_t step = at(reach, point) - first;
    inside = isInside(first + static_cast<int64_t>(count - 1) * step);
    if (inside)
      visit(Row::Part{0, count, first, step});
  }
  for (size_t i = 0; i < count && inside && !reach.isLinear; ++i) {
    position = begin + static_cast<int64_t>(i);
    const int64_t element = at(reach, point);
    inside = isInside(element);
    if (inside)
      visit(Row::Part{i, 1, element, 0});
  }
  position = begin;
  return inside;
}

void FoldBody::Run::lookUp(const Lookup &lookup, size_t count) {
  const FoldedTensor &table = constantOf(lookup.tensor);
  ArrayRef<int64_t> shape = table.numbers.type.getShape();
  const SmallVector<int64_t> pitches = pitchesOf(shape);
  Row &target = rows[lookup.row];
  target.hasUnknown = false;
  for (size_t i = 0; i < count; ++i) {
    int64_t element = 0;
    bool isKnown = true;
    for (size_t d = 0; d < shape.size() && isKnown; ++d) {
      const Row &positions = rows[lookup.positions[d]];
      const int64_t position = positions.integers[i];
      isKnown =
          position >= 0 && position < shape[d] && !(positions.hasUnknown && positions.isUnknown[i]);
      element += isKnown ? position * pitches[d] : 0;
    }
    if (!isKnown || (table.unknown && table.unknown->integer(element)))
      target.setUnknown(i);
    else
      target.load(table.numbers.bytes.data(), {i, 1, table.numbers.splat ? 0 : element, 0});
  }
}

/// Which of the numbers that were loaded are unknown.
void FoldBody::Run::loadUnknown(const Reach &reach, const Row::Part &part) {
  Row &row = rows[reach.operand.row];
  const bool isResult = &reach == &reaches.back();
  for (size_t i = 0; i < part.count; ++i) {
    const int64_t element = part.first + static_cast<int64_t>(i) * part.step;
    if (isResult ? isUnknown[static_cast<size_t>(element)] : reach.unknown->integer(element))
      row.setUnknown(part.at + i);
  }
}

void FoldBody::Run::store(const Row::Part &part) {
  const Row &row = rows[body.yielded];
  row.store(bytes.data(), part);
  if (row.hasUnknown && isUnknown.empty())
    isUnknown.resize(static_cast<size_t>(body.resultType.getNumElements()));
  for (size_t i = 0; i < part.count && !isUnknown.empty(); ++i)
    isUnknown[static_cast<size_t>(part.first + static_cast<int64_t>(i) * part.step)] =
        row.hasUnknown && row.isUnknown[part.at + i];
}

bool FoldBody::Run::row(MutableArrayRef<int64_t> point, size_t count) {
  for (const Reach &reach : reaches) {
    const bool isResult = &reach == &reaches.back();
    if (isResult && !body.readsResult)
      continue;
    Row &row = rows[reach.operand.row];
    row.hasUnknown = false;
    if (!forParts(reach, point, count, [&](const Row::Part &part) {
          const bool splat = reach.numbers.splat; // one element is all of them
          row.load(reach.numbers.bytes.data(),
                   {part.at, part.count, splat ? 0 : part.first, splat ? 0 : part.step});
          if (isResult ? !isUnknown.empty() : reach.unknown.has_value())
            loadUnknown(reach, part);
        }))
      return false;
  }
  for (const Index &index : body.indices)
    for (size_t i = 0; i < count; ++i)
      rows[index.row].integers[i] =
          point[index.loop] + (body.rowLoop == index.loop ? static_cast<int64_t>(i) : 0);
  for (const Next &next : body.order)
    if (next.isLookup)
      lookUp(body.lookups[next.at], count);
    else
      body.steps[next.at].run(rows, count);
  return forParts(reaches.back(), point, count, [&](const Row::Part &part) { store(part); });
}

std::optional<FoldedTensor> FoldBody::evaluate(ConstantOf constantOf) const {
  Run run(*this, constantOf);
  SmallVector<int64_t> point(extents.size(), 0);
  while (true) {
    const int64_t extent = rowLoop ? extents[*rowLoop] : 1;
    for (int64_t i = 0; i < extent; i += mostRowPoints) {
      if (rowLoop)
        point[*rowLoop] = i;
      if (!run.row(point, static_cast<size_t>(std::min(mostRowPoints, extent - i))))
        return std::nullopt;
    }
    if (rowLoop)
      point[*rowLoop] = extent - 1;
    size_t d = point.size();
    while (d > 0 && point[d - 1] == extents[d - 1] - 1)
      --d;
    if (d == 0)
      return ownTensor(resultType, std::move(run.bytes), std::move(run.isUnknown));
    ++point[d - 1];
    std::fill(point.begin() + static_cast<int64_t>(d), point.end(), 0);
  }
}

} // namespace millrace::onnx_import
