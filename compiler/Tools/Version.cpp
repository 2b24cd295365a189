// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Version.h"

namespace millrace::driver {

std::string_view version() { return MILLRACE_VERSION; }

std::string versionText() {
  const std::string from =
      commit().empty() ? "no commit" : "commit " + std::string(commit().substr(0, 12));
  return std::string(version()) + " (" + from + (isModified() ? ", modified)" : ")");
}

} // namespace millrace::driver
