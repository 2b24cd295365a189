// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which Millrace this is.
#pragma once

#include <string>
#include <string_view>

namespace millrace::driver {

/// Major, minor and patch: "0.1.0". CMakeLists.txt states it.
std::string_view version();

/// The commit that was checked out when this was built, as hexadecimal digits; empty if the source
/// was no git checkout.
std::string_view commit();

/// Whether files of the checkout differed from that commit.
bool isModified();

/// "0.1.0 (commit 0123456789ab)", "0.1.0 (commit 0123456789ab, modified)" or "0.1.0 (no commit)".
std::string versionText();

} // namespace millrace::driver
