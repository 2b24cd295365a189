// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/ShareSums.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Simplify.h"

#include <algorithm>
#include <map>
#include <optional>

namespace millrace::forms {
namespace {

bool uses(const AffineIndex &index, unsigned loop) { return coefficient(index, loop) != 0; }

/// The loop along the lanes of all results, step by step, if no result moves otherwise with it.
std::optional<unsigned> laneLoopOf(const KernelGraph &graph, const Kernel &kernel) {
  std::optional<unsigned> lane;
  for (const Result &r : kernel.results) {
    const unsigned laneDim = graph.tensors[r.access.tensor].laneDim;
    const std::optional<unsigned> loop = onlyLoop(kernel, r.access.index[laneDim]);
    if (!loop || coefficient(r.access.index[laneDim], *loop) != 1 || (lane && lane != loop))
      return std::nullopt;
    lane = loop;
    for (unsigned d = 0; d < r.access.index.size(); ++d)
      if (d != laneDim && uses(r.access.index[d], *lane))
        return std::nullopt;
  }
  return lane;
}

/// Do all lanes of the result receive one sum of real numbers, without a running reduction?
/// Products of the model stay, even with weights that are all alike: they are counted.
bool sumsAlike(const KernelGraph &graph, const Kernel &kernel, unsigned lane) {
  return !kernel.terms.empty() &&
         std::none_of(kernel.loops.begin(), kernel.loops.end(),
                      [](const Loop &l) { return l.kind == LoopKind::Running; }) &&
         std::all_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &t) {
           const Tensor &w = graph.tensors[t.w.tensor];
           return w.role == TensorRole::Constant && w.splat && w.type != ElementType::Int8 &&
                  t.macs == 0 && !usesLoop(t.a, lane);
         });
}

/// A tensor whose lanes are all alike, and a vector of each that holds the same.
struct Spread {
  Access made;   ///< the tensor as it was made
  Access sum;    ///< what it was made of, by the loops of the same kernel
  unsigned lane; ///< of these loops
};
using Spreads = std::map<unsigned, Spread>; ///< by tensor

/// What the access of a spread tensor reads, there where it is made from; `lane` is the reader's
/// loop along the lanes. Nothing where it reads something else in each lane.
std::optional<Access> readSum(const KernelGraph &graph, const Spreads &spreads,
                              const Access &access, unsigned lane) {
  const auto known = spreads.find(access.tensor);
  if (known == spreads.end() || access.lookup)
    return std::nullopt;
  const Spread &spread = known->second;
  const unsigned laneDim = graph.tensors[access.tensor].laneDim;
  Access sum = spread.sum;
  for (unsigned d = 0; d < access.index.size(); ++d)
    if (d == laneDim ? !(access.index[d] == at(lane)) : uses(access.index[d], lane))
      return std::nullopt;
  for (AffineIndex &index : sum.index) {
    if (index == at(spread.lane)) {
      index = at(lane);
      continue;
    }
    const auto dim = std::find(spread.made.index.begin(), spread.made.index.end(), index);
    if (dim == spread.made.index.end())
      return std::nullopt;
    index = access.index[size_t(dim - spread.made.index.begin())];
  }
  return sum;
}

class Sharer {
public:
  /// `vector`: lanes of what is made once. `readFrom`: per operand that is the same in all lanes,
  /// where it is read.
  Sharer(KernelGraph &graph, const Kernel &kernel, unsigned lane, int64_t vector,
         std::vector<std::optional<Access>> readFrom)
      : graph(graph), kernel(kernel), lane(lane), vector(vector), sumsRead(std::move(readFrom)) {
    for (const Node &node : kernel.nodes)
      alike.push_back(
          node.kind == Node::Kind::Accumulator || node.kind == Node::Kind::Immediate ||
          (node.kind == Node::Kind::Operand && sumsRead[node.index]) ||
          (node.kind == Node::Kind::Op &&
           std::all_of(node.args.begin(), node.args.end(), [&](unsigned a) { return alike[a]; })));
    std::vector<bool> read(kernel.nodes.size(), false);
    for (unsigned n = 0; n < kernel.nodes.size(); ++n)
      for (unsigned a : kernel.nodes[n].args)
        read[a] = read[a] || !alike[n];
    for (const Result &r : kernel.results)
      read[r.node] = true;
    for (unsigned n = 0; n < kernel.nodes.size(); ++n)
      if (read[n] && alike[n] && kernel.nodes[n].kind != Node::Kind::Immediate &&
          kernel.nodes[n].kind != Node::Kind::Operand)
        shared.push_back(n);
  }

