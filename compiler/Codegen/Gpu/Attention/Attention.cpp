// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/Attention.h"

#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <algorithm>

namespace millrace::gpu {

using namespace mlir;

namespace {

constexpr int64_t kMostDepth = 256, kMostValueDepth = 160, kMostRows = 256, kMostKeys = 128;
/// Elements of a key and its value beside which a thread has registers for blocks of 32 keys, on
/// any chip (ptxas 13.0).
constexpr int64_t kDepthOfLongBlocks = 192;
/// Elements of Q's rows that may stay in registers from block to block, 16 of 32 bits for each 64.
/// Of longer rows they are read again, so many at a time.
constexpr int64_t kDepthInRegisters = 128, kDepthStep = 32;

Error refuse(const std::string &what, int64_t number, const std::string &remedy) {
  return Error{"attention has " + what + " " + std::to_string(number) + "; " + remedy};
}

Status check(const AttentionProblem &p, const AttentionSchedule &s) {
  const std::pair<const char *, int64_t> sizes[] = {{"a batch of", p.batch},
                                                    {"query heads:", p.queryHeads},
                                                    {"key heads:", p.keyHeads},
                                                    {"queries:", p.queries},
                                                    {"keys:", p.keys},
                                                    {"a depth of", p.depth},
                                                    {"a depth of values of", p.valueDepth}};
  for (const auto &[what, size] : sizes)
    if (size < 1)
      return refuse(what, size, "give at least one");
  if (p.queryHeads % p.keyHeads)
    return refuse("query heads:", p.queryHeads,
                  "give a multiple of the " + std::to_string(p.keyHeads) + " key heads");
  if (p.depth > kMostDepth)
    return refuse("a depth of", p.depth, "give at most " + std::to_string(kMostDepth));
  if (p.valueDepth > kMostValueDepth)
    return refuse("a depth of values of", p.valueDepth,
                  "give at most " + std::to_string(kMostValueDepth) +
                      ", which a thread has registers for, or split V");
  if (p.window < 0)
    return refuse("a window of", p.window, "give the number of keys, or 0 for all");
  if (p.window && !p.isCausal)
    return refuse("a window of", p.window,
                  "make it causal: the window ends at the query's position");
  if (p.softcap < 0)
    return Error{"attention has a softcap below 0; give a positive one, or 0 for none"};
  if (s.rows < 32 || s.rows > kMostRows || s.rows % 32)
    return refuse("rows of a program:", s.rows, "give a multiple of 32 up to 256");
  if (s.keys < 16 || s.keys > kMostKeys || s.keys % 16)
    return refuse("keys of a block:", s.keys, "give a multiple of 16 up to 128");
  return Success{};
}

/// Masked scores, and what a maximum begins with: below each score, and finite, so that the
/// difference of two of them is a number.
constexpr float kLow = -1e30f;

class AttentionBuilder {
public:
  AttentionBuilder(const AttentionProblem &problem, const AttentionSchedule &schedule, OpBuilder &b)
      : p(problem), s(schedule), b(b), place(b.getUnknownLoc()), group(p.queryHeads / p.keyHeads),
        rows(group * p.queries), tiles((rows + s.rows - 1) / s.rows),
        element(p.type == AttentionProblem::Type::BFloat16 ? Type(b.getBF16Type())
                                                           : Type(b.getF16Type())) {}

