// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/SplitTaps.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/Materialize.h"
#include "compiler/Layouts/RowMoves.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace::layouts {

using forms::Uses;

namespace {

/// A map whose operands are elements step * loop + offset of a dimension of one tensor.
struct Taps {
  unsigned tensor = 0, producer = 0, map = 0, dim = 0;
  unsigned producerLoop = 0, mapLoop = 0;
  int64_t step = 1;
  std::set<int64_t> offsets;
};

std::optional<Taps> tapsOf(const KernelGraph &graph, const Uses &uses, unsigned tensor) {
  const Tensor &t = graph.tensors[tensor];
  if (t.role != TensorRole::Intermediate || uses.onHost[tensor] ||
      uses.writers[tensor].size() != 1 || uses.readers[tensor].size() != 1)
    return std::nullopt;
  Taps taps{tensor, uses.writers[tensor][0], uses.readers[tensor][0], 0, 0, 0, 1, {}};
  const Kernel &producer = graph.kernels[taps.producer], &map = graph.kernels[taps.map];
  if (producer.terms.empty() || producer.results.size() != 1 || !map.terms.empty() ||
      !padOf(graph, tensor))
    return std::nullopt;
  std::optional<unsigned> dim;
  const Access *first = nullptr;
  for (const Access &operand : map.operands) {
    if (operand.lookup && (operand.tensor == tensor || operand.lookup->tensor == tensor))
      return std::nullopt;
    if (operand.tensor != tensor)
      continue;
    if (!first)
      first = &operand;
    for (unsigned d = 0; d < t.shape.size(); ++d) {
      if (operand.index[d].terms != first->index[d].terms)
        return std::nullopt;
      if (operand.index[d].offset != first->index[d].offset) {
        if (dim && *dim != d)
          return std::nullopt;
        dim = d;
      }
    }
  }
  if (!dim || *dim == t.laneDim)
    return std::nullopt;
  taps.dim = *dim;
  const std::optional<unsigned> mapLoop = onlyLoop(map, first->index[*dim]),
                                producerLoop =
                                    onlyLoop(producer, producer.results[0].access.index[*dim]);
  if (!mapLoop || !producerLoop || map.loops[*mapLoop].kind != LoopKind::Parallel ||
      wholeLoop(producer, producer.results[0].access.index[*dim], t.shape[*dim],
                LoopKind::Parallel) != producerLoop)
    return std::nullopt;
  taps.mapLoop = *mapLoop;
  taps.producerLoop = *producerLoop;
  taps.step = coefficient(first->index[*dim], *mapLoop);
  for (unsigned d = 0; d < t.shape.size(); ++d) // which moves nothing else of it
    if (d != *dim && coefficient(first->index[d], *mapLoop))
      return std::nullopt;
  for (const Access &operand : map.operands)
    if (operand.tensor == tensor)
      taps.offsets.insert(operand.index[*dim].offset);
  return taps.step > 1 ? std::optional(taps) : std::nullopt;
}

/// Where what a map takes for each neighbour comes from.
enum class Source {
  Computed, ///< each is computed
  Shared,   ///< of those whole steps apart one is, and moved
  Whole,    ///< the tensor is computed as it was, and moved
};

/// Tensors for the neighbours, and the kernels that make them.
class TapBuilder {
public:
  TapBuilder(KernelGraph &graph, const Taps &taps)
      : graph(graph), taps(taps), producer(graph.kernels[taps.producer]),
        count(graph.kernels[taps.map].loops[taps.mapLoop].extent), pad(*padOf(graph, taps.tensor)) {
  }

  void build(Source source);

private:
  KernelGraph &graph;
  const Taps taps;
  const Kernel producer;
  const int64_t count; ///< elements that the map takes for each neighbour
  const uint32_t pad;
  std::vector<Kernel> made;
  std::map<int64_t, unsigned> tensors; ///< by offset

