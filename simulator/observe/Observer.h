// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What may watch a simulation. Observers never change it.
#pragma once

#include "simulator/base/Burst.h"

namespace millrace::sim {

struct Observer {
  virtual ~Observer() = default;
  /// A grid step begins; `base` is its cycle 0 on a clock that never restarts.
  virtual void beginStep(unsigned step, Cycle base) = 0;
  /// An instruction was dispatched: its elements act from burst.start to burst.lastCycle().
  virtual void dispatched(unsigned pe, unsigned queue, const Burst &burst) = 0;
};

} // namespace millrace::sim
