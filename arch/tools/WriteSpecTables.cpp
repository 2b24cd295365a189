// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// write-spec-tables FOLDER: writes the parts of docs/spec that derive from tables in the code.
// Tests hold the committed files equal to the tables.

#include "arch/spec/Schema.h"

#include <cstdio>
#include <fstream>

int main(int count, char **arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: write-spec-tables FOLDER   (docs/spec in the source tree)\n");
    return 2;
  }
  std::ofstream file(std::string(arguments[1]) + "/machine-keys.md");
  file << millrace::machineKeysMarkdown();
  file.close();
  if (!file) {
    std::fprintf(stderr,
                 "cannot write machine-keys.md into '%s'; name an existing, writable folder\n",
                 arguments[1]);
    return 1;
  }
}
