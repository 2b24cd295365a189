// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/LateValues.h"

#include <functional>
#include <optional>

namespace millrace::forms {
namespace {

using Nodes = std::vector<Node>;

/// What uses a node that no running reduction comes before: the reduction, per element, or nodes
/// after it, once.
struct Users {
  std::vector<bool> isLate; ///< the node itself comes after a reduction
  std::vector<bool> perElement, once;

  explicit Users(const Kernel &kernel)
      : isLate(kernel.nodes.size(), false), perElement(isLate), once(isLate) {
    const Nodes &nodes = kernel.nodes;
    for (size_t n = 0; n < nodes.size(); ++n)
      for (unsigned a : nodes[n].args)
        isLate[n] = isLate[n] || isLate[a] || nodes[a].kind == Node::Kind::Reduce;
    for (const Result &result : kernel.results)
      perElement[result.node] = true;
    for (size_t n = nodes.size(); n-- > 0;)
      for (unsigned a : nodes[n].args) {
        const bool reduces = nodes[n].kind == Node::Kind::Reduce;
        perElement[a] = perElement[a] || reduces || (!isLate[n] && perElement[n]);
        once[a] = once[a] || isLate[n] || (!reduces && once[n]);
      }
  }
  bool onlyOnce(unsigned n) const { return isLate[n] || (once[n] && !perElement[n]); }
};

unsigned repeatIn(Kernel &kernel) {
  const Nodes old = kernel.nodes;
  const Users users(kernel);
  Nodes nodes;
  std::vector<unsigned> first(old.size());
  std::vector<std::optional<unsigned>> again(old.size());
  auto add = [&](Node node) {
    nodes.push_back(std::move(node));
    return unsigned(nodes.size() - 1);
  };
  std::function<unsigned(unsigned)> afterwards = [&](unsigned n) -> unsigned {
    const bool repeats = old[n].kind == Node::Kind::Op || old[n].kind == Node::Kind::Operand;
    if (!repeats || users.onlyOnce(n))
      return first[n];
    if (!again[n]) {
      Node copy = old[n];
      for (unsigned &a : copy.args)
        a = afterwards(a);
      again[n] = add(std::move(copy));
    }
    return *again[n];
  };
  for (unsigned n = 0; n < old.size(); ++n) {
    Node node = old[n];
    for (unsigned &a : node.args)
      a = users.onlyOnce(n) && node.kind != Node::Kind::Reduce ? afterwards(a) : first[a];
    first[n] = add(std::move(node));
  }
  for (Result &result : kernel.results)
    result.node = first[result.node];
  kernel.nodes = std::move(nodes);
  return unsigned(kernel.nodes.size() - old.size());
}

} // namespace

unsigned repeatLateValues(KernelGraph &graph) {
  unsigned added = 0;
  for (Kernel &kernel : graph.kernels)
    added += repeatIn(kernel);
  return added;
}

} // namespace millrace::forms
