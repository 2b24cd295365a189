// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ALUs of one PE.
#pragma once

#include "simulator/truth/Core.h"

#include <map>

namespace millrace::sim::truth {

class Alus {
public:
  explicit Alus(Core &core) : core(core), alus(core.machine.vxm.alus) {}

  /// A burst is dispatched: operands of both sides (S2).
  void dispatch(const Work &work);
  /// The element to come of an Alu or Latch acts.
  void element(const Work &work, Cycle now);
  void clear();

private:
  using Words = std::vector<uint32_t>; ///< 32 bits per lane; empty without values
  /// What leaves an ALU for those chained to it.
  struct Result {
    Tag tag;
    Words words;
  };
  struct Running {
    Cycle at = 0; ///< its last element
    Words words;
  };
  struct Alu {
    std::map<Cycle, Result> leaving; ///< by the cycle in which a chained ALU is dispatched
    std::map<unsigned, Running> running;
    std::optional<Result> latch; ///< who loaded it, and what
  };
  Words operand(const Work &work, const Operand &o, ProducerOf of, Cycle now);
  Words fromStreams(const Work &work, const Operand &o, ProducerOf of, Cycle now);
  Words fromAlu(const Work &work, const Operand &o, ProducerOf of, Cycle now);
  Words fromLatch(const Work &work, ProducerOf of, Cycle now);
  Words run(const Work &work, const Words &a, Cycle now);
  void leave(const Work &work, const Words &words, Cycle now);
  Alu &aluOf(const Work &work) { return alus[core.machine.unit(work.what->queue).index]; }
  unsigned latency(const Work &work) const;
  Words words() const { return Words(core.values ? core.machine.lanes() : 0); }

  Core &core;
  std::vector<Alu> alus;
};

} // namespace millrace::sim::truth
