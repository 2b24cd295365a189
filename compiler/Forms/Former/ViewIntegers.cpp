// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/ChannelMap.h"
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

#include <cmath>

namespace millrace::forms {

using namespace mlir;

namespace {

/// Whether a reshape from one shape to the other cuts a dimension and joins parts of it with
/// others: neither lies within the other's dimensions.
bool tearsDims(ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  const auto ends = [](ArrayRef<int64_t> shape) {
    llvm::SmallSetVector<int64_t, 6> all;
    int64_t elements = 1;
    for (int64_t extent : llvm::reverse(shape))
      all.insert(elements *= extent);
    return all;
  };
  const auto its = ends(from), others = ends(to);
  const auto isIn = [](const auto &all) { return [&](int64_t end) { return all.contains(end); }; };
  return !llvm::all_of(its, isIn(others)) && !llvm::all_of(others, isIn(its));
}

/// Quantises, or dequantises, before a reshape that tears dimensions apart, what is computed: its
/// integers would else be stored as they are after it, and few lanes of them read together.
void mapBeforeTear(linalg::GenericOp map) {
  SmallVector<Operation *> views;
  Value value = map->getOperand(0);
  while (isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(value.getDefiningOp())) {
    views.push_back(value.getDefiningOp());
    value = views.back()->getOperand(0);
  }
  Operation *made = value.getDefiningOp();
  if (views.empty() || !isa_and_nonnull<linalg::LinalgOp>(made) ||
      !tearsDims(shapeOf(value), shapeOf(map->getOperand(0))) ||
      !map.getMatchingIndexingMap(map.getDpsInputOperand(0)).isIdentity())
    return;
  for (OpOperand *input : map.getDpsInputOperands())
    if (input->getOperandNumber() > 0 && map.getMatchingIndexingMap(input).getNumResults() > 0)
      return; // other than by one scale and zero point
  OpBuilder builder(map);
  const ArrayRef<int64_t> shape = shapeOf(value);
  const auto rank = unsigned(shape.size());
  SmallVector<AffineMap> maps(map->getNumOperands(), AffineMap::get(rank, 0, map.getContext()));
  maps.front() = maps.back() = builder.getMultiDimIdentityMap(rank);
  SmallVector<Value> inputs = map.getDpsInputs();
  inputs.front() = value;
  const auto type = cast<RankedTensorType>(map->getResult(0).getType()).clone(shape);
  Value init = tensor::EmptyOp::create(builder, map.getLoc(), shape, type.getElementType());
  auto mapped = linalg::GenericOp::create(
      builder, map.getLoc(), TypeRange{type}, inputs, ValueRange{init}, maps,
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel));
  mapped->setDiscardableAttrs(map->getDiscardableAttrDictionary());
  mapped->removeAttr(kOnnxValue);
  IRMapping captured;
  map.getRegion().cloneInto(&mapped.getRegion(), captured);
  Value result = mapped->getResult(0);
  for (Operation *view : llvm::reverse(views))
    result = viewOf(builder, view, result);
  handOnValue(map, result.getDefiningOp());
  map->getResult(0).replaceAllUsesWith(result);
  map->erase();
}

void viewInteger(linalg::GenericOp quantize) {
  SmallVector<Operation *> views;
  Value value = quantize->getOperand(0);
  while (isa_and_nonnull<linalg::TransposeOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                         tensor::ExtractSliceOp>(value.getDefiningOp())) {
    views.push_back(value.getDefiningOp());
    value = views.back()->getOperand(0);
  }
  auto dequantize = value.getDefiningOp<linalg::GenericOp>();
  if (!dequantize || quantKind(dequantize) != "dequantize" || !haveOneScheme(dequantize, quantize))
    return;
  Value integers = dequantize->getOperand(0);
  for (Operation *view : llvm::reverse(views)) {
    OpBuilder builder(view);
    integers = viewOf(builder, view, integers);
  }
  quantize.getResult(0).replaceAllUsesWith(integers);
  quantize->erase();
}

/// What several read of a part that is dequantised is stored: rather as integers, together with the
/// other parts. One multiplication and one addition dequantise all, each part by its own scale and
/// zero point.
void joinIntegers(tensor::ConcatOp concat) {
  const auto type = cast<RankedTensorType>(concat.getType());
  const auto dim = unsigned(concat.getDim());
  SmallVector<Value> integers;
  Channels channels;
  bool isShared = false;
  for (Value part : concat.getInputs()) {
    std::optional<TensorScheme> scheme = dequantizedBy(part.getDefiningOp<linalg::GenericOp>());
    if (!scheme)
      return;
    integers.push_back(part.getDefiningOp()->getOperand(0));
    isShared |= !part.hasOneUse();
    const auto count = size_t(shapeOf(part)[dim]);
    channels.scale.insert(channels.scale.end(), count, scheme->scale);
    channels.shift.insert(channels.shift.end(), count, -scheme->scale * double(scheme->zero));
  }
  if (!isShared || !type.getElementType().isF32())
    return;
  OpBuilder builder(concat);
  Value joined = tensor::ConcatOp::create(
      builder, concat.getLoc(), RankedTensorType::get(type.getShape(), builder.getI8Type()), dim,
      integers);
  linalg::GenericOp map = mapChannels(builder, concat.getLoc(), joined, dim, channels);
  handOnValue(concat, map);
  concat.getResult().replaceAllUsesWith(map.getResult(0));
  concat->erase();
}

/// What is looked up in a constant table and quantised is looked up in the quantised table.
void quantizeTable(linalg::GenericOp quantize) {
  auto lookup = quantize->getOperand(0).getDefiningOp<linalg::GenericOp>();
  std::optional<LookupForm> form = lookup ? lookupOf(lookup) : std::nullopt;
  std::optional<TensorScheme> scheme = quantizedBy(quantize);
  std::optional<ConstantView> table = form ? viewConstant(form->table) : std::nullopt;
  if (!scheme || !table || table->splat || lookup->hasAttr(kDevice) || !lookup->hasOneUse() ||
      !quantize.getIndexingMapsArray()[0].isIdentity())
    return;
  tensor::ExtractOp extract;
  lookup.getBody()->walk([&](tensor::ExtractOp op) { extract = op; });
  if (!extract || extract.getTensor() != form->table ||
      lookup.getBody()->getTerminator()->getOperand(0) != extract.getResult())
    return;
  std::vector<int8_t> integers;
  for (const float real : table->floats()) {
    const double rounded =
        std::nearbyint(double(real / float(scheme->scale))) + double(scheme->zero);
    integers.push_back(int8_t(std::clamp(std::isnan(rounded) ? 0.0 : rounded, -128.0, 127.0)));
  }
  OpBuilder builder(quantize);
  const Location loc = quantize.getLoc();
  auto bytes = ArrayRef(reinterpret_cast<const char *>(integers.data()), integers.size());
  auto tableType = RankedTensorType::get(table->type.getShape(), builder.getI8Type());
  Value quantized =
      arith::ConstantOp::create(builder, loc, makeConstant(tableType, bytes, "table"));
  auto type = cast<RankedTensorType>(quantize.getResult(0).getType());
  Value init = tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
  auto rows = linalg::GenericOp::create(
      builder, loc, TypeRange(type), lookup.getDpsInputs(), ValueRange(init),
      lookup.getIndexingMapsArray(), lookup.getIteratorTypesArray(),
      [&](OpBuilder &b, Location at, ValueRange x) {
        IRMapping map;
        for (auto [argument, value] : llvm::zip(lookup.getBody()->getArguments(), x))
          map.map(argument, value);
        for (Operation &each : lookup.getBody()->without_terminator())
          if (&each != extract)
            b.clone(each, map);
        SmallVector<Value> indices;
        for (Value index : extract.getIndices())
          indices.push_back(map.lookupOrDefault(index));
        linalg::YieldOp::create(b, at,
                                tensor::ExtractOp::create(b, at, quantized, indices).getResult());
      });
  handOnValue(quantize, rows);
  quantize.getResult(0).replaceAllUsesWith(rows.getResult(0));
  quantize->erase();
  lookup->erase();
}

} // namespace

void viewIntegers(func::FuncOp function) {
  SmallVector<linalg::GenericOp> maps;
  function.walk([&](linalg::GenericOp op) {
    if (!quantKind(op).empty() && op->getNumResults() == 1)
      maps.push_back(op);
  });
  for (linalg::GenericOp op : maps)
    mapBeforeTear(op);
  SmallVector<tensor::ConcatOp> concats;
  function.walk([&](tensor::ConcatOp op) { concats.push_back(op); });
  for (tensor::ConcatOp op : concats)
    joinIntegers(op);
  SmallVector<linalg::GenericOp> quantizers;
  function.walk([&](linalg::GenericOp op) {
    if (quantKind(op) == "quantize" && op->getNumResults() == 1)
      quantizers.push_back(op);
  });
  for (linalg::GenericOp op : quantizers)
    viewInteger(op);
  quantizers.clear();
  function.walk([&](linalg::GenericOp op) {
    if (quantKind(op) == "quantize" && op->getNumResults() == 1)
      quantizers.push_back(op);
  });
  for (linalg::GenericOp op : quantizers)
    quantizeTable(op);
}

} // namespace millrace::forms
