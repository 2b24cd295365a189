// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/BuildRows.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

namespace millrace::gpu {

using namespace mlir;

namespace {

/// A row of at most a warp's lanes is a lane's.
constexpr int64_t kShortRow = 32;
/// Lanes of a program that goes through its row in a loop.
constexpr int64_t kRowLanes = 1024;
/// A program that has its row at once: threads of a short one get so many elements each; one that
/// needs more has so many threads, and only then more threads. Many small programs on one
/// multiprocessor read while others compute.
constexpr int64_t kFewElements = 8, kMostElements = 32, kRowThreads = 256, kMostRowThreads = 1024;
/// Registers of a multiprocessor, most of a thread, and those that are not for elements of the row,
/// and more where something is read behind the first reductions.
/// No fewer than kFewRegisters are worth a bound.
constexpr int64_t kRegistersOfAll = 65536, kRegistersOfThread = 255, kOtherRegisters = 32,
                  kLateRegisters = 8, kFewRegisters = 64;
/// Lanes of a kernel, and bytes of one access, at most.
constexpr int64_t kMostRowLanes = 4096, kAccess = 16, kLanesOfWarp = 32;
/// Parts of a row for which is read, behind the last reduction, before they are stored.
constexpr int64_t kPartsAhead = 2;
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
    if (isLaneARow)
      lanes = std::min(kLanesOfRows, kLanesOfWarp * llvm::divideCeilSigned(rows, kLanesOfWarp));
    else
      chooseLanes();
    known.resize(size_t(parts));
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
    if (registers)
      kernel->setAttr(tile::kRegistersAttribute, b.getI32IntegerAttr(int32_t(registers)));
    Block *body = b.createBlock(&kernel.getBody());
    for (Value root : operands)
      mapping.map(root, body->addArgument(types[body->getNumArguments()], place));
    begin();
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
    for (const Result *result : results) {
      operands.insert(result->first);
      levels = std::max(levels, result->second.second->level);
    }
  }

  bool isAlongRow(const RowAccess &access) const {
    return llvm::any_of(llvm::zip(access.strides, group.loops),
                        [](auto each) { return std::get<0>(each) && std::get<1>(each).isColumn; });
  }

  /// Elements in one access of a thread: of the widest type along rows, whole in a row, and so that
  /// a warp has no more than the row.
  int64_t widthOfAccess() const {
    unsigned bits = 8;
    for (const RowNode *node : needed)
      if (node->kind == RowNode::Kind::Load && isAlongRow(node->access))
        bits = std::max(bits, node->type.getIntOrFloatBitWidth());
    for (const Result *result : results)
      if (isAlongRow(result->second.first))
        bits = std::max(bits, result->second.second->type.getIntOrFloatBitWidth());
    int64_t width = kAccess * 8 / bits;
    while (columns % width || (width > 1 && kLanesOfWarp * width > columns))
      width /= 2;
    return width;
  }

  /// Registers that an element of a row takes.
  struct Registers {
    int64_t kept = 0; ///< from one reduction to the next, at most; none for what is stored early
    int64_t read = 0; ///< by what is read for the first reductions
    int64_t late = 0; ///< by what is read behind them, part by part
  };
  static int64_t registersOf(const RowNode &node) {
    return node.type.isIntOrFloat() && node.type.getIntOrFloatBitWidth() <= 32 ? 1 : 2;
  }
  Registers registersOfElement() const {
    llvm::DenseMap<const RowNode *, std::pair<unsigned, unsigned>> life; // reductions, by level
    const auto use = [&](auto &self, const RowNode *node, unsigned level) -> void {
      if (!node->hasColumns)
        return;
      auto [found, isNew] = life.try_emplace(node, level, level);
      found->second.second = level;
      if (isNew)
        for (const RowNode *operand : node->operands)
          self(self, operand, level);
    };
    for (unsigned level = 1; level <= levels; ++level)
      for (const RowNode &node : group.nodes)
        if (isReducedAt(node, level))
          use(use, node.operands[0], level);
    for (const Result *result : results)
      if (isAlongRow(result->second.first) &&
          !(canStoreEarly(*result) && life.contains(result->second.second)))
        use(use, result->second.second, levels + 1);
    Registers most;
    for (unsigned level = 1; level <= levels; ++level) {
      int64_t kept = 0;
      for (const auto &[node, span] : life)
        if (span.first <= level && level < span.second)
          kept += registersOf(*node);
      most.kept = std::max(most.kept, kept);
    }
    for (const auto &[node, span] : life)
      if (node->kind == RowNode::Kind::Load)
        (span.first == 1 ? most.read : most.late) += registersOf(*node);
    return most;
  }

