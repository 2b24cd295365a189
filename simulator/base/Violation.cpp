// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/Violation.h"

namespace millrace::sim {

std::string Violation::describe() const {
  std::string text = nameOf(invariant) + " at cycle " + std::to_string(cycle) + " of step " +
                     std::to_string(step) + ", pe " + std::to_string(pe) + ", queue " +
                     std::to_string(queue) + " (" + unit + "): " + message;
  if (!instruction.empty())
    text += "; instruction " + std::to_string(index.value_or(0)) + ": " + instruction;
  if (!provenance.empty())
    text += "; from '" + provenance + "'";
  return text;
}

void ViolationLog::add(Violation violation) {
  if (held && held->order() <= violation.order())
    return;
  held = std::move(violation);
}

} // namespace millrace::sim
