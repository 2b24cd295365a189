// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/SplitRunning.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>
#include <optional>

namespace millrace::forms {
namespace {

/// Rows from one step of the loop to the next.
int64_t rowStep(const KernelGraph &graph, const Access &access, unsigned loop) {
  const Tensor &t = graph.tensors[access.tensor];
  int64_t step = 0, pitch = 1;
  for (size_t d = t.shape.size(); d-- > 0;) {
    if (d == t.laneDim)
      continue;
    for (auto [l, c] : access.index[d].terms)
      if (l == loop)
        step += c * pitch;
    pitch *= t.shape[d];
  }
  return step;
}

/// Inside its tensor at every step of the two loops, as far as they move it.
bool staysInside(const KernelGraph &graph, const Kernel &kernel, const Access &access,
                 const std::vector<unsigned> &running) {
  for (size_t d = 0; d < access.index.size(); ++d) {
    if (!coefficient(access.index[d], running[0]) && !coefficient(access.index[d], running[1]))
      continue;
    int64_t low = access.index[d].offset, high = low;
    for (auto [l, c] : access.index[d].terms) {
      low += std::min<int64_t>(0, c * (kernel.loops[l].extent - 1));
      high += std::max<int64_t>(0, c * (kernel.loops[l].extent - 1));
    }
    if (low < 0 || high >= graph.tensors[access.tensor].shape[d])
      return false;
  }
  return true;
}

/// Is there a value besides the reduction's that comes out of the contraction and is used after it?
bool keepsSums(const Kernel &kernel, unsigned reduction) {
  std::vector<bool> after(kernel.nodes.size(), false);
  for (const Result &r : kernel.results)
    after[r.node] = true;
  for (unsigned n = unsigned(kernel.nodes.size()); n-- > 0;)
    if (after[n] && n != reduction)
      for (unsigned a : kernel.nodes[n].args)
        after[a] = true;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (after[n] && kernel.nodes[n].kind == Node::Kind::Accumulator)
      return true;
  return false;
}

/// Does the loop need a sweep for each of its steps: along the lanes of what is swept, or through
/// the columns of what is installed?
bool choosesSweeps(const KernelGraph &graph, const Kernel &kernel, unsigned loop) {
  return std::any_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
    return coefficient(term.a.index[graph.tensors[term.a.tensor].laneDim], loop) != 0 ||
           usesLoop(term.w, loop);
  });
}

/// A reduction, the running loop to cut off it, and those that stay.
struct Cut {
  unsigned reduction = 0, loop = 0;
  std::vector<unsigned> rest;
};

/// The one reduction over running loops that cannot be walked as one.
std::optional<Cut> findCut(const KernelGraph &graph, const Kernel &kernel) {
  std::vector<unsigned> running;
  std::optional<unsigned> sweeps;
  for (unsigned l = 0; l < kernel.loops.size(); ++l) {
    if (kernel.loops[l].kind != LoopKind::Running || kernel.loops[l].extent == 1)
      continue;
    running.push_back(l);
    if (!sweeps && choosesSweeps(graph, kernel, l))
      sweeps = l;
  }
  bool even = running.size() <= 2 && !sweeps;
  auto walk = [&](const Access &a) {
    even = even && (running.size() < 2 ||
                    (rowStep(graph, a, running[0]) ==
                         rowStep(graph, a, running[1]) * kernel.loops[running[1]].extent &&
                     staysInside(graph, kernel, a, running)));
  };
  for (const Access &a : kernel.operands)
    walk(a);
  for (const Term &term : kernel.terms)
    walk(term.a);
  std::optional<Cut> cut;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (kernel.nodes[n].kind == Node::Kind::Reduce) {
      if (cut)
        return std::nullopt;
      cut = Cut{n, 0, running};
    }
  if (even || !cut || keepsSums(kernel, cut->reduction))
    return std::nullopt;
  cut->loop = sweeps.value_or(running.front());
  std::erase(cut->rest, cut->loop);
  return cut;
}

/// Where the partial results of the inner loop lie: [outer, parallel loops but the lanes, lanes].
struct Partial {
  unsigned tensor = 0;
  std::vector<unsigned> loops; ///< of the kernel, one per dimension
  Access access() const {
    Access a{tensor, {}, 0};
    for (unsigned l : loops)
      a.index.push_back(at(l));
    return a;
  }
};

