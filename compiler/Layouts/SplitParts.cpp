// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/SplitParts.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/ShareSums.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace millrace::layouts {

using forms::Uses;

namespace {

/// Lanes [from, from + count) of a tensor.
struct Part {
  int64_t from = 0, count = 0;
  unsigned tensor = 0; ///< that holds them now
};

/// The loop that moves the index, in steps of one, if it is one of the kind.
std::optional<unsigned> onlyStep(const Kernel &kernel, const AffineIndex &index, LoopKind kind) {
  const std::optional<unsigned> loop = onlyLoop(kernel, index);
  return loop && kernel.loops[*loop].kind == kind && coefficient(index, *loop) == 1 ? loop
                                                                                    : std::nullopt;
}

/// How a sum steps through lanes: runs of neighbours, one after the other.
struct LaneRuns {
  unsigned loop = 0;           ///< through the lanes of a run
  std::vector<unsigned> outer; ///< from run to run
  int64_t count = 1;           ///< runs
};

/// Of a term whose lanes contracted loops alone move, one of them in steps of one; few runs.
std::optional<LaneRuns> laneRunsOf(const Kernel &kernel, const AffineIndex &lanes) {
  constexpr int64_t kMostRuns = 16;
  std::optional<LaneRuns> runs;
  std::vector<unsigned> outer;
  int64_t count = 1;
  for (auto [loop, step] : lanes.terms) {
    const auto &[extent, kind] = kernel.loops[loop];
    if (extent == 1)
      continue;
    if (kind != LoopKind::Contracted)
      return std::nullopt;
    if (step == 1 && !runs) {
      runs = {loop, {}, 1};
      continue;
    }
    outer.push_back(loop);
    count *= extent;
    if (count > kMostRuns)
      return std::nullopt;
  }
  if (runs) {
    runs->outer = std::move(outer);
    runs->count = count;
  }
  return runs;
}

class Splitter {
public:
  Splitter(KernelGraph &graph, const Machine &machine)
      : graph(graph), machine(machine),
        vector(std::min<int64_t>(machine.lanes(), machine.mxm.columns)) {}
  /// `always`: parts of many lanes, too.
  bool split(unsigned tensor, bool always = false);
  bool cutBeside(unsigned tensor);

private:
  KernelGraph &graph;
  const Machine &machine;
  const int64_t vector;
  std::set<unsigned> pieces; ///< kernels that work on some lanes of what was one kernel's
  std::optional<Uses> known; ///< of the graph as it is

