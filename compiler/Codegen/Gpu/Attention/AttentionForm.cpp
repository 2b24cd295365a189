// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/AttentionForm.h"

#include "compiler/Codegen/Gpu/Attention/KindAttribute.h"

#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Staging.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <limits>

namespace millrace::gpu {

using namespace mlir;

int64_t AttentionForm::size(unsigned loop) const {
  if (loop < batch.size())
    return batch[loop];
  if (loop < key())
    return rows[loop - batch.size()];
  return loop == key() ? keys : loop == keyElement() ? depth : valueDepth;
}

namespace {

constexpr int64_t kMostDepth = 256, kMostValueDepth = 160, kMostRows = 256, kMostKeys = 128;
/// Elements of a key and its value beside which a thread has registers for blocks of 32 keys, on
/// any chip (ptxas 13.0).
constexpr int64_t kDepthOfLongBlocks = 192;
/// And beside which a thread of a warpgroup has them for blocks of 128.
constexpr int64_t kDepthOfLongestBlocks = 256;
/// Elements of Q's rows that may stay in registers from block to block, 16 of 32 bits for each 64.
/// Of longer rows they are read again, so many at a time.
constexpr int64_t kDepthInRegisters = 128, kDepthStep = 32;

Status check(const AttentionForm &form, const AttentionSchedule &s) {
  if (form.depth > kMostDepth)
    return refusedAttention("a depth of", form.depth, "give at most " + std::to_string(kMostDepth));
  if (form.valueDepth > kMostValueDepth)
    return refusedAttention("a depth of values of", form.valueDepth,
                            "give at most " + std::to_string(kMostValueDepth) +
                                ", which a thread has registers for, or split V");
  if (s.rows < 32 || s.rows > kMostRows || s.rows % 32)
    return refusedAttention("rows of a program:", s.rows, "give a multiple of 32 up to 256");
  if (s.keys < 16 || s.keys > kMostKeys || s.keys % 16)
    return refusedAttention("keys of a block:", s.keys, "give a multiple of 16 up to 128");
  return Success{};
}

int64_t product(ArrayRef<int64_t> sizes) {
  int64_t all = 1;
  for (int64_t size : sizes)
    all *= size;
  return all;
}

/// Masked scores, and what a maximum begins with: below or as low as each score, and finite, so
/// that the difference of two of them is a number.
constexpr float kLow = std::numeric_limits<float>::lowest();

class AttentionBuilder : public ScoreCode {
public:
  AttentionBuilder(const AttentionForm &form, const AttentionSchedule &schedule, OpBuilder &b)
      : f(form), s(schedule), b(b), place(b.getUnknownLoc()), rows(product(form.rows)),
        tiles((rows + s.rows - 1) / s.rows) {}

  tile::KernelOp build(StringRef name) {
    SmallVector<Type> types;
    SmallVector<AttentionMemory> all = {f.q, f.k, f.v};
    all.append(f.others.begin(), f.others.end());
    all.push_back(f.o);
    for (const AttentionMemory &memory : all) {
      SmallVector<int64_t> shape;
      for (ArrayRef<unsigned> loops : memory.dims) {
        shape.push_back(1);
        for (unsigned loop : loops)
          shape.back() *= f.size(loop);
      }
      types.push_back(MemRefType::get(shape, memory.element));
    }
    auto kernel = tile::KernelOp::create(b, place, name, b.getFunctionType(types, {}), s.rows,
                                         product(f.batch) * tiles, ArrayAttr(), ArrayAttr());
    OpBuilder::InsertionGuard guard(b);
    Block *body = b.createBlock(&kernel.getBody());
    for (Type type : types)
      memories.push_back(body->addArgument(type, place));
    chooseRows();
    writeRows(attend());
    tile::ReturnOp::create(b, place);
    return kernel;
  }

