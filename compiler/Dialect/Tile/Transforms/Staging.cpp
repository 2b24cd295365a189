// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/Staging.h"

#include "compiler/Dialect/Hopper/IR/Hopper.h"

#include "mlir/IR/Matchers.h"

#include <algorithm>

namespace millrace::tile {

using namespace mlir;

namespace {

using Limits = hopper::Limits;

constexpr int64_t kPanel = 64; ///< elements of two bytes that the swizzle spans
constexpr unsigned kWarpgroupLanes = 64, kMostConsumers = 3, kMostStages = 16;

bool isNarrow(Type type) { return type.isF16() || type.isBF16(); }

/// The scalar to which a tile of indices adds the lane's number, null if that is 0; nothing if it
/// is no such tile.
std::optional<Value> firstOf(Value tile) {
  if (tile.getDefiningOp<IotaOp>())
    return Value();
  auto sum = tile.getDefiningOp<arith::AddIOp>();
  if (!sum)
    return std::nullopt;
  Value first = sum.getLhs(), lane = sum.getRhs();
  if (!lane.getDefiningOp<IotaOp>())
    std::swap(first, lane);
  auto broadcast = first.getDefiningOp<BroadcastOp>();
  return lane.getDefiningOp<IotaOp>() && broadcast ? std::optional(broadcast.getValue())
                                                   : std::nullopt;
}

/// Whether the mask only leaves out what lies behind the end of the dimension.
bool isEndOf(Value mask, Value index, int64_t size) {
  if (!mask)
    return true;
  auto compare = mask.getDefiningOp<arith::CmpIOp>();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::ult || compare.getLhs() != index)
    return false;
  IntegerAttr scalar;
  DenseElementsAttr splat;
  if (auto broadcast = compare.getRhs().getDefiningOp<BroadcastOp>())
    return matchPattern(broadcast.getValue(), m_Constant(&scalar)) && scalar.getInt() == size;
  return matchPattern(compare.getRhs(), m_Constant(&splat)) && splat.isSplat() &&
         splat.getSplatValue<APInt>().getSExtValue() == size;
}

class Planner {
public:
  explicit Planner(KernelOp kernel) : kernel(kernel) {}

  std::optional<StagingPlan> run() {
    const unsigned lanes = kernel.getLanes();
    plan.consumers = lanes / kWarpgroupLanes;
    if (lanes % kWarpgroupLanes || plan.consumers > kMostConsumers || !findLoops() ||
        !collectProducts() || !areScalars())
      return std::nullopt;
    findCarriedSum();
    plan.isFirstAhead = canBeAhead();
    for (StagedOperand &operand : plan.operands) {
      operand.offset = plan.stageBytes;
      plan.stageBytes += operand.bytes();
    }
    const auto barriers = unsigned(16 * plan.products.size());
    if (plan.ring < Limits::kSharedMemory)
      plan.stages =
          std::min(kMostStages, (Limits::kSharedMemory - plan.ring) / (plan.stageBytes + barriers));
    if (auto most = kernel->getAttrOfType<IntegerAttr>(kStagesAttribute))
      plan.stages = std::min(plan.stages, unsigned(std::max<int64_t>(most.getInt(), 0)));
    if (plan.stages < 2)
      return std::nullopt;
    return std::move(plan);
  }

private:
  /// All products are in one block, which is the body of the innermost of loops, one in another.
  bool findLoops() {
    SmallVector<DotOp> dots;
    kernel.walk([&](DotOp dot) { dots.push_back(dot); });
    if (dots.empty() ||
        !llvm::all_of(dots, [&](DotOp dot) { return dot->getBlock() == dots.front()->getBlock(); }))
      return false;
    for (Operation *op = dots.front()->getParentOp(); op != kernel; op = op->getParentOp()) {
      auto loop = dyn_cast<scf::ForOp>(op);
      if (!loop)
        return false;
      plan.loops.insert(plan.loops.begin(), loop);
    }
    // In the order of the block, as the walk was.
    for (DotOp dot : dots)
      plan.products.push_back({dot, {}});
    return !plan.loops.empty();
  }

