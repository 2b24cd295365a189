// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Maps between quantisers: the factor 1 / (scale of the result) and its zero point are pushed down
// through sums, products and clamps into what multiplies and adds there anyway, so that nothing is
// multiplied, or added to, twice.
#include "compiler/Forms/Former/ChannelMap.h"
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Scheme.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

namespace millrace::forms {

using namespace mlir;

static unsigned addConstantTo(KernelBuilder &build, unsigned node, double constant) {
  return constant == 0 ? node : build.op(AluOp::AddF32, {node, build.constant(float(constant))});
}

/// Whether ties between the two nearest integers are as rare as their share of fp32 numbers: scales
/// that somebody chose to be simple, powers of two above all, make many.
static bool makesFewTies(double scale) {
  constexpr int kSimple = 12; // bits
  int exponent = 0;
  const double bits = std::ldexp(std::frexp(scale, &exponent), kSimple);
  return bits != std::nearbyint(bits);
}

/// What is not folded into anything: a multiplication and an addition.
static Scalar applied(KernelBuilder &build, Rescaling to, unsigned node) {
  if (to.factor != 1)
    node = build.op(AluOp::MulF32, {node, build.constant(float(to.factor))});
  return Scalar{addConstantTo(build, node, to.offset), Scalar::Kind::F32};
}

FailureOr<Scalar> Former::computeQuantize(Attempt &attempt, linalg::LinalgOp op,
                                          const Point &index) {
  std::optional<Scheme> scheme = schemeOf(op);
  Type element = cast<RankedTensorType>(op->getResult(0).getType()).getElementType();
  if (!scheme || !scheme->isPerTensor() || !isSigned(op) || !element.isInteger(8))
    return failure();
  const double zero = double(scheme->zero);
  const bool isAddedFirst =
      scheme->zero % 2 == 0 || (!options.exactQdq && makesFewTies(scheme->scale[0]));
  FailureOr<Scalar> value = pullScaled(attempt, op->getOperand(0), index,
                                       {1 / scheme->scale[0], isAddedFirst ? zero : 0});
  if (failed(value))
    return failure();
  unsigned node = value->node;
  if (!isAddedFirst) { // ties go to what is even before it is added: round by itself
    constexpr double kUnits = 3 << 22; // fp32 numbers around it are 1 apart
    node = addConstantTo(attempt.build, node, kUnits);
    node = addConstantTo(attempt.build, node, zero - kUnits);
  }
  return Scalar{attempt.build.op(AluOp::CvtF32I8, {node}), Scalar::Kind::I8};
}

/// to(value), folded into what makes the value where that is possible.
FailureOr<Scalar> Former::pullScaled(Attempt &attempt, Value value, const Point &index,
                                     Rescaling to) {
  FailureOr<Resolved> at = resolve(attempt, value, index);
  if (failed(at))
    return failure();
  linalg::LinalgOp op = formOf(at->base);
  KernelBuilder &build = attempt.build;
  if (std::optional<TensorScheme> scheme = dequantizedBy(op); scheme && !at->padded) {
    FailureOr<Scalar> integer = pull(attempt, op->getOperand(0), at->index);
    if (failed(integer) || integer->kind != Scalar::Kind::I8)
      return failure();
    double scale = scheme->scale * to.factor;
    unsigned node = build.op(AluOp::CvtI8F32, {integer->node});
    const bool isShared = to.offset == 0; // as in bodyUnscaled: a product may read it, too
    if (isShared)
      node = addConstantTo(build, node, -double(scheme->zero));
    node = build.op(AluOp::MulF32, {node, build.constant(float(scale))});
    if (!isShared)
      node = addConstantTo(build, node, to.offset - scale * double(scheme->zero));
    return Scalar{node, Scalar::Kind::F32};
  }
  if (op && !at->padded && !stored.count(at->base) && canInline(attempt, at->base, at->index)) {
    if (isContraction(op) && !isDepthwise(op) && isQuantized(op)) {
      attempt.names.push_back(nameOf(at->base));
      return computeIntegerContraction(attempt, op, at->index, to, {});
    }
    // A sum of dequantised values is scaled once, the zero points of its terms taken off then.
    // Padding holds zeros, no zero points, and terms with padding are read from memory, where they
    // are scaled already.
    linalg::LinalgOp terms = formOf(baseOf(op->getOperand(0)));
    std::optional<Scheme> inner =
        terms && quantKind(terms) == "dequantize" ? schemeOf(terms) : std::nullopt;
    if (!isMap(op) && !isContraction(op) && combinerOf(op) == Combiner::Sum && !reducesLanes(op) &&
        combinedValue(op) == op.getBlock()->getArgument(0) && inner && inner->isPerTensor() &&
        shapeOf(baseOf(op->getOperand(0))) == shapeOf(op->getOperand(0)) && isSigned(terms) &&
        !stored.count(terms->getResult(0)) && !attempt.unscaled) {
      attempt.names.push_back(nameOf(at->base));
      attempt.unscaled = terms;
      FailureOr<Scalar> sum = computeReduction(attempt, op, at->index);
      attempt.unscaled = nullptr;
      if (failed(sum))
        return failure();
      double scale = inner->scale[0] * to.factor, zeros = double(inner->zero);
      for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
        if (op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction)
          zeros *= double(op.getStaticLoopRanges()[loop]);
      unsigned node = build.op(AluOp::MulF32, {sum->node, build.constant(float(scale))});
      node = addConstantTo(build, node, to.offset - scale * zeros);
      return Scalar{node, Scalar::Kind::F32};
    }
    if (isMap(op)) {
      attempt.names.push_back(nameOf(at->base));
      return bodyScaled(attempt, op, op.getBlock()->getTerminator()->getOperand(0), at->index, to);
    }
  }
  FailureOr<Scalar> plain = pullBase(attempt, *at);
  if (failed(plain) || plain->kind != Scalar::Kind::F32)
    return failure();
  return applied(build, to, plain->node);
}

/// Index of operand `number` of a map at `index` of its result.
static FailureOr<Point> operandPoint(LoopSpace &space, linalg::LinalgOp op, unsigned number,
                                     const Point &index) {
  Point point;
  for (AffineExpr expr : op.getIndexingMapsArray()[number].getResults()) {
    std::optional<Linear> at = space.evaluate(expr, index);
    if (!at)
      return failure();
    point.push_back(*at);
  }
  return point;
}

/// A number that is the same for all elements: in the body, or all that a constant operand holds.
std::optional<double> Former::constantIn(linalg::LinalgOp op, Value value) {
  FloatAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant.getValueAsDouble();
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return std::nullopt;
  const Value operand = baseOf(op->getOperand(argument.getArgNumber()));
  const auto type = cast<RankedTensorType>(operand.getType());
  if (type.getNumElements() != 1 || !isa<FloatType>(type.getElementType()))
    return std::nullopt;
  const std::optional<std::vector<double>> reals = constantReals(operand);
  return reals ? std::optional(reals->front()) : std::nullopt;
}

FailureOr<Scalar> Former::bodyScaled(Attempt &attempt, linalg::LinalgOp op, Value value,
                                     const Point &index, Rescaling to) {
  KernelBuilder &build = attempt.build;
  if (const std::optional<double> constant = constantIn(op, value))
    return Scalar{build.constant(float(*constant * to.factor + to.offset)), Scalar::Kind::F32};
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    FailureOr<Point> at = operandPoint(attempt.space, op, argument.getArgNumber(), index);
    if (failed(at))
      return failure();
    return pullScaled(attempt, op->getOperand(argument.getArgNumber()), *at, to);
  }
  Operation *inner = value.getDefiningOp();
  if (FailureOr<Scalar> affine = affineScaled(attempt, op, inner, index, to);
      succeeded(affine) || attempt.space.wanted)
    return affine;
  if (isa<arith::AddFOp, arith::SubFOp>(inner))
    return sumScaled(attempt, op, inner, index, to);
  bool isClamp = isa<arith::MaximumFOp, arith::MinimumFOp>(inner) && to.factor > 0;
  if (isClamp) {
    FailureOr<Scalar> x = bodyScaled(attempt, op, inner->getOperand(0), index, to);
    FailureOr<Scalar> y = failed(x) ? x : bodyScaled(attempt, op, inner->getOperand(1), index, to);
    if (failed(y))
      return failure();
    AluOp clamp = isa<arith::MaximumFOp>(inner) ? AluOp::MaxF32 : AluOp::MinF32;
    return Scalar{build.op(clamp, {x->node, y->node}), Scalar::Kind::F32};
  }
  if (isa<arith::MulFOp, arith::DivFOp>(inner)) {
    const bool isProduct = isa<arith::MulFOp>(inner);
    std::optional<double> by = constantIn(op, inner->getOperand(1));
    const unsigned other = by || !isProduct ? 0 : 1;
    if (other)
      by = constantIn(op, inner->getOperand(0));
    if (by)
      return bodyScaled(attempt, op, inner->getOperand(other), index,
                        {isProduct ? to.factor * *by : to.factor / *by, to.offset});
  }
  if (isa<arith::MulFOp>(inner)) {
    const unsigned second = takesFactor(attempt, op, inner->getOperand(0), index) ? 0 : 1;
    FailureOr<Unscaled> x = bodyUnscaled(attempt, op, inner->getOperand(1 - second), index);
    if (failed(x))
      return failure();
    const double factor = to.factor * x->factor;
    if (factor > 0 && takesFactor(attempt, op, inner->getOperand(second), index)) {
      FailureOr<Scalar> y = bodyScaled(attempt, op, inner->getOperand(second), index, {factor, 0});
      if (failed(y))
        return failure();
      const unsigned node =
          build.op(AluOp::MulF32, {addConstantTo(build, x->node, x->offset), y->node});
      return Scalar{addConstantTo(build, node, to.offset), Scalar::Kind::F32};
    }
    FailureOr<Unscaled> y = bodyUnscaled(attempt, op, inner->getOperand(second), index);
    if (failed(y))
      return failure();
    return applied(build, {to.factor * x->factor * y->factor, to.offset},
                   build.op(AluOp::MulF32, {addConstantTo(build, x->node, x->offset),
                                            addConstantTo(build, y->node, y->offset)}));
  }
  if (isa<math::ErfOp, math::TanhOp>(inner)) {
    FailureOr<Scalar> x = bodyScaled(attempt, op, inner->getOperand(0), index, {});
    if (failed(x))
      return failure();
    Values known = {{inner->getOperand(0), *x}};
    FailureOr<Scalar> result = bodyValue(attempt, value, known);
    if (failed(result))
      return failure();
    return applied(build, to, result->node);
  }
  // Anything else is computed as it stands.
  Values known;
  for (auto [i, operand] : llvm::enumerate(op.getDpsInputs())) {
    if (op.getBlock()->getArgument(unsigned(i)).use_empty())
      continue;
    FailureOr<Point> at = operandPoint(attempt.space, op, unsigned(i), index);
    FailureOr<Scalar> pulled =
        failed(at) ? FailureOr<Scalar>(failure()) : pull(attempt, operand, *at);
    if (failed(pulled))
      return failure();
    known[op.getBlock()->getArgument(unsigned(i))] = *pulled;
  }
  FailureOr<Scalar> plain = bodyValue(attempt, value, known);
  if (failed(plain))
    return failure();
  return applied(build, to, plain->node);
}

