// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Pe.h"

#include <algorithm>

namespace millrace::sim::truth {

/// How far beyond twice the stated count a step may run (simulator/README.md).
static constexpr Cycle kPatience = Cycle(1) << 23;

Pe::Pe(const Machine &machine, const Image &image, unsigned pe, const SimulationOptions &options,
       ViolationLog &log, std::vector<Wire> &wires)
    : core(machine, image, pe, options, log), memories(core), alus(core), switches(core),
      matrices(core), wires(wires) {}

/// Only memory keeps what it has.
void Pe::beginStep(unsigned step) {
  core.step = step;
  core.lastWriteSlot = -1;
  core.streams.clear();
  alus.clear();
  switches.clear();
  matrices.clear();
  queueFree.clear();
  previous.clear();
  ports.clear();
  program.clear();
  dispatched = 0;
  running = true;
  const PeRange range = core.image.steps[step].pes[core.pe];
  for (uint32_t k = range.begin; k < range.end; ++k)
    program.push_back(k);
  checkProgramOrder();
  std::stable_sort(program.begin(), program.end(), [&](uint32_t a, uint32_t b) {
    return core.instruction(a).cycle < core.instruction(b).cycle;
  });
}

/// S1: a queue dispatches in the order of the list.
void Pe::checkProgramOrder() {
  std::map<unsigned, uint64_t> latest;
  for (uint32_t k : program) {
    const Instruction &i = core.instruction(k);
    if (i.cycle < latest[i.queue])
      core.report(Invariant::S1, Cycle(i.cycle), i.queue, k, "stands after a later instruction");
    latest[i.queue] = std::max(latest[i.queue], i.cycle);
  }
}

std::optional<Cycle> Pe::next(Cycle now) const {
  if (!core.streams.empty() || memories.busy() || matrices.busy())
    return now;
  std::optional<Cycle> soonest;
  const auto consider = [&](Cycle cycle) {
    if (!soonest || cycle < *soonest)
      soonest = cycle;
  };
  if (running && dispatched < program.size())
    consider(Cycle(core.instruction(program[dispatched]).cycle));
  for (const auto &[name, port] : ports)
    if (port.work)
      consider(port.work->cycle());
  return soonest;
}

void Pe::cycle(Cycle now) {
  core.stepStreams(now);
  if (running && !stopped(now)) {
    while (dispatched < program.size() && Cycle(core.instruction(program[dispatched]).cycle) == now)
      dispatch(program[dispatched++], now);
    // Who acts first matters only for who is named when two vectors enter one register.
    const auto isFirst = [&](const PortName &name) {
      const UnitKind kind = core.machine.unit(name.first).kind;
      return kind == UnitKind::Mem || kind == UnitKind::Receive;
    };
    for (bool first : {true, false})
      for (auto &[name, port] : ports)
        if (isFirst(name) == first)
          act(port, now);
  }
  matrices.endCycle(now);
  memories.endCycle(now);
}

/// A damaged loop may ask for billions of cycles (S11).
bool Pe::stopped(Cycle now) {
  const uint64_t stated = core.image.steps[core.step].predictedCycles;
  if (now <= kPatience + 2 * Cycle(std::min<uint64_t>(stated, uint64_t(1) << 60)))
    return false;
  bool active = false;
  const auto stop = [&](unsigned queue, uint32_t index) {
    core.report(Invariant::S11, now, queue, index, "still runs, long after the step's stated end");
    active = true;
  };
  for (const auto &[name, port] : ports)
    if (port.work && port.work->cycle() == now)
      stop(name.first, port.work->index);
  if (dispatched < program.size() && Cycle(core.instruction(program[dispatched]).cycle) == now)
    stop(core.queueOf(program[dispatched]), program[dispatched]);
  if (active) {
    running = false;
    ports.clear();
  }
  return true;
}

void Pe::dispatch(uint32_t index, Cycle now) {
  const Instruction &i = core.instruction(index);
  ++core.counters.instructions;
  if (now < queueFree[i.queue])
    core.report(Invariant::S1, now, i.queue, index, "the queue is held by an earlier instruction");
  Cycle held = 1; // cycles from now in which nothing else is dispatched
  if (i.opcode == Opcode::Nop)
    held = i.n0;
  else if (i.opcode == Opcode::Repeat && previous.contains(i.queue))
    held = Cycle(i.n0 - 1) * i.c0 + 1;
  queueFree[i.queue] = std::max(queueFree[i.queue], now + held);
  if (const std::optional<Work> work = workOf(index, now))
    start(*work, now);
}

/// What an instruction puts into a port, if anything.
std::optional<Work> Pe::workOf(uint32_t index, Cycle now) {
  const Instruction &i = core.instruction(index);
  if (i.opcode == Opcode::Nop)
    return std::nullopt;
  Work work;
  work.index = index, work.start = now, work.what = &i;
  work.producers = core.image.producersOf(core.pe, i);
  if (i.opcode == Opcode::Repeat) {
    if (!previous.contains(i.queue)) {
      core.report(Invariant::S1, now, work, "there is nothing to repeat");
      return std::nullopt;
    }
    work.what = &core.instruction(previous[i.queue]);
    work.repeats = i.n0, work.interval = i.c0;
  } else {
    previous[i.queue] = index;
  }
  if (info(work.what->opcode).fields.has(Field::Loops))
    work.n0 = work.what->n0, work.n1 = work.what->n1;
  return work;
}

/// R1; a 16-bit Activate works on two planes (R4).
std::vector<Pe::PortName> Pe::portsOf(const Work &work) const {
  const Instruction &i = *work.what;
  std::vector<PortName> list{{i.queue, i.opcode == Opcode::Write || i.opcode == Opcode::Scatter}};
  if (i.opcode == Opcode::Activate && byteWidth(i.format) == 2) {
    Unit partner = core.machine.unit(i.queue);
    ++partner.index;
    list.push_back({core.machine.queue(partner), false});
  }
  return list;
}

/// S2.
void Pe::start(const Work &work, Cycle now) {
  const Instruction &i = *work.what;
  const Cycle inner = Cycle(work.n0 - 1) * i.c0, round = Cycle(work.n1 - 1) * i.c1 + inner;
  if ((work.n1 > 1 && Cycle(i.c1) <= inner) || (work.repeats > 1 && work.interval <= round))
    return core.report(Invariant::S2, now, work, "the burst's own elements overlap");
  if (core.checks(work) && !isWhole(work, core.machine))
    core.report(Invariant::S4, now, work, "the annotation is damaged");
  const std::vector<PortName> names = portsOf(work);
  for (const PortName &name : names)
    if (ports[name].free > now)
      return core.report(Invariant::S2, now, work, "the port is busy");
  for (const PortName &name : names)
    ports[name].free = work.lastCycle() + 1;
  ports[names[0]].work = work;
  if (i.opcode == Opcode::Alu)
    alus.dispatch(work);
}

void Pe::act(Port &port, Cycle now) {
  if (!port.work || port.work->cycle() != now)
    return;
  element(*port.work, now);
  ++core.counters.busy[port.work->what->queue];
  port.work->next();
  if (port.work->over())
    port.work.reset();
}

void Pe::element(const Work &work, Cycle now) {
  switch (core.machine.unit(work.what->queue).kind) {
  case UnitKind::Mem:
    return memories.element(work, now);
  case UnitKind::MxmInstall:
  case UnitKind::MxmActivate:
  case UnitKind::MxmAccumulate:
    return matrices.element(work, now);
  case UnitKind::Alu:
    return alus.element(work, now);
  case UnitKind::Send:
    return send(work, now);
  case UnitKind::Receive:
    return receive(work, now);
  default:
    return switches.element(work, now);
  }
}

void Pe::send(const Work &work, Cycle now) {
  const unsigned port = core.machine.unit(work.what->queue).index;
  const Bytes bytes =
      core.sample(work, ProducerOf::A, 0, work.what->a.index, core.machine.c2c.position, now);
  for (Wire &wire : wires) {
    if (wire.link.from != core.pe || wire.link.port != port)
      continue;
    if (wire.lastSent && now < *wire.lastSent + Cycle(wire.link.slot))
      core.report(Invariant::S9, now, work, "the link still carries another vector");
    wire.lastSent = now;
    wire.messages.push_back({now, work.tag(), bytes});
    ++core.counters.linkVectors;
    return;
  }
  core.report(Invariant::S9, now, work, "the port has no link to send on");
}

void Pe::receive(const Work &work, Cycle now) {
  const unsigned port = core.machine.unit(work.what->queue).index;
  Bytes value = core.vector();
  bool came = false;
  for (Wire &wire : wires) {
    if (wire.link.to != core.pe || wire.link.toPort != port || wire.messages.empty() ||
        wire.messages.front().sent + Cycle(wire.link.latency) != now)
      continue;
    const Wire::Message message = wire.messages.front();
    wire.messages.pop_front();
    came = true;
    value = message.bytes;
    if (!core.checks(work))
      continue;
    const std::optional<Meant> expected = meant(work, ProducerOf::Link, 0);
    if (!expected || expected->pe != wire.link.from || expected->tag != message.tag)
      core.report(Invariant::S4, now, work, "receives another vector than is meant");
  }
  if (!came)
    core.report(Invariant::S9, now, work, "nothing comes over the link now");
  core.inject(work, now + core.machine.latency.memRead, work.what->out[0],
              core.machine.c2c.position, value);
}

void Pe::missed(const Wire &wire) {
  const unsigned queue =
      core.machine.queue({UnitKind::Receive, Hemisphere::West, wire.link.toPort});
  core.report(Invariant::S9, wire.messages.front().sent + Cycle(wire.link.latency), queue,
              std::nullopt, "a vector that comes over the link is not received");
}

} // namespace millrace::sim::truth
