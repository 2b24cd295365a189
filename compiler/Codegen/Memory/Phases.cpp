// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Memory/Phases.h"

#include "compiler/Codegen/Memory/Layout.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <functional>
#include <set>

namespace millrace::grid {
namespace {

struct Use {
  const Kernel *kernel;
  const Access *access;
};

/// Are x / phases and x % phases affine in the loops?
bool stepsBy(const Use &use, size_t dim, int64_t phases) {
  const forms::AffineIndex &index = use.access->index[dim];
  int64_t low = index.offset, high = index.offset; // of what is no multiple
  for (const auto &[loop, c] : index.terms)
    if (c % phases) {
      const int64_t reach = c * (use.kernel->loops[loop].extent - 1);
      low += std::min<int64_t>(reach, 0);
      high += std::max<int64_t>(reach, 0);
    }
  return floorDivide(low, phases) == floorDivide(high, phases);
}

int64_t phasesOf(const std::vector<Use> &uses, size_t dim, int64_t extent) {
  std::set<int64_t, std::greater<>> steps;
  for (const Use &use : uses)
    for (const auto &[loop, c] : use.access->index[dim].terms) {
      const forms::Loop &its = use.kernel->loops[loop];
      if (its.extent == 1)
        continue;
      if (its.kind == forms::LoopKind::Running) // runs through several dimensions as through one
        return 1;
      if (c > 1 && c < extent)
        steps.insert(c);
    }
  for (const int64_t step : steps)
    if (std::all_of(uses.begin(), uses.end(),
                    [&](const Use &use) { return stepsBy(use, dim, step); }))
      return step;
  return 1;
}

} // namespace

std::vector<std::vector<int64_t>> phasesOf(const KernelGraph &graph) {
  std::vector<bool> isFixed = forms::Uses(graph).onHost;
  std::vector<std::vector<Use>> uses(graph.tensors.size());
  for (const Kernel &kernel : graph.kernels) {
    for (const forms::Term &t : kernel.terms)
      isFixed[t.w.tensor] = true;
    for (const Access &o : kernel.operands)
      if (o.lookup)
        isFixed[o.tensor] = isFixed[o.lookup->tensor] = true;
    forms::forEachAccess(kernel, [&](const Access &access) {
      uses[access.tensor].push_back({&kernel, &access});
    });
  }
  std::vector<std::vector<int64_t>> phases(graph.tensors.size());
  for (size_t t = 0; t < phases.size(); ++t) {
    const Tensor &tensor = graph.tensors[t];
    phases[t].assign(tensor.shape.size(), 1);
    if (isFixed[t] || tensor.role != forms::TensorRole::Intermediate)
      continue;
    for (size_t d = 0; d < tensor.shape.size(); ++d)
      if (d != tensor.laneDim)
        phases[t][d] = phasesOf(uses[t], d, tensor.shape[d]);
  }
  return phases;
}

} // namespace millrace::grid