  const Uses &uses() { return known ? *known : known.emplace(graph); }
  /// For whoever changes the graph.
  Uses takeUses() { return *std::exchange(known, std::nullopt); }
  std::vector<Part> partsOf(unsigned tensor, const Uses &uses) const;
  bool canCut(unsigned tensor, const Uses &uses) const;
  bool isWorthCutting(const std::vector<Part> &parts) const;
  std::vector<Part> partsBeside(unsigned tensor, const Uses &uses) const;
  void replace(unsigned kernel, std::vector<Kernel> by);
  void separate(unsigned kernel, int64_t times);
  void cutTerms(Kernel &kernel, unsigned tensor, const std::vector<Part> &parts);
  std::vector<Kernel> cutLanes(const Kernel &kernel, unsigned tensor,
                               const std::vector<Part> &parts);
};

/// What each writer writes, if they write all rows of some lanes each.
std::vector<Part> Splitter::partsOf(unsigned tensor, const Uses &uses) const {
  const Tensor &t = graph.tensors[tensor];
  std::vector<Part> parts;
  for (unsigned k : uses.writers[tensor])
    for (const forms::Result &r : graph.kernels[k].results) {
      if (r.access.tensor != tensor)
        continue;
      const Kernel &kernel = graph.kernels[k];
      for (unsigned d = 0; d < t.shape.size(); ++d)
        if (d != t.laneDim && t.shape[d] > 1) {
          const std::optional<unsigned> loop =
              onlyStep(kernel, r.access.index[d], LoopKind::Parallel);
          if (!loop || kernel.loops[*loop].extent != t.shape[d] || r.access.index[d].offset)
            return {};
        }
      const auto [low, high] = rangeOf(kernel, r.access.index[t.laneDim]);
      parts.push_back({low, high - low + 1, 0});
    }
  std::sort(parts.begin(), parts.end(),
            [](const Part &x, const Part &y) { return x.from < y.from; });
  int64_t end = 0;
  for (const Part &p : parts) {
    if (p.from != end)
      return {};
    end += p.count;
  }
  return end == t.shape[t.laneDim] ? parts : std::vector<Part>();
}

bool Splitter::canCut(unsigned tensor, const Uses &uses) const {
  const unsigned laneDim = graph.tensors[tensor].laneDim;
  for (unsigned k : uses.readers[tensor]) {
    const Kernel &kernel = graph.kernels[k];
    for (const Term &term : kernel.terms) {
      if (term.w.tensor == tensor ||
          (term.a.tensor == tensor && (!laneRunsOf(kernel, term.a.index[laneDim]) ||
                                       graph.tensors[term.w.tensor].role != TensorRole::Constant)))
        return false;
    }
    std::optional<unsigned> lane;
    for (const Access &operand : kernel.operands) {
      if (operand.lookup && (operand.tensor == tensor || operand.lookup->tensor == tensor))
        return false;
      if (operand.tensor != tensor)
        continue;
      const std::optional<unsigned> loop =
          onlyStep(kernel, operand.index[laneDim], LoopKind::Parallel);
      if (!loop || (lane && lane != loop))
        return false;
      lane = loop;
    }
    if (lane)
      for (const forms::Result &r : kernel.results)
        if (onlyStep(kernel, r.access.index[graph.tensors[r.access.tensor].laneDim],
                     LoopKind::Parallel) != lane)
          return false;
  }
  return true;
}

/// Could a part share a row with more of its own, or does it lie across more vectors than it would
/// alone, where all parts alone take no more than the whole?
bool Splitter::isWorthCutting(const std::vector<Part> &parts) const {
  const auto vectors = [&](int64_t lanes) { return (lanes + vector - 1) / vector; };
  int64_t whole = 0, alone = 0;
  bool isNarrow = false, isAcross = false;
  for (const Part &p : parts) {
    isNarrow |= p.count * 2 <= vector;
    isAcross |= vectors(p.from + p.count) - p.from / vector > vectors(p.count);
    whole = std::max(whole, vectors(p.from + p.count));
    alone += vectors(p.count);
  }
  return isNarrow || (isAcross && alone <= whole);
}

/// Sums over lanes of the tensor, one term for each part.
void Splitter::cutTerms(Kernel &kernel, unsigned tensor, const std::vector<Part> &parts) {
  const unsigned laneDim = graph.tensors[tensor].laneDim;
  std::vector<Term> terms;
  for (const Term &term : kernel.terms) {
    if (term.a.tensor != tensor) {
      terms.push_back(term);
      continue;
    }
    const LaneRuns runs = *laneRunsOf(kernel, term.a.index[laneDim]);
    const int64_t extent = kernel.loops[runs.loop].extent;
    int64_t left = term.macs;
    const size_t first = terms.size();
    forEachPoint(kernel, runs.outer, [&](const std::vector<int64_t> &point) {
      Term run = term;
      for (Access *access : {&run.a, &run.w})
        for (AffineIndex &index : access->index)
          std::erase_if(index.terms, [&](const auto &moved) {
            const bool isOuter = std::count(runs.outer.begin(), runs.outer.end(), moved.first) > 0;
            index.offset += isOuter ? moved.second * point[moved.first] : 0;
            return isOuter;
          });
      const int64_t offset = run.a.index[laneDim].offset;
      for (const Part &part : parts) {
        const int64_t from = std::max(part.from, offset),
                      to = std::min(part.from + part.count, offset + extent);
        if (from >= to)
          continue;
        Term cut = run;
        const unsigned own = unsigned(kernel.loops.size());
        kernel.loops.push_back({to - from, LoopKind::Contracted});
        auto follow = [&](Access &access) { // loop = own + (from - offset)
          for (AffineIndex &index : access.index)
            for (auto &[l, c] : index.terms)
              if (l == runs.loop) {
                index.offset += c * (from - offset);
                l = own;
              }
        };
        follow(cut.a);
        follow(cut.w);
        cut.a.tensor = part.tensor;
        cut.a.index[laneDim].offset -= part.from;
        cut.macs = term.macs * (to - from) / (extent * runs.count);
        left -= cut.macs;
        terms.push_back(std::move(cut));
      }
      return true;
    });
    terms[first].macs += left;
  }
  kernel.terms = std::move(terms);
}

/// The kernel for each run of a parallel loop's values between `edges`, which may lie outside it:
/// where the run begins, and the run.
std::vector<std::pair<int64_t, Kernel>> runsOf(const Kernel &kernel, unsigned loop,
                                               std::set<int64_t> edges) {
  const int64_t extent = kernel.loops[loop].extent;
  edges.insert({0, extent});
  std::vector<std::pair<int64_t, Kernel>> runs;
  for (auto edge = edges.find(0); *edge < extent; ++edge) {
    const int64_t from = *edge, count = *std::next(edge) - from;
    Kernel run = kernel;
    run.loops[loop].extent = count;
    forms::forEachAccess(run, [&](Access &access) {
      for (AffineIndex &index : access.index)
        for (auto [l, c] : index.terms)
          if (l == loop)
            index.offset += c * from;
    });
    for (Term &term : run.terms)
      term.macs = term.macs * (from + count) / extent - term.macs * from / extent;
    if (count < extent)
      run.name += ".part" + std::to_string(runs.size());
    runs.push_back({from, std::move(run)});
  }
  return runs;
}

/// The kernel for runs of lanes of which each operand's lie in one part.
std::vector<Kernel> Splitter::cutLanes(const Kernel &kernel, unsigned tensor,
                                       const std::vector<Part> &parts) {
  const unsigned laneDim = graph.tensors[tensor].laneDim;
  std::optional<unsigned> lane;
  std::set<int64_t> edges;
  for (const Access &operand : kernel.operands)
    if (operand.tensor == tensor) {
      lane = *onlyStep(kernel, operand.index[laneDim], LoopKind::Parallel);
      for (const Part &part : parts)
        edges.insert(part.from - operand.index[laneDim].offset);
    }
  if (!lane)
    return {kernel};
  std::vector<Kernel> list;
  for (auto [from, piece] : runsOf(kernel, *lane, std::move(edges))) {
    for (Access &operand : piece.operands)
      if (operand.tensor == tensor) {
        AffineIndex &index = operand.index[laneDim];
        for (const Part &part : parts)
          if (index.offset >= part.from && index.offset < part.from + part.count) {
            operand.tensor = part.tensor;
            index.offset -= part.from;
            break;
          }
      }
    list.push_back(std::move(piece));
  }
  return list;
}

bool Splitter::split(unsigned tensor, bool always) {
  const Tensor whole = graph.tensors[tensor];
  const Uses &its = uses();
  if (whole.role != TensorRole::Intermediate || its.onHost[tensor] ||
      its.writers[tensor].size() < 2)
    return false;
  std::vector<Part> parts = partsOf(tensor, its);
  if (parts.size() < 2 || !canCut(tensor, its) || (!always && !isWorthCutting(parts)))
    return false;
  const Uses before = takeUses();
  for (size_t p = 0; p < parts.size(); ++p) {
    std::vector<int64_t> shape = whole.shape;
    shape[whole.laneDim] = parts[p].count;
    parts[p].tensor = addTensor(graph, whole.name + ".part" + std::to_string(p), shape, whole.type,
                                whole.laneDim);
    graph.tensors[parts[p].tensor].unbounded = whole.unbounded;
  }
  for (unsigned k : before.writers[tensor])
    for (forms::Result &r : graph.kernels[k].results)
      if (r.access.tensor == tensor) {
        AffineIndex &index = r.access.index[whole.laneDim];
        const int64_t low = rangeOf(graph.kernels[k], index).first;
        for (const Part &part : parts)
          if (part.from == low)
            r.access.tensor = part.tensor;
        index.offset -= low;
      }
  for (unsigned k : before.readers[tensor]) {
    cutTerms(graph.kernels[k], tensor, parts);
    const auto isMet = [&](const Access &operand) { return operand.tensor == tensor; };
    if (!pieces.contains(k) &&
        std::any_of(graph.kernels[k].operands.begin(), graph.kernels[k].operands.end(), isMet))
      separate(k, int64_t(parts.size()));
    replace(k, cutLanes(graph.kernels[k], tensor, parts));
  }
  return true;
}

/// Where a kernel's lanes share a sum, makes that before it: once, and not for each of its pieces.
void Splitter::separate(unsigned kernel, int64_t times) {
  auto apart = forms::separateSum(graph, graph.kernels[kernel], machine, times);
  if (!apart)
    return;
  graph.kernels[kernel] = std::move(apart->second);
  graph.order.insert(std::find(graph.order.begin(), graph.order.end(), std::pair(false, kernel)),
                     {false, unsigned(graph.kernels.size())});
  graph.kernels.push_back(std::move(apart->first));
}

/// Puts pieces of a kernel where it was.
void Splitter::replace(unsigned kernel, std::vector<Kernel> by) {
  if (by.size() > 1)
    pieces.insert(kernel);
  auto place = std::find(graph.order.begin(), graph.order.end(), std::pair(false, kernel));
  graph.kernels[kernel] = std::move(by.front());
  for (size_t p = 1; p < by.size(); ++p) {
    const auto number = unsigned(graph.kernels.size());
    graph.kernels.push_back(std::move(by[p]));
    pieces.insert(number);
    place = graph.order.insert(std::next(place), {false, number});
  }
}

/// Runs of the tensor's lanes of which kernels that were cut take some without the others; nothing
/// where it is one.
std::vector<Part> Splitter::partsBeside(unsigned tensor, const Uses &uses) const {
  const Tensor &t = graph.tensors[tensor];
  const int64_t lanes = t.shape[t.laneDim];
  std::set<int64_t> edges{0, lanes};
  for (unsigned k : uses.readers[tensor])
    for (const Access &operand : graph.kernels[k].operands)
      if (operand.tensor == tensor && pieces.contains(k)) {
        const auto [low, high] = rangeOf(graph.kernels[k], operand.index[t.laneDim]);
        edges.insert({low, high + 1});
      }
  if (edges.size() < 3 || *edges.begin() < 0 || *edges.rbegin() > lanes)
    return {};
  std::vector<Part> parts;
  for (auto edge = edges.begin(); *edge < lanes; ++edge)
    parts.push_back({*edge, *std::next(edge) - *edge});
  return parts;
}

/// What kernels that were cut read beside the parts is cut as they are, where its writer can be:
/// lanes that begin elsewhere than the result's would keep both from being packed.
bool Splitter::cutBeside(unsigned tensor) {
  const Uses &its = uses();
  if (its.writers[tensor].size() != 1)
    return false;
  const std::vector<Part> parts = partsBeside(tensor, its);
  if (parts.empty() || !isWorthCutting(parts))
    return false;
  const unsigned writer = its.writers[tensor].front();
  const Kernel &kernel = graph.kernels[writer];
  std::set<unsigned> results;
  std::optional<unsigned> lane;
  for (const forms::Result &r : kernel.results) {
    const Tensor &t = graph.tensors[r.access.tensor];
    const std::optional<unsigned> own =
        onlyStep(kernel, r.access.index[t.laneDim], LoopKind::Parallel);
    if (t.role != TensorRole::Intermediate || its.onHost[r.access.tensor] || !own ||
        (lane && lane != own) || !results.insert(r.access.tensor).second ||
        partsOf(r.access.tensor, its).size() != 1 || !canCut(r.access.tensor, its))
      return false;
    lane = own;
  }
  std::set<int64_t> edges;
  for (const Part &part : parts)
    edges.insert(part.from);
  std::vector<Kernel> runs;
  for (auto &[from, run] : runsOf(kernel, *lane, std::move(edges)))
    runs.push_back(std::move(run));
  takeUses();
  replace(writer, std::move(runs));
  return true; // what it made is a concatenation now
}

/// Kernels that make the same are one, and so are results of one: what was a part of a tensor, or
/// of several, and a tensor of its own beside it.
void shareEqual(KernelGraph &graph) {
  const Uses uses(graph);
  const auto isAlone = [&](const forms::Result &r) {
    return graph.tensors[r.access.tensor].role == TensorRole::Intermediate &&
           !uses.onHost[r.access.tensor] && uses.writers[r.access.tensor].size() == 1;
  };
  std::vector<unsigned> same(graph.tensors.size());
  std::iota(same.begin(), same.end(), 0u);
  std::vector<std::pair<bool, unsigned>> kept;
  for (auto [host, index] : graph.order) {
    if (host) {
      kept.push_back({host, index});
      continue;
    }
    Kernel &kernel = graph.kernels[index];
    const auto follow = [&](Access &access) {
      access.tensor = same[access.tensor];
      if (access.lookup)
        access.lookup->tensor = same[access.lookup->tensor];
    };
    forms::forEachAccess(kernel, follow);
    const auto isOne = [&](const forms::Result &x, const forms::Result &y) {
      const Tensor &a = graph.tensors[x.access.tensor], &b = graph.tensors[y.access.tensor];
      return x.node == y.node && x.access.index == y.access.index && isAlone(x) && isAlone(y) &&
             a.shape == b.shape && a.type == b.type && a.laneDim == b.laneDim;
    };
    const auto share = [&](const forms::Result &result, const forms::Result &with) {
      const unsigned mine = result.access.tensor, its = with.access.tensor;
      same[mine] = its;
      if (graph.tensors[its].value.empty())
        graph.tensors[its].value = graph.tensors[mine].value;
    };
    std::vector<forms::Result> results; // what is a part of several concatenations once
    for (const forms::Result &result : kernel.results) {
      const auto with = std::find_if(results.begin(), results.end(),
                                     [&](const forms::Result &r) { return isOne(r, result); });
      if (with == results.end())
        results.push_back(result);
      else
        share(result, *with);
    }
    kernel.results = std::move(results);
    const auto isSame = [&](const std::pair<bool, unsigned> &place) {
      const Kernel &other = graph.kernels[place.second];
      const auto isOneTerm = [&](const Term &x, const Term &y) {
        return x.a == y.a &&
               (x.w == y.w ||
                (x.w.tensor == y.w.tensor && graph.tensors[x.w.tensor].splat && // alike anywhere
                 staysInside(graph, other, x.w) && staysInside(graph, kernel, y.w)));
      };
      return !place.first && other.loops == kernel.loops && other.operands == kernel.operands &&
             other.nodes == kernel.nodes &&
             std::equal(other.terms.begin(), other.terms.end(), kernel.terms.begin(),
                        kernel.terms.end(), isOneTerm) &&
             std::equal(other.results.begin(), other.results.end(), kernel.results.begin(),
                        kernel.results.end(), isOne);
    };
    const auto found = std::find_if(kept.begin(), kept.end(), isSame);
    if (found == kept.end()) {
      kept.push_back({host, index});
      continue;
    }
    Kernel &other = graph.kernels[found->second];
    for (size_t t = 0; t < kernel.terms.size(); ++t) // of a copy they do not count
      other.terms[t].macs = std::max(other.terms[t].macs, kernel.terms[t].macs);
    for (size_t r = 0; r < kernel.results.size(); ++r)
      share(kernel.results[r], other.results[r]);
  }
  std::vector<Kernel> kernels;
  for (auto &[host, index] : kept)
    if (!host) {
      kernels.push_back(std::move(graph.kernels[index]));
      index = unsigned(kernels.size() - 1);
    }
  graph.kernels = std::move(kernels);
  graph.order = std::move(kept);
}

} // namespace

bool splitTensor(KernelGraph &graph, unsigned tensor, const Machine &machine) {
  return Splitter(graph, machine).split(tensor, /*always=*/true);
}

unsigned splitParts(KernelGraph &graph, const Machine &machine) {
  Splitter splitter(graph, machine);
  unsigned cut = 0;
  for (bool goesOn = true; goesOn;) {
    // What reads a tensor that is cut may write several parts, too: in the order of kernels.
    for (size_t at = 0; at < graph.order.size(); ++at) {
      const auto [host, index] = graph.order[at];
      if (host)
        continue;
      std::set<unsigned> results;
      for (const forms::Result &r : graph.kernels[index].results)
        results.insert(r.access.tensor);
      for (unsigned t : results)
        cut += splitter.split(t);
    }
    goesOn = false;
    for (unsigned t = 0; t < graph.tensors.size(); ++t)
      goesOn |= splitter.cutBeside(t);
  }
  if (cut > 0)
    shareEqual(graph);
  return cut;
}

} // namespace millrace::layouts
