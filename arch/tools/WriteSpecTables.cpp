// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// write-spec-tables FOLDER: writes the parts of docs/spec that derive from tables in the code.
// Tests hold the committed files equal to the tables.

#include "arch/spec/Schema.h"
#include "arch/tools/IsaDocument.h"

#include <cstdio>
#include <fstream>

namespace {

bool write(const std::string &path, const std::string &text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file)
    std::fprintf(stderr, "cannot write '%s'; name an existing, writable folder\n", path.c_str());
  return bool(file);
}

} // namespace

int main(int count, char **arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: write-spec-tables FOLDER   (docs/spec in the source tree)\n");
    return 2;
  }
  const std::string folder = arguments[1];
  const bool written = write(folder + "/machine-keys.md", millrace::machineKeysMarkdown()) &&
                       write(folder + "/isa.md", millrace::isaMarkdown());
  return written ? 0 : 1;
}
