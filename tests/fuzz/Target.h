// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the fuzz targets share. A target is one LLVMFuzzerTestOneInput, for libFuzzer and for
// Replay.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

/// Runs the target on one input. 0, or -1 for what a fuzzer should not keep. Whatever the bytes
/// are, it returns: a crash, a finding of a sanitizer or a broken promise ends the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace millrace::fuzz {

/// Whether the last input was accepted as a model, machine, image, program or kernel. Replay.cpp
/// holds files named legal-* to it.
inline bool accepted = false;

/// Ends the process where a promise is broken: `text` says which, `details` what was found.
inline void require(bool holds, const char *text, const std::string &details = "") {
  if (holds)
    return;
  std::fprintf(stderr, "broken promise: %s\n%s\n", text, details.c_str());
  std::abort();
}

/// Every error is one line of words.
inline void requireError(const std::string &message) {
  require(!message.empty(), "an error says something");
  require(message.size() < 100000, "an error is short", message.substr(0, 1000));
}

/// Where two encodings part, for `details`.
template <class Bytes> std::string differenceOf(const Bytes &a, const Bytes &b) {
  size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at])
    ++at;
  return std::to_string(a.size()) + " and " + std::to_string(b.size()) +
         " bytes; they differ from byte " + std::to_string(at) + " on\n";
}

inline std::string_view textOf(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

} // namespace millrace::fuzz
