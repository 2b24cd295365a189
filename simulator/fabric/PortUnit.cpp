// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/fabric/PortUnit.h"

namespace millrace::sim {

PortUnit::PortUnit(const sc_core::sc_module_name &name, PeContext &context,
                   std::vector<LinkModule *> sends, std::vector<LinkModule *> receives)
    : UnitModule(name, context), sends(std::move(sends)), receives(std::move(receives)) {}

void PortUnit::element(Burst &burst, Cycle now) {
  if (burst.instruction->opcode == Opcode::Send)
    send(burst, now);
  else
    receive(burst, now);
}

void PortUnit::send(Burst &burst, Cycle now) {
  const Instruction &i = *burst.instruction;
  const unsigned port = context.unitOf(i.queue).index;
  VectorRef value = context.sample(burst, ProducerOf::A, slot::A, 0, i.a.index,
                                   context.machine.c2c.position, now);
  LinkModule *link = sends[port];
  if (!link) {
    context.report(Invariant::S9, now, burst,
                   [&] { return "port " + std::to_string(port) + " has no link to send on"; });
    return;
  }
  if (link->lastSent + Cycle(link->link.slot) > now)
    context.report(Invariant::S9, now, burst, [&] {
      return "the link carries a vector every " + std::to_string(link->link.slot) +
             " cycles; the last one was sent in cycle " + std::to_string(link->lastSent);
    });
  link->lastSent = now;
  Message message{now, burst.tag(), {}};
  if (context.values) {
    message.bytes.resize(context.machine.lanes());
    const uint8_t *bytes = context.pool.bytes(value, message.bytes.data());
    if (bytes != message.bytes.data())
      std::memcpy(message.bytes.data(), bytes, message.bytes.size());
  }
  link->inFlight.push_back(std::move(message));
  ++context.counters.linkVectors;
}

/// Vectors that arrived before this cycle and were not taken.
void PortUnit::dropMissed(LinkModule &link, unsigned port, Cycle arrivedBefore) {
  const Cycle latency = link.link.latency;
  while (!link.inFlight.empty() && link.inFlight.front().sent + latency < arrivedBefore) {
    const Message &m = link.inFlight.front();
    context.reportFor(Invariant::S9, m.sent + latency,
                      context.machine.queue({UnitKind::Receive, Hemisphere::West, port}), [&] {
                        return "the vector of element " + std::to_string(m.tag.element) +
                               " of instruction " + std::to_string(m.tag.instruction) + " of pe " +
                               std::to_string(link.link.from) + ", sent in cycle " +
                               std::to_string(m.sent) + ", is not received";
                      });
    link.inFlight.pop_front();
  }
}

void PortUnit::receive(Burst &burst, Cycle now) {
  const unsigned port = context.unitOf(burst.instruction->queue).index;
  LinkModule *link = receives[port];
  VectorRef value = context.values ? context.pool.acquireNarrow() : 0;
  if (link)
    dropMissed(*link, port, now);
  if (!link || link->inFlight.empty() ||
      link->inFlight.front().sent + Cycle(link->link.latency) != now) {
    context.report(Invariant::S9, now, burst, [&] {
      return link ? "nothing was sent " + std::to_string(link->link.latency) +
                        " cycles ago on the link to port " + std::to_string(port)
                  : "port " + std::to_string(port) + " has no link to receive from";
    });
    if (context.values)
      std::memset(context.pool.narrow(value), 0, context.machine.lanes());
  } else {
    const Message &m = link->inFlight.front();
    if (context.checks(burst)) {
      if (!isMeant(burst, ProducerOf::Link, slot::Link, 0, m.tag, link->link.from))
        context.report(Invariant::S4, now, burst, [&] {
          return "receives element " + std::to_string(m.tag.element) + " of instruction " +
                 std::to_string(m.tag.instruction) + " of pe " + std::to_string(link->link.from) +
                 ", which is not what the annotation names";
        });
    }
    if (context.values)
      std::memcpy(context.pool.narrow(value), m.bytes.data(), m.bytes.size());
    link->inFlight.pop_front();
  }
  context.inject(burst, now + context.timing.receive, burst.instruction->out[0],
                 context.machine.c2c.position, value);
}

void PortUnit::settle(Cycle now) {
  for (unsigned port = 0; port < receives.size(); ++port)
    if (receives[port])
      dropMissed(*receives[port], port, now);
}

void PortUnit::endStep() {
  for (LinkModule *link : receives)
    if (link) {
      link->inFlight.clear();
      link->lastSent = INT64_MIN / 2;
    }
}

} // namespace millrace::sim
