// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Uses.h"

namespace millrace::forms {

Uses::Uses(const KernelGraph &graph)
    : writers(graph.tensors.size()), readers(graph.tensors.size()),
      onHost(graph.tensors.size(), false), fromHost(graph.tensors.size(), false) {
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    fromHost[t] = graph.tensors[t].role == TensorRole::Input;
  auto note = [](std::vector<unsigned> &list, unsigned kernel) {
    if (list.empty() || list.back() != kernel)
      list.push_back(kernel);
  };
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    for (const Term &term : kernel.terms) {
      note(readers[term.a.tensor], k);
      note(readers[term.w.tensor], k);
    }
    for (const Access &operand : kernel.operands) {
      note(readers[operand.tensor], k);
      if (operand.lookup)
        note(readers[operand.lookup->tensor], k);
    }
    for (const Result &result : kernel.results)
      note(writers[result.access.tensor], k);
  }
  for (const HostCall &call : graph.hostCalls)
    for (unsigned t : call.outputs)
      onHost[t] = true, fromHost[t] = graph.tensors[t].role == TensorRole::Intermediate;
  for (const HostCall &call : graph.hostCalls)
    for (unsigned t : call.inputs)
      onHost[t] = true, fromHost[t] = false;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    fromHost[t] = fromHost[t] && writers[t].empty();
}

std::vector<Life> livesOf(const KernelGraph &graph) {
  std::vector<Life> lives(graph.tensors.size());
  for (size_t at = 0; at < graph.order.size(); ++at)
    forEachTensor(graph, graph.order[at], [&](unsigned t) {
      lives[t] = {lives[t].end ? lives[t].first : at, at + 1};
    });
  return lives;
}

} // namespace millrace::forms
