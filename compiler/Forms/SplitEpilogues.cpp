// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/SplitEpilogues.h"

#include "compiler/Forms/AluCount.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

namespace millrace::forms {
namespace {

bool isOperation(const Node &n) { return n.kind == Node::Kind::Op || n.kind == Node::Kind::Reduce; }

std::vector<bool> neededNodes(const Kernel &kernel) {
  std::vector<bool> needed(kernel.nodes.size(), false);
  for (const Result &r : kernel.results)
    needed[r.node] = true;
  for (size_t n = kernel.nodes.size(); n-- > 0;)
    if (needed[n])
      for (unsigned a : kernel.nodes[n].args)
        needed[a] = true;
  return needed;
}

/// Operands, as they are or widened, and immediates can be had again.
bool canBeHadAgain(const Kernel &kernel, unsigned n, bool widened) {
  const Node &node = kernel.nodes[n];
  if (widened && node.kind == Node::Kind::Op && node.args.size() == 1)
    return kernel.nodes[node.args[0]].kind == Node::Kind::Operand;
  return node.kind == Node::Kind::Operand || node.kind == Node::Kind::Immediate;
}

/// The last node after which only its own value goes on, before every result, that `fits`.
std::optional<unsigned> cutOf(const Kernel &kernel, const std::vector<bool> &needed, bool widened,
                              const std::function<bool(unsigned, unsigned)> &fits) {
  unsigned operations = 0;
  std::optional<unsigned> cut;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    if (!needed[n] || !isOperation(kernel.nodes[n]))
      continue;
    ++operations;
    bool alone = !widened || !canBeHadAgain(kernel, n, widened);
    for (const Result &r : kernel.results)
      alone &= r.node > n;
    for (unsigned u = n + 1; u < kernel.nodes.size(); ++u) {
      if (!needed[u])
        continue;
      alone &= kernel.nodes[u].kind != Node::Kind::Accumulator;
      for (unsigned a : kernel.nodes[u].args)
        alone &= a >= n || canBeHadAgain(kernel, a, widened);
    }
    if (alone && fits(n, operations))
      cut = n;
  }
  return cut;
}

/// What stays in the kernel if it ends with node `cut`.
Kernel upTo(const Kernel &kernel, unsigned cut, const Access &result) {
  Kernel first = kernel;
  first.nodes.resize(cut + 1);
  first.results = {{cut, result}};
  return first;
}

/// Where to cut the kernel: if it has more than `most` operations, or needs more ALUs than the
/// machine has.
std::optional<unsigned> findCut(const KernelGraph &graph, const Kernel &kernel, unsigned most,
                                const Machine *machine) {
  const std::vector<bool> needed = neededNodes(kernel);
  unsigned operations = 0;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    operations += needed[n] && isOperation(kernel.nodes[n]);
  std::optional<unsigned> cut;
  if (operations > most)
    cut = cutOf(kernel, needed, false, [&](unsigned, unsigned before) { return before <= most; });
  if (cut || !machine || alusOf(kernel, graph, *machine) <= machine->vxm.alus)
    return cut;
  return cutOf(kernel, needed, true, [&](unsigned n, unsigned before) {
    return before <= most && alusOf(upTo(kernel, n, kernel.results.front().access), graph,
                                    *machine) <= machine->vxm.alus;
  });
}

} // namespace

static unsigned split(KernelGraph &graph, unsigned most, const Machine *machine) {
  unsigned split = 0;
  const std::vector<std::pair<bool, unsigned>> oldOrder = graph.order;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : oldOrder) {
    order.push_back({host, index});
    while (!host) {
      const Kernel kernel = graph.kernels[order.back().second];
      const std::optional<unsigned> cut = findCut(graph, kernel, most, machine);
      if (!cut)
        break;
      // The value between lies as the first result does: one dimension per parallel loop of its
      // access.
      const Access like = kernel.results.front().access;
      const Tensor target = graph.tensors[like.tensor];
      const bool plain =
          std::all_of(like.index.begin(), like.index.end(), [](const AffineIndex &i) {
            return i.terms.size() <= 1 && (i.terms.empty() || i.terms[0].second == 1);
          });
      if (!plain)
        break;
      std::vector<int64_t> shape;
      Access between{0, {}, 0};
      // Before a reduction there is a value for every step of the running loops.
      const bool reducesLater =
          std::any_of(kernel.nodes.begin() + *cut + 1, kernel.nodes.end(),
                      [](const Node &n) { return n.kind == Node::Kind::Reduce; });
      for (unsigned l = 0; reducesLater && l < kernel.loops.size(); ++l)
        if (kernel.loops[l].kind == LoopKind::Running) {
          shape.push_back(kernel.loops[l].extent);
          between.index.push_back(at(l));
        }
      const unsigned lane = unsigned(shape.size()) + target.laneDim;
      for (const AffineIndex &i : like.index) {
        shape.push_back(i.terms.empty() ? 1 : kernel.loops[i.terms[0].first].extent);
        between.index.push_back(i.terms.empty() ? fixed(0) : at(i.terms[0].first));
      }
      between.tensor = addTensor(graph, kernel.name + ".part", shape, ElementType::Fp32, lane);
      Kernel first = upTo(kernel, *cut, between);
      first.name += ".part";
      for (Loop &l : first.loops)
        if (reducesLater && l.kind == LoopKind::Running)
          l.kind = LoopKind::Parallel;
      Kernel rest = kernel;
      rest.terms.clear();
      rest.operands.clear();
      rest.nodes.clear();
      for (Loop &l : rest.loops)
        if (l.kind == LoopKind::Contracted || (l.kind == LoopKind::Running && !reducesLater))
          l = {1, LoopKind::Parallel};
      std::map<unsigned, unsigned> placed;
      auto operand = [&](const Access &access) {
        rest.operands.push_back(access);
        Node n;
        n.kind = Node::Kind::Operand;
        n.index = unsigned(rest.operands.size() - 1);
        rest.nodes.push_back(n);
        return unsigned(rest.nodes.size() - 1);
      };
      placed[*cut] = operand(between);
      std::vector<bool> after(kernel.nodes.size(), false);
      for (const Result &r : kernel.results)
        after[r.node] = true;
      for (unsigned n = unsigned(kernel.nodes.size()); n-- > 0;)
        if (after[n] && n != *cut)
          for (unsigned a : kernel.nodes[n].args)
            after[a] = true;
      for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
        if (!after[n] || n == *cut)
          continue;
        Node copy = kernel.nodes[n];
        if (copy.kind == Node::Kind::Operand) {
          placed[n] = operand(kernel.operands[copy.index]);
          continue;
        }
        for (unsigned &a : copy.args)
          a = placed.at(a);
        rest.nodes.push_back(copy);
        placed[n] = unsigned(rest.nodes.size() - 1);
      }
      for (Result &r : rest.results)
        r.node = placed.at(r.node);
      graph.kernels[order.back().second] = std::move(first);
      graph.kernels.push_back(std::move(rest));
      order.push_back({false, unsigned(graph.kernels.size() - 1)});
      ++split;
    }
  }
  graph.order = std::move(order);
  return split;
}

unsigned splitEpilogues(KernelGraph &graph, unsigned most) { return split(graph, most, nullptr); }
unsigned splitEpilogues(KernelGraph &graph, unsigned most, const Machine &machine) {
  return split(graph, most, &machine);
}

} // namespace millrace::forms
