// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a fuzz target once on every file of the folders given, in the order of their names: the
// corpora as a test, without a fuzzer. Exit code 0 if all return and every file named legal-* is
// accepted; a crash names its file before it.
#include "tests/fuzz/Target.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace fs = std::filesystem;

int main(int argc, char **argv) {
  std::vector<fs::path> files;
  for (int k = 1; k < argc; ++k)
    for (const fs::directory_entry &entry : fs::directory_iterator(argv[k]))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  unsigned accepted = 0, refused = 0;
  for (const fs::path &file : files) {
    std::fprintf(stderr, "%s\n", file.c_str());
    std::ifstream stream(file, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(stream)), {});
    millrace::fuzz::accepted = false;
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
    accepted += millrace::fuzz::accepted;
    if (!millrace::fuzz::accepted && file.filename().string().starts_with("legal-")) {
      std::fprintf(stderr, "%s is legal and was refused\n", file.c_str());
      ++refused;
    }
  }
  std::printf("%zu inputs, %u accepted, %u legal ones refused\n", files.size(), accepted, refused);
  return files.empty() || accepted == 0 || refused ? 1 : 0;
}
