// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stream registers of one PE, shifted every cycle.
#pragma once

#include "simulator/truth/Work.h"

#include <deque>
#include <map>

namespace millrace::sim::truth {

/// What stands in one register.
struct Register {
  /// A vector that was here before another one was injected over it.
  struct Lost {
    Tag tag;
    Cycle at = 0;    ///< when it was lost
    uint32_t by = 0; ///< instruction that injected over it
  };
  bool full = false;
  Tag tag;
  Bytes value;
  Cycle entered = 0; ///< when it was injected
  unsigned reached =
      0; ///< distance from the stream's start at which it entered or was last sampled
  std::vector<Lost> lost;
};

class Streams {
public:
  explicit Streams(const Machine &machine);

  struct Injection {
    StreamId stream;
    unsigned position;
    uint32_t by;
    Tag tag;
    Bytes value;
  };
  /// The vector stands at its position from cycle `at` on.
  void inject(Cycle at, Injection injection) { coming.emplace(at, std::move(injection)); }
  /// Moves every vector on, then lets in what comes in this cycle. Calls `clash(injection)` for one
  /// that enters a register together with another one (S3).
  template <class F> void step(Cycle now, F clash) {
    shift();
    for (; !coming.empty() && coming.begin()->first == now; coming.erase(coming.begin()))
      if (enter(now, coming.begin()->second))
        clash(coming.begin()->second);
  }
  /// What stands at a position; the vector counts as sampled there.
  const Register &sample(StreamId stream, unsigned position);
  bool empty() const;
  void clear();
  uint64_t vectors = 0; ///< let in
  uint64_t hops = 0;    ///< registers moved through, up to each vector's last sampler

private:
  unsigned distance(StreamId stream, unsigned position) const;
  void shift();
  bool enter(Cycle now, const Injection &injection);

  const Machine &machine;
  const unsigned hop; ///< a vector stays `hop` cycles between two positions, as in `hop` registers
  std::vector<std::deque<Register>> lines; ///< [stream][distance * hop]
  std::vector<unsigned> held;              ///< [stream] full registers
  std::multimap<Cycle, Injection> coming;  ///< by cycle, then in the order of injection
};

} // namespace millrace::sim::truth
