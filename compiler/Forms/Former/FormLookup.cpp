// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of a constant table at indices that an input delivers: operands whose index is data.
#include "compiler/Forms/Former/Former.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace millrace::forms {

using namespace mlir;

Value wrappedIndex(Value value, int64_t extent) {
  auto select = value.getDefiningOp<arith::SelectOp>();
  if (!select)
    return {};
  auto less = select.getCondition().getDefiningOp<arith::CmpIOp>();
  auto sum = select.getTrueValue().getDefiningOp<arith::AddIOp>();
  Value x = select.getFalseValue();
  IntegerAttr zero, added;
  bool wraps = less && sum && less.getPredicate() == arith::CmpIPredicate::slt &&
               less.getLhs() == x && sum.getLhs() == x &&
               matchPattern(less.getRhs(), m_Constant(&zero)) && zero.getValue().isZero() &&
               matchPattern(sum.getRhs(), m_Constant(&added)) &&
               added.getValue().getSExtValue() == extent;
  return wraps ? x : Value();
}

std::optional<LookupForm> lookupOf(Operation *op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || !isMap(generic) || generic.getNumDpsInputs() != 1 ||
      !generic.getIndexingMapsArray()[1].isIdentity())
    return std::nullopt;
  auto extract =
      generic.getBody()->getTerminator()->getOperand(0).getDefiningOp<tensor::ExtractOp>();
  if (!extract || !isConstantValue(extract.getTensor()) ||
      !isa<FloatType>(extract.getTensor().getType().getElementType()))
    return std::nullopt;
  LookupForm form;
  form.table = extract.getTensor();
  form.indices = generic.getDpsInputs()[0];
  ArrayRef<int64_t> shape = shapeOf(form.table);
  bool found = false;
  for (auto [dim, index] : llvm::enumerate(extract.getIndices())) {
    if (auto loop = index.getDefiningOp<linalg::IndexOp>()) {
      form.loops.push_back(unsigned(loop.getDim()));
      continue;
    }
    auto cast = index.getDefiningOp<arith::IndexCastOp>();
    Value x = cast ? wrappedIndex(cast.getIn(), shape[dim]) : Value();
    if (found || x != generic.getBody()->getArgument(0))
      return std::nullopt;
    found = true;
    form.dim = unsigned(dim);
    form.loops.push_back(0); // not used
  }
  // One run of rows: lanes, the dimension that is looked up, and nothing else.
  form.lane = unsigned(shape.size() - 1);
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (extent != 1 && dim != form.dim && dim != form.lane)
      return std::nullopt;
  if (!found || form.dim == form.lane)
    return std::nullopt;
  return form;
}

/// The model's input that the value is, if it is one.
static std::optional<BlockArgument> inputOf(Value value) {
  return isa<BlockArgument>(value) ? std::optional(cast<BlockArgument>(value)) : std::nullopt;
}

/// A map that only widens or narrows integers: returns what it casts.
static Value castInteger(Operation *op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || !isMap(generic) || generic.getNumDpsInputs() != 1 ||
      !generic.getIndexingMapsArray()[0].isIdentity() ||
      !generic.getIndexingMapsArray()[1].isIdentity())
    return {};
  Operation *cast = generic.getBody()->getTerminator()->getOperand(0).getDefiningOp();
  bool isCast = cast && isa<arith::ExtSIOp, arith::TruncIOp>(cast) &&
                cast->getOperand(0) == generic.getBody()->getArgument(0) &&
                cast->getOperand(0).getType().getIntOrFloatBitWidth() > 1;
  return isCast ? generic.getDpsInputs()[0] : Value();
}

bool Former::isLookup(Operation *op) {
  std::optional<LookupForm> form = lookupOf(op);
  if (!form || op->hasAttr(kDevice) || hostTables.contains(form->table))
    return false;
  Value source = baseOf(form->indices);
  while (Value given = castInteger(source.getDefiningOp()))
    source = baseOf(given);
  return inputOf(source).has_value();
}

