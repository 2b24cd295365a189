// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Ranges.h"

#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Intervals.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <cstring>

namespace millrace::forms {

using namespace mlir;
using namespace intervals;

bool Range::isBounded() const { return std::isfinite(low) && std::isfinite(high); }
bool Range::isFinite() const { return !nan && isBounded(); }
double Range::largest() const { return std::max(std::fabs(low), std::fabs(high)); }

static double largestOf(ElementType stored) {
  return stored == ElementType::Fp16 ? 65504 : 3.3895313892515355e38;
}

/// Any value of the type.
static Range anyOf(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type)) {
    if (integer.getWidth() == 1)
      return {0, 1, false, true, true, false};
    const double half = std::ldexp(1.0, int(integer.getWidth()) - 1);
    return {-half, half, false, true, true, false};
  }
  if (isa<IndexType>(type))
    return {0, std::ldexp(1.0, 62), false, true, true, false};
  return {};
}

/// Bounds of all numbers that `at` gives.
template <class F> static Range ofAll(int64_t count, F at) {
  double low = Range::kInfinity, high = -Range::kInfinity;
  bool nan = false, isWhole = true;
  for (int64_t i = 0; i < count; ++i) {
    const double value = at(i);
    nan |= value != value;
    isWhole = isWhole && value == std::nearbyint(value);
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  return low > high ? Range{0, 0, nan, false, false, false}
                    : Range{low, high, nan, isWhole, false, false};
}

static Range ofConstant(Value tensor) {
  std::optional<ConstantView> view = viewConstant(tensor);
  const Type element = cast<RankedTensorType>(tensor.getType()).getElementType();
  if (!view)
    return anyOf(element);
  const int64_t all = view->type.getNumElements(),
                count = view->splat ? std::min<int64_t>(1, all) : all;
  if (element.isF32())
    return ofAll(count, [&](int64_t i) {
      float value;
      std::memcpy(&value, view->bytes.data() + i * int64_t(sizeof value), sizeof value);
      return double(value);
    });
  if (isa<FloatType>(element))
    return ofAll(count, [&](int64_t i) { return view->real(i); });
  return ofAll(count, [&](int64_t i) { return double(view->integer(i)); });
}

/// Whether windows of a contraction move over the value, seen through views and maps.
static bool meetsWindow(Value value, int depth = 0) {
  constexpr int kDeepest = 6;
  return depth < kDeepest && llvm::any_of(value.getUses(), [&](OpOperand &use) {
           Operation *user = use.getOwner();
           auto form = dyn_cast<linalg::LinalgOp>(user);
           if (form && isContraction(form))
             return llvm::any_of(form.getMatchingIndexingMap(&use).getResults(),
                                 [](AffineExpr expr) {
                                   auto sum = dyn_cast<AffineBinaryOpExpr>(expr);
                                   return sum && sum.getKind() == AffineExprKind::Add;
                                 });
           const bool isView = isa<tensor::PadOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                                   tensor::ExtractSliceOp, linalg::TransposeOp>(user);
           return (isView || (form && isMap(form))) && meetsWindow(user->getResult(0), depth + 1);
         });
}

/// Gives the value as it is, somewhere else.
static bool isElsewhere(Operation *op) {
  return isa<tensor::PadOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp,
             tensor::CastOp, tensor::ConcatOp, tensor::InsertSliceOp, linalg::TransposeOp,
             linalg::BroadcastOp>(op);
}

/// A map or reduction in which an error of an operand stays as large, beside its result, as it was:
/// what images go through before they are multiplied.
static bool isPlainArithmetic(linalg::LinalgOp op) {
  return op.getBlock() && llvm::all_of(*op.getBlock(), [](Operation &inner) {
           return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp,
                      arith::MaximumFOp, arith::MinimumFOp, arith::SIToFPOp, arith::UIToFPOp,
                      arith::ExtFOp, arith::TruncFOp, linalg::YieldOp>(inner) ||
                  inner.hasTrait<OpTrait::ConstantLike>();
         });
}

/// Whether it becomes an angle without being multiplied in sums before.
static bool becomesAngle(Value value, int depth = 0) {
  constexpr int kDeepest = 8;
  return depth < kDeepest && llvm::any_of(value.getUsers(), [&](Operation *user) {
           auto form = dyn_cast<linalg::LinalgOp>(user);
           if (isElsewhere(user) || (form && isPlainArithmetic(form) && !isContraction(form)))
             return user->getNumResults() == 1 && becomesAngle(user->getResult(0), depth + 1);
           return form && form.getBlock() && llvm::any_of(*form.getBlock(), [](Operation &inner) {
                    return isa<math::SinOp, math::CosOp>(inner);
                  });
         });
}

/// Whether the scalar is computed of the argument of a body.
static bool isMadeOf(Value scalar, Value argument) {
  Operation *op = scalar.getDefiningOp();
  return op ? llvm::any_of(op->getOperands(), [&](Value x) { return isMadeOf(x, argument); })
            : scalar == argument;
}

/// Whether something is divided by it, or its logarithm is taken, perhaps after arithmetic with
/// each of its elements: of 0, neither is a number.
static bool becomesDivisor(Value value, int depth = 0) {
  constexpr int kDeepest = 6;
  return depth < kDeepest && llvm::any_of(value.getUses(), [&](OpOperand &use) {
           Operation *user = use.getOwner();
           if (isElsewhere(user))
             return becomesDivisor(user->getResult(0), depth + 1);
           auto form = dyn_cast<linalg::LinalgOp>(user);
           if (!form || !isMap(form) || !form.isDpsInput(&use))
             return false;
           const Value argument = form.getMatchingBlockArgument(&use);
           const bool divides = llvm::any_of(*form.getBlock(), [&](Operation &op) {
             return isa<arith::DivFOp, math::RsqrtOp, math::LogOp, math::PowFOp>(op) &&
                    isMadeOf(op.getOperand(isa<arith::DivFOp>(op) ? 1 : 0), argument);
           });
           return divides || becomesDivisor(user->getResult(0), depth + 1);
         });
}

/// Whether a product takes 16 bits of it: fp32 is multiplied by few constants.
static bool isRounded(Value value) {
  return llvm::any_of(value.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isElsewhere(user))
      return isRounded(user->getResult(0));
    auto form = dyn_cast<linalg::LinalgOp>(user);
    if (!form || !isContraction(form) || use.getOperandNumber() > 1)
      return false;
    const Value other = user->getOperand(1 - use.getOperandNumber());
    return !isConstantValue(other) || !areExactInBf16(other);
  });
}

