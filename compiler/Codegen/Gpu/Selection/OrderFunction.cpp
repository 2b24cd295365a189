// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Selection/OrderFunction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

std::optional<bool> compare(arith::CmpFPredicate predicate, int x, int y) {
  using P = arith::CmpFPredicate;
  switch (predicate) { // of numbers; what is none is never chosen
  case P::OEQ:
  case P::UEQ:
    return x == y;
  case P::ONE:
  case P::UNE:
    return x != y;
  case P::OLT:
  case P::ULT:
    return x < y;
  case P::OLE:
  case P::ULE:
    return x <= y;
  case P::OGT:
  case P::UGT:
    return x > y;
  case P::OGE:
  case P::UGE:
    return x >= y;
  default:
    return std::nullopt;
  }
}

bool compare(arith::CmpIPredicate predicate, int x, int y) {
  using P = arith::CmpIPredicate;
  switch (predicate) {
  case P::eq:
    return x == y;
  case P::ne:
    return x != y;
  case P::slt:
  case P::ult:
    return x < y;
  case P::sle:
  case P::ule:
    return x <= y;
  case P::sgt:
  case P::ugt:
    return x > y;
  case P::sge:
  case P::uge:
    return x >= y;
  }
  llvm_unreachable("all predicates are above");
}

class Evaluator {
public:
  Evaluator(linalg::LinalgOp op, ArrayRef<int> arguments, llvm::function_ref<int(unsigned)> index)
      : index(index) {
    for (auto [argument, value] : llvm::zip(op.getBlock()->getArguments(), arguments))
      known[argument] = {value, {}};
  }

  std::optional<OrderValue> value(Value of) {
    if (const auto found = known.find(of); found != known.end())
      return found->second;
    std::optional<OrderValue> made = make(of);
    if (made)
      known[of] = *made;
    return made;
  }

private:
  std::optional<OrderValue> make(Value of) {
    TypedAttr constant;
    if (matchPattern(of, m_Constant(&constant)))
      return OrderValue{constant.getType().isInteger(1) &&
                            !cast<IntegerAttr>(constant).getValue().isZero(),
                        constant};
    Operation *op = of.getDefiningOp();
    if (!op)
      return std::nullopt;
    if (auto own = dyn_cast<linalg::IndexOp>(op))
      return OrderValue{index(unsigned(own.getDim())), {}};
    if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(op))
      return value(op->getOperand(0));
    if (auto choice = dyn_cast<arith::SelectOp>(op)) {
      const auto condition = value(choice.getCondition());
      return condition ? value(condition->number ? choice.getTrueValue() : choice.getFalseValue())
                       : std::nullopt;
    }
    if (op->getNumOperands() != 2)
      return std::nullopt;
    const auto x = value(op->getOperand(0)), y = value(op->getOperand(1));
    if (!x || !y)
      return std::nullopt;
    if (isa<arith::AndIOp>(op) && of.getType().isInteger(1))
      return OrderValue{x->number && y->number, {}};
    if (isa<arith::OrIOp>(op) && of.getType().isInteger(1))
      return OrderValue{x->number || y->number, {}};
    if (x->constant || y->constant) // where a constant stands among numbers is not known
      return std::nullopt;
    if (auto real = dyn_cast<arith::CmpFOp>(op)) {
      const std::optional<bool> truth = compare(real.getPredicate(), x->number, y->number);
      return truth ? std::optional(OrderValue{*truth, {}}) : std::nullopt;
    }
    if (auto integer = dyn_cast<arith::CmpIOp>(op))
      return OrderValue{compare(integer.getPredicate(), x->number, y->number), {}};
    return std::nullopt;
  }

  llvm::function_ref<int(unsigned)> index;
  DenseMap<Value, OrderValue> known;
};

} // namespace

std::optional<SmallVector<OrderValue>> evaluateOrder(linalg::LinalgOp op, ArrayRef<int> arguments,
                                                     llvm::function_ref<int(unsigned)> index) {
  Evaluator evaluator(op, arguments, index);
  SmallVector<OrderValue> results;
  for (Value each : op.getBlock()->getTerminator()->getOperands())
    if (const auto result = evaluator.value(each))
      results.push_back(*result);
    else
      return std::nullopt;
  return results;
}

bool isOrderFunction(linalg::LinalgOp op, int levels, llvm::function_ref<int(unsigned)> index,
                     llvm::function_ref<bool(unsigned)> isTruth,
                     llvm::function_ref<bool(ArrayRef<int>, ArrayRef<OrderValue>)> expected) {
  SmallVector<int> arguments(op.getBlock()->getNumArguments(), 0);
  for (;;) {
    const auto results = evaluateOrder(op, arguments, index);
    if (!results || !expected(arguments, *results))
      return false;
    size_t i = 0;
    while (i < arguments.size() && ++arguments[i] == (isTruth(unsigned(i)) ? 2 : levels))
      arguments[i++] = 0;
    if (i == arguments.size())
      return true;
  }
}

} // namespace millrace::gpu
