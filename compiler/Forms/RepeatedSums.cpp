// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/RepeatedSums.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>

namespace millrace::forms {

/// Puts `factor` times the sum in place of the sum in all that uses it.
static void multiplySum(Kernel &kernel, AluOp multiply, uint32_t factor) {
  std::vector<unsigned> number;
  std::vector<Node> nodes;
  for (Node node : kernel.nodes) {
    for (unsigned &arg : node.args)
      arg = number[arg];
    const bool isSum = node.kind == Node::Kind::Accumulator;
    nodes.push_back(std::move(node));
    if (isSum) {
      nodes.push_back({Node::Kind::Immediate, 0, factor, {}, {}});
      const unsigned sum = unsigned(nodes.size()) - 2;
      nodes.push_back({Node::Kind::Op, 0, 0, multiply, {sum, sum + 1}});
    }
    number.push_back(unsigned(nodes.size() - 1));
  }
  for (Result &result : kernel.results)
    result.node = number[result.node];
  kernel.nodes = std::move(nodes);
}

unsigned multiplyRepeatedSums(KernelGraph &graph) {
  unsigned dropped = 0;
  for (Kernel &kernel : graph.kernels) {
    int64_t times = 1;
    for (unsigned l = 0; l < kernel.loops.size() && !kernel.terms.empty(); ++l) {
      Loop &loop = kernel.loops[l];
      if (loop.kind != LoopKind::Contracted || loop.extent == 1 ||
          std::any_of(kernel.terms.begin(), kernel.terms.end(),
                      [&](const Term &term) { return usesLoop(term.a, l) || usesLoop(term.w, l); }))
        continue;
      times *= loop.extent;
      loop.extent = 1;
      ++dropped;
    }
    if (times == 1)
      continue;
    const ElementType type = graph.tensors[kernel.terms.front().a.tensor].type;
    if (type == ElementType::Int8)
      multiplySum(kernel, AluOp::MulI32, uint32_t(times));
    else
      multiplySum(kernel, AluOp::MulF32, bitsOf(float(times)));
  }
  return dropped;
}

} // namespace millrace::forms
