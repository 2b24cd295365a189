// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Fold.h"

#include "compiler/Import/Onnx/FoldTensors.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Of operations that are evaluated without asking for time.
constexpr int64_t workPerElement = 64, smallWork = workPerElement * smallFoldedElements;

int64_t elementsOf(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getNumElements();
}

int64_t bytesOf(Value tensor) {
  return elementsOf(tensor) *
         elementBytes(cast<RankedTensorType>(tensor.getType()).getElementType());
}

/// The view of an `arith.constant` of numbers.
std::optional<ConstantView> constantOf(Value value) {
  std::optional<ConstantView> view = viewConstant(value);
  return view && NumberType::of(view->type.getElementType()) ? view : std::nullopt;
}

ElementsAttr attributeOf(const ConstantView &view) {
  if (view.type.getElementType().isInteger(1)) {
    const SmallVector<bool> flags(view.bytes.begin(), view.bytes.end());
    return DenseElementsAttr::get(view.type, ArrayRef(flags));
  }
  // Small ones are attributes that MLIR's own patterns look into.
  return view.splat || view.type.getNumElements() <= smallFoldedElements
             ? DenseElementsAttr::getFromRawBuffer(view.type, view.bytes)
             : makeConstant(view.type, view.bytes, "folded");
}

/// Constants by the values that they equal.
class Constants {
public:
  const FoldedTensor *find(Value value) const {
    auto found = tensors.find(value);
    return found == tensors.end() ? nullptr : found->second.get();
  }
  void add(Value value, FoldedTensor tensor) {
    tensors[value] = std::make_unique<FoldedTensor>(std::move(tensor));
  }
  void drop(Value value) { tensors.erase(value); }

  /// Evaluates an operation whose reads are there; nothing where that fails.
  std::optional<FoldedTensor> evaluate(const FoldableOp &op) const {
    return op.evaluate([&](Value read) -> const FoldedTensor & { return *find(read); });
  }

private:
  DenseMap<Value, std::unique_ptr<FoldedTensor>> tensors;
};

/// "quantize", "dequantize" or nothing.
StringRef quantKindOf(Operation &op) {
  auto kind = op.getAttrOfType<StringAttr>("millrace.quant");
  return kind ? kind.getValue() : StringRef();
}

/// Folds the operations of one block.
class BlockFolder {
public:
  BlockFolder(Block &block, int64_t &workLeft) : block(block), workLeft(workLeft) {}
  void run();

private:
  /// What follows from constants.
  struct Source {
    double bytes = 0; ///< of the largest tensor below that is there anyway
    bool isComputed = false;
    bool isDequantized = false; ///< and perhaps moved: stays integers
  };

  /// Whether there is time left for an operation.
  bool isAffordable(const FoldableOp &op) const { return workLeft >= 0 || op.work() <= smallWork; }
  void findSources();
  std::optional<Source> sourceOf(Operation &op) const;
  void choose();
  bool isWanted(Operation &op) const;
  bool evaluateChosen();
  bool evaluate(Operation &op);
  void release(Operation &op);

  Block &block;
  int64_t &workLeft; ///< for operations of more than smallWork; below 0 once one found too little
  DenseMap<Operation *, FoldableOp> foldable;
  DenseSet<Operation *> failed, unknown; ///< unknown: has a result, though not everywhere a value
  DenseMap<Value, Source> sources;
  DenseSet<Operation *> replaced, gone; ///< gone: nothing reads it afterwards
  DenseMap<Value, unsigned> readers;    ///< operations to be evaluated that read it
  Constants constants;
};

void BlockFolder::findSources() {
  sources.clear();
  for (Operation &op : block)
    if (std::optional<Source> source = sourceOf(op))
      sources[op.getResult(0)] = *source;
}

std::optional<BlockFolder::Source> BlockFolder::sourceOf(Operation &op) const {
  if (isa<arith::ConstantOp>(op)) {
    std::optional<ConstantView> view = constantOf(op.getResult(0));
    return view ? std::optional(Source{double(view->bytes.size())}) : std::nullopt;
  }
  auto found = foldable.find(&op);
  if (found == foldable.end() || failed.contains(&op))
    return std::nullopt;
  const FoldableOp &foldableOp = found->second;
  if (!isAffordable(foldableOp) && !constants.find(op.getResult(0)))
    return std::nullopt;
  Source source;
  for (Value read : foldableOp.reads()) {
    auto known = sources.find(read);
    if (known == sources.end())
      return std::nullopt;
    source.bytes = std::max(source.bytes, known->second.bytes);
    source.isComputed |= known->second.isComputed;
    source.isDequantized |= known->second.isDequantized && foldableOp.onlyMoves();
  }
  source.isDequantized |= quantKindOf(op) == "dequantize";
  if (foldableOp.isCostly())
    source.bytes = double(bytesOf(op.getResult(0)));
  source.isComputed |= !foldableOp.onlyMoves();
  return source;
}

/// Whether the result follows from constants and is to be one.
bool BlockFolder::isWanted(Operation &op) const {
  if (isa<linalg::FillOp, arith::ConstantOp>(op) || unknown.contains(&op))
    return false;
  const Value result = op.getResult(0);
  const Source source = sources.lookup(result);
  if (source.isDequantized)
    return false;
  return elementsOf(result) <= smallFoldedElements ||
         (source.isComputed && double(bytesOf(result)) <= source.bytes);
}

