// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What may watch a simulation. Observers never change it.
#pragma once

#include "simulator/base/Burst.h"

#include <vector>

namespace millrace::sim {

struct Observer {
  virtual ~Observer() = default;
  /// A grid step begins; cycles of dispatched() count from it.
  virtual void beginStep(unsigned step) = 0;
  /// An instruction was dispatched: its elements act from burst.start to burst.lastCycle(). Of one
  /// PE they come in order of time; PEs take turns.
  virtual void dispatched(unsigned pe, unsigned queue, const Burst &burst) = 0;
  /// The step is over and took this many cycles.
  virtual void endStep(unsigned step, uint64_t cycles) = 0;
};

/// Several observers as one.
struct Observers : Observer {
  std::vector<Observer *> all;
  void beginStep(unsigned step) override {
    for (Observer *o : all)
      o->beginStep(step);
  }
  void dispatched(unsigned pe, unsigned queue, const Burst &burst) override {
    for (Observer *o : all)
      o->dispatched(pe, queue, burst);
  }
  void endStep(unsigned step, uint64_t cycles) override {
    for (Observer *o : all)
      o->endStep(step, cycles);
  }
};

} // namespace millrace::sim
