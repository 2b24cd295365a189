// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/LaneAccess.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

#include <numeric>

namespace millrace::tile {

using namespace mlir;

namespace {

constexpr unsigned kWarp = 32, kUsualThreads = 256, kMostThreads = 1024, kMostBytes = 16;

/// What is known of an index: base + stride x lane, the base a multiple of `divisor` (of 0: it is
/// 0).
struct LaneIndex {
  int64_t stride = 0, divisor = 1;
};

std::optional<LaneIndex> indexOf(Value value) {
  DenseElementsAttr tile;
  IntegerAttr scalar;
  if (matchPattern(value, m_Constant(&tile)) && tile.isSplat() &&
      isa<IntegerType, IndexType>(tile.getElementType()))
    return LaneIndex{0, tile.getSplatValue<APInt>().getSExtValue()};
  if (matchPattern(value, m_Constant(&scalar)))
    return LaneIndex{0, scalar.getValue().getSExtValue()};
  if (auto broadcast = value.getDefiningOp<BroadcastOp>())
    return indexOf(broadcast.getValue());
  if (value.getDefiningOp<IotaOp>())
    return LaneIndex{1, 0};
  if (auto sum = value.getDefiningOp<arith::AddIOp>()) {
    const auto x = indexOf(sum.getLhs()), y = indexOf(sum.getRhs());
    if (x && y)
      return LaneIndex{x->stride + y->stride, std::gcd(x->divisor, y->divisor)};
    return std::nullopt;
  }
  if (auto product = value.getDefiningOp<arith::MulIOp>()) {
    IntegerAttr factor;
    const auto x = indexOf(product.getLhs());
    if (x && matchPattern(product.getRhs(), m_Constant(&factor)))
      return LaneIndex{x->stride * factor.getInt(), x->divisor * factor.getInt()};
  }
  if (auto argument = dyn_cast<BlockArgument>(value))
    if (auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
        loop && argument == loop.getInductionVar()) {
      const auto first = indexOf(loop.getLowerBound()), step = indexOf(loop.getStep());
      return LaneIndex{0, std::gcd(first->divisor, step->divisor)};
    }
  if (isTile(value.getType()))
    return std::nullopt;
  return LaneIndex{};
}

/// Whether the lanes of each group are on or off together.
bool isMaskWhole(Value mask, unsigned width) {
  if (!mask)
    return true;
  auto compare = mask.getDefiningOp<arith::CmpIOp>();
  const bool isBelow = compare && (compare.getPredicate() == arith::CmpIPredicate::ult ||
                                   compare.getPredicate() == arith::CmpIPredicate::slt);
  const auto index = isBelow ? indexOf(compare.getLhs()) : std::nullopt;
  const auto end = isBelow ? indexOf(compare.getRhs()) : std::nullopt;
  return index && end && index->stride == 1 && end->stride == 0 && index->divisor % width == 0 &&
         end->divisor % width == 0;
}

bool isTogether(MemRefType type, OperandRange indices, Value mask, unsigned width) {
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  if (failed(type.getStridesAndOffset(strides, offset)) || indices.empty() || strides.back() != 1 ||
      offset % width || !isMaskWhole(mask, width))
    return false;
  for (auto [i, index] : llvm::enumerate(indices)) {
    const std::optional<LaneIndex> known = indexOf(index);
    const bool isLast = i + 1 == indices.size();
    if (!known || known->stride != (isLast ? 1 : 0) || known->divisor * strides[i] % width)
      return false;
  }
  return true;
}

unsigned bytesOf(MemRefType type) { return std::max(8u, type.getElementTypeBitWidth()) / 8; }

} // namespace

bool isMultiple(Value scalar, int64_t divisor) {
  const std::optional<LaneIndex> known = indexOf(scalar);
  return known && known->divisor % divisor == 0;
}

bool isTogether(LoadOp op, unsigned width) {
  return isTile(op.getResult().getType()) && isTogether(cast<MemRefType>(op.getSource().getType()),
                                                        op.getIndices(), op.getMask(), width);
}

bool isTogether(StoreOp op, unsigned width) {
  return isTogether(cast<MemRefType>(op.getTarget().getType()), op.getIndices(), op.getMask(),
                    width);
}

unsigned chooseWidth(KernelOp kernel) {
  const auto isWhole = [&](unsigned width) {
    bool isAny = false;
    const WalkResult result = kernel.walk([&](Operation *op) {
      MemRefType type;
      bool together = false;
      if (auto load = dyn_cast<LoadOp>(op)) {
        if (llvm::none_of(load.getIndices(), [](Value i) { return isTile(i.getType()); }))
          return WalkResult::advance(); // one element for all
        type = cast<MemRefType>(load.getSource().getType());
        together = isTogether(load, width);
      } else if (auto store = dyn_cast<StoreOp>(op)) {
        if (llvm::none_of(store.getIndices(), [](Value i) { return isTile(i.getType()); }))
          return WalkResult::advance(); // one element, of the lane that writes it
        type = cast<MemRefType>(store.getTarget().getType());
        together = isTogether(store, width);
      } else {
        return WalkResult::advance();
      }
      isAny = true;
      return together && bytesOf(type) * width <= kMostBytes ? WalkResult::advance()
                                                             : WalkResult::interrupt();
    });
    return isAny && !result.wasInterrupted();
  };
  const unsigned lanes = kernel.getLanes();
  const auto divides = [&](unsigned width) { return lanes % (kWarp * width) == 0; };
  // The widest whole accesses come before a number of threads.
  for (unsigned width = kMostBytes; width > 1; width /= 2)
    if (divides(width) && lanes / width <= kMostThreads && isWhole(width))
      return width;
  unsigned chosen = 1;
  while (lanes / chosen > kUsualThreads && divides(2 * chosen))
    chosen *= 2;
  return chosen;
}

} // namespace millrace::tile
