// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// millrace-compiler: every command. `millrace` hands over to it what it cannot do itself.
#include "compiler/Tools/CommandLine.h"
#include "compiler/Tools/Completion.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/HostRunner.h"

using namespace millrace::driver;

/// What jemalloc reads as it starts (jemalloc(3), "TUNING"): a compilation ends after seconds, so
/// pages that are free for a moment are kept.
extern "C" const char *malloc_conf;
const char *malloc_conf = "dirty_decay_ms:-1,muzzy_decay_ms:-1";

int main(int argc, char **argv) {
  runCommandLine(argc, argv, [](CLI::App &app, Action &action) {
    addRun(app, action);
    addBatch(app, action);
    addCompile(app, action);
    addCheck(app, action);
    addOpt(app, action);
    addKernels(app, action);
    addImageCommands(app, action, beginHostRunner);
    addHelp(app, action);
    addCompletion(app, action);
  });
}
