// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Who reads and writes every tensor of a graph, as the graph was when this was made.
struct Uses {
  explicit Uses(const KernelGraph &graph);

  std::vector<std::vector<unsigned>> writers; ///< per tensor: kernels, each once
  std::vector<std::vector<unsigned>> readers; ///< per tensor: kernels, each once
  std::vector<bool> onHost;                   ///< per tensor: a host call takes or gives it
  /// Per tensor: the host alone writes it, an input or what a call gives, and takes it nowhere.
  std::vector<bool> fromHost;
};

/// Calls f(access) for every access of the kernel: of terms, of operands, of results; indices that
/// are looked up aside.
template <class K, class F> void forEachAccess(K &kernel, F f) {
  for (auto &term : kernel.terms)
    f(term.a), f(term.w);
  for (auto &operand : kernel.operands)
    f(operand);
  for (auto &result : kernel.results)
    f(result.access);
}

/// Calls f(tensor) for every access of the kernel, or for all that the host call takes and gives,
/// at a place of the graph's order.
template <class F>
void forEachTensor(const KernelGraph &graph, std::pair<bool, unsigned> place, F f) {
  const auto [host, index] = place;
  if (!host)
    return forEachAccess(graph.kernels[index], [&](const Access &a) { f(a.tensor); });
  for (unsigned t : graph.hostCalls[index].inputs)
    f(t);
  for (unsigned t : graph.hostCalls[index].outputs)
    f(t);
}

/// Places of the graph's order at which a tensor is touched, from the first to behind the last;
/// none if first is end.
struct Life {
  size_t first = 0, end = 0;
};
std::vector<Life> livesOf(const KernelGraph &graph); ///< per tensor

} // namespace millrace::forms
