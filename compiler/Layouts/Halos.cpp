// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What windows over single channels read beside a result: how far bands of a tensor reach.
#include "compiler/Layouts/LayoutProblem.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>

namespace millrace::layouts {

/// Of both, the farther in each dimension.
void LayoutProblem::widen(std::map<unsigned, std::vector<Halo>> &all, unsigned tensor,
                          const std::vector<Halo> &halo) {
  std::vector<Halo> &its = all.try_emplace(tensor, halo.size()).first->second;
  for (unsigned d = 0; d < halo.size(); ++d)
    its[d] = {std::max(its[d].before, halo[d].before), std::max(its[d].after, halo[d].after),
              std::max(its[d].step, halo[d].step)};
}

void LayoutProblem::findHalos() {
  constexpr size_t kLongSum = 8; // terms: a factor costs as much as the square of their number
  for (const Kernel &kernel : graph.kernels) {
    if (kernel.terms.size() > kLongSum)
      for (const Term &term : kernel.terms)
        inLongSums.insert(term.a.tensor);
    std::map<unsigned, std::vector<const Access *>> reads;
    for (const Access &operand : kernel.operands)
      if (graph.tensors[operand.tensor].role != TensorRole::Constant)
        reads[operand.tensor].push_back(&operand);
    for (const auto &[tensor, taps] : reads) {
      if (taps.size() < 2)
        continue;
      const forms::Result &first = kernel.results.front();
      Window window{tensor, first.access.tensor,
                    std::vector<Halo>(graph.tensors[tensor].shape.size())};
      for (const Access *tap : taps)
        for (unsigned d = 0; d < window.halo.size(); ++d)
          if (const std::optional<unsigned> loop = onlyLoop(kernel, tap->index[d])) {
            const int64_t step = coefficient(tap->index[d], *loop), at = tap->index[d].offset;
            Halo &its = window.halo[d];
            its.step = std::max(its.step, step);
            its.before = std::max(its.before, -at);
            its.after = std::max(its.after, at + 1 - step);
          }
      widen(halos, tensor, window.halo);
      windows.push_back(std::move(window));
      nearWindows.insert(tensor);
      for (const forms::Result &r : kernel.results)
        nearWindows.insert(r.access.tensor);
    }
  }
}

/// What a row of a result holds beyond its band, its operands hold there, too: those of other
/// variables get the halo of the result's, unless the kernel is a window of them. `variableOf`: a
/// number, or -1 for what stays plain.
void LayoutProblem::spreadHalos(const std::function<int(unsigned)> &variableOf) {
  std::map<int, std::vector<Halo>> its; // by variable
  auto widen = [](std::vector<Halo> &all, size_t dim, const Halo &halo) {
    const Halo before = all[dim];
    all[dim].before = std::max(before.before, halo.before);
    all[dim].after = std::max(before.after, halo.after);
    return all[dim] != before;
  };
  for (const auto &[tensor, all] : halos)
    for (size_t d = 0; variableOf(tensor) >= 0 && d < all.size(); ++d)
      widen(its.try_emplace(variableOf(tensor), all.size()).first->second, d, all[d]);
  for (bool changed = !its.empty(); changed;) {
    changed = false;
    for (size_t k = graph.kernels.size(); k-- > 0;) {
      const Kernel &kernel = graph.kernels[k];
      const Access &result = kernel.results.front().access;
      const auto found = its.find(variableOf(result.tensor));
      if (found == its.end())
        continue;
      const std::vector<Halo> wanted = found->second;
      for (const Access &operand : kernel.operands) {
        const int variable = variableOf(operand.tensor);
        const auto isSame = [&](const Access &other) { return other.tensor == operand.tensor; };
        if (variable < 0 || variable == variableOf(result.tensor) || operand.lookup ||
            std::count_if(kernel.operands.begin(), kernel.operands.end(), isSame) > 1)
          continue;
        const size_t dims = graph.tensors[operand.tensor].shape.size();
        for (unsigned d = 0; d < dims; ++d)
          for (unsigned e = 0; e < result.index.size(); ++e) {
            const std::optional<unsigned> loop = onlyLoop(kernel, operand.index[d]);
            if (!loop || d == graph.tensors[operand.tensor].laneDim ||
                onlyLoop(kernel, result.index[e]) != loop ||
                coefficient(operand.index[d], *loop) != 1 ||
                (wanted[e].before == 0 && wanted[e].after == 0))
              continue;
            changed |= widen(its.try_emplace(variable, dims).first->second, d, wanted[e]);
            widen(halos.try_emplace(operand.tensor, dims).first->second, d, wanted[e]);
          }
      }
    }
  }
}

/// From the last window to the first: a window over a result that is read beside itself reaches
/// further. Tensors of one layout reach as far as each other.
void LayoutProblem::findReaches(const std::map<unsigned, Variable> &byRoot) {
  reaches = halos;
  std::vector<unsigned> rootOf(graph.tensors.size(), ~0u);
  for (const auto &[root, variable] : byRoot)
    for (unsigned t : variable.tensors)
      rootOf[t] = root;
  const auto share = [&](unsigned tensor, const std::vector<Halo> &halo) {
    if (rootOf[tensor] != ~0u)
      for (unsigned t : byRoot.at(rootOf[tensor]).tensors)
        widen(reaches, t, halo);
  };
  for (const auto &[tensor, halo] : halos)
    share(tensor, halo);
  for (auto window = windows.rbegin(); window != windows.rend(); ++window) {
    const auto behind = reaches.find(window->result);
    if (behind == reaches.end() || behind->second.size() != window->halo.size())
      continue;
    std::vector<Halo> sum = window->halo;
    for (unsigned d = 0; d < sum.size(); ++d) {
      const int64_t step = sum[d].step * behind->second[d].step;
      if (!sum[d].before && !sum[d].after) { // it moves along another dimension
        sum[d].step = step;
        continue;
      }
      sum[d].before += sum[d].step * behind->second[d].before;
      sum[d].after += sum[d].step * behind->second[d].after;
      sum[d].step = step;
    }
    share(window->tensor, sum);
  }
}

} // namespace millrace::layouts
