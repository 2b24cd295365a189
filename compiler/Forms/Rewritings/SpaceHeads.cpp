// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SpaceHeads.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/Layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

using layouts::LaneRuns;

/// A kernel that sums over the lanes of one head of both of its operands.
struct HeadProduct {
  unsigned kernel = 0;
  int64_t lanes = 0; ///< of a head, or of several that lie together
};

std::optional<HeadProduct> headProduct(const KernelGraph &graph, unsigned number) {
  const Kernel &kernel = graph.kernels[number];
  if (kernel.terms.size() != 1 || looksUp(kernel))
    return std::nullopt;
  const Term &term = kernel.terms.front();
  for (const Access *access : {&term.a, &term.w}) {
    const Tensor &tensor = graph.tensors[access->tensor];
    if (tensor.role != TensorRole::Intermediate)
      return std::nullopt;
    const AffineIndex &index = access->index[tensor.laneDim];
    const std::optional<unsigned> lane = unitLoop(kernel, index, LoopKind::Contracted);
    if (!lane || kernel.loops[*lane].extent == tensor.shape[tensor.laneDim])
      return std::nullopt;
    const int64_t lanes = kernel.loops[*lane].extent;
    if (index.offset % lanes != 0 ||
        std::any_of(index.terms.begin(), index.terms.end(), [&](const auto &its) {
          return its.first != *lane && kernel.loops[its.first].extent > 1 &&
                 (kernel.loops[its.first].kind != LoopKind::Parallel || its.second % lanes != 0);
        }))
      return std::nullopt;
  }
  const Tensor &a = graph.tensors[term.a.tensor];
  const unsigned lane = *unitLoop(kernel, term.a.index[a.laneDim], LoopKind::Contracted);
  return unitLoop(kernel, term.w.index[graph.tensors[term.w.tensor].laneDim],
                  LoopKind::Contracted) == lane
             ? std::optional(HeadProduct{number, kernel.loops[lane].extent})
             : std::nullopt;
}

/// Tensors and kernels that change together, or none of them.
class Spacer {
public:
  Spacer(KernelGraph &graph, const Uses &uses, int64_t vector, int64_t part,
         const HeadProduct &product)
      : graph(graph), uses(uses), vector(vector), part(part),
        head(product.lanes), runs{part / product.lanes * product.lanes, part} {
    const Term &term = graph.kernels[product.kernel].terms.front();
    take(term.a.tensor);
    take(term.w.tensor);
  }

  /// Whether all that meets the lanes can have them in runs, and products then take less.
  bool pays() {
    for (size_t next = 0; next < list.size() && works; ++next)
      for (const auto *all : {&uses.writers, &uses.readers})
        for (unsigned k : (*all)[list[next]])
          visit(k);
    int64_t saved = 0;
    for (const auto &[k, kernel] : products)
      saved += sweeps(kernel, false) - sweeps(kernel, true);
    return works && saved > 0;
  }

  unsigned apply() {
    for (auto &[k, kernel] : products) {
      space(kernel);
      graph.kernels[k] = std::move(kernel);
    }
    for (const auto &[k, lane] : maps)
      widen(graph.kernels[k], lane);
    for (unsigned t : list) {
      Tensor &tensor = graph.tensors[t];
      tensor.shape[tensor.laneDim] = widthOf(tensor.shape[tensor.laneDim]);
      tensor.value.clear();
    }
    return unsigned(products.size());
  }

private:
  KernelGraph &graph;
  const Uses &uses;
  const int64_t vector, part, head;
  const LaneRuns runs;
  std::vector<unsigned> list; ///< tensors
  std::set<unsigned> seen;
  std::map<unsigned, Kernel> products; ///< with loops over runs and over the heads of one
  std::map<unsigned, unsigned> maps;   ///< kernels that go lane by lane: their loop
  std::map<std::pair<unsigned, unsigned>, unsigned> spaced; ///< constants, by tensor and dimension
  bool works = true;

  int64_t widthOf(int64_t lanes) const { return runs.laneOf(lanes - 1) + 1; }
  bool has(unsigned tensor) const { return std::ranges::find(list, tensor) != list.end(); }

