// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/TermWriter.h"

#include "compiler/Dialect/Tile/IR/Tile.h"

namespace millrace::gpu {

using namespace mlir;

unsigned rankOf(Value value) {
  auto type = dyn_cast<VectorType>(value.getType());
  return type ? unsigned(type.getRank()) : 0;
}

Value TermWriter::write(const Term &term) {
  if (Value known = written.lookup(&term))
    return known;
  Value made = make(term);
  written[&term] = made;
  return made;
}

Value TermWriter::make(const Term &term) {
  OpBuilder &b = builder();
  const Location place = b.getUnknownLoc();
  switch (term.kind) {
  case Term::Kind::Product:
    return product;
  case Term::Kind::Constant:
    return arith::ConstantOp::create(b, place, term.constant);
  case Term::Kind::Leaf: {
    Value value = load(term);
    if (!getElementTypeOrSelf(term.base.getType()).isInteger(1))
      return value;
    Value zero = arith::ConstantOp::create(b, place, b.getZeroAttr(value.getType()));
    return arith::CmpIOp::create(b, place, arith::CmpIPredicate::ne, value, zero);
  }
  case Term::Kind::Index: {
    Value value = index(term.point[0].loops);
    if (!getElementTypeOrSelf(value.getType()).isIndex())
      value = arith::IndexCastOp::create(b, place, shaped(b.getIndexType(), rankOf(value)), value);
    if (!term.point[0].offset)
      return value;
    Value offset = arith::ConstantIndexOp::create(b, place, term.point[0].offset);
    return arith::AddIOp::create(b, place, value, promoted(offset, rankOf(value)));
  }
  case Term::Kind::Apply:
    return apply(term);
  case Term::Kind::Reduce:
    break;
  }
  llvm_unreachable("reductions are refused before code is written");
}

Value TermWriter::apply(const Term &term) {
  SmallVector<Value> operands;
  unsigned rank = 0;
  for (const Term *operand : term.operands) {
    operands.push_back(write(*operand));
    rank = std::max(rank, rankOf(operands.back()));
  }
  for (Value &operand : operands)
    operand = promoted(operand, rank);
  Operation *copy = builder().clone(*term.op);
  copy->setOperands(operands);
  copy->setDiscardableAttrs(ArrayRef<NamedAttribute>());
  copy->getResult(0).setType(shaped(term.op->getResult(0).getType(), rank));
  return copy->getResult(0);
}

Type TermWriter::shaped(Type element, unsigned rank) {
  return rank == 0 ? element : Type(tileType(element, rank));
}

Value TermWriter::promoted(Value value, unsigned rank) {
  const unsigned own = rankOf(value);
  if (own >= rank)
    return value;
  const Type type = shaped(getElementTypeOrSelf(value.getType()), rank);
  const Location place = builder().getUnknownLoc();
  if (own == 1)
    return tile::SpreadOp::create(builder(), place, type, value);
  return tile::BroadcastOp::create(builder(), place, type, value);
}

} // namespace millrace::gpu
