// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Inputs that the host writes index by index, each dimension along one of its own.
#pragma once

#include "compiler/Forms/Kernel.h"

#include <optional>
#include <vector>

namespace millrace::forms {

/// How often the host writes an element of an input at most, on average (docs/spec, R15).
constexpr int64_t kMostRepetition = 3;

/// Where a step along a dimension of an input takes the host: `step` along its dimension `dim`.
struct HostDim {
  unsigned dim = 0;
  int64_t step = 0; ///< 0: nowhere, as in a dimension of a single index
};

/// Per dimension of the input, from the tensor's `hostStart` on; nothing where several loops of the
/// host fill one dimension, or where it writes indices (`hostExtent`).
std::optional<std::vector<HostDim>> hostDims(const Tensor &tensor);

/// Does the tensor end where the host's does, in every dimension? What is read beside it is then
/// beside the host's, too.
bool endsWithHost(const Tensor &tensor);

/// Elements of what the host has.
int64_t hostElementCount(const Tensor &tensor);

} // namespace millrace::forms