  void build(StringRef name) {
    const auto memory = [&](ArrayRef<int64_t> shape, Type type) -> Type {
      return MemRefType::get(shape, type);
    };
    const Type f32 = b.getF32Type();
    SmallVector<Type> types = {memory({p.batch, p.queryHeads, p.queries, p.depth}, element),
                               memory({p.batch, p.keyHeads, p.keys, p.depth}, element),
                               memory({p.batch, p.keyHeads, p.keys, p.valueDepth}, element)};
    if (p.hasSinks)
      types.push_back(memory({p.queryHeads}, f32));
    types.push_back(memory({p.batch, p.queryHeads, p.queries, p.valueDepth}, f32));
    auto kernel = tile::KernelOp::create(b, place, name, b.getFunctionType(types, {}), s.rows,
                                         p.batch * p.keyHeads * tiles, ArrayAttr(), ArrayAttr());
    Block *body = b.createBlock(&kernel.getBody());
    for (Type type : types)
      memories.push_back(body->addArgument(type, place));
    chooseRows();
    writeRows(attend());
    tile::ReturnOp::create(b, place);
  }

private:
  struct Sums {
    Value most, sum, values; ///< of the scores, of their exponentials, of values times these
  };

  Value number(int64_t n) { return arith::ConstantIndexOp::create(b, place, n); }
  VectorType lanesOf(Type type) { return VectorType::get(s.rows, type); }
  VectorType rowsOf(int64_t n, Type type) { return VectorType::get({s.rows, n}, type); }
  Value constant(VectorType type, double value) {
    return arith::ConstantOp::create(
        b, place,
        SplatElementsAttr::get(type, Attribute(b.getFloatAttr(type.getElementType(), value))));
  }
  Value asTile(Value scalar, Type tile) {
    return tile::BroadcastOp::create(b, place, tile, scalar);
  }
  Value spread(Value lanes, int64_t n) {
    return tile::SpreadOp::create(
        b, place, rowsOf(n, cast<VectorType>(lanes.getType()).getElementType()), lanes);
  }
  template <class Op> Value combine(Value x, int64_t y) {
    Value other = number(y);
    if (tile::isTile(x.getType()))
      other = asTile(other, x.getType());
    return Op::create(b, place, x, other);
  }

  /// Row r of a batch and a key head is query r / group, of head r mod group: rows of a program are
  /// neighbouring queries, which see neighbouring keys.
  void chooseRows() {
    Value program = tile::ProgramIdOp::create(b, place);
    Value tile = combine<arith::RemUIOp>(program, tiles);
    Value outer = combine<arith::DivUIOp>(program, tiles);
    keyHead = combine<arith::RemUIOp>(outer, p.keyHeads);
    batch = combine<arith::DivUIOp>(outer, p.keyHeads);
    Value first = combine<arith::MulIOp>(tile, s.rows);
    firstQuery = combine<arith::DivUIOp>(first, group);
    Value last = combine<arith::AddIOp>(first, s.rows - 1);
    lastQuery = combine<arith::DivUIOp>(last, group);
    Value row = arith::AddIOp::create(b, place, asTile(first, lanesOf(b.getIndexType())),
                                      tile::IotaOp::create(b, place, lanesOf(b.getIndexType())));
    if (rows % s.rows)
      inside = arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, row,
                                     asTile(number(rows), row.getType()));
    query = combine<arith::DivUIOp>(row, group);
    Value head =
        arith::AddIOp::create(b, place, combine<arith::RemUIOp>(row, group),
                              asTile(combine<arith::MulIOp>(keyHead, group), row.getType()));
    queryHead = head;
    position = arith::IndexCastOp::create(b, place, lanesOf(b.getI32Type()),
                                          combine<arith::AddIOp>(query, p.keys - p.queries));
  }

  /// The first key that any row sees, at the begin of a block, and the one behind the last.
  std::pair<Value, Value> findKeys() {
    Value from = number(0), to = number(p.keys);
    const int64_t shift = p.keys - p.queries;
    if (p.isCausal) {
      Value end = combine<arith::AddIOp>(lastQuery, shift + 1);
      to = arith::MinSIOp::create(b, place, to, end);
    }
    if (p.window) {
      Value begin = combine<arith::AddIOp>(firstQuery, shift + 1 - p.window);
      begin = arith::MaxSIOp::create(b, place, begin, from);
      from = combine<arith::MulIOp>(combine<arith::DivUIOp>(begin, s.keys), s.keys);
    }
    return {from, to};
  }