static double termsOf(linalg::LinalgOp op) {
  double terms = 1;
  for (auto [extent, iterator] : llvm::zip(op.getStaticLoopRanges(), op.getIteratorTypesArray()))
    if (iterator == utils::IteratorType::reduction)
      terms *= double(extent);
  return terms;
}

/// A sum of several products with real numbers is no index and, unless it becomes one, no angle.
bool Ranges::makesReals(linalg::LinalgOp op, const Range &result) const {
  return isContraction(op) && termsOf(op) > 1 && !result.isWhole &&
         isa<FloatType>(getElementTypeOrSelf(op->getResult(0).getType())) &&
         llvm::any_of(op.getDpsInputs(), [&](Value factor) { return !of(factor).fromIntegers; }) &&
         !becomesAngle(op->getResult(0));
}

/// Values that meet nothing but sums of products, perhaps after plain arithmetic: images of bytes
/// that the model normalises. They are as other activations.
void Ranges::noteImages(Block &block) {
  DenseSet<Value> images;
  for (Operation &op : llvm::reverse(block)) {
    if (op.getNumResults() != 1 || op.getResult(0).use_empty())
      continue;
    const Value value = op.getResult(0);
    const auto found = tensors.find(value);
    if (found == tensors.end() || !found->second.fromIntegers)
      continue;
    const bool isImage = llvm::all_of(value.getUsers(), [&](Operation *user) {
      auto form = dyn_cast<linalg::LinalgOp>(user);
      if (form && isContraction(form))
        return makesReals(form, of(user->getResult(0)));
      return (isElsewhere(user) || (form && isPlainArithmetic(form))) &&
             user->getNumResults() == 1 && images.contains(user->getResult(0));
    });
    if (!isImage)
      continue;
    images.insert(value);
    found->second.fromOthers = true;
  }
}

