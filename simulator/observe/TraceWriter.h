// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a trace that Perfetto and chrome://tracing open: a process per PE, a track per queue, a
// slice per burst, named by what the instruction came from. One cycle is shown as one microsecond.
#pragma once

#include "arch/program/Image.h"
#include "simulator/observe/Observer.h"

#include <ostream>
#include <vector>

namespace millrace::sim {

class TraceWriter : public Observer {
public:
  /// Writes to `out`, which outlives this object; the destructor ends the JSON text.
  TraceWriter(std::ostream &out, const Image &image, const Machine &machine);
  ~TraceWriter() override;
  void beginStep(unsigned step) override;
  void dispatched(unsigned pe, unsigned queue, const Burst &burst) override;
  void endStep(unsigned step, uint64_t cycles) override;

private:
  void nameTrack(unsigned pe, unsigned queue);

  std::ostream &out;
  const Image &image;
  const Machine &machine;
  std::vector<bool> named; ///< [pe * queues + queue]
  uint64_t base = 0;       ///< cycles of the steps before
  unsigned step = 0;
  bool first = true;
};

/// The text as a JSON string, quotes included; bytes that are no UTF-8 become U+FFFD.
std::string jsonString(const std::string &text);

} // namespace millrace::sim
