// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Gather/FindGather.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallBitVector.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

/// What a number in the body of an operation is computed of.
struct Origin {
  llvm::SmallBitVector loops;
  bool isData = false; ///< of elements of tensors, too

  void add(const Origin &other) {
    loops |= other.loops;
    isData |= other.isData;
  }
};

class Body {
public:
  explicit Body(linalg::GenericOp op) : op(op) {}

  Origin of(Value value) {
    if (auto found = known.find(value); found != known.end())
      return found->second;
    Origin origin{llvm::SmallBitVector(op.getNumLoops()), false};
    if (auto argument = dyn_cast<BlockArgument>(value); argument && argument.getOwner() == body()) {
      origin.isData = true;
      AffineMap map = op.getMatchingIndexingMap(&op->getOpOperand(argument.getArgNumber()));
      for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
        if (map.isFunctionOfDim(loop))
          origin.loops.set(loop);
    } else if (Operation *made = value.getDefiningOp(); made && made->getBlock() == body()) {
      if (auto index = dyn_cast<linalg::IndexOp>(made))
        origin.loops.set(unsigned(index.getDim()));
      for (Value operand : made->getOperands())
        origin.add(of(operand));
      origin.isData |= isa<tensor::ExtractOp>(made);
    }
    known.try_emplace(value, origin);
    return origin;
  }

private:
  Block *body() { return op.getBody(); }

  linalg::GenericOp op;
  DenseMap<Value, Origin> known; ///< what comes from outside is of no loop
};

class FindGathers : public PassWrapper<FindGathers, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FindGathers)
  StringRef getArgument() const final { return "find-gathers"; }
  StringRef getDescription() const final {
    return "notes along which loop rows of tables are taken at indices that are data";
  }
  void runOnOperation() final {
    getOperation().walk([](linalg::GenericOp op) {
      if (const std::optional<unsigned> loop = findRowLoop(op))
        op->setAttr(kRowLoop, Builder(op.getContext()).getI64IntegerAttr(*loop));
    });
  }
};

} // namespace

std::optional<unsigned> findRowLoop(linalg::GenericOp op) {
  if (!op.hasPureTensorSemantics() || op.getNumReductionLoops() || !op.getNumLoops() ||
      !op.getNumDpsInits())
    return std::nullopt;
  std::optional<unsigned> row;
  for (OpOperand &result : op.getDpsInitsMutable()) {
    AffineMap map = op.getMatchingIndexingMap(&result);
    if (!map.isPermutation())
      return std::nullopt;
    const unsigned last = map.getDimPosition(map.getNumResults() - 1);
    if (row.value_or(last) != last)
      return std::nullopt;
    row = last;
  }
  Body body(op);
  bool isAny = false, isWhole = true;
  for (auto extract : op.getBody()->getOps<tensor::ExtractOp>())
    for (Value index : extract.getIndices()) {
      const Origin origin = body.of(index);
      isAny |= origin.isData;
      isWhole &= !(origin.isData && origin.loops.test(*row));
    }
  return isAny && isWhole ? row : std::nullopt;
}

std::unique_ptr<Pass> createFindGathersPass() { return std::make_unique<FindGathers>(); }

} // namespace millrace::gpu
