// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the units of one PE share: the machine, the image, stream registers, vectors, counters and
// the violation log.
#pragma once

#include "arch/program/Image.h"
#include "simulator/base/Annotation.h"
#include "simulator/base/Burst.h"
#include "simulator/base/Counters.h"
#include "simulator/base/StreamFile.h"
#include "simulator/base/Violation.h"

#include <functional>
#include <span>

namespace millrace::sim {

/// Checked: an operand without a complete annotation is a violation. WherePresent: only
/// instructions that have any annotation are compared, for programs written by hand. Ignored: never
/// compared.
enum class Annotations : uint8_t { Checked, WherePresent, Ignored };

class PeContext {
public:
  PeContext(const Machine &machine, const Timing &timing, const Image &image, unsigned pe,
            bool values, Annotations annotations, ViolationLog &log);

  const Machine &machine;
  const Timing &timing;
  const Image &image;
  const unsigned pe;
  const std::span<const Instruction> instructions; ///< the PE's
  const bool values;                               ///< false: cycles only, no data is touched
  const Annotations annotations;
  VectorPool pool;
  size_t keptInMemory = 0; ///< references that rows of memory hold
  StreamFile streams;
  Counters counters;
  unsigned step = 0;
  Cycle base =
      0; ///< start of the step on a clock that never restarts; orders memory writes across steps
  Cycle now = 0; ///< being simulated
  Cycle lastWriteSlot = -1, lastDispatch = -1;

  /// Reports that `burst` broke `invariant` in `cycle`; `text` builds the message and runs only if
  /// this comes first.
  template <class F>
  [[gnu::noinline, gnu::cold]] void report(Invariant invariant, Cycle cycle, const Burst &burst,
                                           F text) {
    reportAt(invariant, cycle, queueOf(burst.index), burst.index, text);
  }
  template <class F>
  [[gnu::noinline, gnu::cold]] void reportAt(Invariant i, Cycle cycle, unsigned queue,
                                             uint32_t index, F text) {
    if (log.wouldBeFirst(step, cycle, pe, queue, i))
      log.add(violation(i, cycle, queue, index, text()));
  }
  /// For what no single instruction is to blame.
  template <class F>
  [[gnu::noinline, gnu::cold]] void reportFor(Invariant i, Cycle cycle, unsigned queue, F text) {
    if (log.wouldBeFirst(step, cycle, pe, queue, i))
      log.add(violation(i, cycle, queue, std::nullopt, text()));
  }
  bool isPast(Cycle cycle) const { return log.isPast(step, cycle); }

  const Instruction &instruction(uint32_t index) const { return instructions[index]; }
  unsigned queueOf(uint32_t index) const { return instruction(index).queue; }
  /// The unit of a queue, as Machine::unit says.
  const Unit &unitOf(unsigned queue) const { return units[queue]; }
  /// "element 5 of instruction 17 (read by mem.e.3 at 120)".
  std::string describe(Tag tag) const;
  bool checks(const Burst &burst) const {
    return annotations == Annotations::Checked ||
           (annotations == Annotations::WherePresent && !burst.producers.empty());
  }

  /// The vector that the burst's current element samples as byte `byte` of an operand (S3, S4).
  /// Borrowed: the register keeps its reference. An empty register gives zeros and a violation.
  VectorRef sample(Burst &burst, ProducerOf of, unsigned cursorSlot, unsigned byte, StreamId stream,
                   unsigned position, Cycle now) {
    StreamCell *cell = streams.sample(stream, position, now);
    if (checks(burst)) {
      if (!cell || !isMeant(burst, of, cursorSlot, byte, cell->tag, pe)) [[unlikely]]
        missing(burst, cell, of, cursorSlot, byte, stream, position, now);
    } else if (!cell) {
      empty(burst, stream, position, now);
    }
    return cell ? cell->value : 0;
  }
  /// Puts a vector (one reference of it) on a stream: it stands at `position` in cycle `at`.
  void inject(const Burst &burst, Cycle at, StreamId stream, unsigned position, VectorRef value) {
    streams.inject(at, {stream, uint16_t(position), value, burst.tag()});
  }
  void advanceStreams(Cycle now) {
    if (!streams.rest(now))
      performInjections(now);
  }
  /// A lane map of the image by index; the loader has checked it.
  std::span<const uint16_t> laneMap(uint32_t map) const { return image.laneMaps[map]; }

private:
  void performInjections(Cycle now);
  Violation violation(Invariant i, Cycle cycle, unsigned queue, std::optional<uint32_t> index,
                      std::string message) const;
  void withoutProducer(const Burst &burst, StreamId stream, Cycle now);
  void empty(const Burst &burst, StreamId stream, unsigned position, Cycle now);
  void missing(Burst &burst, StreamCell *cell, ProducerOf of, unsigned cursorSlot, unsigned byte,
               StreamId stream, unsigned position, Cycle now);
  void clash(Cycle cycle, const StreamFile::Injection &injection, const StreamCell &cell);
  ViolationLog &log;
  std::vector<Unit> units; ///< by queue: asked for with every element
};

/// A short text of an instruction for diagnostics: cycle, queue, mnemonic and loops.
std::string textOf(const Machine &machine, const Instruction &instruction);

} // namespace millrace::sim
