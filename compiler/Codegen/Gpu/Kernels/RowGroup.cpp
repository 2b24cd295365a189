// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/RowGroup.h"

#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

namespace millrace::gpu {

using namespace mlir;

Value rootOf(Value memory) {
  while (Operation *op = memory.getDefiningOp()) {
    if (isa<memref::AllocOp, memref::GetGlobalOp>(op))
      break;
    if (!isa<memref::ExpandShapeOp, memref::CollapseShapeOp, memref::SubViewOp, memref::CastOp,
             memref::ReinterpretCastOp>(op))
      return {};
    memory = op->getOperand(0);
  }
  if (auto argument = dyn_cast<BlockArgument>(memory)) {
    // A caller within the module might pass one memory twice.
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    if (!function || !function.isPublic())
      return {};
  }
  const auto type = dyn_cast<MemRefType>(memory.getType());
  return type && type.hasStaticShape() && type.getLayout().isIdentity() && type.getNumElements()
             ? memory
             : Value();
}

namespace {

/// The sum of what a loop adds to an index, for each loop and alone; nothing if it is no such sum.
bool addTerms(AffineExpr expression, int64_t factor, SmallVectorImpl<int64_t> &byLoop,
              int64_t &alone) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expression)) {
    alone += factor * constant.getValue();
    return true;
  }
  if (auto loop = dyn_cast<AffineDimExpr>(expression)) {
    byLoop[loop.getPosition()] += factor;
    return true;
  }
  auto both = dyn_cast<AffineBinaryOpExpr>(expression);
  if (!both)
    return false;
  if (both.getKind() == AffineExprKind::Add)
    return addTerms(both.getLHS(), factor, byLoop, alone) &&
           addTerms(both.getRHS(), factor, byLoop, alone);
  auto times = dyn_cast<AffineConstantExpr>(both.getRHS());
  return both.getKind() == AffineExprKind::Mul && times &&
         addTerms(both.getLHS(), factor * times.getValue(), byLoop, alone);
}

/// By loop of the operation.
std::optional<RowAccess> accessOf(linalg::LinalgOp op, OpOperand &operand) {
  RowAccess access{rootOf(operand.get()), 0, SmallVector<int64_t>(op.getNumLoops(), 0)};
  const auto type = cast<MemRefType>(operand.get().getType());
  SmallVector<int64_t> strides;
  if (!access.root || !type.hasStaticShape() ||
      failed(type.getStridesAndOffset(strides, access.offset)) ||
      ShapedType::isDynamic(access.offset) || llvm::any_of(strides, ShapedType::isDynamic))
    return std::nullopt;
  for (auto [index, stride] : llvm::zip(op.getMatchingIndexingMap(&operand).getResults(), strides))
    if (!addTerms(index, stride, access.strides, access.offset))
      return std::nullopt;
  return access;
}

std::optional<arith::AtomicRMWKind> kindOf(Operation *op) {
  using Kind = arith::AtomicRMWKind;
  return TypeSwitch<Operation *, std::optional<Kind>>(op)
      .Case<arith::AddFOp>([](auto) { return Kind::addf; })
      .Case<arith::AddIOp>([](auto) { return Kind::addi; })
      .Case<arith::MulFOp>([](auto) { return Kind::mulf; })
      .Case<arith::MulIOp>([](auto) { return Kind::muli; })
      .Case<arith::MaximumFOp>([](auto) { return Kind::maximumf; })
      .Case<arith::MinimumFOp>([](auto) { return Kind::minimumf; })
      .Case<arith::MaxSIOp>([](auto) { return Kind::maxs; })
      .Case<arith::MinSIOp>([](auto) { return Kind::mins; })
      .Case<arith::MaxUIOp>([](auto) { return Kind::maxu; })
      .Case<arith::MinUIOp>([](auto) { return Kind::minu; })
      .Case<arith::AndIOp>([](auto) { return Kind::andi; })
      .Case<arith::OrIOp>([](auto) { return Kind::ori; })
      .Case<arith::XOrIOp>([](auto) { return Kind::xori; })
      .Default([](Operation *) { return std::nullopt; });
}

