// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// millrace: what works on images alone is done here; all else becomes millrace-compiler, which
// lies in the same folder. Loading MLIR takes as long as a fifth of a cycles-only simulation of
// ResNet-50.
#include "compiler/Tools/CommandLine.h"
#include "compiler/Tools/HostSteps.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <unistd.h>

using namespace millrace::driver;

namespace {

/// Turns this process into millrace-compiler with the same command line.
[[noreturn]] void becomeCompiler(char **argv) {
  char self[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof(self));
  std::string path(self, size_t(std::max<ssize_t>(length, 0)));
  path = path.substr(0, path.rfind('/') + 1) + "millrace-compiler";
  ::execv(path.c_str(), argv);
  fail(BadInput, "cannot start '" + path + "': " + std::strerror(errno) +
                     "; it belongs in the folder of millrace");
  _exit(BadInput);
}

} // namespace

int main(int argc, char **argv) {
  const auto addCommands = [argv](CLI::App &app, Action &action) {
    addImageCommands(app, action, [argv](const auto &) -> MakeHostSteps { becomeCompiler(argv); });
  };
  CLI::App known;
  Action none;
  addCommands(known, none);
  for (const CLI::App *command : known.get_subcommands([](const CLI::App *) { return true; }))
    if (argc > 1 && command->get_name() == argv[1])
      runCommandLine(argc, argv, addCommands);
  becomeCompiler(argv);
}
