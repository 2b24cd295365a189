// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/IR/IRMapping.h"

namespace millrace::forms {

using namespace mlir;

namespace {

using Permutation = SmallVector<int64_t>;

/// The values that are transposes of others, by way of what is computed of them element by element.
/// `permutation`: dimension i of such a value is that dimension of the other.
class Transposes {
public:
  /// Follows what the operation makes of values that are known.
  void note(Operation *op);
  /// The value before it was transposed, computed so if need be; null if it is no transpose so.
  Value before(Value value, ArrayRef<int64_t> permutation);

private:
  DenseMap<Value, Permutation> permutations;
  DenseMap<Value, Value> made;

  Value turn(OpBuilder &builder, Value constant, ArrayRef<int64_t> permutation);
  Value make(Operation *op, ArrayRef<int64_t> permutation);
  Value makeMap(OpBuilder &builder, linalg::GenericOp map, ArrayRef<int64_t> permutation);
  /// What is known of those of the values that are of the rank and not constant, if it is the same;
  /// others may be broadcast.
  const Permutation *common(ValueRange values, int64_t elements) const;
};

int64_t elementsOf(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

bool isMapOfTensors(Operation *op) {
  auto map = dyn_cast<linalg::GenericOp>(op);
  return map && map->getNumResults() == 1 && isMap(map) && !map.hasIndexSemantics() &&
         map.getMatchingBlockArgument(map.getDpsInitOperand(0)).use_empty();
}

bool isStaticSlice(Operation *op) {
  auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
  return slice && slice.getOffsets().empty() && slice.getSizes().empty() &&
         slice.getStrides().empty() && slice.getSourceType().getRank() == slice.getType().getRank();
}

bool isStaticPad(Operation *op) {
  auto pad = dyn_cast<tensor::PadOp>(op);
  return pad && pad.getLow().empty() && pad.getHigh().empty() && pad.getConstantPaddingValue();
}

/// The operands that the operation moves or computes with.
ValueRange sourcesOf(Operation *op) {
  if (auto map = dyn_cast<linalg::GenericOp>(op))
    return map.getInputs();
  return isa<tensor::ConcatOp>(op) ? ValueRange(op->getOperands()) : op->getOperands().take_front();
}

const Permutation *Transposes::common(ValueRange values, int64_t elements) const {
  const Permutation *all = nullptr;
  for (Value value : values) {
    if (!isa<RankedTensorType>(value.getType()))
      continue;
    const auto found = permutations.find(value);
    if (found == permutations.end()) {
      if (elementsOf(value) >= elements && !isConstantValue(value))
        return nullptr;
      continue;
    }
    if (all && *all != found->second)
      return nullptr;
    all = &found->second;
  }
  return all;
}

void Transposes::note(Operation *op) {
  if (isNamedByUser(op) || op->getNumResults() != 1)
    return;
  const Value result = op->getResult(0);
  if (auto transpose = dyn_cast<linalg::TransposeOp>(op)) {
    permutations[result] = Permutation(transpose.getPermutation());
    made[result] = transpose.getInput();
    return;
  }
  const bool isConcat = isa<tensor::ConcatOp>(op);
  if (!isConcat && !isMapOfTensors(op) && !isStaticSlice(op) && !isStaticPad(op))
    return;
  const ValueRange sources = sourcesOf(op);
  // All parts of a concatenation are moved; of a map's operands those that are as large as it.
  const Permutation *permutation = common(sources, isConcat ? 0 : elementsOf(result));
  if (permutation &&
      int64_t(permutation->size()) == cast<RankedTensorType>(result.getType()).getRank()) {
    Permutation its = *permutation; // a map that grows would lose it
    permutations[result] = std::move(its);
  }
}

/// A map over the dimensions as they were.
Value Transposes::makeMap(OpBuilder &builder, linalg::GenericOp map,
                          ArrayRef<int64_t> permutation) {
  const auto rank = unsigned(permutation.size());
  SmallVector<AffineExpr> loops(rank); // of the map, by those of the new one
  for (unsigned i = 0; i < rank; ++i)
    loops[i] = builder.getAffineDimExpr(unsigned(permutation[i]));
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (auto [input, indices] : llvm::zip(map.getInputs(), map.getIndexingMapsArray())) {
    SmallVector<AffineExpr> exprs;
    for (AffineExpr expr : indices.getResults())
      exprs.push_back(expr.replaceDims(loops));
    const Value source = before(input, permutation);
    if (source && exprs.size() == rank) {
      SmallVector<AffineExpr> moved(rank);
      for (unsigned i = 0; i < rank; ++i)
        moved[size_t(permutation[i])] = exprs[i];
      exprs = std::move(moved);
    }
    inputs.push_back(source ? source : input);
    maps.push_back(AffineMap::get(rank, 0, exprs, builder.getContext()));
  }
  maps.push_back(builder.getMultiDimIdentityMap(rank));
  const auto type = cast<RankedTensorType>(map->getResult(0).getType());
  SmallVector<int64_t> shape(rank);
  for (unsigned i = 0; i < rank; ++i)
    shape[size_t(permutation[i])] = type.getDimSize(i);
  const Value init = tensor::EmptyOp::create(builder, map.getLoc(), shape, type.getElementType());
  auto turned = linalg::GenericOp::create(
      builder, map.getLoc(), TypeRange{init.getType()}, inputs, ValueRange{init}, maps,
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel));
  IRMapping captured;
  map.getRegion().cloneInto(&turned.getRegion(), captured);
  for (const NamedAttribute attribute : map->getDiscardableAttrs())
    if (attribute.getName() != kOnnxValue)
      turned->setDiscardableAttr(attribute.getName(), attribute.getValue());
  return turned->getResult(0);
}

/// A constant part of a concatenation, which no transpose made, in the dimensions of the others as
/// they were.
Value Transposes::turn(OpBuilder &builder, Value constant, ArrayRef<int64_t> permutation) {
  const auto type = cast<RankedTensorType>(constant.getType());
  Permutation inverse(permutation.size());
  SmallVector<int64_t> shape(permutation.size());
  for (auto [i, dim] : llvm::enumerate(permutation)) {
    inverse[size_t(dim)] = int64_t(i);
    shape[size_t(dim)] = type.getDimSize(unsigned(i));
  }
  const Location loc = constant.getLoc();
  const Value init = tensor::EmptyOp::create(builder, loc, shape, type.getElementType());
  return linalg::TransposeOp::create(builder, loc, constant, init, inverse)->getResult(0);
}

Value Transposes::make(Operation *op, ArrayRef<int64_t> permutation) {
  OpBuilder builder(op);
  if (auto map = dyn_cast<linalg::GenericOp>(op))
    return makeMap(builder, map, permutation);
  SmallVector<Value> sources;
  for (Value source : sourcesOf(op)) {
    const Value turned = before(source, permutation);
    sources.push_back(turned ? turned : turn(builder, source, permutation));
  }
  if (auto concat = dyn_cast<tensor::ConcatOp>(op))
    return tensor::ConcatOp::create(builder, op->getLoc(), uint64_t(permutation[concat.getDim()]),
                                    sources)
        ->getResult(0);
  const auto moved = [&](ArrayRef<int64_t> perDim) {
    SmallVector<OpFoldResult> list(perDim.size());
    for (size_t i = 0; i < perDim.size(); ++i)
      list[size_t(permutation[i])] = builder.getIndexAttr(perDim[i]);
    return list;
  };
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return tensor::ExtractSliceOp::create(
               builder, op->getLoc(), sources.front(), moved(slice.getStaticOffsets()),
               moved(slice.getStaticSizes()), moved(slice.getStaticStrides()))
        ->getResult(0);
  auto pad = cast<tensor::PadOp>(op);
  return tensor::PadOp::create(builder, op->getLoc(), Type(), sources.front(),
                               moved(pad.getStaticLow()), moved(pad.getStaticHigh()),
                               pad.getConstantPaddingValue(), pad.getNofold())
      ->getResult(0);
}

Value Transposes::before(Value value, ArrayRef<int64_t> permutation) {
  const auto found = permutations.find(value);
  if (found == permutations.end() || ArrayRef(found->second) != permutation)
    return nullptr;
  if (const Value known = made.lookup(value))
    return known;
  Operation *op = value.getDefiningOp();
  const Value source = make(op, permutation);
  made[value] = source;
  // Whoever takes it as it was takes a transpose, which is nothing but a view.
  OpBuilder builder(op);
  const auto type = cast<RankedTensorType>(value.getType());
  const Value init =
      tensor::EmptyOp::create(builder, op->getLoc(), type.getShape(), type.getElementType());
  auto transpose = linalg::TransposeOp::create(builder, op->getLoc(), source, init, permutation);
  handOnValue(op, transpose);
  permutations[transpose->getResult(0)] = Permutation(permutation);
  made[transpose->getResult(0)] = source;
  value.replaceAllUsesWith(transpose->getResult(0));
  return source;
}

/// Do windows move over the value? They want images as they had them before.
bool meetsConvolution(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    const bool isView = isa<tensor::PadOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp>(user);
    return isa<linalg::ConvolutionOpInterface>(user) ||
           (isView && meetsConvolution(user->getResult(0)));
  });
}

} // namespace

void cancelTransposes(func::FuncOp function) {
  Transposes transposes;
  SmallVector<linalg::TransposeOp> ends;
  for (Operation &op : function.getBody().front()) {
    transposes.note(&op);
    if (auto transpose = dyn_cast<linalg::TransposeOp>(op);
        transpose && !isNamedByUser(&op) && meetsConvolution(transpose->getResult(0)))
      ends.push_back(transpose);
  }
  for (linalg::TransposeOp end : ends) {
    Permutation inverse(end.getPermutation().size());
    for (auto [i, dim] : llvm::enumerate(end.getPermutation()))
      inverse[size_t(dim)] = int64_t(i);
    if (const Value source = transposes.before(end.getInput(), inverse)) {
      if (Operation *made = source.getDefiningOp(); made && !made->hasAttr(kOnnxValue))
        handOnValue(end, made);
      end->getResult(0).replaceAllUsesWith(source);
    }
  }
  // What nobody takes any more, last things first.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (op.use_empty() && isa<linalg::TransposeOp, linalg::GenericOp, tensor::ConcatOp,
                              tensor::PadOp, tensor::ExtractSliceOp, tensor::EmptyOp>(op))
      op.erase();
}

} // namespace millrace::forms
