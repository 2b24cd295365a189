// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/ExpandWeights.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace millrace::forms {

namespace {

/// Lanes [from, to) of what is swept; none where from >= to.
struct Span {
  int64_t from = 0, to = 0;

  bool empty() const { return from >= to; }
  void add(const Span &other) {
    if (!other.empty())
      *this = empty() ? other : Span{std::min(from, other.from), std::max(to, other.to)};
  }
};

/// A contraction whose columns multiply lanes of their own.
struct Groups {
  unsigned lane = 0;          ///< loop along the columns
  std::vector<unsigned> taps; ///< per term: its contracted loop
  std::vector<Span> spans;    ///< per column, over all terms
  int64_t period = 0;         ///< columns of a group
};

class Expander {
public:
  Expander(KernelGraph &graph, const Machine &machine)
      : graph(graph), vector(std::min<int64_t>(machine.lanes(), machine.mxm.columns)) {}
  int64_t run();

private:
  KernelGraph &graph;
  const int64_t vector;
  std::map<std::pair<int64_t, std::vector<uint8_t>>, unsigned> masks; ///< by width and lanes
  /// By the weights, their first column, first lane and width.
  std::map<std::tuple<unsigned, int64_t, int64_t, int64_t>, unsigned> packedOf;

  unsigned maskOf(int64_t groups, int64_t width, std::vector<uint8_t> own);
  std::optional<Groups> groupsOf(const Kernel &kernel) const;
  bool readsColumns(const Kernel &kernel, const Term &term, Groups &groups) const;
  Span spanOf(const Term &term, int64_t column) const;
  int64_t vectors(const Span &span) const {
    return (span.to - 1) / vector - span.from / vector + 1;
  }
  std::vector<Kernel> expand(const Kernel &kernel, const Groups &groups, int64_t &saved);
  Kernel expansion(const Kernel &kernel, const Groups &groups, size_t number, int64_t from,
                   const Span &lanes, unsigned weights);
};

/// Where the column's weights are not zero, in lanes of the tensor that is swept.
Span Expander::spanOf(const Term &term, int64_t column) const {
  const Tensor &w = graph.tensors[term.w.tensor];
  const int64_t first = term.a.index[graph.tensors[term.a.tensor].laneDim].offset,
                count = w.shape[1];
  const unsigned bytes = byteWidth(w.type);
  Span span;
  for (int64_t k = 0; k < count; ++k) {
    const uint8_t *at = &w.data[size_t(column * count + k) * bytes];
    if (std::any_of(at, at + bytes, [](uint8_t b) { return b != 0; }))
      span.add({first + k, first + k + 1});
  }
  return span;
}

/// Is the term a matrix of constants whose columns are the kernel's lanes?
bool Expander::readsColumns(const Kernel &kernel, const Term &term, Groups &groups) const {
  const Tensor &w = graph.tensors[term.w.tensor], &a = graph.tensors[term.a.tensor];
  if (w.role != TensorRole::Constant || w.splat || w.shape.size() != 2 || w.laneDim != 1 ||
      term.a.tensor != kernel.terms[0].a.tensor || term.a.pad != kernel.terms[0].a.pad)
    return false;
  const std::optional<unsigned> lane = wholeLoop(kernel, term.w.index[0], w.shape[0],
                                                 LoopKind::Parallel),
                                tap = wholeLoop(kernel, term.w.index[1], w.shape[1],
                                                LoopKind::Contracted);
  if (!lane || !tap || *lane != groups.lane ||
      wholeLoop(kernel, {0, term.a.index[a.laneDim].terms}, w.shape[1], LoopKind::Contracted) !=
          tap)
    return false;
  for (unsigned d = 0; d < term.a.index.size(); ++d)
    for (auto [l, c] : term.a.index[d].terms)
      if (l == *lane || (d != a.laneDim && kernel.loops[l].kind == LoopKind::Contracted))
        return false;
  groups.taps.push_back(*tap);
  return true;
}

/// The fewest columns a group such that groups multiply lanes behind each other's.
int64_t periodOf(const std::vector<Span> &spans) {
  const auto columns = int64_t(spans.size());
  for (int64_t period = 1; period * 2 <= columns; ++period) {
    if (columns % period)
      continue;
    int64_t end = INT64_MIN;
    bool apart = true;
    for (int64_t n = 0; apart && n < columns; n += period) {
      Span group;
      for (int64_t j = 0; j < period; ++j)
        group.add(spans[size_t(n + j)]);
      apart = group.empty() || group.from >= end;
      end = group.empty() ? end : group.to;
    }
    if (apart)
      return period;
  }
  return columns;
}

std::optional<Groups> Expander::groupsOf(const Kernel &kernel) const {
  if (kernel.terms.empty())
    return std::nullopt;
  Groups groups;
  const Access &result = kernel.results[0].access;
  const std::optional<unsigned> lane =
      unitLoop(kernel, result.index[graph.tensors[result.tensor].laneDim], LoopKind::Parallel);
  if (!lane || kernel.loops[*lane].extent < 2)
    return std::nullopt;
  groups.lane = *lane;
  for (const Term &term : kernel.terms)
    if (!readsColumns(kernel, term, groups))
      return std::nullopt;
  for (int64_t n = 0; n < kernel.loops[*lane].extent; ++n) {
    groups.spans.emplace_back();
    for (const Term &term : kernel.terms)
      groups.spans.back().add(spanOf(term, n));
  }
  groups.period = periodOf(groups.spans);
  return groups.period * 2 <= std::min(vector, kernel.loops[*lane].extent) ? std::optional(groups)
                                                                           : std::nullopt;
}

/// Which lanes are each group's own: a constant for all kernels of such groups.
unsigned Expander::maskOf(int64_t groups, int64_t width, std::vector<uint8_t> own) {
  const auto [found, isNew] = masks.try_emplace({width, own}, unsigned(graph.tensors.size()));
  if (isNew) {
    addTensor(graph, "groups." + std::to_string(masks.size()), {groups, width}, ElementType::UInt8,
              1, TensorRole::Constant);
    graph.tensors.back().data = std::move(own);
  }
  return found->second;
}

/// The map that makes a term's weights of columns [from, from + count).
Kernel Expander::expansion(const Kernel &kernel, const Groups &groups, size_t number, int64_t from,
                           const Span &lanes, unsigned weights) {
  const Tensor made = graph.tensors[weights];
  const Term &term = kernel.terms[number];
  const unsigned bytes = byteWidth(made.type);
  const int64_t count = made.shape[0], width = made.shape[1], blocks = count / groups.period;
  // Parts of a chain have their weights in common.
  const auto [found, isNew] = packedOf.try_emplace({term.w.tensor, from, lanes.from, width},
                                                   unsigned(graph.tensors.size()));
  const unsigned packed = found->second;
  if (isNew)
    addTensor(graph, made.name + ".packed", {groups.period, width}, made.type, 1,
              TensorRole::Constant);
  std::vector<uint8_t> data(size_t(groups.period * width) * bytes, 0),
      own(size_t(blocks * width), 0);
  const Tensor &w = graph.tensors[term.w.tensor];
  const int64_t first = term.a.index[graph.tensors[term.a.tensor].laneDim].offset, its = w.shape[1];
  for (int64_t n = 0; n < count; ++n) {
    const Span &span = groups.spans[size_t(from + n)];
    for (int64_t k = span.from; k < span.to; ++k)
      own[size_t(n / groups.period * width + k - lanes.from)] = 1;
    for (int64_t k = std::max(span.from, first); k < std::min(span.to, first + its); ++k)
      std::copy_n(&w.data[size_t((from + n) * its + k - first) * bytes], bytes,
                  &data[size_t(n % groups.period * width + k - lanes.from) * bytes]);
  }
  graph.tensors[packed].data = std::move(data);
  const unsigned mask = maskOf(blocks, width, std::move(own));
  KernelBuilder build(graph);
  const unsigned q = build.loop(blocks), j = build.loop(groups.period), k = build.loop(width);
  const unsigned value =
      build.op(AluOp::SelectI32, {build.operand({mask, {at(q), at(k)}, 0}),
                                  build.operand({packed, {at(j), at(k)}, 0}), build.immediate(0)});
  build.storeBits(value, {weights, {{0, {{q, groups.period}, {j, 1}}}, at(k)}, 0});
  Kernel map = std::move(build.kernel());
  map.name = made.name;
  map.provenance = kernel.provenance;
  return map;
}

/// For each run of whole groups: the maps, and the kernel for these columns.
std::vector<Kernel> Expander::expand(const Kernel &kernel, const Groups &groups, int64_t &saved) {
  const int64_t extent = kernel.loops[groups.lane].extent,
                each = vector / groups.period * groups.period;
  std::vector<Kernel> list;
  for (int64_t from = 0, count; from < extent; from += count) {
    count = std::min(each, extent - from);
    Span lanes;
    for (int64_t n = from; n < from + count; ++n)
      lanes.add(groups.spans[size_t(n)]);
    if (lanes.empty()) // all zeros
      lanes = {groups.spans[0].from, groups.spans[0].from + 1};
    const std::string suffix = ".columns" + std::to_string(from);
    std::vector<unsigned> weights; // per term
    for (size_t t = 0; t < kernel.terms.size(); ++t) {
      const Tensor whole = graph.tensors[kernel.terms[t].w.tensor];
      weights.push_back(
          addTensor(graph, whole.name + suffix, {count, lanes.to - lanes.from}, whole.type, 1));
      list.push_back(expansion(kernel, groups, t, from, lanes, weights.back()));
      saved += (count - groups.period) * vectors(lanes) * vector * byteWidth(whole.type);
    }
    Kernel part = kernel;
    part.name += suffix;
    part.loops[groups.lane].extent = count;
    forEachAccess(part, [&](Access &access) {
      for (AffineIndex &index : access.index)
        for (auto [l, c] : index.terms)
          if (l == groups.lane)
            index.offset += c * from;
    });
    for (size_t t = 0; t < part.terms.size(); ++t) {
      Term &term = part.terms[t];
      part.loops[groups.taps[t]].extent = lanes.to - lanes.from;
      term.a.index[graph.tensors[term.a.tensor].laneDim].offset = lanes.from;
      term.w = {weights[t], {at(groups.lane), at(groups.taps[t])}, 0};
      term.macs = term.macs * (from + count) / extent - term.macs * from / extent;
    }
    list.push_back(std::move(part));
  }
  return list;
}

int64_t Expander::run() {
  int64_t saved = 0;
  std::vector<Kernel> kernels;
  std::vector<std::pair<bool, unsigned>> order;
  const std::vector<Kernel> before = graph.kernels;
  for (auto [host, index] : graph.order) {
    if (host) {
      order.push_back({true, index});
      continue;
    }
    std::vector<Kernel> list{before[index]};
    if (const std::optional<Groups> groups = groupsOf(before[index]))
      list = expand(before[index], *groups, saved);
    for (Kernel &kernel : list) {
      order.push_back({false, unsigned(kernels.size())});
      kernels.push_back(std::move(kernel));
    }
  }
  graph.kernels = std::move(kernels);
  graph.order = std::move(order);
  return saved;
}

} // namespace

int64_t expandWeights(KernelGraph &graph, const Machine &machine) {
  return Expander(graph, machine).run();
}

} // namespace millrace::forms