  OpBuilder &builder() final { return b; }
  VectorType blockType(Type type) final { return rowsOf(s.keys, type); }
  VectorType laneType(Type type) final { return VectorType::get(s.rows, type); }
  Value load(size_t number) final {
    const AttentionMemory &memory = f.others[number];
    Value source = memories[3 + number];
    SmallVector<Value> indices = indicesOf(memory, firstKey);
    for (auto [d, loops] : llvm::enumerate(memory.dims))
      if (llvm::is_contained(loops, f.key()))
        return tile::LoadRowsOp::create(b, place, blockType(memory.element), source, indices,
                                        rowMask(indices), unsigned(d));
    if (llvm::none_of(indices, [](Value index) { return tile::isTile(index.getType()); }))
      return tile::LoadOp::create(b, place, memory.element, source, indices, Value(), Value());
    Value zero =
        inside ? arith::ConstantOp::create(b, place, b.getZeroAttr(memory.element)) : Value();
    return tile::LoadOp::create(b, place, laneType(memory.element), source, indices, inside, zero);
  }
  Value index(ArrayRef<unsigned> loops) final {
    if (!llvm::is_contained(loops, f.key()))
      return indexOf(loops);
    // Alone: what has other loops beside the key is no index of a kernel's.
    const VectorType type = blockType(b.getI32Type());
    Value first = arith::IndexCastOp::create(b, place, b.getI32Type(), firstKey);
    return arith::AddIOp::create(b, place, tile::ColumnsOp::create(b, place, type),
                                 asTile(first, type));
  }
  Value spread(Value lanes, int64_t n) final {
    return tile::SpreadOp::create(
        b, place, rowsOf(n, cast<VectorType>(lanes.getType()).getElementType()), lanes);
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
  template <class Op> Value combine(Value x, int64_t y) {
    Value other = number(y);
    if (tile::isTile(x.getType()))
      other = asTile(other, x.getType());
    return Op::create(b, place, x, other);
  }
  Value sum(Value x, Value y) {
    if (tile::isTile(x.getType()) && !tile::isTile(y.getType()))
      y = asTile(y, x.getType());
    if (tile::isTile(y.getType()) && !tile::isTile(x.getType()))
      x = asTile(x, y.getType());
    return arith::AddIOp::create(b, place, x, y);
  }

  /// The index of some loops that are no key nor its elements.
  Value indexOf(ArrayRef<unsigned> loops) {
    Value index;
    for (unsigned loop : loops)
      index = index ? sum(combine<arith::MulIOp>(index, f.size(loop)), at[loop]) : at[loop];
    return index ? index : number(0);
  }
  /// Where a memory is read or written: blocks begin at `key`, rows of elements at `element`.
  SmallVector<Value> indicesOf(const AttentionMemory &memory, Value key, Value element = {}) {
    SmallVector<Value> indices;
    for (ArrayRef<unsigned> loops : memory.dims)
      if (llvm::is_contained(loops, f.key()))
        indices.push_back(key);
      else if (llvm::is_contained(loops, f.keyElement()) ||
               llvm::is_contained(loops, f.valueElement()))
        indices.push_back(element ? element : number(0));
      else
        indices.push_back(indexOf(loops));
    return indices;
  }
  static unsigned dimOf(const AttentionMemory &memory, unsigned loop) {
    const auto found = llvm::find_if(
        memory.dims, [&](ArrayRef<unsigned> loops) { return llvm::is_contained(loops, loop); });
    return unsigned(found - memory.dims.begin());
  }
  /// Lanes that have a row, where what is read differs by lane.
  Value rowMask(ArrayRef<Value> indices) {
    return llvm::any_of(indices, [](Value index) { return tile::isTile(index.getType()); })
               ? inside
               : Value();
  }

  /// Rows of a program are neighbours in the order of their loops.
  void chooseRows() {
    at.resize(f.key());
    Value program = tile::ProgramIdOp::create(b, place);
    Value tile = combine<arith::RemUIOp>(program, tiles);
    Value outer = combine<arith::DivUIOp>(program, tiles);
    for (size_t loop = f.batch.size(); loop-- > 0;) {
      at[loop] = loop ? combine<arith::RemUIOp>(outer, f.batch[loop]) : outer;
      if (loop)
        outer = combine<arith::DivUIOp>(outer, f.batch[loop]);
    }
    Value first = combine<arith::MulIOp>(tile, s.rows);
    if (f.isCausal) {
      firstQuery = combine<arith::DivUIOp>(first, rows / f.rows[0]);
      Value last = combine<arith::AddIOp>(first, s.rows - 1);
      lastQuery = combine<arith::DivUIOp>(last, rows / f.rows[0]);
    }
    Value row = arith::AddIOp::create(b, place, asTile(first, lanesOf(b.getIndexType())),
                                      tile::IotaOp::create(b, place, lanesOf(b.getIndexType())));
    if (rows % s.rows)
      inside = arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, row,
                                     asTile(number(rows), row.getType()));
    for (size_t loop = f.rows.size(); loop-- > 0;) {
      at[f.batch.size() + loop] = loop ? combine<arith::RemUIOp>(row, f.rows[loop]) : row;
      if (loop)
        row = combine<arith::DivUIOp>(row, f.rows[loop]);
    }
    if (f.isCausal)
      position = arith::IndexCastOp::create(
          b, place, lanesOf(b.getI32Type()),
          combine<arith::AddIOp>(at[f.batch.size()], f.keys - f.rows[0]));
  }

