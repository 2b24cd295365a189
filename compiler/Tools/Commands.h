// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Subcommands of `millrace`. Each adds itself to the command line and leaves what it does in `run`.
#pragma once

#include "arch/program/Image.h"
#include "compiler/Support/HostTensor.h"
#include "compiler/Tools/Progress.h"

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>

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

/// Errors carry the exit code that they mean.
struct Failure {
  Exit code = BadInput;
  std::string message;
};

struct HostSteps;
/// Makes who runs the host steps of a program, given its inputs by name; outputs that steps make
/// land in `outputs`. Both outlive it.
using MakeHostSteps = std::function<std::unique_ptr<HostSteps>(
    const std::map<std::string, HostTensor> &inputs, std::map<std::string, HostTensor> &outputs)>;

/// Asked as soon as a program with host steps is known to run with values; its data are yet to be
/// read. `millrace`, which knows no MLIR, does not come back from it.
using FindHostSteps = std::function<MakeHostSteps(const Image &)>;

using Action = std::function<int()>;
/// Adds -q and -v, which choose how much the command says.
void addVerbosity(CLI::App &command, Verbosity &verbosity);

void addRun(CLI::App &app, Action &action);
void addBatch(CLI::App &app, Action &action);
void addCompile(CLI::App &app, Action &action);
void addCheck(CLI::App &app, Action &action);
void addOpt(CLI::App &app, Action &action);
void addKernels(CLI::App &app, Action &action);
void addSimulate(CLI::App &app, Action &action, const FindHostSteps &findHost);
void addDump(CLI::App &app, Action &action);
void addAssemble(CLI::App &app, Action &action);
void addDisassemble(CLI::App &app, Action &action);
void addMachines(CLI::App &app, Action &action);
void addDescribe(CLI::App &app, Action &action);

/// Prints "millrace: error: <line>" for each line of the text and returns the code.
int fail(Exit code, const std::string &text);
/// Prints "millrace: warning: ..." to the standard error.
void warn(const std::string &text);

} // namespace millrace::driver