Ranges::Ranges(func::FuncOp function, ElementType stored, bool givesFinite) : stored(stored) {
  for (BlockArgument argument : function.getArguments())
    if (auto type = dyn_cast<RankedTensorType>(argument.getType())) {
      tensors[argument] = anyOf(type.getElementType());
      // Images are taken to be finite: their pixels are packed beside each other in rows.
      if (isa<FloatType>(type.getElementType()) &&
          (givesFinite || (type.getRank() >= 3 && meetsWindow(argument))))
        tensors[argument] = {-largestOf(stored), largestOf(stored), false, false, false, true};
    }
  for (Operation &op : function.getBody().front()) // in the order of the block: operands first
    if (op.getNumResults() == 1 && isa<RankedTensorType>(op.getResult(0).getType()))
      tensors[op.getResult(0)] = ofOperation(&op);
  noteImages(function.getBody().front());
}

Range Ranges::of(Value tensor) const {
  auto found = tensors.find(tensor);
  return found == tensors.end() ? anyOf(getElementTypeOrSelf(tensor.getType())) : found->second;
}

/// Of maps that read their operands element by element, where ranges of some are given.
Range Ranges::with(Value tensor, Known &given) const {
  if (const auto found = given.find(tensor); found != given.end())
    return found->second;
  auto map = tensor.getDefiningOp<linalg::GenericOp>();
  if (!map || !isMap(map))
    return of(tensor);
  Known known;
  for (OpOperand *operand : map.getDpsInputOperands())
    known[map.getMatchingBlockArgument(operand)] = map.getMatchingIndexingMap(operand).isIdentity()
                                                       ? with(operand->get(), given)
                                                       : of(operand->get());
  const Range range = ofScalar(map.getBody()->getTerminator()->getOperand(0), known);
  return given[tensor] = withinType(range, getElementTypeOrSelf(tensor.getType()));
}

Range Ranges::ofEach(Value tensor, Value source) const {
  std::optional<Range> all;
  for (int value = -128; value < 128; ++value) {
    Known given;
    given[source] = {double(value), double(value), false, true, true, false};
    const Range range = with(tensor, given);
    all = all ? either(*all, range) : range;
  }
  return *all;
}

static double leastOf(ElementType stored) {
  return std::ldexp(1.0, stored == ElementType::Fp16 ? -24 : -133);
}

bool Ranges::mayVanish(Value tensor) const {
  while (Operation *view = tensor.getDefiningOp()) { // what lies in memory
    if (!isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp, tensor::CastOp,
             linalg::TransposeOp>(view))
      break;
    tensor = view->getOperand(0);
  }
  const Range range = of(tensor);
  return isa<FloatType>(getElementTypeOrSelf(tensor.getType())) && range.low > 0 &&
         range.low < leastOf(stored) && becomesDivisor(tensor) && !isRounded(tensor);
}

/// A real number of 16 bits is no larger than the format's largest, and may be so small that it
/// became 0.
Range Ranges::inMemory(Value tensor) const {
  Range range = of(tensor);
  if (!isa<FloatType>(getElementTypeOrSelf(tensor.getType())))
    return range;
  const double least = leastOf(stored);
  if (range.low > 0 && range.low < least)
    range.low = 0;
  if (range.high < 0 && range.high > -least)
    range.high = 0;
  return range;
}

bool Ranges::needsFp32(Value tensor) const {
  const Type element = getElementTypeOrSelf(tensor.getType());
  const Range range = of(tensor);
  if (!isa<FloatType>(element) || range.fromOthers)
    return false;
  if (!range.fromIntegers) // chosen among constants: masks of the lowest fp32
    return stored == ElementType::Fp16 && range.isFinite() && range.largest() > largestOf(stored);
  // Whole numbers up to here have no error in 16 bits, and others none to speak of.
  const double exact = stored == ElementType::Fp16 ? 2048 : 256;
  constexpr double kSmallAngle = 4;
  return !(range.largest() <= (range.isWhole ? exact : kSmallAngle));
}

