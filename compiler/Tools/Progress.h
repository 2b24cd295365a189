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

/// "41 %" of a total that is not 0; never more than 100 %.
unsigned percentOf(uint64_t done, uint64_t total);

/// How much a command says beside its result and its errors.
enum class Verbosity : uint8_t {
  Quiet,  ///< nothing
  Normal, ///< how far it is, if it takes long, and a table
  Verbose ///< also each stage with the time that it took
};

class Progress {
public:
  explicit Progress(Verbosity verbosity = Verbosity::Normal);
  /// Ends the line of the stage under way.
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// Another stage begins, such as "scheduling"; `total` things will be done in it, 0 if unknown.
  void stage(const std::string &name, uint64_t total = 0);
  /// `done` of them are done; more than `total` shows as all. Cheap: shows nothing more often than
  /// people read.
  void update(uint64_t done);
  /// The same where the total is known only now.
  void update(uint64_t done, uint64_t of) {
    total = of;
    update(done);
  }

  /// Something a reader of details wants to know about the stage under way.
  void note(const std::string &text);

private:
  using Clock = std::chrono::steady_clock;
  void show(uint64_t done);
  void endLine();
  void endStage();

  const Verbosity verbosity;
  const bool terminal;
  std::string name;
  uint64_t total = 0;
  Clock::time_point next;    ///< when to show again
  Clock::time_point began;   ///< the stage under way
  double processorBegan = 0; ///< seconds of processor time up to there
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
