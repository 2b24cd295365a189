// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/HostSteps.h"

namespace millrace::driver {

std::optional<HostType> hostTypeOf(const Binding &binding) {
  return hostTypeFromOnnxName(binding.hostType == "float32" ? "float" : binding.hostType);
}

Expected<HostTensor> tensorFor(const Binding &binding) {
  const std::optional<HostType> type = hostTypeOf(binding);
  if (!type)
    return Error{"'" + binding.name + "' has element type '" + binding.hostType +
                 "', which the host does not know"};
  return HostTensor::zeros(*type, binding.shape);
}

} // namespace millrace::driver
