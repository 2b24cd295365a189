// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line that the programs of this folder share.
#pragma once

#include "compiler/Tools/Commands.h"

namespace millrace::driver {

/// Runs the command on the line, one of those that `addCommands` adds, and ends the process with
/// its exit code.
[[noreturn]] void runCommandLine(int argc, char **argv,
                                 const std::function<void(CLI::App &, Action &)> &addCommands);

/// The commands that need neither compiler nor MLIR.
void addImageCommands(CLI::App &app, Action &action, const FindHostSteps &findHost);

} // namespace millrace::driver