static int64_t bytesOnGrid(Value constant) {
  auto type = cast<RankedTensorType>(constant.getType());
  const bool isFloat = isa<FloatType>(type.getElementType()); // stored in 16 bits
  return type.getNumElements() * (isFloat ? 2 : (type.getElementTypeBitWidth() + 7) / 8);
}

std::vector<std::string> Former::keepTablesWithHost() {
  llvm::SetVector<Value> tables;
  function.walk([&](Operation *op) {
    if (isLookup(op))
      tables.insert(lookupOf(op)->table);
  });
  int64_t others = 0;
  function.walk([&](Operation *op) {
    if (op->hasTrait<OpTrait::ConstantLike>() &&
        isa<RankedTensorType>(op->getResult(0).getType()) && !tables.contains(op->getResult(0)))
      others += bytesOnGrid(op->getResult(0));
  });
  SmallVector<Value> order = tables.takeVector();
  llvm::stable_sort(order, [](Value x, Value y) { return bytesOnGrid(x) < bytesOnGrid(y); });
  int64_t room =
      std::min(options.mostTableBytes, std::max<int64_t>(0, options.memoryBytes - others) / 2);
  std::vector<std::string> lines;
  for (Value table : order) {
    const int64_t bytes = bytesOnGrid(table);
    if (options.canGather && bytes <= room) {
      room -= bytes;
      continue;
    }
    hostTables.insert(table);
    lines.push_back("table '" + nameOf(table) + "' of " + std::to_string(bytes) +
                    " bytes stays with the host: " +
                    (options.canGather ? std::to_string(room) + " bytes are left for tables"
                                       : "superlanes of one lane hold no address"));
  }
  return lines;
}

/// The indices as the host delivers them, one row each.
unsigned Former::indexTensor(BlockArgument argument, int64_t extent) {
  auto [entry, isNew] = indexTensors.try_emplace({argument.getArgNumber(), extent}, 0);
  if (!isNew)
    return entry->second;
  std::vector<int64_t> shape(shapeOf(argument).begin(), shapeOf(argument).end());
  shape.push_back(1);
  const unsigned lane = unsigned(shape.size() - 1);
  const unsigned tensor =
      addTensor(graph, "indices", shape, ElementType::Int32, lane, TensorRole::Input);
  Tensor &added = graph.tensors[tensor];
  nameArgument(added, argument);
  added.hostExtent = extent;
  return entry->second = tensor;
}

FailureOr<Scalar> Former::computeLookup(Attempt &attempt, linalg::LinalgOp op, const Point &index) {
  std::optional<LookupForm> form = lookupOf(op);
  Point at;
  for (AffineExpr expr : op.getIndexingMapsArray()[0].getResults()) {
    std::optional<Linear> part = attempt.space.evaluate(expr, index);
    if (!part)
      return failure();
    at.push_back(*part);
  }
  FailureOr<Resolved> indices = resolve(attempt, form->indices, at);
  while (succeeded(indices) && !indices->padded) {
    Value given = castInteger(indices->base.getDefiningOp());
    if (!given)
      break;
    indices = resolve(attempt, given, indices->index);
  }
  if (failed(indices) || indices->padded)
    return failure();
  std::optional<BlockArgument> argument = inputOf(indices->base);
  if (!argument)
    return failure();
  Lookup lookup;
  lookup.dim = form->dim;
  lookup.tensor = indexTensor(*argument, shapeOf(form->table)[form->dim]);
  for (const Linear &part : indices->index) {
    if (attempt.lane >= 0 && part.uses(unsigned(attempt.lane)))
      return failure(); // all lanes of a row come from one row
    lookup.index.push_back(part.affine());
  }
  lookup.index.push_back(fixed(0));
  Access access{constantTensor(form->table, activation(), form->lane), {}, 0};
  for (unsigned dim = 0; dim < shapeOf(form->table).size(); ++dim)
    access.index.push_back(dim == form->dim ? fixed(0) : index[form->loops[dim]].affine());
  access.lookup = lookup;
  return Scalar{attempt.build.load(access), Scalar::Kind::F32};
}

} // namespace millrace::forms
