// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitBatches.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

int64_t rowsOf(const Tensor &tensor, const Machine &machine) {
  const int64_t lanes = tensor.shape[tensor.laneDim], vector = machine.lanes();
  return elementCount(tensor) / lanes * ((lanes + vector - 1) / vector) * byteWidth(tensor.type);
}

bool isMade(const Tensor &tensor) {
  return tensor.role == TensorRole::Intermediate || tensor.role == TensorRole::Output;
}

/// What is alive at each place of the order.
struct Lives {
  std::vector<int64_t> rows; ///< per place
  std::vector<Life> of;      ///< per tensor

  Lives(const KernelGraph &graph, const Machine &machine)
      : rows(graph.order.size(), 0), of(livesOf(graph)) {
    for (unsigned t = 0; t < of.size(); ++t)
      for (size_t at = of[t].first; isMade(graph.tensors[t]) && at < of[t].end; ++at)
        rows[at] += rowsOf(graph.tensors[t], machine);
  }
  size_t peak() const { return size_t(std::max_element(rows.begin(), rows.end()) - rows.begin()); }
  /// What is alive beyond `most`, at all places together: of several peaks one may go at a time.
  /// `weightOf(place)`: of one of several parts of a kernel, its part.
  template <class F> double beyond(int64_t most, F weightOf) const {
    double sum = 0;
    for (size_t at = 0; at < rows.size(); ++at)
      sum += double(std::max<int64_t>(0, rows[at] - most)) * weightOf(at);
    return sum;
  }
};

/// What happens at a place of the order.
struct Touched {
  std::set<unsigned> read, written;

  Touched(const KernelGraph &graph, std::pair<bool, unsigned> place) {
    const auto [isHost, index] = place;
    if (isHost) {
      const HostCall &call = graph.hostCalls[index];
      read.insert(call.inputs.begin(), call.inputs.end());
      written.insert(call.outputs.begin(), call.outputs.end());
      return;
    }
    const Kernel &kernel = graph.kernels[index];
    for (const Result &r : kernel.results)
      written.insert(r.access.tensor);
    for (const Term &term : kernel.terms)
      read.insert({term.a.tensor, term.w.tensor});
    for (const Access &operand : kernel.operands) {
      read.insert(operand.tensor);
      if (operand.lookup)
        read.insert(operand.lookup->tensor);
    }
  }
};

/// Kernels that are done part by part, each over a part of a loop, and tensors of which each part
/// has its own.
struct Chain {
  unsigned parts = 0;
  size_t first = 0, last = 0;         ///< places of the order that it may reach
  std::map<unsigned, unsigned> loops; ///< kernel -> loop
  std::map<unsigned, unsigned> dims;  ///< tensor -> dimension
};

/// Places of the order without and within a chain.
struct Around {
  std::vector<std::pair<bool, unsigned>> before, within, behind;
};

/// What depends on the chain goes behind it; nothing if the chain needs some of that.
std::optional<Around> aroundChain(const KernelGraph &graph, const Chain &chain) {
  Around around;
  std::vector<bool> isBehind(graph.tensors.size(), false); ///< what is made behind the chain
  std::vector<bool> isOut(graph.tensors.size(), false);    ///< results that leave the chain
  for (const auto &place : graph.order) {
    const Touched touched(graph, place);
    const auto readsOf = [&](const std::vector<bool> &some) {
      return std::any_of(touched.read.begin(), touched.read.end(),
                         [&](unsigned t) { return some[t]; });
    };
    if (!place.first && chain.loops.count(place.second)) {
      if (readsOf(isBehind) || readsOf(isOut))
        return std::nullopt;
      for (unsigned t : touched.written) // a split one is read within
        isOut[t] = isOut[t] || !chain.dims.count(t);
      around.within.push_back(place);
      continue;
    }
    const bool depends = readsOf(isBehind) || readsOf(isOut);
    for (unsigned t : touched.written)
      isBehind[t] = isBehind[t] || depends;
    (depends ? around.behind : around.before).push_back(place);
  }
  return around;
}

class Splitter {
public:
  Splitter(const KernelGraph &graph, const Machine &machine)
      : graph(graph), machine(machine), uses(graph), places(graph.kernels.size(), SIZE_MAX) {
    for (size_t at = 0; at < graph.order.size(); ++at)
      if (!graph.order[at].first)
        places[graph.order[at].second] = at;
  }

