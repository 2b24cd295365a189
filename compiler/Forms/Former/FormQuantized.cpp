// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Quantised graphs as integer kernels: int8 products, int32 sums, then one multiplication and
// addition per channel in fp32 and a saturating conversion.
#include "compiler/Forms/Former/Former.h"

#include "compiler/Forms/Former/ChannelMap.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Scheme.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

namespace millrace::forms {

using namespace mlir;

StringRef quantKind(Operation *op) {
  auto kind = op ? op->getAttrOfType<StringAttr>("millrace.quant") : StringAttr();
  return kind ? kind.getValue() : StringRef();
}

std::optional<Scheme> schemeOf(linalg::LinalgOp op, bool zeroAside) {
  if (!op || quantKind(op).empty() || op.getNumDpsInputs() < 2)
    return std::nullopt;
  std::optional<ConstantView> scale = viewConstant(op->getOperand(1));
  if (!scale)
    return std::nullopt;
  Scheme scheme;
  scheme.axisMap = op.getIndexingMapsArray()[1];
  int64_t count = scale->type.getNumElements();
  for (int64_t i = 0; i < count; ++i)
    scheme.scale.push_back(scale->real(scale->splat ? 0 : i));
  if (op.getNumDpsInputs() > 2 && !zeroAside) {
    std::optional<ConstantView> zero = viewConstant(op->getOperand(2));
    if (!zero)
      return std::nullopt;
    scheme.zero = zero->integer(0);
    for (int64_t i = 1; i < zero->type.getNumElements() && !zero->splat; ++i)
      if (zero->integer(i) != scheme.zero)
        return std::nullopt;
  }
  return scheme;
}

bool isSigned(linalg::LinalgOp op) {
  for (Operation &inner : op.getBlock()->without_terminator())
    if (isa<arith::FPToUIOp, arith::UIToFPOp, arith::ExtUIOp>(inner))
      return false;
  return true;
}

std::optional<TensorScheme> quantizedBy(linalg::LinalgOp op) {
  std::optional<Scheme> scheme = op && quantKind(op) == "quantize" ? schemeOf(op) : std::nullopt;
  if (!scheme || !scheme->isPerTensor() || !isSigned(op) ||
      !getElementTypeOrSelf(op->getResult(0)).isInteger(8))
    return std::nullopt;
  return TensorScheme{scheme->scale[0], scheme->zero};
}

std::optional<TensorScheme> dequantizedBy(linalg::LinalgOp op) {
  std::optional<Scheme> scheme = op && quantKind(op) == "dequantize" ? schemeOf(op) : std::nullopt;
  if (!scheme || !scheme->isPerTensor() || !isSigned(op) || isConstantValue(op->getOperand(0)) ||
      !getElementTypeOrSelf(op->getOperand(0)).isInteger(8))
    return std::nullopt;
  return TensorScheme{scheme->scale[0], scheme->zero};
}

std::optional<std::vector<double>> constantReals(Value value) {
  if (std::optional<ConstantView> view = viewConstant(value)) {
    if (!isa<FloatType>(view->type.getElementType()))
      return std::nullopt;
    std::vector<double> values;
    for (int64_t i = 0; i < view->type.getNumElements(); ++i)
      values.push_back(view->real(view->splat ? 0 : i));
    return values;
  }
  linalg::LinalgOp op = formOf(value);
  std::optional<Scheme> scheme = op && quantKind(op) == "dequantize" ? schemeOf(op) : std::nullopt;
  std::optional<ConstantView> integers = scheme ? viewConstant(op->getOperand(0)) : std::nullopt;
  if (!integers)
    return std::nullopt;
  const ArrayRef<int64_t> shape = integers->type.getShape();
  int64_t below = 1; // elements from one channel to the next
  if (!scheme->isPerTensor()) {
    const AffineMap axis = scheme->axisMap;
    if (axis.getNumResults() != 1 || !isa<AffineDimExpr>(axis.getResult(0)))
      return std::nullopt;
    const unsigned dim = axis.getDimPosition(0);
    if (dim >= shape.size() || shape[dim] != int64_t(scheme->scale.size()))
      return std::nullopt;
    below = ShapedType::getNumElements(shape.drop_front(dim + 1));
  }
  std::vector<double> values;
  for (int64_t i = 0; i < integers->type.getNumElements(); ++i)
    values.push_back(double(integers->integer(integers->splat ? 0 : i) - scheme->zero) *
                     scheme->scale[size_t(i / below) % scheme->scale.size()]);
  return values;
}

/// Whether the scales of an operand run along a loop that the contraction sums over: no factor of
/// its sums.
static bool isScaledAlongSum(linalg::LinalgOp contraction, unsigned operand,
                             linalg::LinalgOp dequantize) {
  std::optional<Scheme> scheme = schemeOf(dequantize, /*zeroAside=*/true);
  if (!scheme || scheme->isPerTensor() ||
      contraction->getOperand(operand) != dequantize->getResult(0))
    return false;
  AffineMap loops = contraction.getIndexingMapsArray()[operand];
  for (unsigned loop = 0; loop < contraction.getNumLoops(); ++loop)
    if (contraction.getIteratorTypesArray()[loop] == utils::IteratorType::reduction)
      for (AffineExpr axis : scheme->axisMap.getResults())
        if (axis.replaceDims(loops.getResults()).isFunctionOfDim(loop))
          return true;
  return false;
}

/// What a contraction multiplies for dequantised constants. Kept: every try of a kernel asks.
ArrayRef<Value> Former::partsOfConstant(linalg::LinalgOp dequantize) {
  auto [entry, isNew] = constantParts.try_emplace(dequantize);
  if (isNew)
    entry->second = centredParts(dequantize);
  return entry->second;
}

/// Of two operands that are dequantised at run time one has a zero point: no product of their
/// integers, which would take sums of both besides.
static bool hasShiftedFactors(ArrayRef<linalg::LinalgOp> dequantized) {
  return llvm::none_of(dequantized,
                       [](linalg::LinalgOp op) { return isConstantValue(op->getOperand(0)); }) &&
         llvm::any_of(dequantized, [](linalg::LinalgOp op) {
           const std::optional<Scheme> scheme = schemeOf(op);
           return scheme && scheme->zero != 0;
         });
}

void noteRealFactors(func::FuncOp function) {
  function.walk([&](linalg::LinalgOp contraction) {
    if (!isContraction(contraction))
      return;
    SmallVector<linalg::LinalgOp> sources;
    for (Value operand : contraction.getDpsInputs()) {
      while (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractSliceOp,
                             tensor::PadOp, linalg::TransposeOp>(operand.getDefiningOp()))
        operand = operand.getDefiningOp()->getOperand(0);
      if (linalg::LinalgOp source = formOf(operand); quantKind(source) == "dequantize")
        sources.push_back(source);
    }
    if (sources.size() == 1 || (sources.size() == 2 && hasShiftedFactors(sources)))
      for (linalg::LinalgOp source : sources)
        source->setAttr(kOfReals, UnitAttr::get(source.getContext()));
  });
}

/// Both operands are dequantised int8 whose integers can be multiplied.
bool Former::isQuantized(linalg::LinalgOp contraction) {
  SmallVector<linalg::LinalgOp> sources;
  for (unsigned i : {0u, 1u}) {
    linalg::LinalgOp source = sources.emplace_back(formOf(baseOf(contraction->getOperand(i))));
    if (!source || quantKind(source) != "dequantize" || !isSigned(source) ||
        !schemeOf(source, isConstantValue(source->getOperand(0))) ||
        !cast<RankedTensorType>(source->getOperand(0).getType()).getElementType().isInteger(8) ||
        isScaledAlongSum(contraction, i, source))
      return false;
  }
  return !hasShiftedFactors(sources);
}

/// Whether a quantised value is dequantised at once for a single consumer.
bool Former::isRoundedOnce(Value quantized) {
  SetVector<Operation *> users;
  collectUsers(quantized, users);
  return users.size() == 1 && quantKind(users[0]) == "dequantize" &&
         demand(users[0]->getResult(0)) == 1;
}

/// An input that is only quantised comes quantised from the host: a conversion like that to fp16.
bool Former::quantizesInput(linalg::LinalgOp op) {
  if (options.precision != Precision::Int8 || quantKind(op) != "quantize" || !isSigned(op))
    return false;
  std::optional<Scheme> scheme = schemeOf(op);
  auto argument = dyn_cast<BlockArgument>(op->getOperand(0));
  return scheme && scheme->isPerTensor() && argument && demand(argument) == 1 &&
         !stored.count(argument);
}

FailureOr<Stored> Former::storeQuantizedInput(Value base, unsigned lane) {
  linalg::LinalgOp op = formOf(base);
  if (!op || !quantizesInput(op))
    return failure();
  std::optional<Scheme> scheme = schemeOf(op);
  auto argument = cast<BlockArgument>(op->getOperand(0));
  FailureOr<Stored> input = storeArgument(argument, lane);
  if (failed(input))
    return failure();
  Tensor &tensor = graph.tensors[input->tensor];
  tensor.type = ElementType::Int8;
  tensor.hostScale = scheme->scale[0];
  tensor.hostZero = scheme->zero;
  tensor.unbounded = false; // integers, whatever they are made of
  return input;
}

/// to(sum of (a - za) * w * scales + bias), za from a row of constants: sum of w per channel.
FailureOr<Scalar> Former::computeIntegerContraction(Attempt &attempt, linalg::LinalgOp op,
                                                    const Point &index, Rescaling to,
                                                    const ChannelBias &channelBias) {
  ArrayRef<double> bias = channelBias.values;
  if (attempt.contracts)
    return failure();
  // The sum of w per channel counts padding, too.
  FailureOr<Operands> operands = contractionPoints(attempt, op, index, /*cutsPadding=*/false);
  if (failed(operands))
    return failure();
  Resolved at[2];
  std::optional<Scheme> schemes[2];
  linalg::LinalgOp sources[2];
  std::optional<Linear> scaledAt[2]; // which element of the scales, where there are several
  for (unsigned i : {0u, 1u}) {
    FailureOr<Resolved> outer = resolve(attempt, op->getOperand(i), operands->at[i]);
    if (failed(outer))
      return failure();
    linalg::LinalgOp source = sources[i] = formOf(outer->base);
    schemes[i] = schemeOf(source, isConstantValue(source->getOperand(0)));
    if (!schemes[i]->isPerTensor() && schemes[i]->axisMap.getNumResults() == 1)
      scaledAt[i] = attempt.space.evaluate(schemes[i]->axisMap.getResult(0), outer->index);
    FailureOr<Resolved> inner = resolve(attempt, source->getOperand(0), outer->index);
    if (failed(inner) || (outer->padded && inner->padded))
      return failure();
    at[i] = *inner;
    if (outer->padded) { // real zeros are zero points
      at[i].padded = true;
      at[i].pad = IntegerAttr::get(IntegerType::get(op.getContext(), 8), schemes[i]->zero);
    }
  }
  // The weights: constant, or symmetric; where channels differ, with one dimension that is theirs.
  unsigned weights = isConstantValue(at[1].base) ? 1 : 0, data = 1 - weights;
  bool hasConstant = isConstantValue(at[weights].base);
  if (schemes[weights]->zero != 0 || !schemes[data]->isPerTensor() ||
      (!hasConstant && schemes[data]->zero != 0))
    return failure();
  const bool isAside = isConstantValue(sources[weights]->getOperand(0)); // and no view of one
  const SmallVector<Value, 1> parts(isAside ? partsOfConstant(sources[weights])
                                            : ArrayRef(at[weights].base));
  if (parts.empty())
    return failure();
  const std::vector<double> &scales = schemes[weights]->scale;
  const bool isPerChannel =
      scales.size() != 1 || bias.size() > 1 || (hasConstant && schemes[data]->zero != 0);
  std::optional<unsigned> channelDim;
  const auto &along = at[weights].index;
  for (auto [dim, linear] : llvm::enumerate(isPerChannel ? ArrayRef(along) : ArrayRef<Linear>()))
    for (auto [loop, coefficient] : linear.terms)
      if (attempt.space.loop(loop).kind != LoopKind::Contracted &&
          (!channelDim || *channelDim == dim))
        channelDim = unsigned(dim);
      else if (attempt.space.loop(loop).kind != LoopKind::Contracted)
        return failure();
  size_t channels = channelDim && hasConstant ? size_t(shapeOf(at[weights].base)[*channelDim]) : 1;
  Linear channel = channelDim ? at[weights].index[*channelDim] : Linear();
  if ((scales.size() != 1 && (scales.size() != channels || scaledAt[weights] != channel)) ||
      (bias.size() > 1 && (bias.size() != channels || channelBias.element != channel)))
    return failure(); // of another dimension than the channels, if one as long
  std::vector<double> multiplier(channels), shift(channels, to.offset);
  for (size_t n = 0; n < channels; ++n) {
    multiplier[n] = schemes[data]->scale[0] * scales[scales.size() == 1 ? 0 : n] * to.factor;
    if (!bias.empty())
      shift[n] += bias[bias.size() == 1 ? 0 : n] * to.factor;
  }
  for (const Value part : schemes[data]->zero != 0 ? ArrayRef(parts) : ArrayRef<Value>()) {
    std::optional<ConstantView> view = viewConstant(part);
    int64_t inner = 1;
    for (unsigned dim = channelDim.value_or(0) + 1;
         dim < shapeOf(at[weights].base).size() && channelDim; ++dim)
      inner *= shapeOf(at[weights].base)[dim];
    for (int64_t i = 0; i < view->type.getNumElements(); ++i) {
      size_t n = channelDim ? size_t(i / inner) % channels : 0;
      shift[n] -= double(schemes[data]->zero * view->integer(view->splat ? 0 : i)) * multiplier[n];
    }
  }
  const bool recomputes = attempt.recomputes;
  for (const Value part : parts) {
    at[weights].base = part;
    FailureOr<Misfit> misfit = addTerm(attempt, *operands, at, ElementType::Int8);
    if (failed(misfit) || *misfit == Misfit::Both)
      return failure();
    if (*misfit != Misfit::None) { // a view that does not lie in memory as it is needed is copied
      const unsigned which = *misfit == Misfit::W ? operands->w : 1 - operands->w;
      Operation *view = sources[which]->getOperand(0).getDefiningOp();
      if (attempt.contracts || isConstantValue(at[which].base) || !view || !isView(view) ||
          copies.contains(view))
        return failure();
      setCopied(view);
      attempt.recomputes = recomputes;
      return computeIntegerContraction(attempt, op, index, to, channelBias);
    }
    attempt.recomputes = true; // one product of the model's
  }
  attempt.recomputes = recomputes;
  KernelBuilder &build = attempt.build;
  unsigned node = build.op(AluOp::CvtI32F32, {build.accumulator()});
  node = build.op(AluOp::MulF32, {node, channelOperand(attempt, multiplier, channel,
                                                       nameOf(op->getResult(0)) + ".scale")});
  if (llvm::any_of(shift, [](double value) { return value != 0; }))
    node = build.op(AluOp::AddF32, {node, channelOperand(attempt, shift, channel,
                                                         nameOf(op->getResult(0)) + ".shift")});
  return Scalar{node, Scalar::Kind::F32};
}

} // namespace millrace::forms