/// The combination that gives a result of a reduction, if it is one of what was there with
/// something else.
Operation *combinationOf(linalg::LinalgOp op, unsigned result) {
  Value yielded = op.getBlock()->getTerminator()->getOperand(result);
  BlockArgument before = op.getRegionOutputArgs()[result];
  Operation *combine = yielded.getDefiningOp();
  return combine && combine->getBlock() == op.getBlock() && kindOf(combine) && before.hasOneUse() &&
                 *before.user_begin() == combine && yielded.hasOneUse() &&
                 tile::isElementType(yielded.getType())
             ? combine
             : nullptr;
}

bool isOfStaticBuffers(linalg::LinalgOp op) {
  return op.hasPureBufferSemantics() && op.getNumDpsInits() && !op.hasDynamicShape() &&
         llvm::none_of(op.getStaticLoopRanges(), [](int64_t size) { return size < 1; });
}

} // namespace

/// Reads operations into a group, one after another.
class RowReader {
public:
  explicit RowReader(RowGroup &group) : group(group) {}

  bool setLoops(linalg::LinalgOp seed) {
    for (auto [size, kind] : llvm::zip(seed.getStaticLoopRanges(), seed.getIteratorTypesArray()))
      if (size > 1)
        group.loops.push_back({size, kind == utils::IteratorType::reduction});
    return group.columns() > 1;
  }

  bool add(linalg::LinalgOp next) {
    op = next;
    values.clear();
    if (!isOfStaticBuffers(op) || !matchLoops())
      return false;
    for (OpOperand *input : op.getDpsInputOperands()) {
      BlockArgument argument = op.getMatchingBlockArgument(input);
      if (argument.use_empty())
        continue;
      RowNode *value =
          isa<MemRefType>(input->get().getType()) ? load(*input) : constant(input->get());
      if (!value)
        return false;
      values[argument] = value;
    }
    for (OpOperand &output : op.getDpsInitsMutable())
      if (op.payloadUsesValueFromOperand(&output)) {
        RowNode *value = load(output);
        if (!value)
          return false;
        values[op.getMatchingBlockArgument(&output)] = value;
      }
    for (Operation &inner : op.getBlock()->without_terminator())
      if (!apply(&inner))
        return false;
    for (auto [i, output] : llvm::enumerate(op.getDpsInitsMutable()))
      if (!store(output, op.getBlock()->getTerminator()->getOperand(unsigned(i))))
        return false;
    return true;
  }

private:
  /// Which loop of the group each of the operation's is; those of size one are none.
  bool matchLoops() {
    SmallVector<int64_t> sizes;
    SmallVector<bool> reduces;
    for (auto [size, kind] : llvm::zip(op.getStaticLoopRanges(), op.getIteratorTypesArray()))
      if (size > 1) {
        sizes.push_back(size);
        reduces.push_back(kind == utils::IteratorType::reduction);
      } else if (kind == utils::IteratorType::reduction && op.getNumReductionLoops() == 1) {
        return false; // a combination of one element
      }
    const auto fits = [&](bool withColumns) {
      places.clear();
      for (auto [i, loop] : llvm::enumerate(group.loops))
        if (withColumns || !loop.isColumn)
          places.push_back(i);
      return places.size() == sizes.size() &&
             llvm::all_of_zip(places, sizes, [&](size_t at, int64_t size) {
               return group.loops[at].size == size;
             });
    };
    isReduction = llvm::is_contained(reduces, true);
    if (fits(true)) {
      hasColumns = true;
      return llvm::all_of_zip(places, reduces, [&](size_t at, bool isReduced) {
        return isReduced == (isReduction && group.loops[at].isColumn);
      });
    }
    hasColumns = false;
    return !isReduction && fits(false);
  }

  std::optional<RowAccess> accessHere(OpOperand &operand) {
    const std::optional<RowAccess> own = accessOf(op, operand);
    if (!own)
      return std::nullopt;
    RowAccess access{own->root, own->offset, SmallVector<int64_t>(group.loops.size(), 0)};
    size_t next = 0;
    for (auto [size, stride] : llvm::zip(op.getStaticLoopRanges(), own->strides))
      if (size > 1)
        access.strides[places[next++]] = stride;
    return access;
  }

