// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Rewrite.h"

#include "compiler/Forms/Former/ChannelMap.h"
#include "compiler/Forms/Former/Former.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

namespace millrace::forms {

using namespace mlir;

namespace {

Channels combine(const Channels &x, const Channels &y,
                 const std::function<void(Channels &, size_t)> &each) {
  Channels result{std::vector<double>(x.scale.size()), std::vector<double>(x.scale.size())};
  for (size_t i = 0; i < x.scale.size(); ++i)
    each(result, i);
  return result;
}

/// The value as an affine function of the map's first operand.
std::optional<Channels> affine(Value value, DenseMap<Value, Channels> &known, size_t count) {
  if (auto found = known.find(value); found != known.end())
    return found->second;
  FloatAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return Channels{std::vector<double>(count, 0),
                    std::vector<double>(count, constant.getValueAsDouble())};
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumOperands() < 1)
    return std::nullopt;
  SmallVector<Channels> args;
  for (Value operand : op->getOperands()) {
    std::optional<Channels> arg = affine(operand, known, count);
    if (!arg)
      return std::nullopt;
    args.push_back(*arg);
  }
  const Channels &x = args[0], &y = args.back();
  if (isa<math::SqrtOp>(op) && x.isConstant())
    return combine(x, y, [&](Channels &r, size_t i) { r.shift[i] = std::sqrt(x.shift[i]); });
  if (isa<arith::AddFOp>(op))
    return combine(x, y, [&](Channels &r, size_t i) {
      r.scale[i] = x.scale[i] + y.scale[i], r.shift[i] = x.shift[i] + y.shift[i];
    });
  if (isa<arith::SubFOp>(op))
    return combine(x, y, [&](Channels &r, size_t i) {
      r.scale[i] = x.scale[i] - y.scale[i], r.shift[i] = x.shift[i] - y.shift[i];
    });
  if (isa<arith::MulFOp>(op) && (x.isConstant() || y.isConstant())) {
    const Channels &a = y.isConstant() ? x : y, &c = y.isConstant() ? y : x;
    return combine(x, y, [&](Channels &r, size_t i) {
      r.scale[i] = a.scale[i] * c.shift[i], r.shift[i] = a.shift[i] * c.shift[i];
    });
  }
  if (isa<arith::DivFOp>(op) && y.isConstant())
    return combine(x, y, [&](Channels &r, size_t i) {
      r.scale[i] = x.scale[i] / y.shift[i], r.shift[i] = x.shift[i] / y.shift[i];
    });
  return std::nullopt;
}

} // namespace

std::optional<Channels> channelMap(linalg::GenericOp map, Value input, unsigned dim, size_t count) {
  if (!isMap(map))
    return std::nullopt;
  DenseMap<Value, Channels> known;
  unsigned inputs = 0;
  for (auto [i, operand] : llvm::enumerate(map.getDpsInputs())) {
    BlockArgument argument = map.getBody()->getArgument(unsigned(i));
    AffineMap indices = map.getIndexingMapsArray()[i];
    if (operand == input) {
      if (!indices.isIdentity() || ++inputs > 1)
        return std::nullopt;
      known[argument] = {std::vector<double>(count, 1), std::vector<double>(count, 0)};
      continue;
    }
    std::optional<std::vector<double>> reals = constantReals(operand);
    if (!reals)
      return std::nullopt;
    for (auto [expr, extent] : llvm::zip(indices.getResults(), shapeOf(operand)))
      if (extent > 1 && expr != getAffineDimExpr(dim, map.getContext()))
        return std::nullopt; // constant but for the channel
    if (reals->size() != 1 && reals->size() != count)
      return std::nullopt;
    Channels values{std::vector<double>(count, 0), std::vector<double>(count)};
    for (size_t c = 0; c < count; ++c)
      values.shift[c] = (*reals)[reals->size() == 1 ? 0 : c];
    known[argument] = values;
  }
  return affine(map.getBody()->getTerminator()->getOperand(0), known, count);
}