  /// Values that maps read; each takes four bytes a lane.
  size_t sharedCount() const { return shared.size(); }

  bool isShared(unsigned node) const {
    return std::find(shared.begin(), shared.end(), node) != shared.end();
  }

  /// The kernel that makes what all lanes share, then a map for each `vector` of them.
  std::vector<Kernel> cut() {
    std::vector<Kernel> kernels{sums()};
    const int64_t lanes = kernel.loops[lane].extent;
    for (int64_t from = 0; from < lanes; from += vector)
      kernels.push_back(map(from, std::min(vector, lanes - from)));
    return kernels;
  }

  /// After cut(): what all lanes share.
  const std::vector<Access> &made() const { return sumsOf; }

  /// After cut(): adds the results whose lanes are all alike.
  void noteSpreads(Spreads &spreads) const {
    for (const Result &r : kernel.results)
      if (const auto known = std::find(shared.begin(), shared.end(), r.node); known != shared.end())
        spreads.insert({r.access.tensor, {r.access, sumsOf[size_t(known - shared.begin())], lane}});
  }

private:
  KernelGraph &graph;
  const Kernel &kernel;
  const unsigned lane;
  const int64_t vector;
  std::vector<std::optional<Access>> sumsRead; ///< per operand that is alike in all lanes
  std::vector<bool> alike;                     ///< per node: in all lanes
  std::vector<unsigned> shared;                ///< nodes that maps read
  std::vector<Access> sumsOf; ///< per shared node: where it lies, by the loops of the kernel

  Kernel sums() {
    Access to{0, {}, 0};
    std::vector<int64_t> shape;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (l != lane && kernel.loops[l].kind == LoopKind::Parallel) {
        to.index.push_back(at(l));
        shape.push_back(kernel.loops[l].extent);
      }
    to.index.push_back(at(lane));
    shape.push_back(vector);
    Kernel first = kernel;
    first.loops[lane].extent = vector;
    first.operands.clear();
    first.nodes.clear();
    first.results.clear();
    for (Term &term : first.terms) {
      const Tensor w = graph.tensors[term.w.tensor];
      std::vector<int64_t> extents = w.shape;
      for (unsigned d = 0; d < extents.size(); ++d)
        if (uses(term.w.index[d], lane)) {
          const auto [low, high] = rangeOf(first, term.w.index[d]);
          term.w.index[d].offset -= low; // they are all alike
          extents[d] = high - low + 1;
        }
      term.w.tensor = splatLike(w, extents);
    }
    std::map<unsigned, unsigned> place, operands;
    for (unsigned n = 0; n < kernel.nodes.size(); ++n)
      if (alike[n]) {
        Node node = kernel.nodes[n];
        if (node.kind == Node::Kind::Operand)
          readOperand(first, operands, node);
        for (unsigned &a : node.args)
          a = place.at(a);
        place[n] = unsigned(first.nodes.size());
        first.nodes.push_back(std::move(node));
      }
    for (unsigned n : shared) {
      to.tensor = addTensor(graph, kernel.name + ".sum", shape, ElementType::Fp32,
                            unsigned(shape.size() - 1));
      first.results.push_back({place.at(n), to});
      sumsOf.push_back(to);
    }
    dropDeadNodes(first);
    return first;
  }