  /// The chain that grows from a loop of a kernel among those at places [first, last] of the order;
  /// nothing if it cannot be done part by part.
  std::optional<Chain> grow(unsigned kernel, unsigned loop, unsigned parts, size_t first,
                            size_t last) const;

private:
  const KernelGraph &graph;
  const Machine &machine;
  const Uses uses;
  std::vector<size_t> places; ///< per kernel: in the order

  std::optional<unsigned> dimOf(const Kernel &kernel, const Access &access, unsigned loop,
                                unsigned parts) const;
  std::optional<unsigned> dimOf(const Chain &chain, unsigned kernel, unsigned tensor,
                                unsigned loop) const;
  bool add(Chain &chain, unsigned kernel, unsigned tensor, std::vector<unsigned> &open) const;
  bool isWithin(const Chain &chain, unsigned kernel) const {
    return places[kernel] >= chain.first && places[kernel] <= chain.last;
  }
  std::set<unsigned> tensorsOf(unsigned kernel) const {
    std::set<unsigned> tensors;
    forEachAccess(graph.kernels[kernel], [&](const Access &a) { tensors.insert(a.tensor); });
    return tensors;
  }
  bool isConvex(const Chain &chain) const;
};

/// The dimension in which the access steps with the loop from one end of the tensor to the other,
/// what else moves it staying within a step; nothing if there is none.
std::optional<unsigned> Splitter::dimOf(const Kernel &kernel, const Access &access, unsigned loop,
                                        unsigned parts) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  std::optional<unsigned> dim;
  for (unsigned d = 0; d < access.index.size(); ++d) {
    const int64_t step = coefficient(access.index[d], loop);
    if (step == 0)
      continue;
    AffineIndex rest = access.index[d];
    std::erase_if(rest.terms, [&](const auto &term) { return term.first == loop; });
    const auto [low, high] = rangeOf(kernel, rest);
    if (dim || d == tensor.laneDim || access.lookup || low < 0 || high >= step ||
        step * kernel.loops[loop].extent != tensor.shape[d] ||
        kernel.loops[loop].extent % int64_t(parts))
      return std::nullopt;
    dim = d;
  }
  return dim;
}

/// The same for all accesses of the kernel to the tensor.
std::optional<unsigned> Splitter::dimOf(const Chain &chain, unsigned k, unsigned tensor,
                                        unsigned loop) const {
  std::optional<unsigned> dim;
  bool agree = true;
  forEachAccess(graph.kernels[k], [&](const Access &access) {
    if (access.tensor != tensor)
      return;
    const std::optional<unsigned> its = dimOf(graph.kernels[k], access, loop, chain.parts);
    agree = agree && its && (!dim || dim == its);
    dim = its;
  });
  for (const Access &operand : graph.kernels[k].operands)
    agree = agree && !(operand.lookup && operand.lookup->tensor == tensor);
  return agree ? dim : std::nullopt;
}

/// Splits the tensor, and with it all kernels that touch it; nothing is changed if one cannot be.
bool Splitter::add(Chain &chain, unsigned kernel, unsigned tensor,
                   std::vector<unsigned> &open) const {
  const std::optional<unsigned> dim = dimOf(chain, kernel, tensor, chain.loops.at(kernel));
  if (!dim || graph.tensors[tensor].role != TensorRole::Intermediate || uses.onHost[tensor])
    return false;
  std::map<unsigned, unsigned> added;
  std::set<unsigned> touching(uses.writers[tensor].begin(), uses.writers[tensor].end());
  touching.insert(uses.readers[tensor].begin(), uses.readers[tensor].end());
  for (unsigned k : touching) {
    if (const auto known = chain.loops.find(k); known != chain.loops.end()) {
      if (dimOf(chain, k, tensor, known->second) != dim)
        return false;
      continue;
    }
    const Kernel &other = graph.kernels[k];
    for (unsigned l = 0; isWithin(chain, k) && l < other.loops.size() && !added.count(k); ++l)
      if (other.loops[l].kind == LoopKind::Parallel && other.loops[l].extent > 1 &&
          dimOf(chain, k, tensor, l) == dim)
        added[k] = l;
    if (!added.count(k))
      return false;
  }
  chain.dims[tensor] = *dim;
  for (auto [k, l] : added) {
    chain.loops[k] = l;
    open.push_back(k);
  }
  return true;
}

