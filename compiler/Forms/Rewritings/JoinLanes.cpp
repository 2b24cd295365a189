// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/JoinLanes.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/HeadPlan.h"
#include "compiler/Forms/Simplify.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

/// Two loops along the lanes: the outer one steps over all that the inner one reaches.
struct Pair {
  unsigned outer = 0, inner = 0;
};

std::optional<Pair> lanePair(const KernelGraph &graph, const Kernel &kernel) {
  const Access &result = kernel.results.front().access;
  const AffineIndex &lanes = result.index[graph.tensors[result.tensor].laneDim];
  for (auto [inner, step] : lanes.terms)
    for (auto [outer, outerStep] : lanes.terms)
      if (step == 1 && outer != inner && kernel.loops[outer].extent > 1 &&
          kernel.loops[inner].extent > 1 && outerStep == kernel.loops[inner].extent)
        return Pair{outer, inner};
  return std::nullopt;
}

bool usesEither(const AffineIndex &index, const Pair &pair) {
  return coefficient(index, pair.outer) || coefficient(index, pair.inner);
}

bool usesEither(const Access &access, const Pair &pair) {
  return std::any_of(access.index.begin(), access.index.end(),
                     [&](const AffineIndex &index) { return usesEither(index, pair); });
}

bool stays(const Kernel &kernel, const AffineIndex &index, int64_t extent) {
  const auto [low, high] = rangeOf(kernel, index);
  return low >= 0 && high < extent;
}

/// The dimension before the lanes, but for those of one index.
std::optional<unsigned> rowDim(const Tensor &tensor) {
  for (unsigned d = tensor.laneDim; d-- > 0;)
    if (tensor.shape[d] > 1)
      return d;
  return std::nullopt;
}

/// One attempt changes several kernels and tensors, or nothing.
class LaneJoiner {
public:
  LaneJoiner(KernelGraph &graph, const Machine &machine) : graph(graph), machine(machine) {}

  unsigned run() {
    unsigned changed = 0;
    for (unsigned k = unsigned(graph.kernels.size()); k-- > 0;)
      if (const std::optional<Pair> pair = lanePair(graph, graph.kernels[k]);
          pair && graph.kernels[k].loops[pair->inner].extent * 2 <= machine.lanes())
        changed += attempt(k, *pair);
    return changed;
  }

private:
  KernelGraph &graph;
  const Machine &machine;
  std::vector<std::pair<unsigned, Kernel>> kernelsBefore;
  std::vector<std::pair<unsigned, Tensor>> tensorsBefore;
  Repeats repeats;

  unsigned attempt(unsigned k, const Pair &pair);
  bool joinAll(unsigned k, const Pair &pair);
  bool join(unsigned k, Pair pair);
  bool flatten(unsigned tensor);
  bool copyInstalled(unsigned k, const Pair &pair);
  void repeat(unsigned k, const Pair &pair);
  std::optional<unsigned> copyOf(const Kernel &kernel, Access &w, const Pair &pair);
  void keep(unsigned k) {
    if (std::none_of(kernelsBefore.begin(), kernelsBefore.end(),
                     [&](const auto &its) { return its.first == k; }))
      kernelsBefore.push_back({k, graph.kernels[k]});
  }
};

unsigned LaneJoiner::attempt(unsigned k, const Pair &pair) {
  const size_t tensors = graph.tensors.size(), kernels = graph.kernels.size();
  const auto order = graph.order;
  kernelsBefore.clear();
  tensorsBefore.clear();
  repeats.clear();
  if (joinAll(k, pair))
    return unsigned(kernelsBefore.size());
  for (auto &[number, kernel] : kernelsBefore)
    graph.kernels[number] = std::move(kernel);
  for (auto &[number, tensor] : tensorsBefore)
    graph.tensors[number] = std::move(tensor);
  graph.tensors.resize(tensors);
  graph.kernels.resize(kernels);
  graph.order = order;
  return 0;
}