  bool collectProducts() {
    for (auto [number, product] : llvm::enumerate(plan.products)) {
      auto table = product.dot.getTable().getDefiningOp<LoadTableOp>();
      const VectorType type = product.dot.getTable().getType();
      if (!table || type.getDimSize(0) > 256)
        return false;
      StagedOperand operand{table, type.getDimSize(0), type.getDimSize(1), false,
                            0,     table.getRows(),    table.getColumns()};
      // A table of several products would have to stay until the last of them.
      if (!table->hasOneUse() || !add(product, operand, table.getSource(), isOfLoop(table)))
        return false;
      if (auto rows = product.dot.getRows().getDefiningOp<LoadRowsOp>())
        addRows(product, rows);
      if (!plan.find(product.dot.getRows().getDefiningOp()) && !keep(product.dot))
        return false;
    }
    return true;
  }

  bool isOfLoop(Operation *op) { return op->getBlock() == plan.loops.back().getBody(); }

  /// Rows that no loop changes get a place; those that change between loops have none.
  bool keep(DotOp dot) {
    Value rows = dot.getRows();
    const auto isIn = [&](scf::ForOp loop) {
      return loop.getRegion().isAncestor(rows.getParentRegion());
    };
    if (isIn(plan.loops.back()) || plan.find(rows))
      return true;
    if (isIn(plan.loops.front()))
      return false;
    const auto type = cast<VectorType>(rows.getType());
    const StagedOperand like{nullptr, type.getDimSize(0), type.getDimSize(1)};
    plan.kept.push_back({rows, type.getDimSize(1), plan.ring});
    plan.ring += like.bytes();
    return true;
  }

  /// Rows that are loaded for one product alone, if they are neighbours; else threads load them.
  void addRows(StagedProduct &product, LoadRowsOp rows) {
    std::optional<unsigned> rowDim;
    for (auto [d, index] : llvm::enumerate(rows.getIndices())) {
      if (!isTile(index.getType()))
        continue;
      if (rowDim || !firstOf(index))
        return;
      rowDim = unsigned(d);
    }
    if (!rowDim || !rows->hasOneUse() ||
        !isEndOf(rows.getMask(), rows.getIndices()[*rowDim],
                 cast<MemRefType>(rows.getSource().getType()).getDimSize(*rowDim)))
      return;
    const VectorType type = rows.getResult().getType();
    StagedOperand operand{rows,    type.getDimSize(0), type.getDimSize(1), false, 0,
                          *rowDim, rows.getAlong()};
    if (operand.rows <= Limits::kBox)
      (void)add(product, operand, rows.getSource(), isOfLoop(rows));
  }

  /// Stages the operand if TMA can load it; whether it can.
  bool add(StagedProduct &product, StagedOperand operand, Value source, bool isOfLoop) {
    const auto type = cast<MemRefType>(source.getType());
    SmallVector<int64_t> strides;
    int64_t offset = 0;
    const bool isWritten = llvm::any_of(
        source.getUsers(), [](Operation *user) { return isa<StoreOp, StoreRowsOp>(user); });
    auto argument = dyn_cast<BlockArgument>(source);
    if (!isOfLoop || isWritten || !argument || argument.getOwner()->getParentOp() != kernel ||
        !isNarrow(type.getElementType()) || failed(type.getStridesAndOffset(strides, offset)) ||
        type.getRank() > int64_t(Limits::kOuter) + 2)
      return false;
    operand.isTransposed = strides[operand.depthDim] != 1;
    if (strides[operand.innerDim()] != 1 || operand.panelRows() > int64_t(Limits::kBox) ||
        operand.depth % 16)
      return false;
    LaunchMap map;
    map.argument = argument.getArgNumber();
    map.offset = 2 * offset;
    map.rows = type.getDimSize(operand.outerRowDim());
    map.columns = type.getDimSize(operand.innerDim());
    map.rowBytes = 2 * strides[operand.outerRowDim()];
    map.boxRows = unsigned(operand.panelRows());
    map.boxColumns = kPanel;
    if (map.rows == 1) // it has no next row
      map.rowBytes = (2 * map.columns + 15) / 16 * 16;
    if (map.offset % 16 || map.rowBytes % 16 || map.rowBytes < 2 * map.columns)
      return false;
    for (int64_t d = 0; d < type.getRank(); ++d) {
      if (d == operand.rowDim || d == operand.depthDim)
        continue;
      const int64_t size = type.getDimSize(d), bytes = size == 1 ? 16 : 2 * strides[size_t(d)];
      if (bytes % 16)
        return false;
      map.outer.emplace_back(size, bytes);
    }
    const auto *known = llvm::find(plan.maps, map);
    operand.map = unsigned(known - plan.maps.begin());
    if (known == plan.maps.end())
      plan.maps.push_back(map);
    product.operands.push_back(unsigned(plan.operands.size()));
    plan.operands.push_back(operand);
    wanted.append(placesOf(operand.load));
    return true;
  }