  /// Lets the node read the sum that its operand is.
  void readOperand(Kernel &part, std::map<unsigned, unsigned> &known, Node &node) const {
    const auto [slot, isNew] = known.emplace(node.index, unsigned(part.operands.size()));
    if (isNew)
      part.operands.push_back(*sumsRead[node.index]);
    node.index = slot->second;
  }

  /// A constant that is the same everywhere, of another shape; one of each kind.
  unsigned splatLike(Tensor w, const std::vector<int64_t> &shape) {
    w.shape = shape;
    const auto known = std::find(graph.tensors.begin(), graph.tensors.end(), w);
    if (known != graph.tensors.end())
      return unsigned(known - graph.tensors.begin());
    graph.tensors.push_back(std::move(w));
    return unsigned(graph.tensors.size() - 1);
  }

  Kernel map(int64_t from, int64_t lanes) {
    Kernel part = kernel;
    part.terms.clear();
    part.nodes.clear();
    part.operands.clear();
    for (Loop &loop : part.loops)
      if (loop.kind == LoopKind::Contracted)
        loop = {1, LoopKind::Parallel};
    part.loops[lane].extent = lanes;
    auto moved = [&](Access access) {
      for (AffineIndex &index : access.index)
        index.offset += coefficient(index, lane) * from;
      if (access.lookup)
        for (AffineIndex &index : access.lookup->index)
          index.offset += coefficient(index, lane) * from;
      return access;
    };
    std::map<unsigned, unsigned> place, operands;
    for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
      Node node = kernel.nodes[n];
      const auto known = std::find(shared.begin(), shared.end(), n);
      if (known != shared.end()) {
        node = Node();
        node.kind = Node::Kind::Operand;
        node.index = unsigned(part.operands.size());
        part.operands.push_back(sumsOf[size_t(known - shared.begin())]);
      } else if (node.kind == Node::Kind::Operand && sumsRead[node.index]) {
        readOperand(part, operands, node);
      } else if (alike[n] && node.kind != Node::Kind::Immediate) {
        continue;
      } else if (node.kind == Node::Kind::Operand) {
        const auto [slot, isNew] = operands.emplace(node.index, unsigned(part.operands.size()));
        if (isNew)
          part.operands.push_back(moved(kernel.operands[node.index]));
        node.index = slot->second;
      }
      for (unsigned &a : node.args)
        a = place.at(a);
      place[n] = unsigned(part.nodes.size());
      part.nodes.push_back(std::move(node));
    }
    for (Result &r : part.results)
      r = {place.at(r.node), moved(r.access)};
    return part;
  }
};

/// Are the kernel's sweeps, made once instead of `times` times, worth a further step?
bool isWorthSharing(const KernelGraph &graph, const Kernel &kernel, unsigned lane,
                    const Machine &machine, int64_t times) {
  constexpr int64_t kStep = 120; // cycles from reading an operand to reading the result
  int64_t rows = 1, sweeps = 0;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (l != lane && kernel.loops[l].kind == LoopKind::Parallel)
      rows *= kernel.loops[l].extent;
  unsigned workers = 1;
  for (const Term &t : kernel.terms) {
    const Tensor &a = graph.tensors[t.a.tensor];
    const MxmFormatSpec *format = machine.mxm.format(a.type);
    if (!format)
      return false;
    int64_t depth = 1;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (kernel.loops[l].kind == LoopKind::Contracted && usesLoop(t.a, l))
        depth *= kernel.loops[l].extent;
    sweeps += (depth + format->lanesPerPass - 1) / int64_t(format->lanesPerPass);
    workers = std::max(1u, machine.mxm.planes / format->planes * unsigned(kHemispheres));
  }
  const int64_t each = std::max<int64_t>(rows, machine.latency.accumulateInterval / 2);
  return (times - 1) * sweeps * each / workers >= kStep;
}