  unsigned addTapTensor(const std::string &suffix, int64_t extent);
  void compute(unsigned tensor, int64_t offset);
  void move(int64_t offset, unsigned from, const Moved &moved);
  void share(const std::vector<int64_t> &offsets);
  void place(bool keepsProducer);
};

unsigned TapBuilder::addTapTensor(const std::string &suffix, int64_t extent) {
  const Tensor whole = graph.tensors[taps.tensor];
  std::vector<int64_t> shape = whole.shape;
  shape[taps.dim] = extent;
  return addTensor(graph, whole.name + suffix, shape, whole.type, whole.laneDim);
}

/// The contraction for every step-th element from `offset` on; others than the tensor's read what
/// its windows read beside it.
void TapBuilder::compute(unsigned tensor, int64_t offset) {
  const unsigned loop = taps.producerLoop;
  Kernel kernel = producer;
  kernel.name = graph.tensors[tensor].name;
  kernel.loops[loop].extent = graph.tensors[tensor].shape[taps.dim];
  forms::forEachAccess(kernel, [&](Access &access) {
    for (AffineIndex &index : access.index)
      for (auto &[l, c] : index.terms)
        if (l == loop) {
          index.offset += c * offset;
          c *= taps.step;
        }
  });
  Access &result = kernel.results[0].access;
  result.tensor = tensor;
  result.index[taps.dim] = forms::at(loop);
  maskOutside(graph, kernel, {taps.dim, taps.step, offset},
              graph.tensors[taps.tensor].shape[taps.dim], pad);
  made.push_back(std::move(kernel));
}

void TapBuilder::move(int64_t offset, unsigned from, const Moved &moved) {
  tensors[offset] = addTapTensor(".tap" + std::to_string(offset), count);
  made.push_back(moveOf(graph, from, tensors[offset], moved, pad));
}

/// Neighbours whole steps apart are elements of one tensor, which is one of them where it has as
/// many.
void TapBuilder::share(const std::vector<int64_t> &offsets) {
  const int64_t first = ((offsets[0] % taps.step) + taps.step) % taps.step,
                all = (graph.tensors[taps.tensor].shape[taps.dim] - first + taps.step - 1) /
                      taps.step;
  const bool isTap = all == count && std::count(offsets.begin(), offsets.end(), first);
  const unsigned shared = addTapTensor(".tap" + std::to_string(first) + (isTap ? "" : ".all"), all);
  compute(shared, first);
  for (int64_t offset : offsets)
    if (isTap && offset == first)
      tensors[offset] = shared;
    else
      move(offset, shared, {taps.dim, 1, (offset - first) / taps.step});
}

/// The new kernels in the place of the old one, or behind it.
void TapBuilder::place(bool keepsProducer) {
  int64_t macs = 0;
  for (const Term &term : producer.terms)
    macs += term.macs;
  std::vector<Kernel *> computed; // what they do is what the producer did
  for (Kernel &kernel : made)
    if (kernel.terms.size() == producer.terms.size() && kernel.provenance == producer.provenance &&
        kernel.terms[0].macs)
      computed.push_back(&kernel);
  for (size_t c = 0; c < computed.size(); ++c)
    for (size_t t = 0; t < computed[c]->terms.size(); ++t)
      computed[c]->terms[t].macs =
          t ? 0 : macs / int64_t(computed.size()) + (c ? 0 : macs % int64_t(computed.size()));
  const auto place =
      std::find(graph.order.begin(), graph.order.end(), std::pair(false, taps.producer));
  std::vector<std::pair<bool, unsigned>> order;
  auto next = made.begin();
  if (!keepsProducer)
    graph.kernels[taps.producer] = std::move(*next++);
  for (; next != made.end(); ++next) {
    order.push_back({false, unsigned(graph.kernels.size())});
    graph.kernels.push_back(std::move(*next));
  }
  graph.order.insert(std::next(place), order.begin(), order.end());
}

void TapBuilder::build(Source source) {
  std::map<int64_t, std::vector<int64_t>> classes;
  for (int64_t offset : taps.offsets)
    classes[((offset % taps.step) + taps.step) % taps.step].push_back(offset);
  for (const auto &[rest, offsets] : classes)
    if (source == Source::Shared && offsets.size() > 1)
      share(offsets);
    else
      for (int64_t offset : offsets)
        if (source == Source::Whole) {
          move(offset, taps.tensor, {taps.dim, taps.step, offset});
        } else {
          tensors[offset] = addTapTensor(".tap" + std::to_string(offset), count);
          compute(tensors[offset], offset);
        }
  for (Access &operand : graph.kernels[taps.map].operands)
    if (operand.tensor == taps.tensor) {
      operand.tensor = tensors.at(operand.index[taps.dim].offset);
      operand.index[taps.dim] = forms::at(taps.mapLoop);
    }
  place(source == Source::Whole);
}

} // namespace

std::vector<std::string> splitTaps(KernelGraph &graph, const Machine &machine,
                                   const std::shared_ptr<CostCache> &cache) {
  std::vector<std::string> lines;
  std::optional<double> before;
  Uses uses(graph);
  for (unsigned t = 0, tensors = unsigned(graph.tensors.size()); t < tensors; ++t) {
    const std::optional<Taps> taps = tapsOf(graph, uses, t);
    if (!taps)
      continue;
    if (!before)
      before = solvedCost(LayoutProblem(graph, machine, cache));
    std::optional<KernelGraph> best;
    for (Source source : {Source::Computed, Source::Shared, Source::Whole}) {
      if (source != Source::Computed && !canMove(graph, machine, t))
        continue;
      KernelGraph split = graph;
      TapBuilder(split, *taps).build(source);
      const double after = solvedCost(LayoutProblem(split, machine, cache));
      if (after >= *before)
        continue;
      before = after;
      best = std::move(split);
    }
    if (!best)
      continue;
    lines.push_back(graph.tensors[t].name + ": one tensor for each of " +
                    std::to_string(taps->offsets.size()) + " neighbours");
    graph = std::move(*best);
    uses = Uses(graph);
  }
  return lines;
}

} // namespace millrace::layouts