Partial makePartial(KernelGraph &graph, const Kernel &kernel, unsigned outer) {
  const Access &result = kernel.results.front().access;
  const Tensor &out = graph.tensors[result.tensor];
  std::optional<unsigned> lane;
  for (auto [l, c] : result.index[out.laneDim].terms)
    if (c == 1 && (!lane || kernel.loops[l].extent > kernel.loops[*lane].extent))
      lane = l;
  Partial partial;
  partial.loops.push_back(outer);
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Parallel && lane != l)
      partial.loops.push_back(l);
  if (lane)
    partial.loops.push_back(*lane);
  std::vector<int64_t> shape;
  for (unsigned l : partial.loops)
    shape.push_back(kernel.loops[l].extent);
  if (!lane) // a single lane
    shape.push_back(1);
  partial.tensor = addTensor(graph, kernel.name + ".inner", shape, ElementType::Fp32,
                             unsigned(shape.size()) - 1);
  return partial;
}

Node node(Node::Kind kind) {
  Node n;
  n.kind = kind;
  return n;
}

} // namespace

/// Cuts one loop off each kernel that needs it.
static unsigned splitOnce(KernelGraph &graph) {
  unsigned split = 0;
  const std::vector<std::pair<bool, unsigned>> oldOrder = graph.order;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : oldOrder) {
    const std::optional<Cut> cut = host ? std::nullopt : findCut(graph, graph.kernels[index]);
    if (!cut) {
      order.push_back({host, index});
      continue;
    }
    const Kernel kernel = graph.kernels[index];
    const Partial partial = makePartial(graph, kernel, cut->loop);
    Access access = partial.access();
    if (access.index.size() < graph.tensors[partial.tensor].shape.size())
      access.index.push_back(fixed(0));

    Kernel inner = kernel;
    inner.name += ".inner";
    inner.loops[cut->loop].kind = LoopKind::Parallel;
    inner.nodes.resize(cut->reduction + 1);
    inner.results = {{cut->rest.empty() ? inner.nodes.back().args[0] : cut->reduction, access}};
    if (cut->rest.empty()) // nothing is left to reduce
      inner.nodes.pop_back();

    Kernel outer = kernel;
    for (unsigned l : cut->rest)
      outer.loops[l] = {1, LoopKind::Parallel};
    for (Loop &loop : outer.loops)
      if (loop.kind == LoopKind::Contracted)
        loop = {1, LoopKind::Parallel};
    outer.terms.clear();
    outer.nodes.clear();
    outer.operands.clear();
    std::map<unsigned, unsigned> placed;
    auto place = [&](unsigned old, Node n) {
      outer.nodes.push_back(std::move(n));
      placed[old] = unsigned(outer.nodes.size() - 1);
    };
    outer.operands.push_back(access);
    Node operand = node(Node::Kind::Operand), reduce = node(Node::Kind::Reduce);
    outer.nodes.push_back(operand);
    reduce.op = kernel.nodes[cut->reduction].op;
    reduce.args = {0};
    place(cut->reduction, reduce);
    // What only the reduction needs stays in the inner kernel.
    std::vector<bool> after(kernel.nodes.size(), false);
    for (const Result &r : kernel.results)
      after[r.node] = true;
    for (unsigned n = unsigned(kernel.nodes.size()); n-- > 0;)
      if (after[n] && n != cut->reduction)
        for (unsigned a : kernel.nodes[n].args)
          after[a] = true;
    for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
      if (!after[n] || n == cut->reduction)
        continue;
      Node copy = kernel.nodes[n];
      if (copy.kind == Node::Kind::Operand) {
        outer.operands.push_back(kernel.operands[copy.index]);
        copy.index = unsigned(outer.operands.size() - 1);
      }
      for (unsigned &a : copy.args)
        a = placed.at(a);
      place(n, copy);
    }
    for (Result &r : outer.results)
      r.node = placed.at(r.node);

    graph.kernels.push_back(std::move(inner));
    order.push_back({false, unsigned(graph.kernels.size() - 1)});
    graph.kernels[index] = std::move(outer);
    order.push_back({false, index});
    ++split;
  }
  graph.order = std::move(order);
  return split;
}

unsigned splitRunning(KernelGraph &graph) {
  unsigned total = 0;
  while (const unsigned split = splitOnce(graph))
    total += split;
  return total;
}

} // namespace millrace::forms
