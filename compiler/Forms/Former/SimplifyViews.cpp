// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"

#include <numeric>
#include <set>

namespace millrace::forms {

using namespace mlir;

namespace {

bool isMove(Operation *op) {
  return isa_and_nonnull<linalg::TransposeOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op);
}

/// What a chain of reshapes and transpositions does, in factors of the extents: each dimension is
/// some of them, the outermost first.
class Chain {
public:
  explicit Chain(Value end) : end(end) {
    for (source = end; isMove(source.getDefiningOp()); source = moves.back()->getOperand(0))
      moves.push_back(source.getDefiningOp());
    std::reverse(moves.begin(), moves.end());
  }

  /// Whether the chain is known; then, whether dimensions that it joins are cut apart again.
  bool find();
  bool isEntangled() const { return cutsJoints; }
  Value simplified(OpBuilder &builder, Location loc) const;

private:
  using Dims = std::vector<std::vector<unsigned>>;
  bool cut(std::vector<unsigned> dim, ArrayRef<int64_t> extents, Dims &parts);
  void split(unsigned factor, int64_t outer);

  Value end, source;
  std::vector<Operation *> moves;                 ///< the first of them first
  std::vector<int64_t> extents;                   ///< of factors
  Dims given, dims;                               ///< of the source, and behind the moves so far
  std::set<std::pair<unsigned, unsigned>> joints; ///< neighbours of dimensions that were joined
  bool cutsJoints = false;
};

/// Cuts a factor in two, wherever it is.
void Chain::split(unsigned factor, int64_t outer) {
  const auto inner = unsigned(extents.size());
  extents.push_back(extents[factor] / outer);
  extents[factor] = outer;
  std::set<std::pair<unsigned, unsigned>> moved;
  for (auto [left, right] : joints)
    moved.insert({left == factor ? inner : left, right});
  joints = std::move(moved);
  for (Dims *all : {&given, &dims})
    for (std::vector<unsigned> &dim : *all)
      if (auto at = llvm::find(dim, factor); at != dim.end())
        dim.insert(at + 1, inner);
}

/// Deals the factors of a dimension to parts of these extents.
bool Chain::cut(std::vector<unsigned> dim, ArrayRef<int64_t> shape, Dims &parts) {
  for (int64_t extent : shape) {
    parts.emplace_back();
    while (extent > 1) {
      const unsigned factor = dim.front();
      if (extents[factor] > extent) {
        if (extents[factor] % extent != 0)
          return false;
        split(factor, extent);
        dim.insert(dim.begin() + 1, unsigned(extents.size() - 1));
      }
      if (extent % extents[factor] != 0)
        return false;
      extent /= extents[factor];
      parts.back().push_back(factor);
      dim.erase(dim.begin());
    }
  }
  return true;
}

bool Chain::find() {
  for (int64_t extent : cast<RankedTensorType>(source.getType()).getShape()) {
    given.emplace_back();
    if (extent > 1) {
      given.back().push_back(unsigned(extents.size()));
      extents.push_back(extent);
    }
  }
  dims = given;
  for (Operation *move : moves) {
    Dims next;
    if (auto transpose = dyn_cast<linalg::TransposeOp>(move)) {
      for (int64_t dim : transpose.getPermutation())
        next.push_back(dims[size_t(dim)]);
    } else if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(move)) {
      for (const ReassociationIndices &group : collapse.getReassociationIndices()) {
        next.emplace_back();
        for (int64_t dim : group) {
          const std::vector<unsigned> &its = dims[size_t(dim)];
          if (!its.empty() && !next.back().empty())
            joints.insert({next.back().back(), its.front()});
          llvm::append_range(next.back(), its);
        }
      }
    } else {
      auto expand = cast<tensor::ExpandShapeOp>(move);
      const ArrayRef<int64_t> shape = expand.getResultType().getShape();
      const SmallVector<ReassociationIndices> groups = expand.getReassociationIndices();
      if (groups.empty()) // of a scalar
        next.resize(shape.size());
      for (size_t dim = 0; dim < groups.size(); ++dim) {
        const size_t first = next.size();
        if (!cut(dims[dim], shape.slice(size_t(groups[dim].front()), groups[dim].size()), next))
          return false;
        std::optional<unsigned> last; // of the part before
        for (const std::vector<unsigned> &part : llvm::drop_begin(next, first)) {
          cutsJoints |= last && !part.empty() && joints.contains({*last, part.front()});
          last = part.empty() ? last : std::optional(part.back());
        }
      }
    }
    dims = std::move(next);
  }
  return true;
}

