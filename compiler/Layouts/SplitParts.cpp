// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/SplitParts.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <map>
#include <set>

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

class Splitter {
public:
  Splitter(KernelGraph &graph, int64_t vector) : graph(graph), vector(vector) {}
  /// `always`: parts of many lanes, too.
  bool split(unsigned tensor, bool always = false);

private:
  KernelGraph &graph;
  const int64_t vector;

  std::vector<Part> partsOf(unsigned tensor, const Uses &uses) const;
  bool canCut(unsigned tensor, const Uses &uses) const;
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
          (term.a.tensor == tensor &&
           (!onlyStep(kernel, term.a.index[laneDim], LoopKind::Contracted) ||
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

/// Sums over lanes of the tensor, one term for each part.
void Splitter::cutTerms(Kernel &kernel, unsigned tensor, const std::vector<Part> &parts) {
  const unsigned laneDim = graph.tensors[tensor].laneDim;
  std::vector<Term> terms;
  for (const Term &term : kernel.terms) {
    if (term.a.tensor != tensor) {
      terms.push_back(term);
      continue;
    }
    const unsigned loop = *onlyStep(kernel, term.a.index[laneDim], LoopKind::Contracted);
    const int64_t offset = term.a.index[laneDim].offset, extent = kernel.loops[loop].extent;
    int64_t left = term.macs;
    const size_t first = terms.size();
    for (const Part &part : parts) {
      const int64_t from = std::max(part.from, offset),
                    to = std::min(part.from + part.count, offset + extent);
      if (from >= to)
        continue;
      Term cut = term;
      const unsigned own = unsigned(kernel.loops.size());
      kernel.loops.push_back({to - from, LoopKind::Contracted});
      auto follow = [&](Access &access) { // loop = own + (from - offset)
        for (AffineIndex &index : access.index)
          for (auto &[l, c] : index.terms)
            if (l == loop) {
              index.offset += c * (from - offset);
              l = own;
            }
      };
      follow(cut.a);
      follow(cut.w);
      cut.a.tensor = part.tensor;
      cut.a.index[laneDim].offset -= part.from;
      cut.macs = term.macs * (to - from) / extent;
      left -= cut.macs;
      terms.push_back(std::move(cut));
    }
    terms[first].macs += left;
  }
  kernel.terms = std::move(terms);
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
  const int64_t extent = kernel.loops[*lane].extent;
  edges.insert(0);
  edges.insert(extent);
  std::vector<Kernel> pieces;
  for (auto edge = edges.find(0); *edge < extent; ++edge) {
    const int64_t from = *edge, count = *std::next(edge) - from;
    Kernel piece = kernel;
    piece.loops[*lane].extent = count;
    forms::forEachAccess(piece, [&](Access &access) {
      for (AffineIndex &index : access.index)
        for (auto [l, c] : index.terms)
          if (l == *lane)
            index.offset += c * from;
    });
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
    for (Term &term : piece.terms)
      term.macs = term.macs * (from + count) / extent - term.macs * from / extent;
    if (count < extent)
      piece.name += ".part" + std::to_string(pieces.size());
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

bool Splitter::split(unsigned tensor, bool always) {
  const Tensor whole = graph.tensors[tensor];
  const Uses uses(graph);
  if (whole.role != TensorRole::Intermediate || uses.onHost[tensor] ||
      uses.writers[tensor].size() < 2)
    return false;
  std::vector<Part> parts = partsOf(tensor, uses);
  if (parts.size() < 2 || !canCut(tensor, uses) ||
      (!always && std::none_of(parts.begin(), parts.end(),
                               [&](const Part &p) { return p.count * 2 <= vector; })))
    return false;
  for (size_t p = 0; p < parts.size(); ++p) {
    std::vector<int64_t> shape = whole.shape;
    shape[whole.laneDim] = parts[p].count;
    parts[p].tensor = addTensor(graph, whole.name + ".part" + std::to_string(p), shape, whole.type,
                                whole.laneDim);
    graph.tensors[parts[p].tensor].unbounded = whole.unbounded;
  }
  for (unsigned k : uses.writers[tensor])
    for (forms::Result &r : graph.kernels[k].results)
      if (r.access.tensor == tensor) {
        AffineIndex &index = r.access.index[whole.laneDim];
        const int64_t low = rangeOf(graph.kernels[k], index).first;
        for (const Part &part : parts)
          if (part.from == low)
            r.access.tensor = part.tensor;
        index.offset -= low;
      }
  std::map<unsigned, std::vector<unsigned>> more; ///< kernels beside the first piece
  for (unsigned k : uses.readers[tensor]) {
    cutTerms(graph.kernels[k], tensor, parts);
    std::vector<Kernel> pieces = cutLanes(graph.kernels[k], tensor, parts);
    graph.kernels[k] = std::move(pieces.front());
    for (size_t p = 1; p < pieces.size(); ++p) {
      more[k].push_back(unsigned(graph.kernels.size()));
      graph.kernels.push_back(std::move(pieces[p]));
    }
  }
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : graph.order) {
    order.push_back({host, index});
    if (!host)
      for (unsigned k : more[index])
        order.push_back({false, k});
  }
  graph.order = std::move(order);
  return true;
}

} // namespace

bool splitTensor(KernelGraph &graph, unsigned tensor) {
  return Splitter(graph, 0).split(tensor, /*always=*/true);
}

unsigned splitParts(KernelGraph &graph, const Machine &machine) {
  Splitter splitter(graph, std::min<int64_t>(machine.lanes(), machine.mxm.columns));
  unsigned cut = 0;
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
  return cut;
}

} // namespace millrace::layouts