/// Nothing outside depends on the chain and is needed by it.
bool Splitter::isConvex(const Chain &chain) const { return aroundChain(graph, chain).has_value(); }

std::optional<Chain> Splitter::grow(unsigned kernel, unsigned loop, unsigned parts, size_t first,
                                    size_t last) const {
  // What takes less than this part of the memory of a hemisphere is split only between others.
  constexpr int64_t kSmall = 128;
  const int64_t least = int64_t(machine.memory.slices) * machine.rowsPerSlice() / kSmall;
  Chain chain{parts, first, last, {{kernel, loop}}, {}};
  std::vector<unsigned> open{kernel};
  while (!open.empty()) {
    while (!open.empty()) {
      const unsigned k = open.back();
      open.pop_back();
      for (unsigned t : tensorsOf(k))
        if (!chain.dims.count(t) && rowsOf(graph.tensors[t], machine) >= least)
          add(chain, k, t, open);
    }
    // What one of them writes and another reads.
    for (const auto &[k, l] : std::map(chain.loops))
      for (const Result &r : graph.kernels[k].results) {
        const unsigned t = r.access.tensor;
        const auto &readers = uses.readers[t];
        if (!chain.dims.count(t) &&
            std::any_of(readers.begin(), readers.end(),
                        [&](unsigned reader) { return chain.loops.count(reader) != 0; }) &&
            !add(chain, k, t, open))
          return std::nullopt;
      }
  }
  return !chain.dims.empty() && isConvex(chain) ? std::optional(std::move(chain)) : std::nullopt;
}

/// Part `number` of a kernel of the chain, in which `tensors` take the place of the split ones.
Kernel partOf(const Kernel &kernel, unsigned loop, const Chain &chain, unsigned number,
              const std::map<unsigned, unsigned> &tensors) {
  Kernel part = kernel;
  const int64_t extent = kernel.loops[loop].extent / chain.parts;
  part.loops[loop].extent = extent;
  auto shift = [&](std::vector<AffineIndex> &indices) {
    for (AffineIndex &index : indices)
      index.offset += coefficient(index, loop) * extent * int64_t(number);
  };
  forEachAccess(part, [&](Access &access) {
    if (const auto its = tensors.find(access.tensor); its != tensors.end())
      access.tensor = its->second;
    else
      shift(access.index);
    if (access.lookup)
      shift(access.lookup->index);
  });
  for (Term &term : part.terms)
    term.macs = term.macs / chain.parts + (number ? 0 : term.macs % chain.parts);
  return part;
}

void apply(KernelGraph &graph, const Chain &chain) {
  Around around = std::move(*aroundChain(graph, chain)); // grow() made sure
  std::vector<std::map<unsigned, unsigned>> tensors(chain.parts);
  for (auto [t, dim] : chain.dims) {
    graph.tensors[t].shape[dim] /= chain.parts;
    graph.tensors[t].value.clear();
    for (unsigned p = 0; p < chain.parts; ++p) {
      tensors[p][t] = p ? unsigned(graph.tensors.size()) : t;
      if (p)
        graph.tensors.push_back(Tensor(graph.tensors[t]));
    }
  }
  std::vector<Kernel> whole;
  for (const auto &place : around.within)
    whole.push_back(graph.kernels[place.second]);
  graph.order = std::move(around.before);
  for (unsigned p = 0; p < chain.parts; ++p)
    for (size_t i = 0; i < whole.size(); ++i) {
      const unsigned k = around.within[i].second;
      Kernel part = partOf(whole[i], chain.loops.at(k), chain, p, tensors[p]);
      graph.order.push_back({false, p ? unsigned(graph.kernels.size()) : k});
      if (p)
        graph.kernels.push_back(std::move(part));
      else
        graph.kernels[k] = std::move(part);
    }
  graph.order.insert(graph.order.end(), around.behind.begin(), around.behind.end());
}