/// Whether a positive factor costs nothing there: the value is a multiple by a constant, perhaps
/// clamped or shifted by constants since.
bool Former::takesFactor(Attempt &attempt, linalg::LinalgOp op, Value value, const Point &index) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    const Value operand = op->getOperand(argument.getArgNumber());
    FailureOr<Point> point = operandPoint(attempt.space, op, argument.getArgNumber(), index);
    FailureOr<Resolved> at =
        failed(point) ? FailureOr<Resolved>(failure()) : resolve(attempt, operand, *point);
    linalg::LinalgOp source = failed(at) ? linalg::LinalgOp() : formOf(at->base);
    return source && isMap(source) && quantKind(source).empty() && !at->padded &&
           !stored.count(at->base) && canInline(attempt, at->base, at->index) &&
           takesFactor(attempt, source, source.getBlock()->getTerminator()->getOperand(0),
                       at->index);
  }
  Operation *inner = value.getDefiningOp();
  if (!inner || inner->getNumOperands() != 2 || !constantIn(op, inner->getOperand(1)))
    return false;
  return isa<arith::MulFOp, arith::DivFOp>(inner) ||
         (isa<arith::MaximumFOp, arith::MinimumFOp, arith::AddFOp, arith::SubFOp>(inner) &&
          takesFactor(attempt, op, inner->getOperand(0), index));
}

