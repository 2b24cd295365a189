// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the units of one PE share.
#pragma once

#include "simulator/base/Counters.h"
#include "simulator/base/Violation.h"
#include "simulator/system/Simulate.h"
#include "simulator/truth/Streams.h"

namespace millrace::sim::truth {

class Core {
public:
  Core(const Machine &machine, const Image &image, unsigned pe, const SimulationOptions &options,
       ViolationLog &log);

  const Machine &machine;
  const Image &image;
  const unsigned pe;
  const bool values;
  Streams streams;
  Counters counters;
  unsigned step = 0;
  Cycle lastWriteSlot = -1;

  const Instruction &instruction(uint32_t index) const { return image.instructions[pe][index]; }
  unsigned queueOf(uint32_t index) const { return instruction(index).queue; }
  /// Whether the annotation of this burst is to be compared.
  bool checks(const Work &work) const;

  void report(Invariant invariant, Cycle cycle, const Work &work, const std::string &message) {
    report(invariant, cycle, queueOf(work.index), work.index, message);
  }
  void report(Invariant invariant, Cycle cycle, unsigned queue, std::optional<uint32_t> index,
              const std::string &message);

  /// What the element to come finds as byte `byte` of an operand (S3, S4); zeros if nothing.
  Bytes sample(const Work &work, ProducerOf of, unsigned byte, StreamId stream, unsigned position,
               Cycle now);
  void inject(const Work &work, Cycle at, StreamId stream, unsigned position, Bytes value);
  void stepStreams(Cycle now);
  /// A new vector of zeros, or null without values.
  Bytes vector() const { return values ? std::make_shared<Lanes>(machine.lanes()) : nullptr; }

private:
  const Annotations annotations;
  ViolationLog &log;
};

} // namespace millrace::sim::truth
