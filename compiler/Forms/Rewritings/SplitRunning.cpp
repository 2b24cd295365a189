// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitRunning.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
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
    const auto [low, high] = rangeOf(kernel, access.index[d]);
    if (low < 0 || high >= graph.tensors[access.tensor].shape[d])
      return false;
  }
  return true;
}

/// Is there a value besides the reduction's that comes out of the contraction and is used after it?
bool keepsSums(const Kernel &kernel, unsigned reduction) {
  const std::vector<bool> needed = neededNodes(kernel, reduction);
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (needed[n] && kernel.nodes[n].kind == Node::Kind::Accumulator)
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
  std::optional<Blocks> blocks; ///< of the loop, which are cut off instead of each of its steps
};

/// The fewest blocks, of `most` steps at most.
Blocks blocksOf(AluOp op, int64_t steps, int64_t most) {
  for (int64_t count = (steps + most - 1) / most; count < steps; ++count) {
    if (steps % count == 0)
      return {count, steps / count, steps / count};
    if (isIdempotent(op)) // they may overlap
      for (int64_t each = (steps + count - 1) / count; each <= most; ++each)
        if ((steps - each) % (count - 1) == 0)
          return {count, each, (steps - each) / (count - 1)};
  }
  return {steps, 1, 1};
}

/// The one reduction over running loops that cannot be walked as one, or that too many sums of a
/// contraction wait for.
std::optional<Cut> findCut(const KernelGraph &graph, const Kernel &kernel, int64_t mostSums) {
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
      cut = Cut{n, 0, running, {}};
    }
  int64_t sums = kernel.terms.empty() ? 0 : 1;
  for (const unsigned l : running)
    sums *= kernel.loops[l].extent;
  if ((even && sums <= mostSums) || !cut || keepsSums(kernel, cut->reduction))
    return std::nullopt;
  cut->loop = sweeps.value_or(running.front());
  std::erase(cut->rest, cut->loop);
  const int64_t steps = kernel.loops[cut->loop].extent;
  if (const int64_t most = even ? mostSums * steps / sums : 0; most > 1)
    if (const Blocks blocks = blocksOf(kernel.nodes[cut->reduction].op, steps, most);
        blocks.steps > 1)
      cut->blocks = blocks;
  return cut;
}

/// Where the partial results lie: [loop cut off, parallel loops but the lanes, lanes].
Access addPartial(KernelGraph &graph, const Kernel &kernel, const Cut &cut) {
  const Access &result = kernel.results.front().access;
  const std::optional<unsigned> lane =
      unitLoop(kernel, result.index[graph.tensors[result.tensor].laneDim], LoopKind::Parallel);
  std::vector<int64_t> shape;
  Access access;
  auto addDim = [&](unsigned loop) {
    shape.push_back(kernel.loops[loop].extent);
    access.index.push_back(at(loop));
  };
  addDim(cut.loop);
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Parallel && lane != l)
      addDim(l);
  if (lane) {
    addDim(*lane);
  } else { // a single lane
    shape.push_back(1);
    access.index.push_back(fixed(0));
  }
  access.tensor = addTensor(graph, kernel.name + ".inner", shape, ElementType::Fp32,
                            unsigned(shape.size()) - 1);
  return access;
}

/// Reduces what is left of the running loops for each step of the one cut off.
Kernel innerReduction(const Kernel &kernel, const Cut &cut, const Access &partial) {
  Kernel inner = kernel;
  inner.name += ".inner";
  inner.loops[cut.loop].kind = LoopKind::Parallel;
  const unsigned last = cut.rest.empty() ? kernel.nodes[cut.reduction].args[0] : cut.reduction;
  inner.nodes.resize(last + 1);
  inner.results = {{last, partial}};
  return inner;
}

/// Reduces the partial results, and does what comes after.
Kernel outerReduction(KernelGraph &graph, const Kernel &kernel, const Cut &cut,
                      const Access &partial) {
  KernelBuilder build(graph, kernel);
  build.continueFrom(kernel, cut.reduction,
                     build.reduce(kernel.nodes[cut.reduction].op, build.operand(partial)));
  Kernel outer = std::move(build.kernel());
  for (unsigned l = 0; l < outer.loops.size(); ++l)
    if (l != cut.loop && outer.loops[l].kind != LoopKind::Parallel)
      outer.loops[l] = {1, LoopKind::Parallel};
  return outer;
}

/// Cuts one loop off each kernel that needs it.
unsigned splitOnce(KernelGraph &graph, int64_t mostSums) {
  unsigned split = 0;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [isHost, index] : graph.order) {
    std::optional<Cut> cut = isHost ? std::nullopt : findCut(graph, graph.kernels[index], mostSums);
    if (cut) {
      Kernel kernel = graph.kernels[index];
      if (cut->blocks)
        cut->rest.insert(cut->rest.begin(), splitLoop(kernel, cut->loop, *cut->blocks));
      const Access partial = addPartial(graph, kernel, *cut);
      graph.kernels[index] = outerReduction(graph, kernel, *cut, partial);
      graph.kernels.push_back(innerReduction(kernel, *cut, partial));
      order.push_back({false, unsigned(graph.kernels.size() - 1)});
      ++split;
    }
    order.push_back({isHost, index});
  }
  graph.order = std::move(order);
  return split;
}

} // namespace

unsigned splitRunning(KernelGraph &graph, int64_t mostSums) {
  unsigned total = 0;
  while (const unsigned split = splitOnce(graph, mostSums))
    total += split;
  return total;
}

} // namespace millrace::forms