Range Ranges::ofOperation(Operation *op) const {
  const Type element = getElementTypeOrSelf(op->getResult(0).getType());
  if (op->hasTrait<OpTrait::ConstantLike>())
    return ofConstant(op->getResult(0));
  if (auto fill = dyn_cast<linalg::FillOp>(op)) {
    Known known;
    return ofScalar(fill.getInputs()[0], known);
  }
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractSliceOp, tensor::CastOp,
          linalg::TransposeOp, linalg::BroadcastOp>(op)) {
    Range range = of(op->getOperand(0));
    range.fillsRows &= isa<tensor::ExpandShapeOp, tensor::ExtractSliceOp>(op);
    return range;
  }
  if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    Known known;
    Value scalar = pad.getConstantPaddingValue();
    return scalar ? either(of(pad.getSource()), ofScalar(scalar, known)) : anyOf(element);
  }
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return either(of(insert.getSource()), of(insert.getDest()));
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    Range all = of(concat.getInputs()[0]);
    for (Value part : concat.getInputs().drop_front())
      all = either(all, of(part));
    return all;
  }
  if (auto form = dyn_cast<linalg::LinalgOp>(op); form && form.getBlock()) {
    Range range = withinType(ofGeneric(form), element);
    range.fillsRows = range.isBounded() && fillsRows(form);
    range.fromOthers |= op->hasAttr(kOfReals) || (range.fromIntegers && makesReals(form, range));
    return range;
  }
  return anyOf(element);
}

/// Whether NaN, which is all that is not finite among the operands, comes to fill rows: a sum of
/// products takes it to every column, and arithmetic leaves it where it is.
bool Ranges::fillsRows(linalg::LinalgOp op) const {
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  const bool isProduct = isContraction(op);
  if (result.getNumResults() == 0 || !(isProduct || isMap(op)) ||
      llvm::any_of(*op.getBlock(), [](Operation &inner) { return isa<arith::SelectOp>(inner); }))
    return false;
  const AffineExpr last = result.getResult(result.getNumResults() - 1);
  unsigned streams = 0;
  for (auto [i, operand] : llvm::enumerate(op.getDpsInputs())) {
    const Range range = of(operand);
    if (range.isFinite())
      continue;
    AffineMap map = op.getIndexingMapsArray()[i];
    const bool isColumn = llvm::is_contained(map.getResults(), last);
    if (!range.isBounded() ||
        (isProduct ? isColumn || ++streams > 1 : !range.fillsRows || !map.isIdentity()))
      return false;
  }
  return true;
}

/// The source of an operand's padding, if every window of the reduction meets some of it: where
/// the padding is neutral, the result is one of the source's values.
static Value sourceOfPadding(linalg::LinalgOp op, unsigned operand) {
  auto pad = op->getOperand(operand).getDefiningOp<tensor::PadOp>();
  if (!pad)
    return {};
  const SmallVector<int64_t, 4> extents = op.getStaticLoopRanges();
  AffineMap map = op.getIndexingMapsArray()[operand];
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    const int64_t low = pad.getStaticLow()[dim],
                  high = low + cast<RankedTensorType>(pad.getSource().getType()).getDimSize(dim);
    SmallVector<unsigned> outer, taps;
    for (unsigned loop = 0; loop < extents.size(); ++loop)
      if (expr.isFunctionOfDim(loop))
        (op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction ? taps : outer)
            .push_back(loop);
    if (outer.size() > 1 || taps.size() > 1)
      return {};
    SmallVector<int64_t> point(extents.size(), 0);
    for (int64_t o = 0; o < (outer.empty() ? 1 : extents[outer[0]]); ++o) {
      bool meets = false;
      for (int64_t t = 0; t < (taps.empty() ? 1 : extents[taps[0]]) && !meets; ++t) {
        if (!outer.empty())
          point[outer[0]] = o;
        if (!taps.empty())
          point[taps[0]] = t;
        const int64_t at = AffineMap::get(unsigned(point.size()), 0, expr).compose(point)[0];
        meets = at >= low && at < high;
      }
      if (!meets)
        return {};
    }
  }
  return pad.getSource();
}

