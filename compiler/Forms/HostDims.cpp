// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/HostDims.h"

#include <cstdlib>
#include <functional>
#include <numeric>

namespace millrace::forms {

std::optional<std::vector<HostDim>> hostDims(const Tensor &tensor) {
  if (tensor.hostExtent)
    return std::nullopt;
  std::vector<HostDim> dims(tensor.shape.size());
  if (tensor.hostLoops.empty()) {
    for (unsigned d = 0; d < dims.size(); ++d)
      dims[d] = {d, 1};
    return dims;
  }
  std::vector<bool> isFilled(dims.size());
  for (const HostLoop &loop : tensor.hostLoops) {
    if (loop.step != 1 || isFilled[loop.dim] || loop.extent != tensor.shape[loop.dim])
      return std::nullopt;
    isFilled[loop.dim] = true;
    dims[loop.dim] = {loop.hostDim, loop.hostStep};
  }
  for (unsigned d = 0; d < dims.size(); ++d)
    if (!isFilled[d] && tensor.shape[d] != 1)
      return std::nullopt;
  return dims;
}

int64_t hostElementCount(const Tensor &tensor) {
  return std::accumulate(tensor.hostShape.begin(), tensor.hostShape.end(), int64_t(1),
                         std::multiplies<>());
}

bool endsWithHost(const Tensor &tensor) {
  if (tensor.hostLoops.empty())
    return true;
  const std::optional<std::vector<HostDim>> dims = hostDims(tensor);
  if (!dims)
    return false;
  std::vector<bool> isTaken(tensor.hostShape.size());
  for (unsigned d = 0; d < dims->size(); ++d) {
    const auto [dim, step] = (*dims)[d];
    if (!step)
      continue;
    if (isTaken[dim] || std::abs(step) != 1 || tensor.shape[d] != tensor.hostShape[dim] ||
        tensor.hostStart[dim] != (step < 0 ? tensor.shape[d] - 1 : 0))
      return false;
    isTaken[dim] = true;
  }
  return true;
}

} // namespace millrace::forms