constexpr size_t kMostShared = 2; // each is read again, four bytes wide

/// Does one kernel make the tensor, of sums that all its lanes share?
bool holdsSharedSum(const KernelGraph &graph, unsigned tensor) {
  const Kernel *writer = nullptr;
  for (const Kernel &kernel : graph.kernels)
    for (const Result &r : kernel.results)
      if (r.access.tensor == tensor) {
        if (writer)
          return false;
        writer = &kernel;
      }
  if (!writer)
    return false;
  const std::optional<unsigned> lane = laneLoopOf(graph, *writer);
  return lane && writer->operands.empty() && sumsAlike(graph, *writer, *lane);
}

} // namespace

std::optional<std::pair<Kernel, Kernel>> separateSum(KernelGraph &graph, const Kernel &kernel,
                                                     const Machine &machine, int64_t times) {
  const std::optional<unsigned> lane = laneLoopOf(graph, kernel);
  if (!lane || !sumsAlike(graph, kernel, *lane) ||
      !isWorthSharing(graph, kernel, *lane, machine, times))
    return std::nullopt;
  std::vector<std::optional<Access>> sumsRead;
  for (const Access &operand : kernel.operands) {
    const unsigned laneDim = graph.tensors[operand.tensor].laneDim;
    bool isRead = !operand.lookup && holdsSharedSum(graph, operand.tensor);
    for (unsigned d = 0; d < operand.index.size(); ++d)
      isRead &= d == laneDim ? operand.index[d] == at(*lane) : !uses(operand.index[d], *lane);
    sumsRead.push_back(isRead ? std::optional(operand) : std::nullopt);
  }
  Sharer sharer(graph, kernel, *lane, kernel.loops[*lane].extent, std::move(sumsRead));
  if (sharer.sharedCount() == 0 || sharer.sharedCount() > kMostShared ||
      std::all_of(kernel.results.begin(), kernel.results.end(),
                  [&](const Result &r) { return sharer.isShared(r.node); }))
    return std::nullopt;
  std::vector<Kernel> kernels = sharer.cut();
  return std::pair(std::move(kernels.front()), std::move(kernels.back()));
}

unsigned shareSums(KernelGraph &graph, const Machine &machine) {
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  unsigned cuts = 0;
  Spreads spreads;
  std::vector<std::pair<bool, unsigned>> order;
  for (const auto &[isHost, index] : graph.order) {
    order.push_back({isHost, index});
    if (isHost)
      continue;
    const Kernel kernel = graph.kernels[index];
    const std::optional<unsigned> lane = laneLoopOf(graph, kernel);
    if (!lane || kernel.loops[*lane].extent <= vector || !sumsAlike(graph, kernel, *lane) ||
        !isWorthSharing(graph, kernel, *lane, machine,
                        (kernel.loops[*lane].extent + vector - 1) / vector))
      continue;
    std::vector<std::optional<Access>> sumsRead;
    for (const Access &operand : kernel.operands)
      sumsRead.push_back(readSum(graph, spreads, operand, *lane));
    Sharer sharer(graph, kernel, *lane, vector, std::move(sumsRead));
    if (sharer.sharedCount() == 0 || sharer.sharedCount() > kMostShared)
      continue;
    std::vector<Kernel> kernels = sharer.cut();
    for (const Access &sum : sharer.made())
      graph.tensors[sum.tensor].uniform = true;
    sharer.noteSpreads(spreads);
    graph.kernels[index] = std::move(kernels.front());
    for (size_t i = 1; i < kernels.size(); ++i) {
      order.push_back({false, unsigned(graph.kernels.size())});
      graph.kernels.push_back(std::move(kernels[i]));
    }
    ++cuts;
  }
  graph.order = std::move(order);
  if (!spreads.empty()) // readers take what these are made of
    dropUnneeded(graph);
  return cuts;
}

} // namespace millrace::forms