  Sums begin() {
    const VectorType lanes = lanesOf(b.getF32Type());
    Sums sums{constant(lanes, kLow), constant(lanes, 0),
              constant(rowsOf(roundUp(p.valueDepth, 8), b.getF32Type()), 0)};
    if (p.hasSinks) { // a key more, whose value is 0
      Value zero = arith::ConstantOp::create(b, place, b.getF32FloatAttr(0));
      sums.most = tile::LoadOp::create(b, place, lanes, memories[3], queryHead, inside,
                                       inside ? zero : Value());
      sums.sum = constant(lanes, 1);
    }
    return sums;
  }

  static int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

  Sums attend() {
    if (p.depth <= kDepthInRegisters)
      queries = loadQueries(0);
    const Sums first = begin();
    const auto [from, to] = findKeys();
    auto blocks = scf::ForOp::create(b, place, from, to, number(s.keys),
                                     ValueRange{first.most, first.sum, first.values});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(blocks.getBody());
    const Sums before{blocks.getRegionIterArg(0), blocks.getRegionIterArg(1),
                      blocks.getRegionIterArg(2)};
    const Sums next = addBlock(before, blocks.getInductionVar());
    scf::YieldOp::create(b, place, ValueRange{next.most, next.sum, next.values});
    return {blocks.getResult(0), blocks.getResult(1), blocks.getResult(2)};
  }

  int64_t depthFrom(int64_t first) const {
    const int64_t rest = roundUp(p.depth - first, 16);
    return p.depth <= kDepthInRegisters ? rest : std::min(kDepthStep, rest);
  }
  Value loadQueries(int64_t first) {
    return tile::LoadRowsOp::create(b, place, rowsOf(depthFrom(first), element), memories[0],
                                    ValueRange{batch, queryHead, query, number(first)}, inside, 3);
  }

  Value scores(Value firstKey) {
    const VectorType type = rowsOf(s.keys, b.getF32Type());
    Value score = constant(type, 0);
    for (int64_t from = 0; from < p.depth; from += depthFrom(from)) {
      Value rows = queries ? queries : loadQueries(from);
      Value keys = tile::LoadTableOp::create(
          b, place, VectorType::get({s.keys, depthFrom(from)}, element), memories[1],
          ValueRange{batch, keyHead, firstKey, number(from)}, 2, 3);
      score = tile::DotOp::create(b, place, type, rows, keys, score);
    }
    score = arith::MulFOp::create(b, place, score, constant(type, p.scale));
    if (!p.softcap)
      return score;
    Value part = arith::DivFOp::create(b, place, score, constant(type, p.softcap));
    return arith::MulFOp::create(b, place, math::TanhOp::create(b, place, part),
                                 constant(type, p.softcap));
  }

  /// Which elements of a block of scores count; none: all.
  Value allowed(Value firstKey) {
    const VectorType type = rowsOf(s.keys, b.getI32Type());
    Value key = arith::IndexCastOp::create(b, place, b.getI32Type(), firstKey);
    key =
        arith::AddIOp::create(b, place, tile::ColumnsOp::create(b, place, type), asTile(key, type));
    Value all;
    const auto require = [&](arith::CmpIPredicate predicate, Value bound) {
      Value fits = arith::CmpIOp::create(b, place, predicate, key, bound);
      all = all ? Value(arith::AndIOp::create(b, place, all, fits)) : fits;
    };
    const auto scalar = [&](int64_t n) {
      return asTile(arith::ConstantOp::create(b, place, b.getI32IntegerAttr(int32_t(n))), type);
    };
    if (p.keys % s.keys)
      require(arith::CmpIPredicate::slt, scalar(p.keys));
    Value own = p.isCausal || p.window ? spread(position, s.keys) : Value();
    if (p.isCausal)
      require(arith::CmpIPredicate::sle, own);
    if (p.window)
      require(arith::CmpIPredicate::sgt, arith::SubIOp::create(b, place, own, scalar(p.window)));
    return all;
  }