/// Cut into factors, moved, joined.
Value Chain::simplified(OpBuilder &builder, Location loc) const {
  const Type element = getElementTypeOrSelf(source);
  std::vector<unsigned> before, after;
  for (const std::vector<unsigned> &dim : given)
    llvm::append_range(before, dim);
  for (const std::vector<unsigned> &dim : dims)
    llvm::append_range(after, dim);
  // Factors that stay beside each other are one.
  std::vector<std::vector<unsigned>> runs; // of what is moved
  for (unsigned factor : after) {
    const auto place = [&](unsigned of) { return llvm::find(before, of) - before.begin(); };
    const auto ends = [&](const Dims &all, unsigned of) {
      return llvm::any_of(all, [of](const auto &dim) { return !dim.empty() && dim.back() == of; });
    };
    if (!runs.empty() && place(factor) == place(runs.back().back()) + 1 &&
        !ends(given, runs.back().back()) && !ends(dims, runs.back().back()))
      runs.back().push_back(factor);
    else
      runs.push_back({factor});
  }
  const auto extentOf = [&](const std::vector<unsigned> &run) {
    int64_t extent = 1;
    for (unsigned factor : run)
      extent *= extents[factor];
    return extent;
  };
  std::vector<unsigned> order(runs.size()); // runs as they lie in the source
  std::iota(order.begin(), order.end(), 0u);
  llvm::sort(order, [&](unsigned x, unsigned y) {
    return llvm::find(before, runs[x].front()) < llvm::find(before, runs[y].front());
  });
  SmallVector<int64_t> cutShape, movedShape, permutation;
  for (unsigned run : order)
    cutShape.push_back(extentOf(runs[run]));
  for (unsigned run = 0; run < runs.size(); ++run) {
    movedShape.push_back(extentOf(runs[run]));
    permutation.push_back(llvm::find(order, run) - order.begin());
  }
  Value value = reshaped(builder, loc, source, cutShape);
  if (!llvm::is_sorted(permutation)) {
    Value empty = tensor::EmptyOp::create(builder, loc, movedShape, element);
    value = linalg::TransposeOp::create(builder, loc, value, empty, permutation)->getResult(0);
  }
  return reshaped(builder, loc, value, cast<RankedTensorType>(end.getType()).getShape());
}

} // namespace

void simplifyViews(func::FuncOp function) {
  SmallVector<Operation *> ends;
  function.walk([&](Operation *op) {
    if (isMove(op) && !llvm::all_of(op->getUsers(), isMove))
      ends.push_back(op);
  });
  for (Operation *op : ends) {
    Chain chain(op->getResult(0));
    if (!chain.find() || !chain.isEntangled())
      continue;
    OpBuilder builder(op);
    const Value simplified = chain.simplified(builder, op->getLoc());
    if (Operation *made = simplified.getDefiningOp(); made && isMove(made) && made != op)
      handOnValue(op, made);
    op->getResult(0).replaceAllUsesWith(simplified);
    for (Operation *dead = op; dead && isMove(dead) && dead->use_empty();) {
      Operation *source = dead->getOperand(0).getDefiningOp();
      dead->erase();
      dead = source;
    }
  }
}

} // namespace millrace::forms