  bool dependsOnColumns(const RowAccess &access) const {
    for (auto [stride, loop] : llvm::zip(access.strides, group.loops))
      if (stride && loop.isColumn)
        return true;
    return false;
  }

  RowNode *make(RowNode node) {
    for (const RowNode *operand : node.operands) {
      node.hasColumns |= operand->hasColumns;
      node.level = std::max(node.level, operand->level);
    }
    if (node.kind == RowNode::Kind::Reduce) {
      node.hasColumns = false;
      ++node.level;
    }
    group.nodes.push_back(std::move(node));
    return &group.nodes.back();
  }

  RowNode *load(OpOperand &operand) {
    const std::optional<RowAccess> access = accessHere(operand);
    if (!access)
      return nullptr;
    if (auto found = group.written.find(access->root); found != group.written.end())
      return found->second.first == *access ? found->second.second : nullptr;
    SmallVector<RowAccess> &known = group.read[access->root];
    if (llvm::is_contained(known, *access))
      for (RowNode &node : group.nodes)
        if (node.kind == RowNode::Kind::Load && node.access == *access)
          return &node;
    known.push_back(*access);
    RowNode node;
    node.kind = RowNode::Kind::Load;
    node.access = *access;
    node.hasColumns = dependsOnColumns(*access);
    node.type = cast<MemRefType>(operand.get().getType()).getElementType();
    return tile::isElementType(node.type) ? make(std::move(node)) : nullptr;
  }

  RowNode *constant(Value value) {
    Operation *definition = value.getDefiningOp();
    if (!definition || !matchPattern(definition, m_Constant()))
      return nullptr;
    RowNode node;
    node.op = definition;
    node.type = value.getType();
    return make(std::move(node));
  }

  RowNode *valueOf(Value value) {
    RowNode *&known = values[value];
    if (!known)
      known = constant(value);
    return known;
  }

  bool apply(Operation *inner) {
    RowNode node;
    node.op = inner;
    if (auto index = dyn_cast<linalg::IndexOp>(inner))
      return applyIndex(index);
    if (!tile::isAllowedInKernel(inner) || inner->getNumRegions() || inner->getNumResults() != 1)
      return false;
    node.type = inner->getResult(0).getType();
    for (Value operand : inner->getOperands()) {
      node.operands.push_back(valueOf(operand));
      if (!node.operands.back())
        return false;
    }
    if (isReduction)
      for (unsigned i = 0; i < op.getNumDpsInits(); ++i)
        if (combinationOf(op, i) == inner) {
          const bool isFirst = inner->getOperand(0) == op.getRegionOutputArgs()[i];
          if (isFirst)
            std::swap(node.operands[0], node.operands[1]);
          node.kind = RowNode::Kind::Reduce;
          node.combine = *kindOf(inner);
        }
    values[inner->getResult(0)] = make(std::move(node));
    return true;
  }

  bool applyIndex(linalg::IndexOp index) {
    RowNode node;
    node.type = index.getType();
    size_t next = 0;
    for (auto [i, size] : llvm::enumerate(op.getStaticLoopRanges())) {
      if (i == index.getDim()) {
        if (size == 1)
          return false;
        node.kind = RowNode::Kind::Index;
        node.loop = places[next];
        node.hasColumns = group.loops[node.loop].isColumn;
        values[index.getResult()] = make(std::move(node));
        return true;
      }
      next += size > 1;
    }
    return false;
  }

  bool store(OpOperand &output, Value yielded) {
    RowNode *value = valueOf(yielded);
    const std::optional<RowAccess> access = accessHere(output);
    if (!value || !access || !tile::isElementType(value->type))
      return false;
    if (isReduction && value->kind != RowNode::Kind::Reduce)
      return false;
    // Each element has one writer.
    for (auto [stride, loop] : llvm::zip(access->strides, group.loops))
      if (!stride && (!loop.isColumn || (hasColumns && !isReduction)))
        return false;
    if (!op.getMatchingIndexingMap(&output).isProjectedPermutation(/*allowZeroInResults=*/true))
      return false;
    if (auto found = group.read.find(access->root); found != group.read.end()) {
      // One thread writes a number of a row, and all would read it.
      if (!dependsOnColumns(*access) ||
          llvm::any_of(found->second, [&](const RowAccess &other) { return other != *access; }))
        return false;
    }
    auto [found, isNew] = group.written.insert({access->root, {*access, value}});
    if (!isNew) {
      if (found->second.first != *access)
        return false;
      found->second.second = value;
    }
    return true;
  }

