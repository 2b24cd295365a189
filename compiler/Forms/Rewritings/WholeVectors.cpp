// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/WholeVectors.h"

#include "compiler/Forms/Uses.h"

#include <set>

namespace millrace::forms {

WholeVectors::WholeVectors(const KernelGraph &graph, int64_t vector)
    : isCut(graph.tensors.size(), false), sources(graph.tensors.size()) {
  for (const Kernel &kernel : graph.kernels) {
    forEachAccess(kernel, [&](const Access &access) {
      const Tensor &tensor = graph.tensors[access.tensor];
      const AffineIndex &lanes = access.index[tensor.laneDim];
      bool isWhole = lanes.offset % vector == 0;
      for (auto [loop, step] : lanes.terms)
        isWhole &= step == 1 || step % vector == 0;
      if (!isWhole && tensor.role != TensorRole::Constant)
        isCut[access.tensor] = true;
    });
    for (const Result &result : kernel.results)
      for (const Access &operand : kernel.operands)
        if (graph.tensors[operand.tensor].role != TensorRole::Constant)
          sources[result.access.tensor].push_back(operand.tensor);
  }
}

bool WholeVectors::areIn(unsigned tensor) const {
  std::set<unsigned> seen{tensor};
  std::vector<unsigned> open{tensor};
  while (!open.empty()) {
    const unsigned t = open.back();
    open.pop_back();
    if (t >= isCut.size())
      continue;
    if (isCut[t])
      return false;
    for (unsigned source : sources[t])
      if (seen.insert(source).second)
        open.push_back(source);
  }
  return true;
}

} // namespace millrace::forms
