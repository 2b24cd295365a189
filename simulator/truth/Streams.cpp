// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Streams.h"

#include <algorithm>

namespace millrace::sim::truth {

Streams::Streams(const Machine &machine)
    : machine(machine), hop(machine.latency.hop), lines(machine.streamCount()),
      held(machine.streamCount()) {
  clear();
}

unsigned Streams::distance(StreamId stream, unsigned position) const {
  const bool outward = machine.directionOf(stream) == Direction::Outward;
  return outward ? position : machine.lastPosition() - position;
}

void Streams::shift() {
  for (size_t s = 0; s < lines.size(); ++s) {
    if (!held[s])
      continue;
    held[s] -= lines[s].back().full;
    lines[s].pop_back();
    lines[s].emplace_front();
  }
}

bool Streams::enter(Cycle now, const Injection &injection) {
  const unsigned x = distance(injection.stream, injection.position);
  Register &there = lines[injection.stream][size_t(x) * hop];
  const bool clash = there.full && there.entered == now;
  Register entering{true, injection.tag, injection.value, now, x, {}};
  if (there.full) {
    entering.lost = there.lost;
    entering.lost.push_back({there.tag, now, injection.by});
  } else {
    ++held[injection.stream];
  }
  there = std::move(entering);
  ++vectors;
  return clash;
}

const Register &Streams::sample(StreamId stream, unsigned position) {
  const unsigned x = distance(stream, position);
  Register &there = lines[stream][size_t(x) * hop];
  if (there.full) {
    hops += x - there.reached;
    there.reached = x;
  }
  return there;
}

bool Streams::empty() const {
  return coming.empty() && std::all_of(held.begin(), held.end(), [](unsigned n) { return !n; });
}

void Streams::clear() {
  coming.clear();
  for (std::deque<Register> &line : lines)
    line.assign(size_t(machine.lastPosition()) * hop + 1, Register());
  held.assign(held.size(), 0);
}

} // namespace millrace::sim::truth