  RowGroup &group;
  linalg::LinalgOp op;
  SmallVector<size_t> places; ///< of the operation's loops in the group's
  bool isReduction = false, hasColumns = false;
  llvm::DenseMap<Value, RowNode *> values; ///< of the operation's body
};

int64_t RowGroup::count(bool isColumn) const {
  int64_t product = 1;
  for (const RowLoop &loop : loops)
    product *= loop.isColumn == isColumn ? loop.size : 1;
  return product;
}

bool RowGroup::isSeed(linalg::LinalgOp op) {
  if (!isOfStaticBuffers(op) || !op.getNumReductionLoops() || linalg::isaContractionOpInterface(op))
    return false;
  for (unsigned i = 0; i < op.getNumDpsInits(); ++i)
    if (!combinationOf(op, i))
      return false;
  bool hasRows = false;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (!isa<MemRefType>(input->get().getType()))
      continue;
    const std::optional<RowAccess> access = accessOf(op, *input);
    if (!access)
      return false;
    // How far a row reaches, and how far apart neighbouring rows begin, in elements.
    SmallVector<std::pair<int64_t, int64_t>> steps; // stride and size, of loops that step
    bool hasColumns = false, skipsRows = false, hasRowStride = false;
    for (auto [stride, size, kind] :
         llvm::zip(access->strides, op.getStaticLoopRanges(), op.getIteratorTypesArray())) {
      if (size == 1)
        continue;
      const bool isColumn = kind == utils::IteratorType::reduction;
      if (stride)
        steps.emplace_back(std::abs(stride), size);
      hasColumns |= isColumn && stride;
      hasRowStride |= !isColumn && stride;
      skipsRows |= !isColumn && !stride;
    }
    if (!hasColumns)
      continue;
    llvm::sort(steps);
    int64_t reach = 0;
    for (auto [stride, size] : steps) {
      if (stride <= reach)
        return false; // windows
      reach += stride * (size - 1);
    }
    hasRows |= !skipsRows;
    // Read by some of the rows: what a matrix product does to both.
    if (skipsRows && hasRowStride && op.getNumDpsInputs() == 1)
      return false;
  }
  return hasRows;
}

void RowGroup::mergeLoops() {
  if (llvm::any_of(nodes, [](const RowNode &node) { return node.kind == RowNode::Kind::Index; }))
    return;
  SmallVector<RowAccess *> all;
  for (RowNode &node : nodes)
    if (node.kind == RowNode::Kind::Load)
      all.push_back(&node.access);
  for (auto &entry : written)
    all.push_back(&entry.second.first);
  for (size_t i = loops.size(); i-- > 1;) {
    size_t before = i; // the next loop outside of it of its kind
    while (before-- > 0 && loops[before].isColumn != loops[i].isColumn)
      ;
    if (before >= i || !llvm::all_of(all, [&](RowAccess *access) {
          return access->strides[before] == access->strides[i] * loops[i].size;
        }))
      continue;
    loops[before].size *= loops[i].size;
    loops.erase(loops.begin() + std::ptrdiff_t(i));
    for (RowAccess *access : all) {
      access->strides[before] = access->strides[i];
      access->strides.erase(access->strides.begin() + std::ptrdiff_t(i));
    }
  }
}

std::optional<RowGroup> RowGroup::create(ArrayRef<linalg::LinalgOp> members) {
  std::optional<RowGroup> group(std::in_place);
  const auto *seed = llvm::find_if(members, [](linalg::LinalgOp op) { return isSeed(op); });
  RowReader reader(*group);
  if (seed == members.end() || !reader.setLoops(*seed) ||
      !llvm::all_of(members, [&](linalg::LinalgOp op) { return reader.add(op); }))
    return std::nullopt;
  group->mergeLoops();
  return group;
}

} // namespace millrace::gpu
