// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/BuildRows.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

/// A row of at most a warp's lanes is a lane's.
constexpr int64_t kShortRow = 32;
/// Elements of a row that a program has at once: four in each of 256 threads.
constexpr int64_t kRowLanes = 1024;
/// Rows that a program has where a lane has one.
constexpr int64_t kLanesOfRows = 256;

class RowBuilder {
public:
  RowBuilder(const RowGroup &group, ArrayRef<Value> stored, OpBuilder &builder)
      : group(group), b(builder),
        place(group.nodes.front().op ? group.nodes.front().op->getLoc() : builder.getUnknownLoc()),
        rows(group.rows()), columns(group.columns()) {
    for (Value root : stored)
      results.push_back(&*group.written.find(root));
    collectOperands();
    isLaneARow = columns <= kShortRow || (!areColumnsSideBySide() && rows >= kShortRow);
    lanes = isLaneARow ? std::min(kLanesOfRows, 32 * llvm::divideCeilSigned(rows, 32))
                       : std::min(kRowLanes, 32 * llvm::divideCeilSigned(columns, 32));
  }

  BuiltKernel build(StringRef name) {
    SmallVector<Type> types;
    for (Value root : operands) {
      const auto type = cast<MemRefType>(root.getType());
      types.push_back(MemRefType::get(type.getNumElements(), type.getElementType()));
    }
    const int64_t programs = isLaneARow ? (rows + lanes - 1) / lanes : rows;
    auto kernel = tile::KernelOp::create(b, place, name, b.getFunctionType(types, {}), lanes,
                                         programs, ArrayAttr(), ArrayAttr());
    Block *body = b.createBlock(&kernel.getBody());
    for (Value root : operands)
      mapping.map(root, body->addArgument(types[body->getNumArguments()], place));
    begin();
    unsigned levels = 0;
    for (const Result *result : results)
      levels = std::max(levels, result->second.second->level);
    for (unsigned level = 1; level <= levels; ++level)
      reduceAll(level);
    writeResults();
    tile::ReturnOp::create(b, place);
    return {kernel, operands.takeVector()};
  }

private:
  using Result = std::pair<Value, std::pair<RowAccess, RowNode *>>;
  /// Values of the elements of a row, at one place of the loop over them.
  struct Part {
    SmallVector<Value> loops; ///< indices, by loop of the group; of rows: none
    Value inside;             ///< lanes that have an element; none: all have
    llvm::DenseMap<const RowNode *, Value> values;
  };

  //===-- What the kernel is made of
  //------------------------------------------------------------===//

  void collectOperands() {
    SmallVector<const RowNode *> left;
    for (const Result *result : results)
      left.push_back(result->second.second);
    while (!left.empty()) {
      const RowNode *node = left.pop_back_val();
      if (!needed.insert(node))
        continue;
      left.append(node->operands.begin(), node->operands.end());
    }
    for (const RowNode &node : group.nodes)
      if (needed.contains(&node) && node.kind == RowNode::Kind::Load)
        operands.insert(node.access.root);
    for (const Result *result : results)
      operands.insert(result->first);
  }

  /// Whether most accesses that differ along rows have neighbouring columns side by side.
  bool areColumnsSideBySide() const {
    int along = 0;
    const auto look = [&](const RowAccess &access) {
      int64_t column = 0, row = 0; // the innermost steps
      for (auto [stride, loop] : llvm::zip(access.strides, group.loops))
        (loop.isColumn ? column : row) = stride ? stride : (loop.isColumn ? column : row);
      if (column)
        along += column == 1 ? 1 : row == 1 ? -1 : 0;
    };
    for (const RowNode *node : needed)
      if (node->kind == RowNode::Kind::Load)
        look(node->access);
    for (const Result *result : results)
      look(result->second.first);
    return along >= 0;
  }

  //===-- Scalars and tiles
  //---------------------------------------------------------------------===//

  VectorType tileOf(Type type) { return VectorType::get(lanes, type); }
  Value number(int64_t n) { return arith::ConstantIndexOp::create(b, place, n); }
  Value constantTile(TypedAttr value) {
    return arith::ConstantOp::create(
        b, place, SplatElementsAttr::get(tileOf(value.getType()), Attribute(value)));
  }
  Value numberTile(int64_t n) { return constantTile(b.getIndexAttr(n)); }
  Value asTile(Value value) {
    return tile::isTile(value.getType())
               ? value
               : tile::BroadcastOp::create(b, place, tileOf(value.getType()), value);
  }
  template <class Op> Value combine(Value x, Value y) {
    if (tile::isTile(x.getType()) || tile::isTile(y.getType())) {
      x = asTile(x);
      y = asTile(y);
    }
    return Op::create(b, place, x, y);
  }
  Value times(Value x, int64_t factor) {
    if (factor == 1)
      return x;
    return tile::isTile(x.getType()) ? Value(arith::MulIOp::create(b, place, x, numberTile(factor)))
                                     : Value(arith::MulIOp::create(b, place, x, number(factor)));
  }

