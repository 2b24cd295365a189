// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/AluCount.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <array>
#include <limits>

namespace millrace::forms {
namespace {

using Cycles = int64_t;

/// The epilogue in time: every operation as early as its arguments allow; what does not hang on the
/// sum as late as its users allow.
class Chain {
public:
  Chain(const Kernel &kernel, const KernelGraph &graph, const Machine &machine)
      : kernel(kernel), graph(graph), machine(machine), nodes(kernel.nodes),
        needed(neededNodes(kernel)), onSum(nodes.size(), false), late(onSum), at(nodes.size(), 0) {
    dispatchEarly();
    dispatchLate();
  }
  unsigned alus() const;

private:
  const Kernel &kernel;
  const KernelGraph &graph;
  const Machine &machine;
  const std::vector<Node> &nodes;
  std::vector<bool> needed, onSum, late; ///< late: runs once, after a reduction
  std::vector<Cycles> at;                ///< dispatch

  bool isOp(unsigned n) const {
    return nodes[n].kind == Node::Kind::Op || nodes[n].kind == Node::Kind::Reduce;
  }
  Cycles latency(AluOp op) const {
    return machine.latency.aluLatency(std::string(aluOpInfo(op).mnemonic)) +
           machine.latency.aluChain;
  }
  /// A value that streams or is chained, not one that an instruction or a latch holds.
  bool flows(unsigned n) const {
    if (nodes[n].kind != Node::Kind::Operand)
      return nodes[n].kind != Node::Kind::Immediate;
    return graph.tensors[kernel.operands[nodes[n].index].tensor].role != TensorRole::Constant;
  }
  template <class F> void forEachUse(unsigned n, F f) const {
    for (unsigned u = n + 1; u < nodes.size(); ++u)
      if (needed[u] && isOp(u) && std::count(nodes[u].args.begin(), nodes[u].args.end(), n))
        f(u);
  }
  void dispatchEarly();
  void dispatchLate();
};

void Chain::dispatchEarly() {
  for (unsigned n = 0; n < nodes.size(); ++n) {
    onSum[n] = nodes[n].kind == Node::Kind::Accumulator;
    for (unsigned a : nodes[n].args) {
      onSum[n] = onSum[n] || onSum[a];
      late[n] = late[n] || late[a] || nodes[a].kind == Node::Kind::Reduce;
      if (isOp(a))
        at[n] = std::max(at[n], at[a] + latency(nodes[a].op));
    }
  }
}

void Chain::dispatchLate() {
  for (unsigned n = unsigned(nodes.size()); n-- > 0;) {
    if (!needed[n] || nodes[n].kind != Node::Kind::Op || onSum[n] || late[n])
      continue;
    Cycles latest = std::numeric_limits<Cycles>::max();
    forEachUse(n, [&](unsigned u) { latest = std::min(latest, at[u] - latency(nodes[n].op)); });
    if (latest != std::numeric_limits<Cycles>::max())
      at[n] = latest;
  }
}

unsigned Chain::alus() const {
  std::array<Cycles, 2> count{}; // before a reduction and after it
  const Cycles step = latency(AluOp::Pass);
  for (unsigned n = 0; n < nodes.size(); ++n) {
    if (!needed[n] || !flows(n))
      continue;
    count[late[n]] += isOp(n);
    Cycles first = std::numeric_limits<Cycles>::max(), last = 0;
    forEachUse(n, [&](unsigned u) {
      first = std::min(first, at[u]);
      last = std::max(last, at[u]);
    });
    if (nodes[n].kind == Node::Kind::Op)
      first = at[n] + latency(nodes[n].op);
    if (last > first && nodes[n].kind != Node::Kind::Reduce)
      count[late[n]] += (last - first + step - 1) / step;
  }
  return unsigned(std::max(count[0], count[1]));
}

} // namespace

unsigned alusOf(const Kernel &kernel, const KernelGraph &graph, const Machine &machine) {
  return Chain(kernel, graph, machine).alus();
}

} // namespace millrace::forms