/// The graph without its constants' data.
KernelGraph withoutData(const KernelGraph &graph) {
  KernelGraph light;
  light.kernels = graph.kernels;
  light.hostCalls = graph.hostCalls;
  light.order = graph.order;
  for (const Tensor &tensor : graph.tensors) {
    Tensor its;
    its.shape = tensor.shape;
    its.type = tensor.type;
    its.laneDim = tensor.laneDim;
    its.role = tensor.role;
    light.tensors.push_back(std::move(its));
  }
  return light;
}

} // namespace

int64_t peakRows(const KernelGraph &graph, const Machine &machine) {
  const Lives lives(graph, machine);
  return lives.rows.empty() ? 0 : lives.rows[lives.peak()];
}

int64_t roomBeside(const KernelGraph &graph, const Machine &machine) {
  int64_t rows =
      int64_t(machine.pes()) * kHemispheres * machine.memory.slices * machine.rowsPerSlice();
  const Uses uses(graph);
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (graph.tensors[t].role == TensorRole::Constant && !uses.readers[t].empty())
      rows -= rowsOf(graph.tensors[t], machine);
  return std::max<int64_t>(0, rows - peakRows(graph, machine));
}

unsigned splitBatches(KernelGraph &graph, const Machine &machine, int64_t most) {
  constexpr unsigned kMostParts = 8, kMostChains = 64, kSeeds = 3;
  constexpr size_t kFarthest = 32; // kernels before and behind the peak
  unsigned chains = 0;
  for (; chains < kMostChains; ++chains) {
    const KernelGraph light = withoutData(graph);
    const Lives lives(light, machine);
    const double before = lives.beyond(most, [](size_t) { return 1.0; });
    if (before == 0)
      break;
    // From kernels that touch the largest of what is alive at the peak.
    const size_t peak = lives.peak();
    std::vector<unsigned> largest;
    for (unsigned t = 0; t < light.tensors.size(); ++t)
      if (isMade(light.tensors[t]) && lives.of[t].first <= peak && lives.of[t].end > peak)
        largest.push_back(t);
    std::stable_sort(largest.begin(), largest.end(), [&](unsigned x, unsigned y) {
      return rowsOf(light.tensors[x], machine) > rowsOf(light.tensors[y], machine);
    });
    largest.resize(std::min<size_t>(largest.size(), kSeeds));
    const Uses uses(light);
    std::set<unsigned> seeds;
    for (unsigned t : largest)
      seeds.insert(uses.writers[t].begin(), uses.writers[t].end());
    const Splitter splitter(light, machine);
    std::optional<Chain> best;
    double least = before * 127 / 128; // less is not worth it: layers have a peak each
    bool isEnough = false;             // what the best chain does stays within `most`
    std::set<std::pair<unsigned, std::map<unsigned, unsigned>>> tried;
    const auto tryAt = [&](unsigned k, unsigned l, unsigned parts, size_t reach) {
      std::optional<Chain> chain =
          splitter.grow(k, l, parts, peak - std::min(peak, reach), peak + reach);
      if (!chain || !tried.insert({parts, chain->loops}).second)
        return;
      KernelGraph after = light;
      apply(after, *chain);
      const Lives its(after, machine);
      const auto isPart = [&](size_t at) {
        const auto [isHost, index] = after.order[at];
        return !isHost && (index >= light.kernels.size() || chain->loops.count(index));
      };
      const double beyond =
          its.beyond(most, [&](size_t at) { return isPart(at) ? 1.0 / parts : 1.0; });
      if (beyond >= least)
        return;
      least = beyond;
      isEnough = its.beyond(most, [&](size_t at) { return isPart(at) ? 1.0 : 0.0; }) == 0;
      best = std::move(chain);
    };
    for (size_t reach = 4; reach <= kFarthest; reach *= 2)
      for (unsigned k : seeds)
        for (unsigned l = 0; l < light.kernels[k].loops.size(); ++l)
          for (unsigned parts = 2; parts <= kMostParts && !isEnough; ++parts)
            if (light.kernels[k].loops[l].kind == LoopKind::Parallel &&
                light.kernels[k].loops[l].extent % parts == 0)
              tryAt(k, l, parts, reach);
    if (!best)
      break;
    apply(graph, *best);
  }
  return chains;
}

} // namespace millrace::forms