  void take(unsigned t) {
    if (has(t))
      return;
    const Tensor &tensor = graph.tensors[t];
    const int64_t lanes = tensor.shape[tensor.laneDim];
    works = works && tensor.role == TensorRole::Intermediate && !uses.onHost[t] &&
            !uses.writers[t].empty() && lanes % head == 0 &&
            (widthOf(lanes) + vector - 1) / vector == (lanes + vector - 1) / vector;
    list.push_back(t);
    for (const auto *all : {&uses.writers, &uses.readers}) // who was seen did not meet it yet
      for (unsigned k : (*all)[t])
        seen.erase(k);
  }

  void visit(unsigned k) {
    if (!seen.insert(k).second)
      return;
    const std::optional<HeadProduct> product = headProduct(graph, k);
    if (Kernel kernel = product && product->lanes == head ? inRuns(k) : Kernel();
        !kernel.terms.empty() && isProduct(kernel)) {
      take(kernel.terms.front().a.tensor);
      take(kernel.terms.front().w.tensor);
      products[k] = std::move(kernel);
    } else {
      works = works && goesLaneByLane(k);
    }
  }

  /// The kernel with each loop over heads that goes on beyond a run cut in two, where runs end.
  Kernel inRuns(unsigned k) const {
    Kernel kernel = graph.kernels[k];
    const auto loops = unsigned(kernel.loops.size());
    for (unsigned l = 0; l < loops; ++l) {
      const Term &term = kernel.terms.front();
      int64_t each = 0; // heads of a run
      for (const Access *access : {&term.a, &term.w})
        if (const int64_t step =
                coefficient(access->index[graph.tensors[access->tensor].laneDim], l);
            kernel.loops[l].kind == LoopKind::Parallel && step > 0 && runs.length % step == 0)
          each = std::max(each, runs.length / step);
      if (each < 2 || kernel.loops[l].extent <= each || kernel.loops[l].extent % each)
        continue;
      splitLoop(kernel, l, {kernel.loops[l].extent / each, each, each});
    }
    return kernel;
  }

  /// Does nothing else of the kernel have such lanes, and can both windows begin in runs?
  bool isProduct(const Kernel &kernel) const {
    const Term &term = kernel.terms.front();
    const auto others = [&](const Access &access) { return has(access.tensor); };
    return std::none_of(kernel.operands.begin(), kernel.operands.end(), others) &&
           std::none_of(kernel.results.begin(), kernel.results.end(),
                        [&](const Result &result) { return others(result.access); }) &&
           windowOf(kernel, term.a) && windowOf(kernel, term.w);
  }

  /// Where the access's lanes are then: steps by whole runs, and those that stay within one.
  std::optional<AffineIndex> windowOf(const Kernel &kernel, const Access &access) const {
    AffineIndex index = access.index[graph.tensors[access.tensor].laneDim];
    int64_t within = index.offset % runs.length + head; // lanes of a run that it reaches
    index.offset = runs.laneOf(index.offset);
    for (auto &[loop, step] : index.terms) {
      const int64_t steps = kernel.loops[loop].extent - 1;
      if (step % runs.length == 0)
        step = step / runs.length * runs.pitch;
      else if (kernel.loops[loop].kind == LoopKind::Parallel && steps > 0)
        within += step * steps;
    }
    return index.offset >= 0 && within <= runs.length ? std::optional(index) : std::nullopt;
  }

  /// Parts of vectors that the product's rows take, over all of its heads.
  int64_t sweeps(const Kernel &kernel, bool isSpaced) const {
    const Access &a = kernel.terms.front().a;
    const AffineIndex index =
        isSpaced ? *windowOf(kernel, a) : a.index[graph.tensors[a.tensor].laneDim];
    std::vector<unsigned> moving;
    int64_t rows = 1, all = 0;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (kernel.loops[l].kind == LoopKind::Parallel && coefficient(index, l) != 0)
        moving.push_back(l);
      else if (kernel.loops[l].kind == LoopKind::Parallel)
        rows *= kernel.loops[l].extent;
    forEachPoint(kernel, moving, [&](const std::vector<int64_t> &point) {
      int64_t from = index.offset;
      for (unsigned l : moving)
        from += coefficient(index, l) * point[l];
      all += (from + head - 1) / part - from / part + 1;
      return true;
    });
    return rows * all;
  }

