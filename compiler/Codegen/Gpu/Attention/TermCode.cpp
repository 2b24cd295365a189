// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/TermCode.h"

#include "compiler/Codegen/Gpu/Attention/TermWriter.h"
#include "compiler/Dialect/Tile/IR/Tile.h"

namespace millrace::gpu {

using namespace mlir;

class TermForm::Writer : public TermWriter {
public:
  Writer(const TermForm &terms, ScoreCode &code, Value product)
      : TermWriter(product), terms(terms), code(code) {}

private:
  OpBuilder &builder() final { return code.builder(); }
  VectorType tileType(Type element, unsigned rank) final {
    return rank == 1 ? code.laneType(element) : code.blockType(element);
  }
  Value load(const Term &leaf) final { return code.load(terms.leafOf(leaf)); }
  Value index(ArrayRef<unsigned> loops) final { return code.index(terms.numbersOf(loops)); }

  const TermForm &terms;
  ScoreCode &code;
};

SmallVector<unsigned> TermForm::numbersOf(ArrayRef<unsigned> loops) const {
  SmallVector<unsigned> numbers;
  for (unsigned loop : found.trace->loops.parts(loops))
    numbers.push_back(unsigned(llvm::find(order, loop) - order.begin()));
  return numbers;
}

/// A dimension for each loop.
AttentionMemory TermForm::memoryOf(const Point &point, Type element) const {
  AttentionMemory memory{element, {}};
  for (const Place &place : point) {
    const SmallVector<unsigned> numbers = numbersOf(place.loops);
    if (numbers.empty())
      memory.dims.emplace_back();
    for (unsigned number : numbers)
      memory.dims.push_back({number});
  }
  if (memory.dims.empty()) // a tensor without dimensions
    memory.dims.emplace_back();
  return memory;
}

size_t TermForm::leafOf(const Term &term) const {
  const auto same = llvm::find_if(leaves, [&](const TermMemory &leaf) {
    return leaf.base == term.base && found.trace->areEqual(leaf.point, term.point);
  });
  return size_t(same - leaves.begin());
}

void TermForm::collect(const Term &term) {
  for (const Term *operand : term.operands)
    collect(*operand);
  if (term.kind == Term::Kind::Apply &&
      (!tile::isAllowedInKernel(term.op) || !llvm::all_of(term.op->getResultTypes(), [](Type type) {
        return type.isIntOrIndexOrFloat();
      })))
    reason = "'" + term.op->getName().getStringRef().str() + "' of scores stands in no kernel";
  if (term.kind == Term::Kind::Index) {
    const auto loops = found.trace->loops.parts(term.point[0].loops);
    if (loops.size() > 1 && llvm::is_contained(loops, found.key))
      reason = "a score depends on an index that is of keys and of something else";
  }
  if (term.kind != Term::Kind::Leaf || leafOf(term) != leaves.size())
    return;
  const auto type = cast<RankedTensorType>(term.base.getType());
  if (!tile::isElementType(type.getElementType()))
    reason = "scores depend on a tensor whose elements no kernel reads";
  for (auto [place, size] : llvm::zip(term.point, type.getShape())) {
    int64_t steps = 1;
    for (unsigned loop : found.trace->loops.parts(place.loops)) {
      steps *= found.trace->loops.size(loop);
      if (!llvm::is_contained(order, loop))
        reason = "scores depend on a tensor with a loop that they lack";
    }
    if (place.offset || steps != size)
      reason = "scores depend on a part of a tensor";
  }
  leaves.push_back({term.base, term.point});
}

TermForm::TermForm(const FoundAttention &found, Type element, OpBuilder &builder) : found(found) {
  const Loops &loops = found.trace->loops;
  for (unsigned loop : found.batch)
    made.batch.push_back(loops.size(loop));
  for (unsigned loop : found.rows)
    made.rows.push_back(loops.size(loop));
  order.append(found.batch.begin(), found.batch.end());
  order.append(found.rows.begin(), found.rows.end());
  order.append({found.key, found.depth, found.valueDepth});
  made.keys = loops.size(found.key);
  made.depth = loops.size(found.depth);
  made.valueDepth = loops.size(found.valueDepth);
  made.element = element;
  made.emptyRowsAreZero = found.emptyRowsAreZero;
  collect(*found.score);
  for (const Term *sink : found.sinks)
    collect(*sink);
  if (!reason.empty())
    return;
  made.q = memoryOf(found.q.point, element);
  made.k = memoryOf(found.k.point, element);
  made.v = memoryOf(found.v.point, element);
  made.o = memoryOf(found.o.point, builder.getF32Type());
  for (const TermMemory &leaf : leaves) {
    Type type = getElementTypeOrSelf(leaf.base.getType());
    made.others.push_back(
        memoryOf(leaf.point, type.isInteger(1) ? Type(builder.getI8Type()) : type));
  }
  made.score = [this](ScoreCode &code, Value product) {
    return Writer(*this, code, product).write(*this->found.score);
  };
  for (const Term *sink : found.sinks)
    made.sinks.push_back(
        [this, sink](ScoreCode &code) { return Writer(*this, code, Value()).write(*sink); });
}

} // namespace millrace::gpu
