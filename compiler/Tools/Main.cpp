// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Commands.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <unistd.h>

using namespace millrace::driver;

int main(int argc, char **argv) {
  CLI::App app(
      "Compiles ONNX models to static schedules for spatial dataflow accelerators and executes "
      "them on a "
      "cycle-level SystemC model.\n\n"
      "Example: millrace run models/fixtures/mnist.onnx --machine tsp-v1 --precision fp16\n\n"
      "Exit codes: 0 done; 1 the simulator found a violation or another cycle count than "
      "predicted; 2 bad\n"
      "command line; 3 bad input file or unsupported operator; 4 the model does not fit the "
      "machine; 5 an\n"
      "output cannot be written.",
      "millrace");
  app.require_subcommand(1);
  Action action;
  addRun(app, action);
  addCompile(app, action);
  addSimulate(app, action);
  addDump(app, action);
  addAssemble(app, action);
  addDisassemble(app, action);
  addMachines(app, action);
  addDescribe(app, action);
  // A closed pipe and a file that grows too large are errors of write(), not ends of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  int code = Usage;
  try {
    app.parse(argc, argv);
    code = action();
  } catch (const CLI::ParseError &error) {
    code = app.exit(error) == 0 ? Ok : Usage;
  } catch (const std::bad_alloc &) {
    code = fail(TooLarge, "there is not enough memory on this computer for it");
  }
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && code == Ok)
    code = fail(BadOutput,
                std::string("cannot write to the standard output: ") + std::strerror(errno));
  // SystemC's own exit handlers destroy objects of simulations that are over; leave before them.
  std::fflush(stderr);
  _exit(code);
}