FailureOr<Former::Unscaled> Former::bodyUnscaled(Attempt &attempt, linalg::LinalgOp op, Value value,
                                                 const Point &index) {
  const auto realOf = [&](FailureOr<Scalar> integer) -> FailureOr<unsigned> {
    if (succeeded(integer) && integer->kind == Scalar::Kind::I8)
      return attempt.build.op(AluOp::CvtI8F32, {integer->node});
    if (succeeded(integer) && integer->kind == Scalar::Kind::I32)
      return attempt.build.op(AluOp::CvtI32F32, {integer->node});
    return failure();
  };
  auto cast = value.getDefiningOp<arith::SIToFPOp>();
  if (auto argument = dyn_cast<BlockArgument>(cast ? cast.getIn() : value)) {
    const Value operand = op->getOperand(argument.getArgNumber());
    FailureOr<Point> point = operandPoint(attempt.space, op, argument.getArgNumber(), index);
    if (failed(point))
      return failure();
    if (cast) {
      FailureOr<unsigned> node = realOf(pull(attempt, operand, *point));
      return failed(node) ? FailureOr<Unscaled>(failure()) : Unscaled{*node};
    }
    FailureOr<Resolved> at = resolve(attempt, operand, *point);
    if (failed(at))
      return failure();
    linalg::LinalgOp source = formOf(at->base);
    if (std::optional<TensorScheme> scheme = dequantizedBy(source); scheme && !at->padded) {
      FailureOr<unsigned> node = realOf(pull(attempt, source->getOperand(0), at->index));
      if (failed(node))
        return failure();
      return Unscaled{*node, scheme->scale, -double(scheme->zero)};
    }
  }
  FailureOr<Scalar> plain = bodyScaled(attempt, op, value, index, {});
  if (failed(plain))
    return failure();
  return Unscaled{plain->node, 1};
}

