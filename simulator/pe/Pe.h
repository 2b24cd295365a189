// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One PE: instruction queues, and a calendar that runs windows of cycles. The PE has the only
// process; units are called through their ports. Cycles in which nothing acts cost nothing.
#pragma once

#include "simulator/base/UnitModule.h"
#include "simulator/observe/Observer.h"

#include <vector>

namespace millrace::sim {

class Pe : public sc_core::sc_module {
public:
  /// Which unit a queue's instructions go to, as an index into `unit`.
  struct Wiring {
    std::vector<UnitInterface *> units;
    std::vector<unsigned> unitOfQueue;
  };
  /// `window`: cycles simulated per kernel event, at least 1 and at most the least latency of a
  /// link into this PE.
  Pe(const sc_core::sc_module_name &name, PeContext &context, const Wiring &wiring, Cycle window,
     Observer *observer);
  SC_HAS_PROCESS(Pe);

  sc_core::sc_vector<sc_core::sc_port<UnitInterface>> unit;

  /// Prepares the instructions [begin, end) of the PE's list; the next sc_start runs them.
  void beginStep(unsigned step, PeRange range, Cycle base);
  /// After the kernel starved: makes the checks that were waiting. `first` may still move to an
  /// earlier cycle.
  void settle();
  void endStep();
  bool done() const { return cursor == order.size() && !anyActive(); }

private:
  struct Port {
    Burst burst;
    UnitInterface *unit = nullptr;
    uint64_t *busy = nullptr; ///< its counter
    unsigned queue = 0;
    Cycle free = 0; ///< first cycle in which the port may start another burst
    bool active = false;
  };
  void run();
  void stopEndless(Cycle now);
  bool cycle(Cycle now);
  Cycle nextActivity() const;
  void dispatch(uint32_t index, Cycle now);
  bool start(Burst &burst, unsigned port, Cycle now);
  void elements(size_t firstWord, size_t endWord, Cycle now);
  Burst burstOf(uint32_t index, Cycle now) const;
  void buildPorts(const std::vector<unsigned> &unitOfQueue);
  unsigned portOf(const Instruction &instruction) const;
  bool fitsItself(const Burst &burst) const;
  bool anyActive() const;

  PeContext &context;
  Cycle window;
  Observer *observer;
  sc_core::sc_event wake;
  std::vector<UnitInterface *> units;
  /// Those that inject with the least delay first, reads and receives, in words of `active` of
  /// their own: places between them and the others stay unused.
  std::vector<Port> ports;
  size_t earlyWords = 0;
  std::vector<Cycle> due; ///< by port, of an active one: when it acts next; asked in every cycle
  std::vector<uint64_t> active;                  ///< bit per port
  std::vector<unsigned> mainPort, writePort;     ///< by queue
  std::vector<Cycle> queueFree;                  ///< by queue
  std::vector<std::optional<uint32_t>> previous; ///< by queue: the last burst, for Repeat
  std::vector<uint32_t> order;                   ///< instructions by dispatch cycle
  size_t cursor = 0;
  Cycle soonest = 0; ///< the next cycle in which a port acts
  Cycle simulated = -1;
  uint64_t startTime = 0; ///< of the step, on the kernel's clock
  bool running = false;
  Cycle patience = 0; ///< a program that still runs in this cycle is stopped (S11)
};

} // namespace millrace::sim
