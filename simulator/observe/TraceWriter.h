// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a trace that Perfetto and chrome://tracing open. One cycle is shown as one microsecond.
//
//   process "program"  a track of the grid steps; a track per ONNX node (or nodes that one kernel
//                      does): when any instruction that works for it was under way
//   process "pe 0"...  a track per port, MXM and VXM first, MEM last: a slice per burst, named by
//                      the node. Slices of one track never overlap. Counters of the cycle: streams
//                      that units put vectors on, MEM ports at work, multiply-accumulates
//   "idle of pe 0"...  a track per MXM plane and for the VXM: a slice per run of idle cycles, named
//                      by its cause
#pragma once

#include "arch/program/Image.h"
#include "simulator/observe/Observer.h"
#include "simulator/observe/TraceTotals.h"

#include <map>
#include <ostream>
#include <utility>
#include <vector>

namespace millrace::sim {

/// Cycles [from, to) of the program in which a unit of a PE idled, for the track of the unit.
struct IdleSlice {
  unsigned pe = 0;
  std::string unit, cause;
  std::string before, heldBy; ///< kernels: before whose work, and held up by which; empty: none
  uint64_t from = 0, to = 0;
};

struct TraceOptions {
  uint64_t first = 0, last = UINT64_MAX; ///< only bursts that act in these cycles of the program
  bool flows = false;                    ///< an arrow from each producer to each of its consumers
  std::vector<std::pair<std::string, std::string>> metadata; ///< key, JSON value
  std::vector<IdleSlice> idle; ///< as the compiler states them, unit by unit
};

class TraceWriter : public Observer {
public:
  /// Writes to `out`, which outlives this object; the destructor ends the JSON text.
  TraceWriter(std::ostream &out, const Image &image, const Machine &machine,
              TraceOptions options = {});
  ~TraceWriter() override;
  void beginStep(unsigned step) override;
  void dispatched(unsigned pe, unsigned queue, const Burst &burst) override;
  void endStep(unsigned step, uint64_t cycles) override;

private:
  /// Where a slice lies: what an arrow needs to know.
  struct Place {
    unsigned thread = 0; ///< 0: there is no such slice
    uint64_t start = 0, end = 0;
  };
  struct Arrow {
    unsigned fromPe, toPe;
    uint32_t from; ///< instruction
    Place to;
  };

  std::ostream &event(const char *phase, unsigned process);
  void nameProcess(unsigned process, const std::string &name);
  void nameThread(unsigned process, unsigned thread, const std::string &name, unsigned order);
  void slice(unsigned process, unsigned thread, uint64_t start, uint64_t duration,
             const std::string &name);
  unsigned threadOf(unsigned pe, unsigned queue, bool isWrite, uint64_t start, uint64_t end);
  void addArrows(unsigned pe, const Burst &burst, Place place);
  /// Writes what is only known when all PEs have run a step.
  void flush();
  void writeIdle();
  void writeNodes();
  void writeCounters();
  void writeArrows();

  std::ostream &out;
  const Image &image;
  const Machine &machine;
  const TraceOptions options;
  std::vector<unsigned> order; ///< [port]: its place among the tracks
  /// [pe][port]: per track of it, the first cycle after its last slice. There is one, but for
  /// programs that break the rules.
  std::vector<std::vector<std::vector<uint64_t>>> ends;
  std::vector<bool> isNamed;       ///< [pe]
  std::vector<TraceTotals> totals; ///< [pe]
  std::map<uint32_t, std::vector<std::pair<uint64_t, uint64_t>>>
      active;                               ///< by provenance, [from, to)
  std::map<uint32_t, unsigned> nodeThreads; ///< by provenance
  std::vector<std::vector<Place>> places;   ///< [pe][instruction], with arrows
  std::vector<Arrow> arrows;
  uint64_t base = 0; ///< cycles of the steps before
  uint64_t arrowCount = 0;
  unsigned step = 0;
  bool first = true;
};

/// The text as a JSON string, quotes included; bytes that are no UTF-8 become U+FFFD.
std::string jsonString(const std::string &text);

} // namespace millrace::sim
