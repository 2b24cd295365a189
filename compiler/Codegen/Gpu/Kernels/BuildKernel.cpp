// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/BuildKernel.h"

#include "compiler/Codegen/Gpu/Gather/FindGather.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#include <optional>

namespace millrace::gpu {

using namespace mlir;

namespace {

/// Lanes of kernels whose results have at least as many elements.
constexpr int64_t kLanes = 256;
/// Most lanes of a program that has a row, and those of a warp.
constexpr int64_t kLanesOfRow = 1024, kWarp = 32;
/// Results of so many elements leave no multiprocessor without a program of the most lanes.
constexpr int64_t kMany = int64_t(1) << 20;

class KernelBuilder {
public:
  KernelBuilder(linalg::LinalgOp op, OpBuilder &builder)
      : op(op), b(builder), place(op.getLoc()), ranges(op.getStaticLoopRanges()),
        kinds(op.getIteratorTypesArray()) {}

  Expected<BuiltKernel> build(StringRef name) {
    collectOperands();
    int64_t elements = 1;
    for (size_t d = 0; d < ranges.size(); ++d)
      elements *= isParallel(d) ? ranges[d] : 1;
    chooseRow();
    lanes = row ? lanesOfRow()
            : isOfManySideBySide(elements)
                ? kLanesOfRow
                : std::min(kLanes, kWarp * llvm::divideCeilSigned(elements, kWarp));
    const int64_t parts = row ? (ranges[*row] + lanes - 1) / lanes : 0,
                  programs = row ? elements / ranges[*row] * parts : (elements + lanes - 1) / lanes;
    const SmallVector<Type> types(ValueRange(operands.getArrayRef()).getTypes());
    auto kernel = tile::KernelOp::create(b, place, name, b.getFunctionType(types, {}), lanes,
                                         programs, ArrayAttr(), ArrayAttr());
    Block *body = b.createBlock(&kernel.getBody());
    for (Value operand : operands)
      mapping.map(operand, body->addArgument(operand.getType(), place));
    if (row)
      chooseElementOfRow(elements / ranges[*row], parts);
    else
      chooseElement(elements);
    writeResults();
    tile::ReturnOp::create(b, place);
    if (failure.empty())
      return BuiltKernel{kernel, operands.takeVector()};
    kernel.erase();
    return Error{failure};
  }

private:
  void collectOperands() {
    for (Value operand : op->getOperands())
      if (isa<MemRefType>(operand.getType()))
        operands.insert(operand);
    op.getBlock()->walk([&](memref::LoadOp load) { operands.insert(load.getMemref()); });
  }

  /// Rows that fill the lanes of a warp are not packed with others: what is data is theirs.
  void chooseRow() {
    const auto found = op->getAttrOfType<IntegerAttr>(kRowLoop);
    if (found && found.getInt() >= 0 && found.getInt() < int64_t(ranges.size()) &&
        isParallel(size_t(found.getInt())) && ranges[size_t(found.getInt())] >= kWarp)
      row = size_t(found.getInt());
  }

  /// So many that whole warps access 16 bytes a thread, if the row is long enough.
  int64_t lanesOfRow() {
    int64_t bytes = 1;
    for (Value result : op.getDpsInits())
      if (auto memory = dyn_cast<MemRefType>(result.getType()))
        bytes = std::max<int64_t>(bytes, memory.getElementTypeBitWidth() / 8);
    const int64_t group = kWarp * std::max<int64_t>(16 / bytes, 1);
    const int64_t step = ranges[*row] >= group ? group : kWarp;
    return std::min(kLanesOfRow, step * llvm::divideCeilSigned(ranges[*row], step));
  }

  /// Whether the results are many whole programs of the most lanes, whose elements lie side by side
  /// and are made of such: fewer and larger programs are begun in less time.
  bool isOfManySideBySide(int64_t elements) {
    return ranges.size() == 1 && isParallel(0) && elements >= kMany &&
           elements % kLanesOfRow == 0 && op.getBlock()->getOps<memref::LoadOp>().empty() &&
           llvm::all_of(
               op.getIndexingMapsArray(),
               [](AffineMap map) { return map.isIdentity() || map.getNumResults() == 0; }) &&
           llvm::all_of(operands, [](Value memory) {
             return cast<MemRefType>(memory.getType()).getLayout().isIdentity();
           });
  }

