// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A value change dump for waveform viewers: per queue, the number of the instruction under way (0:
// none). One cycle is one time unit. Keeps all changes in memory until the end: for small runs.
#pragma once

#include "arch/spec/Machine.h"
#include "simulator/observe/Observer.h"

#include <ostream>
#include <vector>

namespace millrace::sim {

class VcdWriter : public Observer {
public:
  /// The destructor writes to `out`, which outlives this object.
  VcdWriter(std::ostream &out, const Machine &machine) : out(out), machine(machine) {}
  ~VcdWriter() override;
  void beginStep(unsigned) override {}
  void dispatched(unsigned pe, unsigned queue, const Burst &burst) override;
  void endStep(unsigned, uint64_t cycles) override { base += cycles; }

private:
  struct Change {
    uint64_t time;
    bool begins; ///< an end in the same cycle comes first
    uint32_t signal, value;
  };
  std::ostream &out;
  const Machine &machine;
  std::vector<Change> changes;
  uint64_t base = 0;
};

} // namespace millrace::sim