/// The kernel, and all others that touch what it reads in rows of the outer loop.
bool LaneJoiner::joinAll(unsigned k, const Pair &pair) {
  keep(k);
  std::set<unsigned> crossed;
  for (const Access &operand : graph.kernels[k].operands) {
    const Tensor &tensor = graph.tensors[operand.tensor];
    const std::optional<unsigned> row = rowDim(tensor);
    if (tensor.role == TensorRole::Intermediate && row && !operand.lookup &&
        onlyLoop(graph.kernels[k], operand.index[tensor.laneDim]) == pair.inner &&
        onlyLoop(graph.kernels[k], operand.index[*row]) == pair.outer)
      crossed.insert(operand.tensor);
  }
  std::set<unsigned> touched{k};
  const Uses uses(graph);
  for (unsigned tensor : crossed) {
    if (uses.onHost[tensor] || !flatten(tensor))
      return false;
    touched.insert(uses.writers[tensor].begin(), uses.writers[tensor].end());
    touched.insert(uses.readers[tensor].begin(), uses.readers[tensor].end());
  }
  for (unsigned number : touched)
    while (const std::optional<Pair> its = lanePair(graph, graph.kernels[number]))
      if (!join(number, *its))
        return false;
  return true;
}

bool LaneJoiner::join(unsigned k, Pair pair) {
  keep(k);
  repeat(k, pair);
  return joinLoops(graph.kernels[k], pair.outer, pair.inner) ||
         (copyInstalled(k, pair) && joinLoops(graph.kernels[k], pair.outer, pair.inner));
}

/// The tensor's lanes become those of all its rows of the dimension before, in every access.
bool LaneJoiner::flatten(unsigned number) {
  Tensor &tensor = graph.tensors[number];
  const unsigned lane = tensor.laneDim, row = *rowDim(tensor);
  const int64_t lanes = tensor.shape[lane];
  tensorsBefore.push_back({number, tensor});
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    bool fits = true;
    auto change = [&](Access &access) {
      if (access.tensor != number)
        return;
      keep(k);
      AffineIndex &along = access.index[lane];
      fits = fits && !access.lookup && stays(graph.kernels[k], along, lanes) &&
             stays(graph.kernels[k], access.index[row], tensor.shape[row]);
      along.offset += lanes * access.index[row].offset;
      for (auto [loop, c] : access.index[row].terms) {
        fits = fits && !coefficient(along, loop);
        along.terms.push_back({loop, lanes * c});
      }
      access.index[row] = fixed(0);
    };
    for (const Term &term :
         graph.kernels[k].terms) // lanes that a contraction takes lie in one tile
      fits = fits && term.a.tensor != number && term.w.tensor != number;
    forEachAccess(graph.kernels[k], change);
    if (!fits)
      return false;
  }
  tensor.shape[lane] *= tensor.shape[row];
  tensor.shape[row] = 1;
  tensor.value.clear();
  return true;
}

/// What only the inner loop moves, through all of a dimension, is had once for each step of the
/// outer one: constants, and what can be made so.
void LaneJoiner::repeat(unsigned k, const Pair &pair) {
  const int64_t lanes = graph.kernels[k].loops[pair.inner].extent,
                times = graph.kernels[k].loops[pair.outer].extent;
  const auto repeated = [&](Access access) {
    const Kernel &kernel = graph.kernels[k];
    if (!isUsed(access, pair.inner) ||
        !HeadPlanner(graph).canRepeat(kernel, access, {pair.outer, pair.inner, true}))
      return access;
    access = Repeater(graph, times, repeats).repeat(kernel, std::move(access), pair.inner);
    for (AffineIndex &index : access.index)
      if (const int64_t step = coefficient(index, pair.inner))
        index.terms.push_back({pair.outer, step * lanes});
    return access;
  };
  for (size_t o = 0; o < graph.kernels[k].operands.size(); ++o) {
    Access access = repeated(graph.kernels[k].operands[o]);
    graph.kernels[k].operands[o] = std::move(access);
  }
  for (size_t t = 0; t < graph.kernels[k].terms.size(); ++t)
    if (graph.tensors[graph.kernels[k].terms[t].w.tensor].role == TensorRole::Constant) {
      Access access = repeated(graph.kernels[k].terms[t].w);
      graph.kernels[k].terms[t].w = std::move(access);
    }
}

