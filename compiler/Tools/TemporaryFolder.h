// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace millrace::driver {

/// A new folder for temporary files that goes away with all that is in it.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::error_code ignored;
    std::string pattern =
        (std::filesystem::temp_directory_path(ignored) / "millrace-XXXXXX").string();
    if (::mkdtemp(pattern.data()))
      folder = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (exists())
      std::filesystem::remove_all(folder, ignored);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  bool exists() const { return !folder.empty(); }
  const std::filesystem::path &path() const { return folder; }

private:
  std::filesystem::path folder; ///< empty if none could be made
};

/// What is said then.
inline constexpr char kNoTemporaryFolder[] = "cannot make a folder for temporary files; set TMPDIR "
                                             "to one in which files can be made";

} // namespace millrace::driver