linalg::GenericOp mapChannels(OpBuilder &builder, Location loc, Value input, unsigned dim,
                              const Channels &channels) {
  const auto constant = [&](const std::vector<double> &reals, StringRef name) -> Value {
    const std::vector<float> values(reals.begin(), reals.end());
    auto bytes = ArrayRef(reinterpret_cast<const char *>(values.data()), values.size() * 4);
    auto type = RankedTensorType::get({int64_t(values.size())}, builder.getF32Type());
    return arith::ConstantOp::create(builder, loc, makeConstant(type, bytes, name));
  };
  auto type = RankedTensorType::get(shapeOf(input), builder.getF32Type());
  const auto rank = unsigned(type.getRank());
  AffineMap identity = builder.getMultiDimIdentityMap(rank);
  AffineMap perChannel = AffineMap::get(rank, 0, builder.getAffineDimExpr(dim));
  Value scale = constant(channels.scale, "scale"), shift = constant(channels.shift, "shift");
  Value init = tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
  return linalg::GenericOp::create(
      builder, loc, TypeRange(type), ValueRange{input, scale, shift}, ValueRange(init),
      ArrayRef<AffineMap>{identity, perChannel, perChannel, identity},
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
      [](OpBuilder &b, Location at, ValueRange x) {
        Value real = x[0];
        if (!real.getType().isF32())
          real = arith::SIToFPOp::create(b, at, b.getF32Type(), real);
        Value product = arith::MulFOp::create(b, at, real, x[1]);
        linalg::YieldOp::create(b, at, arith::AddFOp::create(b, at, product, x[2]).getResult());
      });
}

namespace {

/// `constant` with each slice along `dim` multiplied by its scale.
Value scaled(OpBuilder &builder, Value constant, unsigned dim, const std::vector<double> &scale) {
  std::optional<ConstantView> view = viewConstant(constant);
  ArrayRef<int64_t> shape = view->type.getShape();
  int64_t inner = 1;
  for (unsigned i = dim + 1; i < shape.size(); ++i)
    inner *= shape[i];
  std::vector<float> values = view->floats();
  if (view->splat)
    values.resize(size_t(view->type.getNumElements()), values.front());
  for (auto value = values.begin(); value != values.end();)
    for (double factor : scale)
      for (int64_t i = 0; i < inner; ++i, ++value)
        *value = float(*value * factor);
  auto bytes = ArrayRef(reinterpret_cast<const char *>(values.data()), values.size() * 4);
  return arith::ConstantOp::create(builder, constant.getLoc(),
                                   makeConstant(view->type, bytes, "folded"));
}

/// The dimension of the weights and of the result that is the channel: of the weights' own loops
/// the only one.
bool findChannel(linalg::LinalgOp op, unsigned &weightDim, unsigned &resultDim) {
  AffineMap a = op.getIndexingMapsArray()[0], w = op.getIndexingMapsArray()[1],
            r = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  unsigned found = 0;
  for (auto [i, expr] : llvm::enumerate(w.getResults())) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (!loop || a.isFunctionOfDim(loop.getPosition()))
      continue;
    for (auto [j, result] : llvm::enumerate(r.getResults()))
      if (result == expr)
        weightDim = unsigned(i), resultDim = unsigned(j), ++found;
  }
  return found == 1;
}

void foldInto(linalg::LinalgOp op) {
  unsigned weightDim = 0, channel = 0;
  Value weights = op->getOperand(1), result = op->getResult(0);
  if (op->hasAttr(kKeepFp32) || !findChannel(op, weightDim, channel) || !viewConstant(weights))
    return; // what is asked for stays
  size_t count = size_t(shapeOf(result)[channel]);
  Channels total{std::vector<double>(count, 1), std::vector<double>(count, 0)};
  SmallVector<Operation *> chain;
  Value last = result;
  while (last.hasOneUse()) {
    auto map = dyn_cast<linalg::GenericOp>(*last.user_begin());
    std::optional<Channels> step = map ? channelMap(map, last, channel, count) : std::nullopt;
    if (!step || shapeOf(map.getResult(0)) != shapeOf(result))
      break;
    for (size_t i = 0; i < count; ++i) {
      total.shift[i] = total.shift[i] * step->scale[i] + step->shift[i];
      total.scale[i] *= step->scale[i];
    }
    chain.push_back(map);
    last = map.getResult(0);
  }
  bool scales = llvm::any_of(total.scale, [](double value) { return value != 1; });
  if (!scales && chain.size() < 2)
    return;
  OpBuilder builder(op);
  op->setOperand(1, scaled(builder, weights, weightDim, total.scale));
  builder.setInsertionPoint(chain.back());
  Location loc = chain.back()->getLoc();
  std::vector<float> shift(total.shift.begin(), total.shift.end());
  auto type = RankedTensorType::get({int64_t(count)}, builder.getF32Type());
  auto bytes = ArrayRef(reinterpret_cast<const char *>(shift.data()), shift.size() * 4);
  Value bias = arith::ConstantOp::create(builder, loc, makeConstant(type, bytes, "shift"));
  auto resultType = cast<RankedTensorType>(result.getType());
  unsigned rank = unsigned(resultType.getRank());
  AffineMap identity = builder.getMultiDimIdentityMap(rank);
  AffineMap perChannel = AffineMap::get(rank, 0, builder.getAffineDimExpr(channel));
  Value init =
      tensor::EmptyOp::create(builder, loc, resultType.getShape(), resultType.getElementType());
  auto sum = linalg::GenericOp::create(
      builder, loc, TypeRange(resultType), ValueRange{result, bias}, ValueRange(init),
      ArrayRef<AffineMap>{identity, perChannel, identity},
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
      [](OpBuilder &b, Location at, ValueRange x) {
        linalg::YieldOp::create(b, at, arith::AddFOp::create(b, at, x[0], x[1]).getResult());
      });
  if (scales)
    op->removeAttr(kOnnxValue);
  handOnValue(chain.back(), sum);
  last.replaceAllUsesWith(sum.getResult(0));
  for (Operation *map : llvm::reverse(chain))
    map->erase();
}

} // namespace