  /// A program's number, from the innermost on: parts of the row, then the other loops.
  void chooseElementOfRow(int64_t rows, int64_t parts) {
    Value rest = tile::ProgramIdOp::create(b, place), first = number(0);
    if (parts > 1) {
      first = combine<arith::MulIOp>(combine<arith::RemUIOp>(rest, number(parts)), number(lanes));
      rest = combine<arith::DivUIOp>(rest, number(parts));
    }
    indices.assign(ranges.size(), Value());
    Value at =
        combine<arith::AddIOp>(first, tile::IotaOp::create(b, place, tileOf(b.getIndexType())));
    if (ranges[*row] % lanes)
      mask = arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, at,
                                   asTile(number(ranges[*row])));
    int64_t left = rows;
    for (size_t d = ranges.size(); d-- > 0;) {
      if (d == *row) {
        indices[d] = at;
        continue;
      }
      indices[d] = ranges[d] == 1      ? number(0)
                   : ranges[d] == left ? rest // all others have one value
                                       : combine<arith::RemUIOp>(rest, number(ranges[d]));
      if (ranges[d] != 1 && ranges[d] != left)
        rest = combine<arith::DivUIOp>(rest, number(ranges[d]));
      left /= ranges[d];
    }
  }

  /// Whether a loop is over results, not over what is summed.
  bool isParallel(size_t loop) const { return kinds[loop] == utils::IteratorType::parallel; }

  // Scalars and tiles.

  VectorType tileOf(Type type) { return VectorType::get(lanes, type); }
  Value number(int64_t n) { return arith::ConstantIndexOp::create(b, place, n); }
  Value asTile(Value value) {
    return tile::isTile(value.getType())
               ? value
               : tile::BroadcastOp::create(b, place, tileOf(value.getType()), value);
  }
  /// Of two numbers; a tile if one of them is.
  template <class Op> Value combine(Value x, Value y) {
    if (tile::isTile(x.getType()) || tile::isTile(y.getType())) {
      x = asTile(x);
      y = asTile(y);
    }
    return Op::create(b, place, x, y);
  }

  /// Which element of the results a lane computes, as one index per loop over them.
  void chooseElement(int64_t elements) {
    Value first = combine<arith::MulIOp>(tile::ProgramIdOp::create(b, place), number(lanes));
    Value rest =
        combine<arith::AddIOp>(first, tile::IotaOp::create(b, place, tileOf(b.getIndexType())));
    if (elements % lanes)
      mask = arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, rest,
                                   asTile(number(elements)));
    indices.assign(ranges.size(), Value());
    isSingle = elements == 1;
    int64_t left = elements;
    for (size_t d = ranges.size(); d-- > 0;) {
      if (!isParallel(d))
        continue;
      if (ranges[d] == 1) {
        indices[d] = number(0);
      } else if (ranges[d] == left) { // all others have one value
        indices[d] = rest;
      } else {
        indices[d] = combine<arith::RemUIOp>(rest, number(ranges[d]));
        rest = combine<arith::DivUIOp>(rest, number(ranges[d]));
      }
      left /= ranges[d];
    }
  }

  /// The value of an index at the loops' places.
  Value evaluate(AffineExpr expression) {
    if (auto constant = dyn_cast<AffineConstantExpr>(expression))
      return number(constant.getValue());
    if (auto dimension = dyn_cast<AffineDimExpr>(expression))
      return indices[dimension.getPosition()];
    if (auto both = dyn_cast<AffineBinaryOpExpr>(expression)) {
      Value x = evaluate(both.getLHS()), y = evaluate(both.getRHS());
      if (both.getKind() == AffineExprKind::Add)
        return combine<arith::AddIOp>(x, y);
      if (both.getKind() == AffineExprKind::Mul)
        return combine<arith::MulIOp>(x, y);
    }
    fail("an index that is no sum of multiples of loops");
    return number(0);
  }
  SmallVector<Value> placeOf(OpOperand &operand) {
    SmallVector<Value> place;
    for (AffineExpr expression : op.getMatchingIndexingMap(&operand).getResults())
      place.push_back(evaluate(expression));
    return place;
  }

  /// `isResult`: read only by the lane that writes it, also if there is one for all. So is
  /// everything that one element is made of, as its memory may be that of an input.
  Value load(Value memory, ValueRange at, bool isResult = false) {
    const Type type = cast<MemRefType>(memory.getType()).getElementType();
    if (!isResult && !isSingle && llvm::none_of(at.getTypes(), tile::isTile))
      return tile::LoadOp::create(b, place, type, mapping.lookup(memory), at, Value(), Value());
    Value other = mask ? arith::ConstantOp::create(b, place, b.getZeroAttr(type)) : Value();
    return tile::LoadOp::create(b, place, tileOf(type), mapping.lookup(memory), at, mask, other);
  }

  /// Loops over what is summed, from loop `d` on, with the results so far; gives those at the end.
  SmallVector<Value> sum(size_t d, ValueRange before) {
    while (d < ranges.size() && isParallel(d))
      ++d;
    if (d == ranges.size())
      return writeBody(before);
    auto loop = scf::ForOp::create(b, place, number(0), number(ranges[d]), number(1), before);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    indices[d] = loop.getInductionVar();
    scf::YieldOp::create(b, place, sum(d + 1, loop.getRegionIterArgs()));
    return loop.getResults();
  }