/// Which element of the constant behind operand `number` a map reads, counted row by row.
FailureOr<Linear> Former::elementOf(Attempt &attempt, linalg::LinalgOp op, unsigned number,
                                    const Point &index) {
  FailureOr<Point> at = operandPoint(attempt.space, op, number, index);
  FailureOr<Resolved> source =
      failed(at) ? FailureOr<Resolved>(failure()) : resolve(attempt, op->getOperand(number), *at);
  if (failed(source) || source->padded)
    return failure();
  Linear element;
  int64_t stride = 1;
  ArrayRef<int64_t> shape = shapeOf(source->base);
  for (size_t dim = shape.size(); dim-- > 0; stride *= shape[dim])
    element.add(source->index[dim], stride);
  return element;
}

/// x * scale + shift, of constants per channel: what scales the result, and what x is dequantised
/// by, become part of the constants.
FailureOr<Scalar> Former::affineScaled(Attempt &attempt, linalg::LinalgOp op, Operation *sum,
                                       const Point &index, Rescaling to) {
  auto product =
      isa<arith::AddFOp>(sum) ? sum->getOperand(0).getDefiningOp<arith::MulFOp>() : arith::MulFOp();
  if (!product)
    return failure();
  auto scales = dyn_cast<BlockArgument>(product.getRhs());
  auto shifts = dyn_cast<BlockArgument>(sum->getOperand(1));
  if (!scales || !shifts)
    return failure();
  const auto reals = [&](BlockArgument argument) {
    return constantReals(baseOf(op->getOperand(argument.getArgNumber())));
  };
  std::optional<std::vector<double>> scale = reals(scales), shift = reals(shifts);
  if (!scale || !shift || scale->size() != shift->size() || scale->size() == 1)
    return failure();
  FailureOr<Linear> channel = elementOf(attempt, op, scales.getArgNumber(), index);
  FailureOr<Linear> other = elementOf(attempt, op, shifts.getArgNumber(), index);
  if (failed(channel) || failed(other) || !(*channel == *other))
    return failure();
  FailureOr<Unscaled> x = bodyUnscaled(attempt, op, product.getLhs(), index);
  if (failed(x))
    return failure();
  for (auto [factor, offset] : llvm::zip(*scale, *shift)) {
    factor *= to.factor * x->factor;
    offset = offset * to.factor + to.offset + factor * x->offset;
  }
  KernelBuilder &build = attempt.build;
  const std::string name = nameOf(op->getResult(0));
  const unsigned scaled = build.op(
      AluOp::MulF32, {x->node, channelOperand(attempt, *scale, *channel, name + ".scale")});
  return Scalar{
      build.op(AluOp::AddF32, {scaled, channelOperand(attempt, *shift, *channel, name + ".shift")}),
      Scalar::Kind::F32};
}