  void findCarriedSum() {
    scf::ForOp loop = plan.loops.back();
    DotOp dot = plan.products.front().dot;
    auto sum = dyn_cast<BlockArgument>(dot.getAccumulator());
    const bool isInShared = plan.find(dot.getRows().getDefiningOp()) || plan.find(dot.getRows());
    IntegerAttr from, to;
    if (plan.loops.size() > 1 || plan.products.size() > 1 || !isInShared || !sum ||
        sum.getOwner() != loop.getBody() || sum.getArgNumber() == 0 || !sum.hasOneUse() ||
        !dot->hasOneUse() || !matchPattern(loop.getLowerBound(), m_Constant(&from)) ||
        !matchPattern(loop.getUpperBound(), m_Constant(&to)) || from.getInt() >= to.getInt())
      return;
    const unsigned number = sum.getArgNumber() - 1; // behind the loop's index
    if (loop.getBody()->getTerminator()->getOperand(number) == dot.getResult() &&
        loop.getNumRegionIterArgs() == 1)
      plan.carriedSum = number;
  }

  /// Begins with zeros, multiplies rows that are kept, and others follow it.
  bool canBeAhead() const {
    DotOp dot = plan.products.front().dot;
    return plan.loops.size() == 1 && plan.products.size() > 1 && plan.find(dot.getRows()) &&
           matchPattern(dot.getAccumulator(), m_AnyZeroFloat());
  }

  /// Whether the warpgroup that loads can compute the operands' places: of scalars, and of nothing
  /// that a loop carries.
  bool areScalars() {
    for (scf::ForOp loop : plan.loops)
      wanted.append({loop.getLowerBound(), loop.getUpperBound(), loop.getStep()});
    DenseSet<Value> seen;
    while (!wanted.empty()) {
      Value value = wanted.pop_back_val();
      if (!value || !seen.insert(value).second)
        continue;
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
        if (loop && argument != loop.getInductionVar())
          return false;
        continue;
      }
      Operation *op = value.getDefiningOp();
      if (op->getNumRegions() || isTile(value.getType()))
        return false;
      llvm::append_range(wanted, op->getOperands());
    }
    return true;
  }

  KernelOp kernel;
  StagingPlan plan;
  SmallVector<Value> wanted; ///< by the warpgroup that loads
};

} // namespace

const StagedOperand *StagingPlan::find(Operation *load) const {
  const auto *found =
      llvm::find_if(operands, [&](const StagedOperand &own) { return own.load == load; });
  return load && found != operands.end() ? found : nullptr;
}

SmallVector<Value> placesOf(Operation *load) {
  SmallVector<Value> places;
  const OperandRange indices = isa<LoadTableOp>(load) ? cast<LoadTableOp>(load).getIndices()
                                                      : cast<LoadRowsOp>(load).getIndices();
  for (Value index : indices)
    places.push_back(isTile(index.getType()) ? *firstOf(index) : index);
  return places;
}

const KeptRows *StagingPlan::find(Value rows) const {
  const auto *found = llvm::find_if(kept, [&](const KeptRows &own) { return own.rows == rows; });
  return found != kept.end() ? found : nullptr;
}

size_t StagingPlan::numberOf(DotOp dot) const {
  const auto *found =
      llvm::find_if(products, [&](const StagedProduct &own) { return own.dot == dot; });
  return size_t(found - products.begin());
}

std::optional<StagingPlan> planStaging(KernelOp kernel) { return Planner(kernel).run(); }

} // namespace millrace::tile
