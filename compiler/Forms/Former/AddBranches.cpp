// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of convolutions of one image, as networks are trained that are to be one convolution later:
// a window and smaller ones around its centre, and a batch normalisation of the image itself.
#include "compiler/Forms/Former/ChannelMap.h"
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace millrace::forms {

using namespace mlir;

namespace {

constexpr unsigned kChannel = 1; ///< dimension of images that counts channels

/// Weights of a window: [results, channels, ..] or, of each channel alone, [channels, ..].
struct Window {
  SmallVector<int64_t> shape;
  std::vector<double> weights;
};

/// A convolution of `image`, of all channels or of each alone, or a map per channel, which is one
/// of a point. The window's first point reads the image's at `before` ahead of the result's.
struct Branch {
  Value image;
  linalg::LinalgOp convolution; ///< none for a map
  bool isOfEach = false;        ///< channel
  Window window;
  SmallVector<int64_t> before, strides, dilations;
  std::vector<double> bias;
};

bool isOfEachChannel(linalg::LinalgOp op) {
  return isa<linalg::DepthwiseConv1DNcwCwOp, linalg::DepthwiseConv2DNchwChwOp,
             linalg::DepthwiseConv3DNcdhwCdhwOp>(op);
}

bool isWindow(linalg::LinalgOp op) {
  return op && !isNamedByUser(op) &&
         (isOfEachChannel(op) ||
          isa<linalg::Conv1DNcwFcwOp, linalg::Conv2DNchwFchwOp, linalg::Conv3DNcdhwFcdhwOp>(op));
}

/// The image behind padding with zeros, and how much of that is ahead of it.
std::pair<Value, SmallVector<int64_t>> behindPadding(Value image, size_t spatial) {
  SmallVector<int64_t> before(spatial, 0);
  auto pad = image.getDefiningOp<tensor::PadOp>();
  FloatAttr fill;
  Value scalar = pad ? pad.getConstantPaddingValue() : Value();
  if (!scalar || !matchPattern(scalar, m_Constant(&fill)) || !fill.getValue().isZero() ||
      llvm::any_of(pad.getStaticLow(), ShapedType::isDynamic) ||
      llvm::any_of(pad.getStaticLow().take_front(kChannel + 1), [](int64_t n) { return n != 0; }))
    return {image, before};
  llvm::copy(pad.getStaticLow().drop_front(kChannel + 1), before.begin());
  return {pad.getSource(), before};
}

std::optional<Branch> convolutionOf(Value value) {
  linalg::LinalgOp op = formOf(value);
  if (!isWindow(op) || !value.hasOneUse() || !getElementTypeOrSelf(value).isF32())
    return std::nullopt;
  const std::optional<ConstantView> weights = viewConstant(op->getOperand(1));
  if (!weights || !isa<FloatType>(weights->type.getElementType()))
    return std::nullopt;
  Branch branch;
  branch.convolution = op;
  branch.isOfEach = isOfEachChannel(op);
  branch.window.shape.assign(weights->type.getShape().begin(), weights->type.getShape().end());
  for (int64_t i = 0; i < weights->type.getNumElements(); ++i)
    branch.window.weights.push_back(weights->real(weights->splat ? 0 : i));
  const size_t spatial = shapeOf(value).size() - kChannel - 1;
  std::tie(branch.image, branch.before) = behindPadding(op->getOperand(0), spatial);
  const auto numbers = [&](StringRef name) {
    auto given = op->getAttrOfType<DenseIntElementsAttr>(name);
    return given ? SmallVector<int64_t>(given.getValues<int64_t>())
                 : SmallVector<int64_t>(spatial, 1);
  };
  branch.strides = numbers("strides");
  branch.dilations = numbers("dilations");
  branch.bias.assign(size_t(shapeOf(value)[kChannel]), 0);
  return branch;
}

/// What the value is, if nothing else takes it: a convolution, perhaps with a bias, or a map per
/// channel.
std::optional<Branch> branchOf(Value value) {
  if (std::optional<Branch> convolution = convolutionOf(value))
    return convolution;
  auto map = value.getDefiningOp<linalg::GenericOp>();
  if (!map || !value.hasOneUse() || isNamedByUser(map) || !quantKind(map).empty() ||
      map.getNumDpsInputs() == 0 || shapeOf(value).size() < kChannel + 2 ||
      !getElementTypeOrSelf(value).isF32())
    return std::nullopt;
  const Value input = map->getOperand(0);
  const auto count = size_t(shapeOf(value)[kChannel]);
  if (input.getType() != value.getType())
    return std::nullopt;
  const std::optional<Channels> channels = channelMap(map, input, kChannel, count);
  if (!channels)
    return std::nullopt;
  if (std::optional<Branch> convolution = convolutionOf(input)) {
    if (llvm::any_of(channels->scale, [](double scale) { return scale != 1; }))
      return std::nullopt;
    convolution->bias = channels->shift;
    return convolution;
  }
  Branch branch;
  branch.image = input;
  branch.isOfEach = true;
  const size_t spatial = shapeOf(value).size() - kChannel - 1;
  branch.window.shape.assign(spatial + 1, 1);
  branch.window.shape.front() = int64_t(count);
  branch.window.weights = channels->scale;
  branch.before.assign(spatial, 0);
  branch.strides.assign(spatial, 1);
  branch.dilations.assign(spatial, 1);
  branch.bias = channels->shift;
  return branch;
}

ArrayRef<int64_t> extentsOf(const Branch &branch) {
  return ArrayRef(branch.window.shape).drop_front(branch.isOfEach ? 1 : 2);
}

/// Where the small window begins in the large one; nothing if it is not inside.
std::optional<SmallVector<int64_t>> placeOf(const Branch &small, const Branch &large) {
  SmallVector<int64_t> place;
  for (size_t d = 0; d < extentsOf(large).size(); ++d) {
    const int64_t step = large.dilations[d], ahead = large.before[d] - small.before[d];
    if (ahead < 0 || ahead % step || small.strides[d] != large.strides[d] ||
        (extentsOf(small)[d] > 1 && small.dilations[d] != step) ||
        ahead / step + extentsOf(small)[d] > extentsOf(large)[d])
      return std::nullopt;
    place.push_back(ahead / step);
  }
  return place;
}

/// Adds the weights of `small` to those of `large` at `place`; channels alone lie on the diagonal
/// of a window of all.
void addWeights(Window &large, const Branch &from, bool isOfEach, ArrayRef<int64_t> place) {
  const Window &small = from.window;
  const ArrayRef<int64_t> inner = ArrayRef(large.shape).drop_front(isOfEach ? 1 : 2);
  int64_t points = 1;
  for (int64_t extent : inner)
    points *= extent;
  const int64_t taps =
      int64_t(small.weights.size()) / small.shape[0] / (from.isOfEach ? 1 : small.shape[1]);
  for (size_t i = 0; i < small.weights.size(); ++i) {
    int64_t rest = int64_t(i) % taps, point = 0, step = 1;
    const int64_t filter = int64_t(i) / taps; // of small
    for (size_t d = inner.size(); d-- > 0;) {
      const int64_t extent = extentsOf(from)[d];
      point += (rest % extent + place[d]) * step;
      rest /= extent;
      step *= inner[d];
    }
    const int64_t to = from.isOfEach && !isOfEach ? filter * large.shape[1] + filter : filter;
    large.weights[size_t(to * points + point)] += small.weights[i];
  }
}

bool addsTwo(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 2 || op->getNumResults() != 1 || !isMap(op) || op->hasAttr(kDevice) ||
      op->hasAttr(kKeepFp32) || op->getOperand(0) == op->getOperand(1) ||
      !llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return false;
  auto sum = op.getBody()->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  return sum &&
         llvm::all_of(sum->getOperands(),
                      [&](Value argument) {
                        return isa<BlockArgument>(argument) &&
                               cast<BlockArgument>(argument).getArgNumber() < 2;
                      }) &&
         sum.getLhs() != sum.getRhs();
}

Value constantOf(OpBuilder &builder, Location loc, ArrayRef<int64_t> shape,
                 const std::vector<double> &values) {
  const std::vector<float> floats(values.begin(), values.end());
  const auto type = RankedTensorType::get(shape, builder.getF32Type());
  return arith::ConstantOp::create(
      builder, loc,
      makeConstant(type, ArrayRef(reinterpret_cast<const char *>(floats.data()), floats.size() * 4),
                   "branches"));
}

void addBranches(linalg::GenericOp sum) {
  std::optional<Branch> large = branchOf(sum->getOperand(0)), small = branchOf(sum->getOperand(1));
  if (!large || !small || large->image != small->image)
    return;
  const auto fits = [](const Branch &inner, const Branch &outer) {
    return outer.convolution && (inner.isOfEach || !outer.isOfEach) &&
           inner.bias.size() == outer.bias.size() && placeOf(inner, outer) &&
           (inner.isOfEach == outer.isOfEach || outer.window.shape[0] == outer.window.shape[1]);
  };
  if (!fits(*small, *large)) {
    std::swap(large, small);
    if (!fits(*small, *large))
      return;
  }
  addWeights(large->window, *small, large->isOfEach, *placeOf(*small, *large));
  OpBuilder builder(sum);
  const Location loc = sum.getLoc();
  const Value weights = constantOf(builder, loc, large->window.shape, large->window.weights);
  Operation *whole = builder.clone(*large->convolution.getOperation());
  whole->setOperand(1, weights);
  whole->removeAttr(kOnnxValue);
  for (size_t i = 0; i < large->bias.size(); ++i)
    large->bias[i] += small->bias[i];
  Operation *last = whole;
  if (llvm::any_of(large->bias, [](double value) { return value != 0; })) {
    const auto type = cast<RankedTensorType>(whole->getResult(0).getType());
    const auto rank = unsigned(type.getRank());
    const AffineMap identity = builder.getMultiDimIdentityMap(rank);
    const Value bias = constantOf(builder, loc, {int64_t(large->bias.size())}, large->bias);
    const Value init =
        tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
    last = linalg::GenericOp::create(
        builder, loc, TypeRange(type), ValueRange{whole->getResult(0), bias}, ValueRange(init),
        ArrayRef<AffineMap>{identity, AffineMap::get(rank, 0, builder.getAffineDimExpr(kChannel)),
                            identity},
        SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
        [](OpBuilder &b, Location at, ValueRange x) {
          linalg::YieldOp::create(b, at, arith::AddFOp::create(b, at, x[0], x[1]).getResult());
        });
  }
  handOnValue(sum, last);
  const SmallVector<Value> terms(sum.getDpsInputs());
  sum->getResult(0).replaceAllUsesWith(last->getResult(0));
  sum->erase();
  for (Value term : terms) { // a map, and the convolution that it adds to
    Operation *op = term.getDefiningOp();
    Operation *before = isa<linalg::GenericOp>(op) ? op->getOperand(0).getDefiningOp() : nullptr;
    op->erase();
    if (before && before->use_empty() && isa<linalg::LinalgOp>(before))
      before->erase();
  }
}

} // namespace

void addBranches(func::FuncOp function) {
  SmallVector<linalg::GenericOp> sums;
  function.walk([&](linalg::GenericOp op) {
    if (addsTwo(op))
      sums.push_back(op);
  });
  for (linalg::GenericOp op : sums) // in order: a sum of three is one of two then
    addBranches(op);
}

} // namespace millrace::forms