/// A sum of a contraction and a constant per channel is one kernel constant; other sums add both
/// sides.
FailureOr<Scalar> Former::sumScaled(Attempt &attempt, linalg::LinalgOp op, Operation *sum,
                                    const Point &index, Rescaling to) {
  if (const std::optional<double> constant = constantIn(op, sum->getOperand(1))) {
    const double shift = *constant * to.factor;
    return bodyScaled(attempt, op, sum->getOperand(0), index,
                      {to.factor, to.offset + (isa<arith::AddFOp>(sum) ? shift : -shift)});
  }
  for (unsigned side : {0u, 1u}) {
    auto left = dyn_cast<BlockArgument>(sum->getOperand(side)),
         right = dyn_cast<BlockArgument>(sum->getOperand(1 - side));
    if (!left || !right || !isa<arith::AddFOp>(sum))
      continue;
    std::optional<std::vector<double>> bias =
        constantReals(baseOf(op->getOperand(right.getArgNumber())));
    FailureOr<Point> at = operandPoint(attempt.space, op, left.getArgNumber(), index);
    FailureOr<Linear> element =
        bias && bias->size() > 1 ? elementOf(attempt, op, right.getArgNumber(), index) : Linear();
    if (!bias || failed(at) || failed(element))
      continue;
    FailureOr<Resolved> source = resolve(attempt, op->getOperand(left.getArgNumber()), *at);
    if (failed(source) || source->padded || stored.count(source->base))
      continue;
    linalg::LinalgOp contraction = formOf(source->base);
    if (contraction && isContraction(contraction) && !isDepthwise(contraction) &&
        isQuantized(contraction) && canInline(attempt, source->base, source->index))
      return computeIntegerContraction(attempt, contraction, source->index, to, {*bias, *element});
  }
  // The offset goes to a side that adds a constant anyway: a bias, a zero point.
  const auto addsConstant = [&](Value side) {
    auto argument = dyn_cast<BlockArgument>(side);
    linalg::LinalgOp source =
        argument ? formOf(baseOf(op->getOperand(argument.getArgNumber()))) : linalg::LinalgOp();
    std::optional<Scheme> scheme =
        source && quantKind(source) == "dequantize" ? schemeOf(source) : std::nullopt;
    return !scheme || scheme->zero != 0;
  };
  const bool adds = isa<arith::AddFOp>(sum);
  Rescaling left = to, right{to.factor, 0};
  if (!addsConstant(sum->getOperand(0)) && addsConstant(sum->getOperand(1))) {
    left.offset = 0;
    right.offset = adds ? to.offset : -to.offset;
  }
  FailureOr<Scalar> x = bodyScaled(attempt, op, sum->getOperand(0), index, left);
  FailureOr<Scalar> y = failed(x) ? x : bodyScaled(attempt, op, sum->getOperand(1), index, right);
  if (failed(y))
    return failure();
  AluOp add = adds ? AluOp::AddF32 : AluOp::SubF32;
  return Scalar{attempt.build.op(add, {x->node, y->node}), Scalar::Kind::F32};
}

/// An fp32 constant per channel, read at `channel`.
unsigned Former::channelOperand(Attempt &attempt, ArrayRef<double> values, const Linear &channel,
                                StringRef name) {
  if (llvm::all_equal(values))
    return attempt.build.constant(float(values[0]));
  std::vector<float> rounded(values.begin(), values.end());
  // A second try of the kernel writes the same constant again; what no kernel reads goes at the
  // end.
  const auto channels = int64_t(values.size());
  if (attempt.lane >= 0 && channel.uses(unsigned(attempt.lane)))
    return attempt.build.operand(
        {addConstant(graph, name.str(), {channels}, ElementType::Fp32, 0, rounded),
         {channel.affine()},
         0});
  // Channels that do not lie along the lanes (a maximum that runs over them): a row of each.
  const int64_t lanes = attempt.laneExtent();
  std::vector<float> rows;
  for (float value : rounded)
    rows.insert(rows.end(), size_t(lanes), value);
  return attempt.build.operand(
      {addConstant(graph, name.str(), {channels, lanes}, ElementType::Fp32, 1, rows),
       {channel.affine(), attempt.lane < 0 ? fixed(0) : at(unsigned(attempt.lane))},
       0});
}

} // namespace millrace::forms