  Sums addBlock(const Sums &before, Value firstKey) {
    const VectorType type = rowsOf(s.keys, b.getF32Type());
    Value score = scores(firstKey), isAllowed = allowed(firstKey);
    if (isAllowed)
      score = arith::SelectOp::create(b, place, isAllowed, score, constant(type, kLow));
    Value most = tile::ReduceRowsOp::create(b, place, lanesOf(b.getF32Type()),
                                            arith::AtomicRMWKind::maximumf, score);
    most = arith::MaximumFOp::create(b, place, before.most, most);
    Value weight =
        math::ExpOp::create(b, place, arith::SubFOp::create(b, place, score, spread(most, s.keys)));
    if (isAllowed) // where nothing was allowed yet, the difference is 0
      weight = arith::SelectOp::create(b, place, isAllowed, weight, constant(type, 0));
    Value shrink =
        math::ExpOp::create(b, place, arith::SubFOp::create(b, place, before.most, most));
    Value sum = tile::ReduceRowsOp::create(b, place, lanesOf(b.getF32Type()),
                                           arith::AtomicRMWKind::addf, weight);
    sum = arith::AddFOp::create(b, place, arith::MulFOp::create(b, place, before.sum, shrink), sum);
    const int64_t depth = cast<VectorType>(before.values.getType()).getDimSize(1);
    Value values = arith::MulFOp::create(b, place, before.values, spread(shrink, depth));
    Value narrow = arith::TruncFOp::create(b, place, rowsOf(s.keys, element), weight);
    Value table =
        tile::LoadTableOp::create(b, place, VectorType::get({depth, s.keys}, element), memories[2],
                                  ValueRange{batch, keyHead, firstKey, number(0)}, 3, 2);
    values = tile::DotOp::create(b, place, values.getType(), narrow, table, values);
    return {most, sum, values};
  }

  void writeRows(const Sums &sums) {
    const auto type = cast<VectorType>(sums.values.getType());
    Value isEmpty = arith::CmpFOp::create(b, place, arith::CmpFPredicate::OEQ, sums.sum,
                                          constant(lanesOf(b.getF32Type()), 0));
    Value sum =
        arith::SelectOp::create(b, place, isEmpty, constant(lanesOf(b.getF32Type()), 1), sums.sum);
    Value result = arith::DivFOp::create(b, place, sums.values, spread(sum, type.getDimSize(1)));
    tile::StoreRowsOp::create(b, place, result, memories.back(),
                              ValueRange{batch, queryHead, query, number(0)}, inside, 3);
  }

  const AttentionProblem &p;
  const AttentionSchedule &s;
  OpBuilder &b;
  const Location place;
  const int64_t group, rows, tiles; ///< heads that share a key head; rows and programs of these
  const Type element;
  SmallVector<Value> memories;
  Value batch, keyHead, firstQuery, lastQuery; ///< of the program
  Value query, queryHead, position;            ///< of each lane
  Value inside;                                ///< lanes that have a row; none: all have
  Value queries;                               ///< rows of Q; none: they are read where wanted
};

} // namespace

AttentionSchedule AttentionSchedule::choose(const AttentionProblem &problem) {
  return {64, problem.depth + problem.valueDepth > kDepthOfLongBlocks ? 16 : 32};
}

Status buildAttention(ModuleOp module, const std::string &name, const AttentionProblem &problem,
                      const AttentionSchedule &schedule) {
  if (Status valid = check(problem, schedule); !valid)
    return valid;
  if (module.lookupSymbol(name))
    return Error{"the module has '" + name + "' already; choose another name"};
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  AttentionBuilder(problem, schedule, builder).build(name);
  return Success{};
}

} // namespace millrace::gpu