  /// The first key that any row sees, at the begin of a block, and the one behind the last.
  std::pair<Value, Value> findKeys() {
    Value from = number(0), to = number(f.keys);
    if (!f.isCausal)
      return {from, to};
    const int64_t shift = f.keys - f.rows[0];
    Value end = combine<arith::AddIOp>(lastQuery, shift + 1);
    to = arith::MinSIOp::create(b, place, to, end);
    if (f.window) {
      Value begin = combine<arith::AddIOp>(firstQuery, shift + 1 - f.window);
      begin = arith::MaxSIOp::create(b, place, begin, from);
      from = combine<arith::MulIOp>(combine<arith::DivUIOp>(begin, s.keys), s.keys);
    }
    return {from, to};
  }

  Sums begin() {
    const VectorType lanes = lanesOf(b.getF32Type());
    Sums sums{constant(lanes, kLow), constant(lanes, 0),
              constant(rowsOf(8 * llvm::divideCeilSigned(f.valueDepth, 8), b.getF32Type()), 0)};
    SmallVector<Value> sinks; // keys more, whose values are 0
    for (const auto &sink : f.sinks) {
      Value score = sink(*this);
      sinks.push_back(tile::isTile(score.getType()) ? score : asTile(score, lanes));
    }
    if (sinks.empty())
      return sums;
    sums.most = sinks[0];
    for (Value sink : ArrayRef(sinks).drop_front())
      sums.most = arith::MaximumFOp::create(b, place, sums.most, sink);
    if (sinks.size() == 1) {
      sums.sum = constant(lanes, 1);
      return sums;
    }
    for (Value sink : sinks)
      sums.sum = arith::AddFOp::create(
          b, place, sums.sum,
          math::ExpOp::create(b, place, arith::SubFOp::create(b, place, sink, sums.most)));
    return sums;
  }

  Sums attend() {
    if (f.depth <= kDepthInRegisters)
      queries = loadQueries(0);
    const Sums first = begin();
    const auto [from, to] = findKeys();
    auto blocks = scf::ForOp::create(b, place, from, to, number(s.keys),
                                     ValueRange{first.most, first.sum, first.values});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(blocks.getBody());
    const Sums before{blocks.getRegionIterArg(0), blocks.getRegionIterArg(1),
                      blocks.getRegionIterArg(2)};
    firstKey = blocks.getInductionVar();
    const Sums next = addBlock(before);
    scf::YieldOp::create(b, place, ValueRange{next.most, next.sum, next.values});
    return {blocks.getResult(0), blocks.getResult(1), blocks.getResult(2)};
  }

