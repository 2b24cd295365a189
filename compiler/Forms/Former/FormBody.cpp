// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scalar operations of linalg bodies as operations of the VXM.
#include "compiler/Forms/Former/Former.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringSwitch.h"

#include <cmath>
#include <limits>

namespace millrace::forms {

using namespace mlir;
using Kind = Scalar::Kind;

namespace {

struct Translation {
  AluOp op;
  Kind result;
};

std::optional<Translation> floatOp(Operation *op) {
  return llvm::StringSwitch<std::optional<Translation>>(op->getName().getStringRef())
      .Case("arith.addf", Translation{AluOp::AddF32, Kind::F32})
      .Case("arith.subf", Translation{AluOp::SubF32, Kind::F32})
      .Case("arith.mulf", Translation{AluOp::MulF32, Kind::F32})
      .Case("arith.divf", Translation{AluOp::DivF32, Kind::F32})
      .Case("arith.negf", Translation{AluOp::NegF32, Kind::F32})
      .Cases({"arith.maximumf", "arith.maxnumf"}, Translation{AluOp::MaxF32, Kind::F32})
      .Cases({"arith.minimumf", "arith.minnumf"}, Translation{AluOp::MinF32, Kind::F32})
      .Case("math.exp", Translation{AluOp::ExpF32, Kind::F32})
      .Case("math.exp2", Translation{AluOp::Exp2F32, Kind::F32})
      .Case("math.log", Translation{AluOp::LogF32, Kind::F32})
      .Case("math.sqrt", Translation{AluOp::SqrtF32, Kind::F32})
      .Case("math.rsqrt", Translation{AluOp::RsqrtF32, Kind::F32})
      .Case("math.tanh", Translation{AluOp::TanhF32, Kind::F32})
      .Case("math.erf", Translation{AluOp::ErfF32, Kind::F32})
      .Case("math.sin", Translation{AluOp::SinF32, Kind::F32})
      .Case("math.cos", Translation{AluOp::CosF32, Kind::F32})
      .Case("math.absf", Translation{AluOp::AbsF32, Kind::F32})
      .Case("math.floor", Translation{AluOp::FloorF32, Kind::F32})
      .Case("math.ceil", Translation{AluOp::CeilF32, Kind::F32})
      .Case("math.roundeven", Translation{AluOp::RoundF32, Kind::F32})
      .Case("math.trunc", Translation{AluOp::TruncF32, Kind::F32})
      .Case("math.powf", Translation{AluOp::PowF32, Kind::F32})
      .Case("arith.addi", Translation{AluOp::AddI32, Kind::I32})
      .Case("arith.subi", Translation{AluOp::SubI32, Kind::I32})
      .Case("arith.muli", Translation{AluOp::MulI32, Kind::I32})
      .Case("arith.maxsi", Translation{AluOp::MaxI32, Kind::I32})
      .Case("arith.minsi", Translation{AluOp::MinI32, Kind::I32})
      .Case("arith.sitofp", Translation{AluOp::CvtI32F32, Kind::F32})
      .Case("arith.fptosi", Translation{AluOp::CvtF32I32, Kind::I32})
      .Cases({"arith.extsi", "arith.extui", "arith.uitofp", "arith.trunci", "arith.extf",
              "arith.truncf"},
             Translation{AluOp::Pass, Kind::I32})
      .Cases({"arith.cmpf", "arith.cmpi", "arith.select", "arith.constant", "arith.andi",
              "arith.ori", "arith.xori"},
             Translation{AluOp::Pass, Kind::F32})
      .Cases({"math.log1p", "math.expm1", "math.fma"}, Translation{AluOp::Pass, Kind::F32})
      .Default(std::nullopt);
}

std::optional<AluOp> compareOp(arith::CmpFPredicate predicate) {
  using P = arith::CmpFPredicate;
  switch (predicate) {
  case P::OEQ:
  case P::UEQ:
    return AluOp::EqF32;
  case P::UNE:
  case P::ONE:
    return AluOp::NeF32;
  case P::OLT:
  case P::ULT:
    return AluOp::LtF32;
  case P::OLE:
  case P::ULE:
    return AluOp::LeF32;
  case P::OGT:
  case P::UGT:
    return AluOp::GtF32;
  case P::OGE:
  case P::UGE:
    return AluOp::GeF32;
  default:
    return std::nullopt;
  }
}

std::optional<AluOp> compareOp(arith::CmpIPredicate predicate) {
  using P = arith::CmpIPredicate;
  switch (predicate) {
  case P::eq:
    return AluOp::EqI32;
  case P::ne:
    return AluOp::NeI32;
  case P::slt:
    return AluOp::LtI32;
  case P::sle:
    return AluOp::LeI32;
  case P::sgt:
    return AluOp::GtI32;
  case P::sge:
    return AluOp::GeI32;
  default:
    return std::nullopt;
  }
}

bool asksForNan(arith::CmpFOp compare) {
  return compare.getPredicate() == arith::CmpFPredicate::UNO ||
         compare.getPredicate() == arith::CmpFPredicate::ORD;
}

/// Is one of the two no number (`uno`), or is neither (`ord`)? What is none differs from itself.
unsigned compareForNan(KernelBuilder &build, arith::CmpFOp compare, unsigned x, unsigned y) {
  const bool isUno = compare.getPredicate() == arith::CmpFPredicate::UNO;
  auto test = [&](unsigned value) {
    return build.op(isUno ? AluOp::NeF32 : AluOp::EqF32, {value, value});
  };
  return x == y ? test(x) : build.op(isUno ? AluOp::MaxF32 : AluOp::MinF32, {test(x), test(y)});
}

/// `and`, `or`, `xor` of integers, or of flags, which are 0 or 1 as fp32 or as integers: where both
/// are fp32, the least, the greatest, or whether they differ.
Scalar bitwise(KernelBuilder &build, Operation *op, Scalar x, Scalar y) {
  const bool isAnd = isa<arith::AndIOp>(op), isOr = isa<arith::OrIOp>(op);
  auto asFloat = [&](Scalar &flag, const Scalar &other) {
    const Node node = build.kernel().nodes[flag.node];
    if (flag.kind == Kind::FlagI32 && other.kind == Kind::FlagF32 &&
        node.kind == Node::Kind::Immediate)
      flag = {build.constant(float(node.bits)), Kind::FlagF32};
  };
  asFloat(x, y);
  asFloat(y, x);
  if (x.kind == Kind::FlagF32 && y.kind == Kind::FlagF32)
    return {build.op(isAnd  ? AluOp::MinF32
                     : isOr ? AluOp::MaxF32
                            : AluOp::NeF32,
                     {x.node, y.node}),
            Kind::FlagF32};
  for (Scalar *flag : {&x, &y})
    if (flag->kind == Kind::FlagF32)
      *flag = {build.op(AluOp::CvtF32I32, {flag->node}), Kind::FlagI32};
  return {build.op(isAnd ? AluOp::And : isOr ? AluOp::Or : AluOp::Xor, {x.node, y.node}), x.kind};
}

bool isNarrow(Type type) {
  return type.isF32() || type.isF16() || type.isBF16() || type.isInteger(1) || type.isInteger(8) ||
         type.isInteger(32);
}

} // namespace

/// Every operation has a counterpart and every value fits a lane.
bool Former::isFormableBody(Block &body) {
  for (BlockArgument argument : body.getArguments())
    if (!isNarrow(argument.getType()))
      return false;
  for (Operation &op : body.without_terminator()) {
    if (!floatOp(&op))
      return false;
    for (Type type : op.getResultTypes())
      if (!isNarrow(type))
        return false;
    if (auto compare = dyn_cast<arith::CmpFOp>(op);
        compare && !asksForNan(compare) && !compareOp(compare.getPredicate()))
      return false;
    if (auto compare = dyn_cast<arith::CmpIOp>(op); compare && !compareOp(compare.getPredicate()))
      return false;
  }
  return true;
}

FailureOr<Scalar> Former::bodyValue(Attempt &attempt, Value value, Values &known) {
  if (auto found = known.find(value); found != known.end())
    return found->second;
  Operation *op = value.getDefiningOp();
  if (!op)
    return failure();
  Attribute constant;
  if (matchPattern(value, m_Constant(&constant))) {
    if (auto real = dyn_cast<FloatAttr>(constant))
      return Scalar{attempt.build.constant(float(real.getValueAsDouble())), Kind::F32};
    auto integer = dyn_cast<IntegerAttr>(constant);
    if (!integer) // a table that is looked up in some other way
      return failure();
    bool isFlag = integer.getType().isInteger(1);
    return Scalar{
        attempt.build.immediate(uint32_t(isFlag ? integer.getValue().getZExtValue()
                                                : uint64_t(integer.getValue().getSExtValue()))),
        isFlag ? Kind::FlagI32 : Kind::I32};
  }
  SmallVector<Scalar> args;
  for (Value operand : op->getOperands()) {
    FailureOr<Scalar> arg = bodyValue(attempt, operand, known);
    if (failed(arg))
      return failure();
    args.push_back(*arg);
  }
  FailureOr<Scalar> result = bodyOp(attempt, op, args);
  if (succeeded(result))
    known[value] = *result;
  return result;
}

AluOp overflowing(ElementType type) {
  return type == ElementType::Fp16 ? AluOp::CvtF32F16 : AluOp::CvtF32Bf16;
}

/// Whether the node is the immediate `value`.
static bool isImmediate(KernelBuilder &build, unsigned node, float value) {
  const Node &n = build.kernel().nodes[node];
  return n.kind == Node::Kind::Immediate && n.bits == bitsOf(value);
}

/// Whether the operation subtracts from an element of a row the row's maximum, which lies in 16
/// bits: for a softmax (import says so).
bool Former::isBelowMaximum(Operation *op) const {
  auto within = op->getAttrOfType<DenseF64ArrayAttr>("millrace.within");
  auto map = dyn_cast<linalg::LinalgOp>(op->getParentOp());
  return within && isa<arith::SubFOp>(op) && within[1] == 0 && map && map.getNumDpsInputs() == 2 &&
         !ranges.needsFp32(map->getOperand(1)) && !wide.contains(map->getOperand(1));
}

/// Whether the node was widened from 16 bits.
static bool wasNarrow(KernelBuilder &build, unsigned node) {
  const Node &n = build.kernel().nodes[node];
  return n.kind == Node::Kind::Op && (n.op == AluOp::CvtF16F32 || n.op == AluOp::CvtBf16F32);
}

/// z, where the node is 1 + e^-z.
static std::optional<unsigned> divisorOfSigmoid(KernelBuilder &build, unsigned node) {
  const std::vector<Node> &nodes = build.kernel().nodes;
  const auto is = [&](unsigned n, AluOp op) {
    return nodes[n].kind == Node::Kind::Op && nodes[n].op == op;
  };
  if (!is(node, AluOp::AddF32))
    return std::nullopt;
  for (const unsigned one : {0u, 1u})
    if (const unsigned power = nodes[node].args[1 - one];
        isImmediate(build, nodes[node].args[one], 1) && is(power, AluOp::ExpF32))
      if (const unsigned negated = nodes[power].args[0]; is(negated, AluOp::NegF32))
        return nodes[negated].args[0];
  return std::nullopt;
}

static unsigned divide(KernelBuilder &build, unsigned x, unsigned y) {
  if (const std::optional<unsigned> z = divisorOfSigmoid(build, y)) {
    const unsigned sigmoid = build.op(AluOp::SigmoidF32, {*z});
    return isImmediate(build, x, 1) ? sigmoid : build.op(AluOp::MulF32, {x, sigmoid});
  }
  const Node divisor = build.kernel().nodes[y];
  if (isImmediate(build, x, 1)) {
    if (divisor.kind == Node::Kind::Op && divisor.op == AluOp::SqrtF32)
      return build.op(AluOp::RsqrtF32, {divisor.args[0]});
    return build.op(AluOp::RcpF32, {y});
  }
  if (divisor.kind == Node::Kind::Immediate) {
    const float inverse = 1 / decode(ElementType::Fp32, divisor.bits);
    if (std::isfinite(inverse))
      return build.op(AluOp::MulF32, {x, build.constant(inverse)});
  }
  return build.op(AluOp::DivF32, {x, y});
}

/// The node's 8-bit integer less a constant one as fp32, which holds both: an operation less than
/// by way of 32-bit integers. Nothing if the node is something else.
static std::optional<unsigned> differenceInFloat(KernelBuilder &build, unsigned node) {
  const Node &difference = build.kernel().nodes[node];
  if (difference.kind != Node::Kind::Op || difference.op != AluOp::SubI32)
    return std::nullopt;
  const Node &wide = build.kernel().nodes[difference.args[0]],
             &other = build.kernel().nodes[difference.args[1]];
  constexpr int32_t kMost = 1 << 23; // of which fp32 holds sums with 8-bit integers
  if (wide.kind != Node::Kind::Op || wide.op != AluOp::CvtI8I32 ||
      other.kind != Node::Kind::Immediate || std::abs(int64_t(int32_t(other.bits))) > kMost)
    return std::nullopt;
  const float subtracted = float(int32_t(other.bits));
  const unsigned integer = build.op(AluOp::CvtI8F32, {wide.args[0]});
  return build.op(AluOp::SubF32, {integer, build.constant(subtracted)});
}

FailureOr<Scalar> Former::bodyOp(Attempt &attempt, Operation *op, ArrayRef<Scalar> given) {
  KernelBuilder &build = attempt.build;
  if (isa<arith::SIToFPOp>(op) && given[0].kind == Kind::I8)
    return Scalar{build.op(AluOp::CvtI8F32, {given[0].node}), Kind::F32};
  std::vector<unsigned> nodes;
  SmallVector<Scalar> args(given);
  for (Scalar &arg : args) {
    if (arg.kind == Kind::I8)
      arg = {build.op(AluOp::CvtI8I32, {arg.node}), Kind::I32};
    nodes.push_back(arg.node);
  }
  if (isa<arith::SIToFPOp>(op))
    if (const std::optional<unsigned> difference = differenceInFloat(build, nodes[0]))
      return Scalar{*difference, Kind::F32};
  if (auto compare = dyn_cast<arith::CmpFOp>(op); compare && asksForNan(compare))
    return Scalar{compareForNan(build, compare, nodes[0], nodes[1]), Kind::FlagF32};
  if (auto compare = dyn_cast<arith::CmpFOp>(op))
    return Scalar{build.op(*compareOp(compare.getPredicate()), nodes), Kind::FlagF32};
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    return Scalar{build.op(*compareOp(compare.getPredicate()), nodes), Kind::FlagI32};
  if (isa<arith::AndIOp, arith::OrIOp, arith::XOrIOp>(op))
    return bitwise(build, op, args[0], args[1]);
  if (isa<arith::SelectOp>(op)) {
    AluOp select = args[0].kind == Kind::FlagF32 ? AluOp::SelectF32 : AluOp::SelectI32;
    return Scalar{build.op(select, nodes), args[1].kind};
  }
  if (isa<arith::DivFOp>(op))
    return Scalar{divide(build, nodes[0], nodes[1]), Kind::F32};
  if (isa<arith::AddFOp, arith::SubFOp>(op) && isImmediate(build, nodes[1], 0))
    return args[0];
  if (isBelowMaximum(op) && !wasNarrow(build, nodes[0])) { // as its maximum is, in 16 bits
    const float lowest = decode(activation(), activation() == ElementType::Fp16 ? 0xfbff : 0xff7f);
    unsigned value = build.op(AluOp::MaxF32, {nodes[0], build.constant(lowest)});
    // What is hidden altogether stays below what a mask of the lowest number hides.
    if (ranges.of(cast<linalg::LinalgOp>(op->getParentOp())->getOperand(0)).low == -INFINITY) {
      const unsigned isFinite =
          build.op(AluOp::GeF32, {nodes[0], build.constant(std::numeric_limits<float>::lowest())});
      value = build.op(AluOp::SelectF32, {isFinite, value, build.constant(-INFINITY)});
    }
    return Scalar{build.op(AluOp::SubF32, {value, nodes[1]}), Kind::F32};
  }
  if (isa<arith::MulFOp>(op) && isImmediate(build, nodes[1], 1))
    return args[0];
  if (isa<arith::ExtFOp>(op))
    return args[0]; // narrow floats are held as fp32
  if (auto narrow = dyn_cast<arith::TruncFOp>(op)) {
    ElementType exact = narrow.getType().isF16() ? ElementType::Fp16 : ElementType::Bf16;
    unsigned rounded = build.op(overflowing(exact), {nodes[0]});
    return Scalar{build.op(widenToF32(exact), {rounded}), Kind::F32};
  }
  if (isa<arith::ExtSIOp>(op))
    return args[0];
  if (isa<arith::ExtUIOp, arith::UIToFPOp>(op)) {
    bool toFloat = isa<arith::UIToFPOp>(op);
    if (args[0].kind == Kind::FlagF32 && toFloat)
      return Scalar{nodes[0], Kind::F32};
    unsigned value = nodes[0];
    if (args[0].kind == Kind::FlagF32)
      value = build.op(AluOp::CvtF32I32, {value});
    else if (op->getOperand(0).getType().isInteger(8))
      value = build.op(AluOp::And, {value, build.immediate(0xff)});
    return toFloat ? Scalar{build.op(AluOp::CvtI32F32, {value}), Kind::F32}
                   : Scalar{value, Kind::I32};
  }
  if (isa<arith::TruncIOp>(op)) { // sign-extended from the low byte
    if (!op->getResult(0).getType().isInteger(8))
      return failure();
    return Scalar{build.op(AluOp::CvtI8I32, {nodes[0]}), Kind::I32};
  }
  if (isa<math::Log1pOp>(op))
    return Scalar{build.op(AluOp::LogF32, {build.op(AluOp::AddF32, {nodes[0], build.constant(1)})}),
                  Kind::F32};
  if (isa<math::ExpM1Op>(op))
    return Scalar{build.op(AluOp::SubF32, {build.op(AluOp::ExpF32, {nodes[0]}), build.constant(1)}),
                  Kind::F32};
  if (isa<math::FmaOp>(op))
    return Scalar{
        build.op(AluOp::AddF32, {build.op(AluOp::MulF32, {nodes[0], nodes[1]}), nodes[2]}),
        Kind::F32};
  std::optional<Translation> translation = floatOp(op);
  if (!translation || translation->op == AluOp::Pass)
    return failure();
  unsigned value = build.op(translation->op, nodes);
  // Bytes wrap around: the sign-extended low one. Storing would saturate.
  if (isa<arith::AddIOp, arith::SubIOp, arith::MulIOp>(op) &&
      op->getResult(0).getType().isInteger(8))
    value = build.op(AluOp::CvtI8I32, {value});
  return Scalar{value, translation->result};
}

} // namespace millrace::forms
