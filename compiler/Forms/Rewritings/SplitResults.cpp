// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitResults.h"

#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"

#include <functional>
#include <map>

namespace millrace::forms {
namespace {

/// The kernel with one of its results, and what that needs.
Kernel withResult(const Kernel &kernel, const Result &result) {
  Kernel one = kernel;
  one.results = {result};
  const std::vector<bool> needed = neededNodes(one);
  one.nodes.clear();
  one.operands.clear();
  std::map<unsigned, unsigned> nodes, operands;
  bool sums = false, runs = false;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    if (!needed[n])
      continue;
    Node node = kernel.nodes[n];
    sums |= node.kind == Node::Kind::Accumulator;
    runs |= node.kind == Node::Kind::Reduce;
    for (unsigned &a : node.args)
      a = nodes.at(a);
    if (node.kind == Node::Kind::Operand) {
      const auto [place, isNew] = operands.emplace(node.index, unsigned(one.operands.size()));
      if (isNew)
        one.operands.push_back(kernel.operands[node.index]);
      node.index = place->second;
    }
    nodes[n] = unsigned(one.nodes.size());
    one.nodes.push_back(std::move(node));
  }
  one.results.front().node = nodes.at(result.node);
  if (!sums)
    one.terms.clear();
  for (Loop &loop : one.loops)
    if ((loop.kind == LoopKind::Contracted && !sums) || (loop.kind == LoopKind::Running && !runs))
      loop = {1, LoopKind::Parallel};
  return one;
}

unsigned split(KernelGraph &graph, const std::function<bool(const Kernel &)> &isChosen) {
  unsigned added = 0;
  std::vector<std::pair<bool, unsigned>> order;
  for (const auto &[isHost, index] : graph.order) {
    order.push_back({isHost, index});
    if (isHost || graph.kernels[index].results.size() < 2 || !isChosen(graph.kernels[index]))
      continue;
    const Kernel kernel = graph.kernels[index];
    for (size_t r = 0; r < kernel.results.size(); ++r) {
      Kernel one = withResult(kernel, kernel.results[r]);
      if (r == 0) {
        graph.kernels[index] = std::move(one);
        continue;
      }
      for (Term &term : one.terms)
        term.macs = 0; // counted in the first
      order.push_back({false, unsigned(graph.kernels.size())});
      graph.kernels.push_back(std::move(one));
      ++added;
    }
  }
  graph.order = std::move(order);
  return added;
}

} // namespace

unsigned splitResults(KernelGraph &graph) {
  return split(graph, [](const Kernel &) { return true; });
}

unsigned splitResults(KernelGraph &graph, const Machine &machine) {
  return split(graph, [&](const Kernel &kernel) {
    return epilogueNeedsOfRows(kernel, graph, machine).alus > machine.vxm.alus;
  });
}

} // namespace millrace::forms
