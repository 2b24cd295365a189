// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says on the standard error how far a long command is: a bar on a terminal; elsewhere a plain line
// every few seconds, and nothing at all for commands that are done before.
#pragma once

#include "simulator/observe/Observer.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace millrace::driver {

class Progress {
public:
  Progress();
  /// Ends the line of the stage under way.
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// Another stage begins, such as "scheduling"; `total` things will be done in it, 0 if unknown.
  void stage(const std::string &name, uint64_t total = 0);
  /// `done` of them are done. Cheap: shows nothing more often than people read.
  void update(uint64_t done);

private:
  using Clock = std::chrono::steady_clock;
  void show(uint64_t done);
  void endLine();

  const bool terminal;
  std::string name;
  uint64_t total = 0;
  Clock::time_point next; ///< when to show again
  bool lineOpen = false;
};

/// Counts the instructions that a simulation has dispatched.
class SimulationProgress : public sim::Observer {
public:
  /// Of an image with this many instructions.
  SimulationProgress(Progress &progress, uint64_t instructions);
  void beginStep(unsigned) override {}
  void dispatched(unsigned, unsigned, const sim::Burst &) override {
    if (++done % kBetween == 0)
      progress.update(done);
  }
  void endStep(unsigned, uint64_t) override { progress.update(done); }

private:
  static constexpr uint64_t kBetween = 1024; ///< instructions between two looks at the clock
  Progress &progress;
  uint64_t done = 0;
};

} // namespace millrace::driver