  int64_t depthFrom(int64_t first) const {
    const int64_t rest = 16 * llvm::divideCeilSigned(f.depth - first, 16);
    return f.depth <= kDepthInRegisters ? rest : std::min(kDepthStep, rest);
  }
  Value loadQueries(int64_t first) {
    const SmallVector<Value> indices = indicesOf(f.q, {}, number(first));
    return tile::LoadRowsOp::create(b, place, rowsOf(depthFrom(first), f.element), memories[0],
                                    indices, rowMask(indices), dimOf(f.q, f.keyElement()));
  }
  Value table(unsigned number, const AttentionMemory &memory, unsigned rowLoop, int64_t rowCount,
              unsigned columnLoop, int64_t columns, Value element) {
    return tile::LoadTableOp::create(b, place, VectorType::get({rowCount, columns}, f.element),
                                     memories[number], indicesOf(memory, firstKey, element),
                                     dimOf(memory, rowLoop), dimOf(memory, columnLoop));
  }

  Value scores() {
    const VectorType type = rowsOf(s.keys, b.getF32Type());
    Value score = constant(type, 0);
    for (int64_t from = 0; from < f.depth; from += depthFrom(from)) {
      Value rows = queries ? queries : loadQueries(from);
      Value keys = table(1, f.k, f.key(), s.keys, f.keyElement(), depthFrom(from), number(from));
      score = tile::DotOp::create(b, place, type, rows, keys, score);
    }
    return f.score(*this, score);
  }

  /// Which elements of a block of scores count; none: all.
  Value allowed() {
    const VectorType type = rowsOf(s.keys, b.getI32Type());
    Value key = index(f.key()), all;
    const auto require = [&](arith::CmpIPredicate predicate, Value bound) {
      Value fits = arith::CmpIOp::create(b, place, predicate, key, bound);
      all = all ? Value(arith::AndIOp::create(b, place, all, fits)) : fits;
    };
    const auto scalar = [&](int64_t n) {
      return asTile(arith::ConstantOp::create(b, place, b.getI32IntegerAttr(int32_t(n))), type);
    };
    if (f.keys % s.keys)
      require(arith::CmpIPredicate::slt, scalar(f.keys));
    Value own = f.isCausal ? spread(position, s.keys) : Value();
    if (f.isCausal)
      require(arith::CmpIPredicate::sle, own);
    if (f.window)
      require(arith::CmpIPredicate::sgt, arith::SubIOp::create(b, place, own, scalar(f.window)));
    return all;
  }

  /// e^x as a power of two, which is one instruction: weights are rounded to 16 bits, so that the
  /// rounding of its exponent, 2^-24 of it, is less than theirs.
  Value exponential(Value x) {
    constexpr float kLog2E = 0x1.715476p+0f;
    Value exponent =
        arith::MulFOp::create(b, place, x, constant(cast<VectorType>(x.getType()), kLog2E));
    return math::Exp2Op::create(b, place, exponent);
  }

  Sums addBlock(const Sums &before) {
    const VectorType type = rowsOf(s.keys, b.getF32Type());
    Value score = scores(), isAllowed = allowed();
    if (isAllowed)
      score = arith::SelectOp::create(b, place, isAllowed, score, constant(type, kLow));
    Value most = tile::ReduceRowsOp::create(b, place, lanesOf(b.getF32Type()),
                                            arith::AtomicRMWKind::maximumf, score);
    most = arith::MaximumFOp::create(b, place, before.most, most);
    Value weight = exponential(arith::SubFOp::create(b, place, score, spread(most, s.keys)));
    if (isAllowed) // where nothing was allowed yet, the difference is 0
      weight = arith::SelectOp::create(b, place, isAllowed, weight, constant(type, 0));
    Value shrink = exponential(arith::SubFOp::create(b, place, before.most, most));
    Value sum = tile::ReduceRowsOp::create(b, place, lanesOf(b.getF32Type()),
                                           arith::AtomicRMWKind::addf, weight);
    sum = arith::AddFOp::create(b, place, arith::MulFOp::create(b, place, before.sum, shrink), sum);
    const int64_t depth = cast<VectorType>(before.values.getType()).getDimSize(1);
    Value values = arith::MulFOp::create(b, place, before.values, spread(shrink, depth));
    Value narrow = arith::TruncFOp::create(b, place, rowsOf(s.keys, f.element), weight);
    Value v = table(2, f.v, f.valueElement(), depth, f.key(), s.keys, number(0));
    values = tile::DotOp::create(b, place, values.getType(), narrow, v, values);
    return {most, sum, values};
  }

