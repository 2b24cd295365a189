// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Roundings that need not be: each is a quantiser and a dequantiser of one scheme, of which nothing
// reads the integers between.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Ranges.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/DenseSet.h"

namespace millrace::forms {

using namespace mlir;

/// `quantize`'s operand, clamped to the reals that its integers stand for where `mayBe` holds any
/// that rounding alone would take beyond them. Nothing where its parameters are no constants.
static Value saturated(linalg::GenericOp quantize, const Range &mayBe = {}) {
  std::optional<ConstantView> scale = viewConstant(quantize->getOperand(1)), zero;
  if (quantize.getNumDpsInputs() > 2)
    zero = viewConstant(quantize->getOperand(2));
  if (!scale || (quantize.getNumDpsInputs() > 2 && !zero))
    return nullptr;
  const Value input = quantize->getOperand(0);
  const auto type = cast<RankedTensorType>(input.getType());
  const bool isUnsigned =
      llvm::any_of(quantize.getBody()->without_terminator(),
                   [](Operation &inner) { return isa<arith::FPToUIOp>(inner); });
  const unsigned width = getElementTypeOrSelf(quantize->getResult(0)).getIntOrFloatBitWidth();
  const auto levels = double(int64_t(1) << width);
  const double lowest = isUnsigned ? 0 : -levels / 2, highest = lowest + levels - 1;
  const double step = scale->real(0);
  double offset = zero ? double(zero->integer(0)) : 0;
  if (isUnsigned && offset < 0)
    offset += levels;
  constexpr double kRounded = 0.5; // of a step: no further than rounding moves numbers
  if (!mayBe.nan && mayBe.low >= (lowest - offset - kRounded) * step &&
      mayBe.high <= (highest - offset + kRounded) * step)
    return input;
  OpBuilder builder(quantize);
  const Location loc = quantize.getLoc();
  const Value init = tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
  const SmallVector<AffineMap> maps(2, builder.getMultiDimIdentityMap(unsigned(type.getRank())));
  const SmallVector<utils::IteratorType> loops(size_t(type.getRank()),
                                               utils::IteratorType::parallel);
  auto bound = [&](double integer) -> Value {
    return arith::ConstantOp::create(
        builder, loc, builder.getFloatAttr(type.getElementType(), (integer - offset) * step));
  };
  const Value least = bound(lowest), most = bound(highest);
  return linalg::GenericOp::create(
             builder, loc, TypeRange(type), ValueRange(input), ValueRange(init), maps, loops,
             [&](OpBuilder &b, Location at, ValueRange x) {
               Value raised = arith::MaximumFOp::create(b, at, x[0], least);
               linalg::YieldOp::create(b, at,
                                       arith::MinimumFOp::create(b, at, raised, most).getResult());
             })
      .getResult(0);
}

/// The one tensor that is dequantised for the value, by maps of its elements.
static Value dequantisedFor(Value value) {
  Value source;
  SmallVector<Value> open = {value};
  llvm::DenseSet<Value> seen;
  while (!open.empty()) {
    const Value next = open.pop_back_val();
    auto op = next.getDefiningOp<linalg::GenericOp>();
    if (!seen.insert(next).second || isConstantValue(next))
      continue;
    if (!op || !isMap(op))
      return {};
    if (quantKind(op) != "dequantize") {
      llvm::append_range(open, op.getDpsInputs());
      continue;
    }
    const Value integers = op->getOperand(0);
    if (source && source != integers && !isConstantValue(integers))
      return {};
    source = isConstantValue(integers) ? source : integers;
  }
  return source;
}

/// What an element of the value may be: for each integer that it is computed of, where it is of
/// one.
static Range rangeOf(const Ranges &ranges, Value value) {
  const Value source = dequantisedFor(value);
  return source ? ranges.ofEach(value, source) : ranges.of(value);
}

void dropWideRoundings(func::FuncOp function) {
  SmallVector<std::pair<linalg::GenericOp, linalg::GenericOp>> pairs;
  function.walk([&](linalg::GenericOp op) {
    auto quantize = op.getNumDpsInputs() ? op->getOperand(0).getDefiningOp<linalg::GenericOp>()
                                         : linalg::GenericOp();
    if (!quantize || quantKind(op) != "dequantize" || quantKind(quantize) != "quantize" ||
        !getElementTypeOrSelf(op->getOperand(0)).isInteger(16) ||
        op.getNumDpsInputs() != quantize.getNumDpsInputs())
      return;
    for (unsigned i = 1; i < op.getNumDpsInputs(); ++i)
      if (!isSameConstant(op->getOperand(i), quantize->getOperand(i)) ||
          cast<RankedTensorType>(op->getOperand(i).getType()).getNumElements() != 1)
        return;
    pairs.emplace_back(op, quantize);
  });
  for (auto [dequantize, quantize] : pairs)
    if (const Value value = saturated(quantize)) {
      dequantize.getResult(0).replaceAllUsesWith(value);
      dequantize->erase();
    }
}

/// Is the value computed element by element of what something else reads, too, of what was
/// dequantised and of constants alone? The epilogue of a contraction is not.
static bool isOfElements(Value value) {
  auto op = value.getDefiningOp<linalg::GenericOp>();
  if (!op || !isMap(op) || quantKind(op) == "quantize")
    return false;
  return quantKind(op) == "dequantize" || llvm::all_of(op.getDpsInputs(), [](Value operand) {
           return isConstantValue(operand) || !operand.hasOneUse() || isOfElements(operand);
         });
}

/// The one operand that the value is, perhaps behind padding.
static OpOperand &onlyUse(Value value) {
  OpOperand *use = &*value.use_begin();
  if (isa<tensor::PadOp>(use->getOwner()) && use->getOwner()->hasOneUse())
    use = &*use->getOwner()->use_begin();
  return *use;
}

/// Does what takes the value compute with the reals that it stands for, one for each? Maps do, and
/// convolutions of each channel by itself.
static bool takesReals(OpOperand &use) {
  auto reader = dyn_cast<linalg::LinalgOp>(use.getOwner());
  if (!reader || !quantKind(reader).empty())
    return false;
  return isMap(reader) ? reader.getMatchingIndexingMap(&use).isPermutation() : isDepthwise(reader);
}

bool isNamedByUser(Operation *op) { return op->hasAttr(kDevice) || op->hasAttr(kKeepFp32); }

linalg::GenericOp quantizerOf(linalg::GenericOp dequantize) {
  const auto isAlone = [](linalg::GenericOp op, StringRef kind) {
    return op && quantKind(op) == kind && op.getResult(0).hasOneUse() && !isNamedByUser(op) &&
           op.getMatchingIndexingMap(op.getDpsInputOperand(0)).isIdentity();
  };
  if (!isAlone(dequantize, "dequantize"))
    return {};
  auto quantize = dequantize->getOperand(0).getDefiningOp<linalg::GenericOp>();
  return isAlone(quantize, "quantize") && haveOneScheme(dequantize, quantize) ? quantize
                                                                              : linalg::GenericOp();
}

namespace {

/// Takes quantisers and their dequantisers out.
class Dropping {
public:
  explicit Dropping(func::FuncOp function) : ranges(function, ElementType::Fp32) {}
  ~Dropping() {
    for (Operation *op : dead)
      op->erase();
  }
  /// Whether `dequantize`, which `reader` reads, is what `quantize` took now.
  bool drop(linalg::GenericOp dequantize, linalg::GenericOp quantize, Operation *reader) {
    const Value value = saturated(quantize, rangeOf(ranges, quantize->getOperand(0)));
    if (!value)
      return false;
    dequantize.getResult(0).replaceAllUsesWith(value);
    reader->removeAttr(kOnnxValue); // of what is not rounded
    for (Operation *op : {dequantize.getOperation(), quantize.getOperation()}) {
      op->dropAllReferences();
      dead.push_back(op); // and not erased: ranges are known by value
    }
    return true;
  }

private:
  const Ranges ranges;
  SmallVector<Operation *> dead;
};

} // namespace

void dropRoundings(func::FuncOp function) {
  SmallVector<std::pair<linalg::GenericOp, linalg::GenericOp>> pairs;
  function.walk([&](linalg::GenericOp dequantize) {
    if (const linalg::GenericOp quantize = quantizerOf(dequantize);
        quantize && takesReals(onlyUse(dequantize.getResult(0))) &&
        isOfElements(quantize->getOperand(0)))
      pairs.emplace_back(dequantize, quantize);
  });
  Dropping dropping(function);
  for (auto [dequantize, quantize] : pairs)
    dropping.drop(dequantize, quantize, onlyUse(dequantize.getResult(0)).getOwner());
}

void fuseResiduals(func::FuncOp function) {
  SmallVector<linalg::GenericOp> sums;
  function.walk([&](linalg::GenericOp op) {
    Operation *yielded = op.getBody()->getTerminator()->getOperand(0).getDefiningOp();
    if (isMap(op) && yielded && isa<arith::AddFOp>(yielded) && op.getNumDpsInputs() == 2)
      sums.push_back(op);
  });
  Dropping dropping(function);
  for (linalg::GenericOp sum : sums)
    for (unsigned side : {0u, 1u}) {
      auto dequantize = sum->getOperand(side).getDefiningOp<linalg::GenericOp>();
      const linalg::GenericOp quantize = quantizerOf(dequantize);
      if (quantize && dropping.drop(dequantize, quantize, sum))
        break;
    }
}

} // namespace millrace::forms
