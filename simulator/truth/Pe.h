// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One PE: its queues dispatch (S1), its ports run one burst each (S2), its units act.
#pragma once

#include "simulator/truth/Alus.h"
#include "simulator/truth/Matrices.h"
#include "simulator/truth/Memories.h"
#include "simulator/truth/Switches.h"

#include <deque>

namespace millrace::sim::truth {

/// A directed link: vectors under way, by time of sending.
struct Wire {
  struct Message {
    Cycle sent;
    Tag tag; ///< the Send
    Bytes bytes;
  };
  Link link;
  std::deque<Message> messages;
  std::optional<Cycle> lastSent;
};

class Pe {
public:
  /// `wires`: all of the machine.
  Pe(const Machine &machine, const Image &image, unsigned pe, const SimulationOptions &options,
     ViolationLog &log, std::vector<Wire> &wires);

  Core core;
  Memories memories;

  void beginStep(unsigned step);
  /// Cycle `now`, of which everything before has happened.
  void cycle(Cycle now);
  /// The next cycle in which something may happen, or nothing: all is done.
  std::optional<Cycle> next(Cycle now) const;
  /// A link's vector that nobody received when it came (S9).
  void missed(const Wire &wire);

private:
  /// A unit's port: a MEM slice has one that reads and one that writes (R1).
  using PortName = std::pair<unsigned, bool>; ///< queue, writes
  struct Port {
    std::optional<Work> work;
    Cycle free = 0; ///< first cycle in which another burst may start
  };
  void checkProgramOrder();
  bool stopped(Cycle now);
  void dispatch(uint32_t index, Cycle now);
  std::optional<Work> workOf(uint32_t index, Cycle now);
  void start(const Work &work, Cycle now);
  std::vector<PortName> portsOf(const Work &work) const;
  void act(Port &port, Cycle now);
  void element(const Work &work, Cycle now);
  void send(const Work &work, Cycle now);
  void receive(const Work &work, Cycle now);

  Alus alus;
  Switches switches;
  Matrices matrices;
  std::vector<Wire> &wires;
  std::vector<uint32_t> program; ///< of this step, by dispatch cycle
  size_t dispatched = 0;
  std::map<unsigned, Cycle> queueFree;
  std::map<unsigned, uint32_t> previous; ///< by queue: what a Repeat repeats
  std::map<PortName, Port> ports;
  bool running = false;
};

} // namespace millrace::sim::truth