  void writeRows(const Sums &sums) {
    const auto type = cast<VectorType>(sums.values.getType());
    Value sum = sums.sum;
    if (f.emptyRowsAreZero) {
      Value isEmpty = arith::CmpFOp::create(b, place, arith::CmpFPredicate::OEQ, sum,
                                            constant(lanesOf(b.getF32Type()), 0));
      sum = arith::SelectOp::create(b, place, isEmpty, constant(lanesOf(b.getF32Type()), 1), sum);
    }
    Value result = arith::DivFOp::create(b, place, sums.values, spread(sum, type.getDimSize(1)));
    tile::StoreRowsOp::create(b, place, result, memories.back(), indicesOf(f.o, {}, number(0)),
                              inside, dimOf(f.o, f.valueElement()));
  }

  const AttentionForm &f;
  const AttentionSchedule &s;
  OpBuilder &b;
  const Location place;
  const int64_t rows, tiles;       ///< of a point of the batch; programs of these
  SmallVector<Value> memories, at; ///< the second: by loop, of the batch and of rows
  Value firstQuery, lastQuery;     ///< of the program; only if causal
  Value position;                  ///< of each lane among the keys; only if causal
  Value inside;                    ///< lanes that have a row; none: all have
  Value queries;                   ///< rows of Q; none: they are read where wanted
  Value firstKey;                  ///< of the block
};

} // namespace

KernelKind AttentionForm::kind(bool isStaged) const {
  return {"attention",
          element.isBF16() ? "bf16" : "f16",
          {{"rows", product(rows)},
           {"keys", keys},
           {"depth_and_values", depth + valueDepth},
           {"staged", isStaged}}};
}

AttentionSchedule chooseSchedule(const AttentionForm &form, const TuningTable &table,
                                 bool isStaged) {
  AttentionSchedule own{64, form.depth + form.valueDepth > kDepthOfLongBlocks ? 16 : 32};
  if (isStaged) {
    // Two warpgroups, one of which multiplies while the other computes weights, unless programs
    // with one are needed to have one for each processor.
    const int64_t rows = product(form.rows), programs = product(form.batch) * ((rows + 127) / 128);
    own.rows = rows > 64 && programs >= table.estimatedChip().processors ? 128 : 64;
    const int64_t most = form.depth + form.valueDepth > kDepthOfLongestBlocks ? 64 : 128;
    // Two blocks at least: a loop of one pass is none, and nothing is loaded ahead.
    own.keys = std::min(most, 16 * llvm::divideCeilSigned(form.keys, 32));
  }
  const auto schedule =
      table.scheduleFor(form.kind(isStaged), {{"rows", own.rows}, {"keys", own.keys}});
  return {schedule.at("rows"), schedule.at("keys")};
}

Status buildAttentionForm(OpBuilder &builder, StringRef name, const AttentionForm &form,
                          const AttentionSchedule &schedule) {
  if (Status valid = check(form, schedule); !valid)
    return valid;
  tile::KernelOp kernel = AttentionBuilder(form, schedule, builder).build(name);
  setKind(kernel, form.kind(tile::planStaging(kernel).has_value()));
  return Success{};
}

Status buildAttentionForm(OpBuilder &builder, StringRef name, const AttentionForm &form,
                          const TuningTable &table) {
  if (table.hasWarpgroups()) {
    const AttentionSchedule staged = chooseSchedule(form, table, /*isStaged=*/true);
    if (Status valid = check(form, staged); !valid)
      return valid;
    tile::KernelOp kernel = AttentionBuilder(form, staged, builder).build(name);
    if (tile::planStaging(kernel)) {
      setKind(kernel, form.kind(/*isStaged=*/true));
      return Success{};
    }
    kernel.erase();
  }
  return buildAttentionForm(builder, name, form, chooseSchedule(form, table, /*isStaged=*/false));
}

} // namespace millrace::gpu