/// What the kernel installs gets copies in which both loops are one dimension's.
bool LaneJoiner::copyInstalled(unsigned k, const Pair &pair) {
  for (size_t t = 0; t < graph.kernels[k].terms.size(); ++t) {
    Access w = graph.kernels[k].terms[t].w;
    if (usesEither(graph.kernels[k].terms[t].a, pair))
      return false; // rows of the streamed operand: heads
    if (!usesEither(w, pair) || graph.tensors[w.tensor].role == TensorRole::Constant)
      continue;
    const std::optional<unsigned> copy = copyOf(graph.kernels[k], w, pair);
    if (!copy)
      return false;
    const auto place =
        std::find(graph.order.begin(), graph.order.end() - 1, std::pair<bool, unsigned>(false, k));
    std::rotate(place, graph.order.end() - 1, graph.order.end());
    graph.kernels[k].terms[t].w = w;
  }
  return true;
}

/// A kernel that copies the rows that `w` takes, in the order of its loops; `w` then reads the
/// copy.
std::optional<unsigned> LaneJoiner::copyOf(const Kernel &kernel, Access &w, const Pair &pair) {
  const Tensor source = graph.tensors[w.tensor];
  if (usesEither(w.index[source.laneDim], pair))
    return std::nullopt;
  std::vector<unsigned> loops; // of rows; the joined ones last
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    for (unsigned d = 0; d < w.index.size(); ++d)
      if (d != source.laneDim && kernel.loops[l].extent > 1 && coefficient(w.index[d], l) &&
          l != pair.outer && l != pair.inner && !std::count(loops.begin(), loops.end(), l)) {
        if (kernel.loops[l].kind != LoopKind::Parallel)
          return std::nullopt;
        loops.push_back(l);
      }
  loops.push_back(pair.outer);
  loops.push_back(pair.inner);
  KernelBuilder build(graph);
  Access from{w.tensor, w.index, w.pad}, to, read;
  std::vector<int64_t> shape;
  int64_t rows = 1;
  for (AffineIndex &index : from.index)
    index.terms.clear();
  for (unsigned l : loops) {
    const int64_t extent = kernel.loops[l].extent;
    const unsigned own = build.loop(extent);
    rows *= extent;
    for (unsigned d = 0; d < w.index.size(); ++d)
      if (const int64_t c = coefficient(w.index[d], l); c && d != source.laneDim)
        from.index[d].terms.push_back({own, c});
    if (l == pair.inner) {
      shape.back() *= extent;
      to.index.back() = {0, {{own - 1, extent}, {own, 1}}};
      read.index.back() = {0, {{pair.outer, extent}, {pair.inner, 1}}};
    } else {
      shape.push_back(extent);
      to.index.push_back(at(own));
      read.index.push_back(at(l));
    }
  }
  const int64_t lanes = source.shape[source.laneDim];
  if (rows > 2 * elementCount(source) / lanes) // windows that overlap far
    return std::nullopt;
  const unsigned lane = build.loop(lanes);
  from.index[source.laneDim] = at(lane);
  to.index.push_back(at(lane));
  read.index.push_back(w.index[source.laneDim]);
  shape.push_back(lanes);
  read.tensor = to.tensor =
      addTensor(graph, source.name + ".joined", shape, source.type, unsigned(shape.size() - 1));
  read.pad = w.pad;
  graph.tensors[to.tensor].unbounded = source.unbounded;
  build.storeBits(build.operand(from), to);
  w = read;
  return build.finish(source.name + ".joined");
}

} // namespace

unsigned joinLanes(KernelGraph &graph, const Machine &machine) {
  return LaneJoiner(graph, machine).run();
}

} // namespace millrace::forms
