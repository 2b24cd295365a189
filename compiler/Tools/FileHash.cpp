// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/FileHash.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <fstream>
#include <vector>

namespace millrace::driver {

std::string sha256Of(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return {};
  llvm::SHA256 hash;
  std::vector<char> part(1 << 20);
  while (file.read(part.data(), std::streamsize(part.size())) || file.gcount() > 0)
    hash.update(llvm::StringRef(part.data(), size_t(file.gcount())));
  return file.eof() ? llvm::toHex(hash.final(), /*LowerCase=*/true) : std::string();
}

} // namespace millrace::driver