/// A map by its body; a sum by the number of its terms.
Range Ranges::ofGeneric(linalg::LinalgOp op) const {
  Known known;
  Block &body = *op.getBlock();
  const bool isProduct = op.getNumReductionLoops() > 0 && combinerOf(op) == Combiner::SumOfProducts;
  for (auto [i, operand] : llvm::enumerate(op.getDpsInputs())) {
    Range range = isProduct || !mayVanish(operand) ? inMemory(operand) : of(operand);
    const Type element = getElementTypeOrSelf(operand.getType());
    if (const Combiner combiner = combinerOf(op);
        op.getNumReductionLoops() > 0 && (combiner == Combiner::Max || combiner == Combiner::Min))
      if (Value source =
              isNeutralPadding(op, unsigned(i)) ? sourceOfPadding(op, unsigned(i)) : Value())
        range = inMemory(source);
    // The factors of a contraction lie in memory, as 16 bits.
    if (isProduct && isa<FloatType>(element) && range.isFinite())
      range = clamped(range, largestOf(stored));
    known[body.getArgument(unsigned(i))] = range;
  }
  if (op.getNumReductionLoops() == 0)
    return ofScalar(body.getTerminator()->getOperand(0), known);
  const double terms = termsOf(op);
  switch (combinerOf(op)) {
  case Combiner::Sum:
  case Combiner::SumOfProducts:
    return either(of(op.getDpsInits()[0]), times(ofScalar(combinedValue(op), known), terms));
  case Combiner::Max:
  case Combiner::Min: // of at least one value
    return ofScalar(combinedValue(op), known);
  case Combiner::None:
    break;
  }
  if (op->hasAttr(kCumulative)) // none to all of them
    return either(of(op.getDpsInits()[0]), times(known[body.getArgument(0)], terms));
  return anyOf(getElementTypeOrSelf(op->getResult(0).getType()));
}

Range Ranges::ofScalar(Value scalar, Known &known) const {
  if (auto found = known.find(scalar); found != known.end())
    return found->second;
  Range range = anyOf(scalar.getType());
  Attribute constant;
  if (matchPattern(scalar, m_Constant(&constant))) {
    double value = 0;
    if (auto real = dyn_cast<FloatAttr>(constant))
      value = real.getValueAsDouble();
    else if (auto integer = dyn_cast<IntegerAttr>(constant))
      value = integer.getType().isInteger(1) ? double(integer.getValue().getZExtValue())
                                             : double(integer.getValue().getSExtValue());
    range = {value, value, std::isnan(value), value == std::nearbyint(value), false, false};
  } else if (Operation *op = scalar.getDefiningOp()) {
    range = withinType(ofScalarOperation(op, known), scalar.getType());
  }
  return known[scalar] = range;
}

Range Ranges::ofScalarOperation(Operation *op, Known &known) const {
  const Type type = op->getResult(0).getType();
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) { // a row of a table
    Range range = inMemory(extract.getTensor());
    range.fromOthers |= isa<FloatType>(type);
    return range;
  }
  if (isa<linalg::IndexOp>(op))
    return anyOf(type);
  if (op->getNumRegions() > 0)
    return anyOf(type);
  SmallVector<Range> x;
  for (Value operand : op->getOperands())
    x.push_back(ofScalar(operand, known));
  const bool isSame = op->getNumOperands() == 2 && op->getOperand(0) == op->getOperand(1);
  Range result = resultOf(op, x, isSame).value_or(anyOf(type));
  // What import knows of the operation as a whole.
  if (auto within = op->getAttrOfType<DenseF64ArrayAttr>("millrace.within")) {
    result.nan &= !llvm::all_of(x, [](const Range &range) { return range.isFinite(); });
    result.low = std::max(result.low, within[0]);
    result.high = std::min(result.high, within[1]);
  }
  return result;
}

} // namespace millrace::forms
