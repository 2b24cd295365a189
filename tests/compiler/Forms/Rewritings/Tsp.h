// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

namespace millrace {

/// The machine that most tests of rewritings are for.
inline Machine tsp() {
  Expected<Machine> machine = loadMachine("tsp-v1");
  EXPECT_TRUE(machine);
  return *machine;
}

} // namespace millrace
