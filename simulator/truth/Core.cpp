// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Core.h"

namespace millrace::sim::truth {

Core::Core(const Machine &machine, const Image &image, unsigned pe,
           const SimulationOptions &options, ViolationLog &log)
    : machine(machine), image(image), pe(pe), values(options.values), streams(machine),
      annotations(options.annotations), log(log) {
  counters.busy.resize(machine.queues());
}

bool Core::checks(const Work &work) const {
  return annotations == Annotations::Checked ||
         (annotations == Annotations::WherePresent && !work.producers.empty());
}

void Core::report(Invariant invariant, Cycle cycle, unsigned queue, std::optional<uint32_t> index,
                  const std::string &message) {
  Violation v;
  v.invariant = invariant;
  v.step = step, v.cycle = cycle, v.pe = pe, v.queue = queue;
  v.unit = "pe" + std::to_string(pe) + "." + machine.queueName(queue);
  v.index = index;
  if (index) {
    v.instruction = textOf(machine, instruction(*index));
    if (const uint32_t name = instruction(*index).provenance; name < image.strings.size())
      v.provenance = image.strings[name];
  }
  v.message = message;
  log.add(std::move(v));
}

Bytes Core::sample(const Work &work, ProducerOf of, unsigned byte, StreamId stream,
                   unsigned position, Cycle now) {
  const Register &there = streams.sample(stream, position);
  if (checks(work)) {
    const std::optional<Meant> expected = meant(work, of, byte);
    const bool right = there.full && expected && expected->pe == pe && there.tag == expected->tag;
    const Register::Lost *lost = nullptr;
    if (!right && expected && expected->pe == pe)
      for (const Register::Lost &l : there.lost)
        if (l.tag == expected->tag)
          lost = &l;
    if (lost)
      report(Invariant::S3, lost->at, queueOf(lost->by), lost->by,
             "injects over a vector that is still sampled in cycle " + std::to_string(now));
    else if (!right)
      report(Invariant::S4, now, work, "an operand is not the vector that is meant");
  } else if (!there.full) {
    report(Invariant::S4, now, work, "an operand's register is empty");
  }
  return there.full ? there.value : vector();
}

void Core::inject(const Work &work, Cycle at, StreamId stream, unsigned position, Bytes value) {
  streams.inject(at, {stream, position, work.index, work.tag(), std::move(value)});
}

void Core::stepStreams(Cycle now) {
  streams.step(now, [&](const Streams::Injection &second) {
    report(Invariant::S3, now, queueOf(second.by), second.by,
           "injects into a register together with another vector");
  });
}

} // namespace millrace::sim::truth
