// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Work in child processes, so that a crash or an endless loop ends one piece of it and not the
// program. A child is a copy of this process: what is loaded here is loaded there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace millrace::driver {

/// How a child came to its end, and what it took.
struct ChildResult {
  enum class End : uint8_t {
    Exited,   ///< by itself, with `code`
    Signaled, ///< by signal `code`: it crashed, or was killed from outside
    TimedOut, ///< it was killed at the time limit
  };
  End end = End::Exited;
  int code = 0;
  double seconds = 0;     ///< wall clock
  uint64_t peakBytes = 0; ///< most memory that it had
  std::string errors;     ///< what it wrote to the standard error, at most the last 64 KiB
};

struct ChildLimits {
  unsigned atOnce = 1;  ///< children that run at a time
  double seconds = 300; ///< wall clock of one child
  uint64_t bytes = 0;   ///< private memory of one child; 0: no limit
};

/// Runs `work(k)` for every k below `count`, each in a child of its own that ends with what `work`
/// returns; its standard output is discarded. Calls `done(k, result)` in this process, in the
/// order of the ends. Call it while this process has one thread. An error if no child can be
/// started.
std::string runInChildren(size_t count, const ChildLimits &limits,
                          const std::function<int(size_t)> &work,
                          const std::function<void(size_t, ChildResult)> &done);

} // namespace millrace::driver