  /// A number below the product of the sizes as one for each loop of a kind.
  void split(Value all, bool isColumn, SmallVectorImpl<Value> &byLoop) {
    int64_t left = isColumn ? columns : rows;
    const auto constant = [&](int64_t n) {
      return tile::isTile(all.getType()) ? numberTile(n) : number(n);
    };
    for (size_t i = group.loops.size(); i-- > 0;) {
      const RowLoop &loop = group.loops[i];
      if (loop.isColumn != isColumn)
        continue;
      if (loop.size == left) { // those outside of it have one value
        byLoop[i] = all;
      } else {
        byLoop[i] = arith::RemUIOp::create(b, place, all, constant(loop.size));
        all = arith::DivUIOp::create(b, place, all, constant(loop.size));
      }
      left /= loop.size;
    }
  }

  /// Which rows the program has.
  void begin() {
    rowLoops.assign(group.loops.size(), Value());
    Value row = tile::ProgramIdOp::create(b, place);
    if (isLaneARow) {
      Value first = arith::MulIOp::create(b, place, row, number(lanes));
      row = combine<arith::AddIOp>(first, tile::IotaOp::create(b, place, tileOf(b.getIndexType())));
      if (rows % lanes)
        hasRow = arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, row, numberTile(rows));
    }
    split(row, /*isColumn=*/false, rowLoops);
  }

  Part partAt(Value column) {
    Part part;
    part.loops = rowLoops;
    if (!isLaneARow) {
      Value iota = tile::IotaOp::create(b, place, tileOf(b.getIndexType()));
      column = column ? combine<arith::AddIOp>(column, iota) : iota;
      if (columns % lanes)
        part.inside =
            arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, column, numberTile(columns));
    }
    split(column, /*isColumn=*/true, part.loops);
    return part;
  }
  bool isWholeRowAtOnce() const { return !isLaneARow && columns <= lanes; }

  /// Calls `body` once for each part of a row, with tiles that it carries.
  SmallVector<Value> forParts(ValueRange first,
                              llvm::function_ref<SmallVector<Value>(Part &, ValueRange)> body) {
    if (isWholeRowAtOnce()) {
      if (!whole)
        whole = partAt(Value());
      return body(*whole, first);
    }
    Value from = number(0), to = number(columns), step = number(isLaneARow ? 1 : lanes);
    auto loop = scf::ForOp::create(b, place, from, to, step, first);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Part part = partAt(loop.getInductionVar());
    SmallVector<Value> next = body(part, loop.getRegionIterArgs());
    if (!first.empty())
      scf::YieldOp::create(b, place, next);
    return loop.getResults();
  }

  //===-- Memory
  //--------------------------------------------------------------------------------===//

  /// Of an access: the element's number in its memory.
  Value indexOf(const RowAccess &access, ArrayRef<Value> loops) {
    Value scalar, tile;
    const auto add = [&](Value term) {
      Value &sum = tile::isTile(term.getType()) ? tile : scalar;
      sum = sum ? Value(arith::AddIOp::create(b, place, sum, term)) : term;
    };
    for (auto [stride, at] : llvm::zip(access.strides, loops))
      if (stride)
        add(times(at, stride));
    if (access.offset || (!scalar && !tile))
      add(number(access.offset));
    return tile && scalar ? combine<arith::AddIOp>(scalar, tile) : tile ? tile : scalar;
  }
  Value load(const RowNode &node, ArrayRef<Value> loops, Value mask) {
    Value at = indexOf(node.access, loops), memory = mapping.lookup(node.access.root);
    // The one lane that has a row may write where it reads.
    if (!tile::isTile(at.getType()) && !(isLaneARow && rows == 1))
      return tile::LoadOp::create(b, place, node.type, memory, at, Value(), Value());
    Value other = mask ? arith::ConstantOp::create(b, place, b.getZeroAttr(node.type)) : Value();
    return tile::LoadOp::create(b, place, tileOf(node.type), memory, at, mask, other);
  }

  //===-- Nodes
  //---------------------------------------------------------------------------------===//

  Value write(const RowNode &node, ArrayRef<Value> values) {
    SmallVector<Value> taken(values);
    const bool isOfTiles = llvm::any_of(ValueRange(taken).getTypes(), tile::isTile);
    if (isOfTiles)
      for (Value &value : taken)
        value = asTile(value);
    Operation *written = b.clone(*node.op);
    written->setOperands(taken);
    if (isOfTiles)
      written->getResult(0).setType(tileOf(node.type));
    return written->getResult(0);
  }

  /// A number for each row; reductions below it are done. At the kernel's own level.
  Value ofRow(const RowNode &node) {
    if (Value known = rowValues.lookup(&node))
      return known;
    Value value;
    if (node.kind == RowNode::Kind::Load) {
      value = load(node, rowLoops, hasRow);
    } else if (node.kind == RowNode::Kind::Index) {
      value = rowLoops[node.loop];
    } else {
      assert(node.kind == RowNode::Kind::Apply && "reductions are done level by level");
      SmallVector<Value> values;
      for (const RowNode *operand : node.operands)
        values.push_back(ofRow(*operand));
      value = write(node, values);
    }
    rowValues[&node] = value;
    return value;
  }
  Value ofElement(const RowNode &node, Part &part) {
    if (!node.hasColumns)
      return rowValues.lookup(&node);
    if (Value known = part.values.lookup(&node))
      return known;
    Value value;
    if (node.kind == RowNode::Kind::Load) {
      value = load(node, part.loops, isLaneARow ? hasRow : part.inside);
    } else if (node.kind == RowNode::Kind::Index) {
      value = part.loops[node.loop];
    } else {
      SmallVector<Value> values;
      for (const RowNode *operand : node.operands)
        values.push_back(ofElement(*operand, part));
      value = write(node, values);
    }
    part.values[&node] = value;
    return value;
  }
  /// Writes what a value along rows needs of numbers per row, ahead of a loop.
  void prepare(const RowNode &node, llvm::DenseSet<const RowNode *> &done) {
    if (!done.insert(&node).second)
      return;
    if (!node.hasColumns) {
      ofRow(node);
      return;
    }
    for (const RowNode *operand : node.operands)
      prepare(*operand, done);
  }

  void reduceAll(unsigned level) {
    SmallVector<const RowNode *> reductions;
    llvm::DenseSet<const RowNode *> done;
    for (const RowNode &node : group.nodes)
      if (node.kind == RowNode::Kind::Reduce && node.level == level && needed.contains(&node)) {
        reductions.push_back(&node);
        prepare(*node.operands[0], done);
        ofRow(*node.operands[1]);
      }
    const auto identity = [&](const RowNode *node) {
      return constantTile(arith::getIdentityValueAttr(node->combine, node->type, b, place));
    };
    SmallVector<Value> first;
    for (const RowNode *node : reductions)
      first.push_back(isLaneARow ? asTile(ofRow(*node->operands[1])) : identity(node));
    const SmallVector<Value> combined = forParts(first, [&](Part &part, ValueRange before) {
      SmallVector<Value> next;
      for (auto [node, sum] : llvm::zip(reductions, before)) {
        Value element = asTile(ofElement(*node->operands[0], part));
        if (part.inside)
          element = arith::SelectOp::create(b, place, part.inside, element, identity(node));
        next.push_back(isWholeRowAtOnce()
                           ? element
                           : arith::getReductionOp(node->combine, b, place, sum, element));
      }
      return next;
    });
    for (auto [node, value] : llvm::zip(reductions, combined))
      if (isLaneARow) {
        rowValues[node] = value;
      } else {
        Value all = tile::ReduceOp::create(b, place, node->type, node->combine, value);
        rowValues[node] =
            arith::getReductionOp(node->combine, b, place, ofRow(*node->operands[1]), all);
      }
  }

  void writeResults() {
    llvm::DenseSet<const RowNode *> done;
    SmallVector<const Result *> ofRows, ofElements;
    for (const Result *result : results) {
      prepare(*result->second.second, done);
      bool isAlong = false;
      for (auto [stride, loop] : llvm::zip(result->second.first.strides, group.loops))
        isAlong |= stride && loop.isColumn;
      (isAlong ? ofElements : ofRows).push_back(result);
    }
    if (!ofElements.empty())
      forParts({}, [&](Part &part, ValueRange) {
        for (const Result *result : ofElements)
          store(*result, asTile(ofElement(*result->second.second, part)), part.loops,
                isLaneARow ? hasRow : part.inside);
        return SmallVector<Value>();
      });
    for (const Result *result : ofRows) {
      Value mask = hasRow;
      if (!isLaneARow) // the first lane writes it
        mask = arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult,
                                     tile::IotaOp::create(b, place, tileOf(b.getIndexType())),
                                     numberTile(1));
      store(*result, asTile(ofRow(*result->second.second)), rowLoops, mask);
    }
  }
  void store(const Result &result, Value value, ArrayRef<Value> loops, Value mask) {
    tile::StoreOp::create(b, place, value, mapping.lookup(result.first),
                          indexOf(result.second.first, loops), mask);
  }

  const RowGroup &group;
  OpBuilder &b;
  const Location place;
  const int64_t rows, columns;
  SmallVector<const Result *> results;
  llvm::SetVector<const RowNode *> needed;
  llvm::SetVector<Value> operands; ///< of the launch
  IRMapping mapping;
  bool isLaneARow = false;
  int64_t lanes = 0;
  SmallVector<Value> rowLoops; ///< index of the row, by loop
  Value hasRow;                ///< lanes that have a row; none: all have
  std::optional<Part> whole;   ///< the row, if it is one tile
  llvm::DenseMap<const RowNode *, Value> rowValues;
};

} // namespace

BuiltKernel buildRows(const RowGroup &group, ArrayRef<Value> stored, OpBuilder &builder,
                      StringRef name) {
  return RowBuilder(group, stored, builder).build(name);
}

} // namespace millrace::gpu
