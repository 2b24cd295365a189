// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Machines that targets need thousands of times a second: reading one takes longer than the rest of
// an execution, so they are kept.
#pragma once

#include "arch/spec/Machine.h"

#include <optional>
#include <string>

namespace millrace::fuzz {

/// The installed machine of this name, with at most 256 MiB of memory; null if there is none.
const Machine *installedMachine(const std::string &name);

/// The machine in this text, as an image carries it; null if it is none. Valid until the next call.
const Machine *machineOf(const std::string &yaml);

} // namespace millrace::fuzz
