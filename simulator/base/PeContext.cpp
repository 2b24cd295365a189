// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/PeContext.h"

namespace millrace::sim {

PeContext::PeContext(const Machine &machine, const Timing &timing, const Image &image, unsigned pe,
                     bool values, Annotations annotations, ViolationLog &log)
    : machine(machine), timing(timing), image(image), pe(pe), instructions(image.instructions[pe]),
      values(values), annotations(annotations), pool(machine.lanes()),
      streams(machine, timing, pool), log(log) {
  counters.busy.resize(machine.queues());
  for (unsigned queue = 0; queue < machine.queues(); ++queue)
    units.push_back(machine.unit(queue));
}

std::string textOf(const Machine &machine, const Instruction &i) {
  std::string text = std::to_string(i.cycle) + " " + machine.queueName(i.queue) + " " +
                     std::string(info(i.opcode).mnemonic);
  if (info(i.opcode).fields.has(Field::Loops))
    text += " n " + std::to_string(i.n0) + "x" + std::to_string(i.n1) + " every " +
            std::to_string(i.c0) + "," + std::to_string(i.c1);
  if (info(i.opcode).fields.has(Field::Address))
    text += " at " + std::to_string(i.address);
  return text;
}

std::string PeContext::describe(Tag tag) const {
  if (tag.empty())
    return "nothing";
  if (tag.isInitial())
    return "row " + std::to_string(tag.element) + " of block " +
           std::to_string(tag.instruction & ~Tag::kInitial);
  std::string text = tag.element == Tag::kAnyElement
                         ? "instruction "
                         : "element " + std::to_string(tag.element) + " of instruction ";
  text += std::to_string(tag.instruction);
  if (tag.instruction < instructions.size())
    text += " (" + textOf(machine, instruction(tag.instruction)) + ")";
  return text;
}

Violation PeContext::violation(Invariant i, Cycle cycle, unsigned queue,
                               std::optional<uint32_t> index, std::string message) const {
  Violation v;
  v.invariant = i;
  v.step = step;
  v.cycle = cycle;
  v.pe = pe;
  v.queue = queue;
  v.unit = "pe" + std::to_string(pe) + "." + machine.queueName(queue);
  v.index = index;
  if (index) {
    v.instruction = textOf(machine, instruction(*index));
    uint32_t from = instruction(*index).provenance;
    if (from < image.strings.size())
      v.provenance = image.strings[from];
  }
  v.message = std::move(message);
  return v;
}

static std::string nameOf(const Machine &m, StreamId s) {
  return std::string(m.hemisphereOf(s) == Hemisphere::West ? "w." : "e.") +
         (m.directionOf(s) == Direction::Outward ? "out." : "in.") + std::to_string(m.indexOf(s));
}

void PeContext::withoutProducer(const Burst &burst, StreamId stream, Cycle now) {
  report(Invariant::S4, now, burst, [&] {
    return "the vector sampled on stream " + nameOf(machine, stream) +
           " has no annotation of its producer";
  });
}

void PeContext::empty(const Burst &burst, StreamId stream, unsigned position, Cycle now) {
  report(Invariant::S4, now, burst, [&] {
    return "stream " + nameOf(machine, stream) + " is empty at position " +
           std::to_string(position);
  });
}

void PeContext::missing(Burst &burst, StreamCell *cell, ProducerOf of, unsigned cursorSlot,
                        unsigned byte, StreamId stream, unsigned position, Cycle now) {
  const auto found = meant(burst, of, cursorSlot, byte);
  if (!found) {
    withoutProducer(burst, stream, now);
    if (!cell)
      empty(burst, stream, position, now);
    return;
  }
  const Meant &expected = *found;
  const Buried *lost = cell && expected.pe == pe ? streams.burier(*cell, expected.tag) : nullptr;
  if (lost) {
    reportAt(Invariant::S3, lost->injected, queueOf(lost->by), lost->by, [&] {
      return "injects on stream " + nameOf(machine, stream) + " over " + describe(expected.tag) +
             ", which instruction " + std::to_string(burst.index) + " still samples in cycle " +
             std::to_string(now);
    });
    return;
  }
  report(Invariant::S4, now, burst, [&] {
    return "byte " + std::to_string(byte) + " of the operand on stream " + nameOf(machine, stream) +
           " should be " + describe(expected.tag) +
           (expected.pe == pe ? "" : " of pe " + std::to_string(expected.pe)) +
           ", but the register holds " + describe(cell ? cell->tag : Tag());
  });
}

void PeContext::clash(Cycle cycle, const StreamFile::Injection &injection, const StreamCell &cell) {
  const uint32_t by = injection.tag.instruction;
  reportAt(Invariant::S3, cycle, queueOf(by), by, [&] {
    return "injects on stream " + nameOf(machine, injection.stream) + " at position " +
           std::to_string(injection.position) + " in the same cycle as " + describe(cell.tag);
  });
}

void PeContext::performInjections(Cycle now) {
  streams.advance(now, [this](Cycle cycle, const auto &injection, const StreamCell &cell) {
    clash(cycle, injection, cell);
  });
}

} // namespace millrace::sim