  /// Threads and lanes of a program that has its row at once, if its threads have the registers for
  /// that; else those of one that goes through the row again for each reduction.
  void chooseLanes() {
    const Registers each = registersOfElement();
    const int64_t width = widthOfAccess();
    int64_t threads = std::min(
        kRowThreads, kLanesOfWarp * llvm::divideCeilSigned(columns, kLanesOfWarp * kFewElements));
    // Without accesses of several elements there are no more threads than that (LaneAccess.h).
    const int64_t most =
        width == 1 ? kRowThreads : std::min(kMostRowThreads, kMostRowLanes / width);
    for (; threads <= most; threads *= 2) {
      lanes = threads * width;
      parts = llvm::divideCeilSigned(columns, lanes);
      const int64_t own = parts * width, // elements
          others =
              kOtherRegisters + (each.late ? kLateRegisters + kPartsAhead * width * each.late : 0),
                    limit = std::min(kRegistersOfThread, kRegistersOfAll / threads);
      if (own > kMostElements || own * each.kept + others > limit)
        continue;
      readsAhead = own * each.read + kOtherRegisters <= limit;
      registers = std::max({kFewRegisters, own * each.kept + others,
                            readsAhead ? own * each.read + kOtherRegisters : 0});
      registers = std::min(limit, (registers + 7) / 8 * 8);
      return;
    }
    lanes = kRowLanes;
    parts = 0;
    registers = kFewRegisters;
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

  /// Of a row that is there at once: its lanes from `first` on.
  Part partAt(int64_t first) {
    Part part;
    part.loops = rowLoops;
    Value column = tile::IotaOp::create(b, place, tileOf(b.getIndexType()));
    if (first)
      column = combine<arith::AddIOp>(number(first), column);
    if (first + lanes > columns)
      part.inside =
          arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, column, numberTile(columns));
    split(column, /*isColumn=*/true, part.loops);
    return part;
  }
  Part partAt(Value column) {
    Part part;
    part.loops = rowLoops;
    if (!isLaneARow) {
      column =
          combine<arith::AddIOp>(column, tile::IotaOp::create(b, place, tileOf(b.getIndexType())));
      if (columns % lanes)
        part.inside =
            arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, column, numberTile(columns));
    }
    split(column, /*isColumn=*/true, part.loops);
    return part;
  }
  /// Calls `body` once for each part of a row, with tiles that it carries; the first time without
  /// them if the row is there at once. What `ahead` is made of is read before, then, of so many
  /// parts at a time: no later read passes what the body stores.
  SmallVector<Value> forParts(ValueRange first, ArrayRef<const RowNode *> ahead, int64_t partsAhead,
                              llvm::function_ref<SmallVector<Value>(Part &, ValueRange)> body) {
    if (parts) {
      SmallVector<Value> carried;
      // Places are written again for each reduction, and so take no registers between them.
      SmallVector<Part> some;
      for (int64_t begin = 0; begin < parts; begin += partsAhead) {
        const int64_t end = std::min(begin + partsAhead, parts);
        some.clear();
        for (int64_t i = begin; i < end; ++i) {
          some.push_back(partAt(i * lanes));
          some.back().values = std::move(known[size_t(i)]);
          for (const RowNode *node : ahead)
            readAll(*node, some.back());
        }
        for (int64_t i = begin; i < end; ++i) {
          carried = body(some[size_t(i - begin)], carried);
          known[size_t(i)] = std::move(some[size_t(i - begin)].values);
        }
      }
      return carried;
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

  //===-- Division of a row by one number
  //----------------------------------------------------------===//

  /// What all elements are multiplied by instead: of the number, made no smaller than 2^-85 by
  /// `scale`, the reciprocal and its negative.
  struct Divisor {
    Value scale, scaled, reciprocal, negative;
  };
  bool isDivisionOfRow(const RowNode &node) const {
    return !isLaneARow && isa_and_nonnull<arith::DivFOp>(node.op) && node.type.isF32() &&
           node.operands[0]->hasColumns && !node.operands[1]->hasColumns;
  }
  Value constantF32(float value) {
    return arith::ConstantOp::create(b, place, b.getF32FloatAttr(value));
  }
  /// At the kernel's own level.
  void prepareDivision(const RowNode &by) {
    if (divisors.contains(&by))
      return;
    Value number = ofRow(by), one = constantF32(1);
    Value isSmall =
        arith::CmpFOp::create(b, place, arith::CmpFPredicate::OLT,
                              math::AbsFOp::create(b, place, number), constantF32(0x1p-64f));
    Value scale = arith::SelectOp::create(b, place, isSmall, constantF32(0x1p64f), one);
    Value scaled = arith::MulFOp::create(b, place, number, scale);
    Value reciprocal = arith::DivFOp::create(b, place, one, scaled);
    divisors[&by] = {scale, scaled, reciprocal, arith::NegFOp::create(b, place, reciprocal)};
  }
  /// A product with the reciprocal, corrected by what it is too large by. A quotient that is a
  /// number of the type is that number (a zero by a negative number is positive); others are
  /// rounded as by division but for one in about 2^22, which is a neighbour. So may any of an x
  /// below 2^-102 be, as it leaves less over than the type has numbers for. Where nothing finite is
  /// left over, as of infinities, the product is the result.
  Value divide(Value x, const Divisor &by) {
    x = arith::MulFOp::create(b, place, x, asTile(by.scale));
    Value quotient = arith::MulFOp::create(b, place, x, asTile(by.reciprocal));
    Value rest = math::FmaOp::create(b, place, quotient, asTile(by.scaled),
                                     arith::NegFOp::create(b, place, x));
    Value better = math::FmaOp::create(b, place, rest, asTile(by.negative), quotient);
    Value infinity = constantTile(b.getF32FloatAttr(std::numeric_limits<float>::infinity()));
    Value isFinite = arith::CmpFOp::create(b, place, arith::CmpFPredicate::OLT,
                                           math::AbsFOp::create(b, place, rest), infinity);
    return arith::SelectOp::create(b, place, isFinite, better, quotient);
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
      value = isDivisionOfRow(node) ? divide(values[0], divisors.at(node.operands[1]))
                                    : write(node, values);
    }
    part.values[&node] = value;
    return value;
  }
  void readAll(const RowNode &node, Part &part) {
    if (!node.hasColumns || part.values.contains(&node))
      return;
    if (node.kind == RowNode::Kind::Load)
      ofElement(node, part);
    for (const RowNode *operand : node.operands)
      readAll(*operand, part);
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
    if (isDivisionOfRow(node))
      prepareDivision(*node.operands[1]);
  }

  bool isReducedAt(const RowNode &node, unsigned level) const {
    return node.kind == RowNode::Kind::Reduce && node.level == level && needed.contains(&node);
  }

  void reduceAll(unsigned level) {
    SmallVector<const RowNode *> reductions, ofFirst;
    llvm::DenseSet<const RowNode *> done;
    for (const RowNode &node : group.nodes)
      if (isReducedAt(node, level)) {
        reductions.push_back(&node);
        if (level == 1)
          ofFirst.push_back(node.operands[0]);
        prepare(*node.operands[0], done);
        ofRow(*node.operands[1]);
      }
    const auto identity = [&](const RowNode *node) {
      return constantTile(arith::getIdentityValueAttr(node->combine, node->type, b, place));
    };
    SmallVector<Value> first;
    for (const RowNode *node : reductions)
      first.push_back(isLaneARow ? asTile(ofRow(*node->operands[1])) : identity(node));
    const SmallVector<Value> combined =
        forParts(first, ofFirst, readsAhead ? parts : 1, [&](Part &part, ValueRange before) {
          SmallVector<Value> next;
          for (auto [i, node] : llvm::enumerate(reductions)) {
            Value element = asTile(ofElement(*node->operands[0], part));
            if (part.inside)
              element = arith::SelectOp::create(b, place, part.inside, element, identity(node));
            next.push_back(before.empty() ? element
                                          : arith::getReductionOp(node->combine, b, place,
                                                                  before[i], element));
          }
          return next;
        });
    storeEarly();
    for (auto [node, value] : llvm::zip(reductions, combined))
      if (isLaneARow) {
        rowValues[node] = value;
      } else {
        Value all = tile::ReduceOp::create(b, place, node->type, node->combine, value);
        rowValues[node] =
            arith::getReductionOp(node->combine, b, place, ofRow(*node->operands[1]), all);
      }
  }

  /// Nobody reads its memory in the kernel, which is that of one lane for each element.
  bool canStoreEarly(const Result &result) const {
    return isAlongRow(result.second.first) && !group.read.contains(result.first);
  }
  /// Stores what is already there of a row, which then takes no registers any more.
  void storeEarly() {
    if (!parts)
      return;
    SmallVector<const Result *> there;
    for (const Result *result : results)
      if (canStoreEarly(*result) && known.front().contains(result->second.second) &&
          stored.insert(result).second)
        there.push_back(result);
    writeElements(there);
  }
  void writeElements(ArrayRef<const Result *> ofElements) {
    SmallVector<const RowNode *> nodes;
    for (const Result *result : ofElements)
      nodes.push_back(result->second.second);
    if (!ofElements.empty())
      forParts({}, nodes, kPartsAhead, [&](Part &part, ValueRange) {
        for (const Result *result : ofElements)
          store(*result, asTile(ofElement(*result->second.second, part)), part.loops,
                isLaneARow ? hasRow : part.inside);
        return SmallVector<Value>();
      });
  }

  void writeResults() {
    llvm::DenseSet<const RowNode *> done;
    SmallVector<const Result *> ofRows, ofElements;
    for (const Result *result : results) {
      prepare(*result->second.second, done);
      if (!stored.contains(result))
        (isAlongRow(result->second.first) ? ofElements : ofRows).push_back(result);
    }
    writeElements(ofElements);
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
  int64_t lanes = 0, parts = 0; ///< of a row that is there at once; 0: it is not
  int64_t registers = 0;        ///< of a thread, at most; 0: as many as there are
  bool readsAhead = false;      ///< all that first reductions take is read before they begin
  unsigned levels = 0;          ///< reductions below each other
  SmallVector<Value> rowLoops;  ///< index of the row, by loop
  Value hasRow;                 ///< lanes that have a row; none: all have
  std::vector<llvm::DenseMap<const RowNode *, Value>> known; ///< of each part of such a row
  llvm::SmallPtrSet<const Result *, 4> stored; ///< results that were, ahead of the end
  llvm::DenseMap<const RowNode *, Value> rowValues;
  llvm::DenseMap<const RowNode *, Divisor> divisors;
};

} // namespace

BuiltKernel buildRows(const RowGroup &group, ArrayRef<Value> stored, OpBuilder &builder,
                      StringRef name) {
  return RowBuilder(group, stored, builder).build(name);
}

} // namespace millrace::gpu
