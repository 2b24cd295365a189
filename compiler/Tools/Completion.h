// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scripts that complete millrace's command line in a shell, written from the commands themselves.
#pragma once

#include "compiler/Tools/Commands.h"

namespace millrace::driver {

/// The script for "bash", "zsh" or "fish".
std::string completionScript(const CLI::App &app, const std::string &shell);

/// Adds `completion`, which prints one.
void addCompletion(CLI::App &app, Action &action);

} // namespace millrace::driver
