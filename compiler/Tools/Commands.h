// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Subcommands of `millrace`. Each adds itself to the command line and leaves what it does in `run`.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace millrace::driver {

/// Exit codes; `millrace --help` lists them.
enum Exit : int {
  Ok = 0,
  Wrong = 1,     ///< a violation, or measured cycles that differ from the prediction
  Usage = 2,     ///< bad command line
  BadInput = 3,  ///< a file that cannot be read or is not valid, an operator that is not supported
  TooLarge = 4,  ///< the model does not fit the machine, or the machine cannot do it
  BadOutput = 5, ///< an output that cannot be written
};

using Action = std::function<int()>;
void addRun(CLI::App &app, Action &action);
void addCompile(CLI::App &app, Action &action);
void addOpt(CLI::App &app, Action &action);
void addSimulate(CLI::App &app, Action &action);
void addDump(CLI::App &app, Action &action);
void addAssemble(CLI::App &app, Action &action);
void addDisassemble(CLI::App &app, Action &action);
void addMachines(CLI::App &app, Action &action);
void addDescribe(CLI::App &app, Action &action);

/// Prints "millrace: error: <text>" and returns the code.
int fail(Exit code, const std::string &text);

} // namespace millrace::driver