  /// A kernel of one loop along all such lanes, of which nothing but constants is taken elsewhere.
  bool goesLaneByLane(unsigned k) {
    const Kernel &kernel = graph.kernels[k];
    std::optional<unsigned> lane;
    bool is = !looksUp(kernel);
    forEachAccess(kernel, [&](const Access &access) {
      const Tensor &tensor = graph.tensors[access.tensor];
      if (!has(access.tensor))
        return;
      const std::optional<unsigned> loop = wholeLoop(
          kernel, access.index[tensor.laneDim], tensor.shape[tensor.laneDim], LoopKind::Parallel);
      is = is && loop && (!lane || lane == loop);
      lane = loop;
    });
    if (!is || !lane)
      return false;
    const auto movesLanesAlone = [&](const Access &access) {
      const Tensor &tensor = graph.tensors[access.tensor];
      for (unsigned d = 0; d < access.index.size(); ++d)
        if (coefficient(access.index[d], *lane) &&
            wholeLoop(kernel, access.index[d], tensor.shape[d], LoopKind::Parallel) != lane)
          return false;
      return true;
    };
    for (const Term &term : kernel.terms)
      if (usesLoop(term.a, *lane) || !movesLanesAlone(term.w) ||
          graph.tensors[term.w.tensor].role != TensorRole::Constant)
        return false;
    const auto meets = [&](const Access &access) {
      const Tensor &tensor = graph.tensors[access.tensor];
      if (!movesLanesAlone(access))
        return false;
      if (tensor.role == TensorRole::Constant)
        return true;
      for (unsigned d = 0; d < access.index.size(); ++d)
        if (coefficient(access.index[d], *lane) && d != tensor.laneDim)
          return false;
      if (usesLoop(access, *lane))
        take(access.tensor);
      return usesLoop(access, *lane);
    };
    for (const Access &operand : kernel.operands)
      if (!meets(operand))
        return false;
    for (const Result &result : kernel.results)
      if (!meets(result.access))
        return false;
    maps[k] = *lane;
    return true;
  }

  void space(Kernel &kernel) const {
    for (Access *access : {&kernel.terms.front().a, &kernel.terms.front().w})
      access->index[graph.tensors[access->tensor].laneDim] = *windowOf(kernel, *access);
  }

  void widen(Kernel &kernel, unsigned lane) {
    forEachAccess(kernel, [&](Access &access) {
      for (unsigned d = 0; d < access.index.size(); ++d)
        if (coefficient(access.index[d], lane) &&
            graph.tensors[access.tensor].role == TensorRole::Constant)
          access.tensor = constant(access.tensor, d);
    });
    kernel.loops[lane].extent = widthOf(kernel.loops[lane].extent);
  }

  /// The constant with its dimension `dim` in runs; a gap repeats what lies before it.
  unsigned constant(unsigned number, unsigned dim) {
    const auto [found, isNew] = spaced.try_emplace({number, dim}, 0);
    if (!isNew)
      return found->second;
    Tensor tensor = graph.tensors[number];
    size_t inner = byteWidth(tensor.type), outer = 1;
    for (unsigned d = 0; d < tensor.shape.size(); ++d)
      (d < dim ? outer : inner) *= d == dim ? 1 : size_t(tensor.shape[d]);
    const auto before = size_t(tensor.shape[dim]);
    tensor.shape[dim] = widthOf(tensor.shape[dim]);
    if (!tensor.splat) {
      std::vector<uint8_t> data;
      data.reserve(outer * size_t(tensor.shape[dim]) * inner);
      for (size_t o = 0; o < outer; ++o) {
        size_t index = 0;
        for (int64_t lane = 0; lane < tensor.shape[dim]; ++lane) {
          if (const std::optional<int64_t> its = runs.indexAt(lane))
            index = size_t(*its);
          const auto from = tensor.data.begin() + ptrdiff_t((o * before + index) * inner);
          data.insert(data.end(), from, from + ptrdiff_t(inner));
        }
      }
      tensor.data = std::move(data);
    }
    graph.tensors.push_back(std::move(tensor));
    return found->second = unsigned(graph.tensors.size() - 1);
  }
};

} // namespace

unsigned spaceHeads(KernelGraph &graph, const Machine &machine) {
  unsigned changed = 0;
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    const std::optional<HeadProduct> product = headProduct(graph, k);
    if (!product)
      continue;
    const Tensor &a = graph.tensors[graph.kernels[k].terms.front().a.tensor];
    const MxmFormatSpec *format = machine.mxm.format(a.type);
    const int64_t part = format ? int64_t(format->lanesPerPass) : 0;
    if (part < product->lanes || part % product->lanes == 0)
      continue;
    const Uses uses(graph);
    if (Spacer spacer(graph, uses, vector, part, *product); spacer.pays())
      changed += spacer.apply();
  }
  return changed;
}

} // namespace millrace::forms
