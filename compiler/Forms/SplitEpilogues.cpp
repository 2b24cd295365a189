// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/SplitEpilogues.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
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

/// The last node after which only its own value goes on, with at most `most` operations up to it,
/// before every result.
std::optional<unsigned> cutOf(const Kernel &kernel, const std::vector<bool> &needed,
                              unsigned most) {
  unsigned operations = 0;
  std::optional<unsigned> cut;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    if (!needed[n] || !isOperation(kernel.nodes[n]))
      continue;
    if (++operations > most)
      break;
    bool alone = true;
    for (const Result &r : kernel.results)
      alone &= r.node > n;
    for (unsigned u = n + 1; u < kernel.nodes.size(); ++u) {
      if (!needed[u])
        continue;
      alone &= kernel.nodes[u].kind != Node::Kind::Accumulator;
      for (unsigned a : kernel.nodes[u].args) // operands and immediates can be had again
        alone &= a >= n || kernel.nodes[a].kind == Node::Kind::Operand ||
                 kernel.nodes[a].kind == Node::Kind::Immediate;
    }
    if (alone)
      cut = n;
  }
  return cut;
}

} // namespace

unsigned splitEpilogues(KernelGraph &graph, unsigned most) {
  unsigned split = 0;
  const std::vector<std::pair<bool, unsigned>> oldOrder = graph.order;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : oldOrder) {
    order.push_back({host, index});
    while (!host) {
      const Kernel kernel = graph.kernels[order.back().second];
      const std::vector<bool> needed = neededNodes(kernel);
      unsigned operations = 0;
      for (unsigned n = 0; n < kernel.nodes.size(); ++n)
        operations += needed[n] && isOperation(kernel.nodes[n]);
      std::optional<unsigned> cut = operations > most ? cutOf(kernel, needed, most) : std::nullopt;
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
      Kernel first = kernel;
      first.name += ".part";
      first.nodes.resize(*cut + 1);
      first.results = {{*cut, between}};
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
      for (unsigned n = unsigned(kernel.nodes.size()); n-- > *cut + 1;)
        if (after[n])
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

} // namespace millrace::forms