  void writeResults() {
    SmallVector<Value> before;
    for (OpOperand &result : op.getDpsInitsMutable())
      before.push_back(op.payloadUsesValueFromOperand(&result) || op.getNumReductionLoops()
                           ? load(result.get(), placeOf(result), /*isResult=*/true)
                           : Value());
    // A body that reads no earlier result has none.
    const SmallVector<Value> results = sum(0, before);
    for (auto [result, value] : llvm::zip(op.getDpsInitsMutable(), results))
      tile::StoreOp::create(b, place, value, mapping.lookup(result.get()), placeOf(result), mask);
  }

  SmallVector<Value> writeBody(ValueRange before) {
    for (OpOperand *input : op.getDpsInputOperands()) {
      BlockArgument argument = op.getMatchingBlockArgument(input);
      if (argument.use_empty())
        continue;
      mapping.map(argument, isa<MemRefType>(input->get().getType())
                                ? load(input->get(), placeOf(*input))
                                : outside(input->get()));
    }
    for (auto [argument, value] : llvm::zip(op.getRegionOutputArgs(), before))
      if (value)
        mapping.map(argument, value);
    for (Operation &inner : op.getBlock()->without_terminator())
      write(&inner);
    SmallVector<Value> results;
    for (Value value : op.getBlock()->getTerminator()->getOperands())
      results.push_back(asTile(valueOf(value)));
    return results;
  }

  Value valueOf(Value value) {
    return mapping.contains(value) ? mapping.lookup(value) : outside(value);
  }
  /// A number from outside of the operation.
  Value outside(Value value) {
    Operation *definition = value.getDefiningOp();
    if (definition && matchPattern(definition, m_Constant()))
      return b.clone(*definition)->getResult(0);
    fail("a number from outside that is no constant");
    return arith::ConstantOp::create(b, place, b.getZeroAttr(value.getType()));
  }

  void write(Operation *inner) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner))
      return mapping.map(index, indices[index.getDim()]);
    SmallVector<Value> values;
    if (auto read = dyn_cast<memref::LoadOp>(inner)) {
      for (Value index : read.getIndices())
        values.push_back(valueOf(index));
      return mapping.map(read, load(read.getMemref(), values));
    }
    if (Value same = boundedLoop(inner))
      return mapping.map(inner->getResult(0), mapping.lookup(same));
    if (!tile::isAllowedInKernel(inner) || inner->getNumRegions())
      fail("'" + inner->getName().getStringRef().str() + "', which is not elementwise");
    for (Value operand : inner->getOperands())
      values.push_back(valueOf(operand));
    const bool isOfTiles = llvm::any_of(ValueRange(values).getTypes(), tile::isTile);
    for (Value &value : values)
      value = isOfTiles ? asTile(value) : value;
    Operation *written = b.clone(*inner);
    written->setOperands(values);
    for (auto [from, to] : llvm::zip(inner->getResults(), written->getResults())) {
      if (isOfTiles)
        to.setType(tileOf(to.getType()));
      mapping.map(from, to);
    }
  }

  /// The loop's index that is the smaller of itself and what it never exceeds, or the greater of
  /// itself and what it never falls below: indices are bounded, also those that are no data.
  Value boundedLoop(Operation *inner) {
    IntegerAttr bound;
    if (!isa<arith::MinSIOp, arith::MaxSIOp>(inner) ||
        !matchPattern(inner->getOperand(1), m_Constant(&bound)))
      return {};
    const std::optional<int64_t> size = sizeOfLoop(inner->getOperand(0));
    const bool isSame =
        size && (isa<arith::MinSIOp>(inner) ? bound.getInt() >= *size - 1 : bound.getInt() <= 0);
    return isSame ? inner->getOperand(0) : Value();
  }
  /// Of a loop's index, bounded or not.
  std::optional<int64_t> sizeOfLoop(Value value) {
    Operation *made = value.getDefiningOp();
    if (auto index = dyn_cast_or_null<linalg::IndexOp>(made))
      return ranges[index.getDim()];
    return made && boundedLoop(made) ? sizeOfLoop(made->getOperand(0)) : std::nullopt;
  }

  void fail(const std::string &what) {
    if (failure.empty())
      failure = "has " + what;
  }

  linalg::LinalgOp op;
  OpBuilder &b;
  const Location place;
  const SmallVector<int64_t> ranges;
  const SmallVector<utils::IteratorType> kinds;
  std::optional<size_t>
      row; ///< the loop along which a program's elements lie; none: they are packed
  int64_t lanes = 0;
  bool isSingle = false;           ///< the results have one element
  llvm::SetVector<Value> operands; ///< of the launch
  IRMapping mapping;
  SmallVector<Value> indices; ///< by loop: a tile, or a scalar for what is summed
  Value mask;                 ///< lanes that have an element; none: all have
  std::string failure;
};

} // namespace

Expected<BuiltKernel> buildKernel(linalg::LinalgOp op, OpBuilder &builder, StringRef name) {
  return KernelBuilder(op, builder).build(name);
}

} // namespace millrace::gpu