namespace {

/// The dimension of a map's result along which its constants change; none if more than one.
std::optional<unsigned> channelOf(linalg::GenericOp map, Value input) {
  std::optional<unsigned> channel;
  for (auto [operand, indices] : llvm::zip(map.getDpsInputs(), map.getIndexingMapsArray())) {
    if (operand == input)
      continue;
    for (auto [expr, extent] : llvm::zip(indices.getResults(), shapeOf(operand))) {
      if (extent == 1)
        continue;
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (!dim || channel.value_or(dim.getPosition()) != dim.getPosition())
        return std::nullopt;
      channel = dim.getPosition();
    }
  }
  return channel;
}

size_t operationsOf(linalg::GenericOp map) {
  return map.getBody()->getOperations().size() - 1; // but for the yield
}

/// Affine maps that follow each other, the first of an operand: one multiplication and one
/// addition for each channel, if that is fewer operations. Returns the maps that are gone.
SmallVector<Operation *> joinAffine(linalg::GenericOp first) {
  const Value input = first.getDpsInputs().empty() ? Value() : first.getDpsInputs()[0];
  std::optional<unsigned> channel = input ? channelOf(first, input) : std::nullopt;
  if (!channel || !cast<RankedTensorType>(first.getResult(0).getType()).getElementType().isF32())
    return {};
  const auto count = size_t(shapeOf(first.getResult(0))[*channel]);
  Channels total{std::vector<double>(count, 1), std::vector<double>(count, 0)};
  size_t operations = 0;
  SmallVector<Operation *> chain;
  linalg::GenericOp last;
  for (Value at = input; !last || at.hasOneUse(); at = last.getResult(0)) {
    auto map = last ? dyn_cast<linalg::GenericOp>(*at.user_begin()) : first;
    std::optional<Channels> step;
    if (map && !isNamedByUser(map) && map.getResult(0).getType() == first.getResult(0).getType())
      step = channelMap(map, at, *channel, count);
    if (!step)
      break;
    for (size_t i = 0; i < count; ++i) {
      total.shift[i] = total.shift[i] * step->scale[i] + step->shift[i];
      total.scale[i] *= step->scale[i];
    }
    operations += operationsOf(map);
    chain.push_back(map);
    last = map;
  }
  const auto isFinite = [](double value) { return std::isfinite(float(value)); };
  if (operations < 3 || !llvm::all_of(total.scale, isFinite) ||
      !llvm::all_of(total.shift, isFinite))
    return {};
  OpBuilder builder(last);
  linalg::GenericOp joined = mapChannels(builder, last.getLoc(), input, *channel, total);
  handOnValue(last, joined);
  last.getResult(0).replaceAllUsesWith(joined.getResult(0));
  for (Operation *map : llvm::reverse(chain))
    map->erase();
  return chain;
}

} // namespace

void foldChannels(func::FuncOp function) {
  SmallVector<linalg::LinalgOp> contractions;
  function.walk([&](linalg::LinalgOp op) {
    if (!op->hasAttr(kDevice) && op->getNumResults() == 1 && op.getNumDpsInputs() == 2 &&
        isContraction(op) &&
        cast<RankedTensorType>(op->getResult(0).getType()).getElementType().isF32())
      contractions.push_back(op);
  });
  for (linalg::LinalgOp op : contractions)
    foldInto(op);
  SmallVector<linalg::GenericOp> maps;
  function.walk([&](linalg::GenericOp op) {
    if (!op->hasAttr(kDevice) && op->getNumResults() == 1 && isMap(op))
      maps.push_back(op);
  });
  llvm::SmallPtrSet<Operation *, 16> gone;
  for (linalg::GenericOp map : maps)
    if (!gone.contains(map))
      for (Operation *joined : joinAffine(map))
        gone.insert(joined);
}

} // namespace millrace::forms