/// Goes from readers to what they read: an operation that only replaced ones read is of no use.
void BlockFolder::choose() {
  replaced.clear();
  gone.clear();
  for (Operation &op : llvm::reverse(block)) {
    if (op.getNumResults() != 1 || !sources.contains(op.getResult(0)))
      continue;
    const bool isRead = llvm::any_of(op.getUsers(), [&](Operation *user) {
      return !gone.contains(block.findAncestorOpInBlock(*user));
    });
    if (isRead && !isWanted(op))
      continue;
    gone.insert(&op);
    if (isRead)
      replaced.insert(&op);
  }
}

/// Drops the constants that only `op` still needed.
void BlockFolder::release(Operation &op) {
  for (Value read : foldable.find(&op)->second.reads())
    if (--readers[read] == 0 && !replaced.contains(read.getDefiningOp()))
      constants.drop(read);
}

/// False if it stays what it is: it has no result, or one without a value in places, or too much
/// work has been done.
bool BlockFolder::evaluate(Operation &op) {
  auto found = foldable.find(&op);
  if (found == foldable.end()) {
    constants.add(op.getResult(0), {*constantOf(op.getResult(0)), std::nullopt});
    return true;
  }
  const FoldableOp &foldableOp = found->second;
  if (const int64_t work = foldableOp.work(); work > smallWork)
    workLeft -= workLeft < 0 ? 0 : work;
  std::optional<FoldedTensor> tensor =
      isAffordable(foldableOp) ? constants.evaluate(foldableOp) : std::optional<FoldedTensor>();
  if (!tensor) {
    failed.insert(&op);
    return false;
  }
  const bool isUnknown = tensor->unknown && replaced.contains(&op);
  if (isUnknown)
    unknown.insert(&op);
  constants.add(op.getResult(0), std::move(*tensor));
  release(op);
  return !isUnknown;
}

/// Evaluates what was chosen and what that reads, in order; false if one of these stays.
bool BlockFolder::evaluateChosen() {
  DenseSet<Operation *> needed = replaced;
  readers.clear();
  for (Operation &op : llvm::reverse(block)) {
    auto found = foldable.find(&op);
    if (!needed.contains(&op) || found == foldable.end() || constants.find(op.getResult(0)))
      continue;
    for (Value read : found->second.reads()) {
      ++readers[read];
      needed.insert(read.getDefiningOp());
    }
  }
  bool succeeded = true;
  for (Operation &op : block) {
    if (!needed.contains(&op) || constants.find(op.getResult(0)))
      continue;
    auto found = foldable.find(&op);
    const bool isReady =
        found == foldable.end() ||
        llvm::all_of(found->second.reads(), [&](Value read) { return constants.find(read); });
    succeeded &= isReady && evaluate(op);
  }
  return succeeded;
}

void BlockFolder::run() {
  const auto isLarge = [](Operation &op, const FoldableOp &foldableOp) {
    const int64_t elements = elementsOf(op.getResult(0));
    return elements > largestFoldedElements && quantKindOf(op) != "quantize" &&
           llvm::all_of(foldableOp.reads(),
                        [&](Value read) { return elements > elementsOf(read); });
  };
  for (Operation &op : block)
    if (std::optional<FoldableOp> foldableOp = FoldableOp::create(&op);
        foldableOp && !isLarge(op, *foldableOp) && foldableOp->work() <= mostFoldingWork)
      foldable.try_emplace(&op, std::move(*foldableOp));
  do {
    findSources();
    choose();
  } while (!evaluateChosen());
  for (Operation &op : block) {
    if (!replaced.contains(&op))
      continue;
    OpBuilder builder(&op);
    Value result = op.getResult(0);
    result.replaceAllUsesWith(arith::ConstantOp::create(
        builder, result.getLoc(), attributeOf(constants.find(result)->numbers)));
  }
}

} // namespace

ElementsAttr foldValue(Value value, int64_t most) {
  ElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant;
  Constants constants;
  DenseMap<Operation *, FoldableOp> foldable;
  int64_t workLeft = workPerElement * most;
  SmallVector<Value> wanted{value}; // each read by the one before it
  while (!wanted.empty()) {
    Value next = wanted.back();
    Operation *op = next.getDefiningOp();
    if (constants.find(next)) {
      wanted.pop_back();
      continue;
    }
    if (std::optional<ConstantView> view = constantOf(next)) {
      constants.add(next, {std::move(*view), std::nullopt});
      continue;
    }
    auto found = foldable.find(op);
    if (found == foldable.end()) {
      std::optional<FoldableOp> foldableOp =
          op ? FoldableOp::create(op) : std::optional<FoldableOp>();
      if (!foldableOp || elementsOf(next) > most || (workLeft -= foldableOp->work()) < 0)
        return {};
      found = foldable.try_emplace(op, std::move(*foldableOp)).first;
    }
    const auto unknown =
        llvm::find_if(found->second.reads(), [&](Value read) { return !constants.find(read); });
    if (unknown != found->second.reads().end()) {
      wanted.push_back(*unknown);
      continue;
    }
    std::optional<FoldedTensor> tensor = constants.evaluate(found->second);
    if (!tensor)
      return {};
    constants.add(next, std::move(*tensor));
  }
  const FoldedTensor &result = *constants.find(value);
  return result.unknown ? ElementsAttr() : attributeOf(result.numbers);
}

void foldConstants(Operation *root) {
  int64_t workLeft = mostFoldingWorkOfAll;
  root->walk([&](func::FuncOp function) {
    for (Block &block : function.getBody())
      BlockFolder(block, workLeft).run();
  });
}

} // namespace millrace::onnx_import
