// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/pe/Pe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <limits>
#include <numeric>

namespace millrace::sim {

static constexpr Cycle kNever = std::numeric_limits<Cycle>::max();
static constexpr Cycle kPatience = Cycle(1) << 23; ///< beyond twice the image's count

Pe::Pe(const sc_core::sc_module_name &name, PeContext &context, const Wiring &wiring, Cycle window,
       Observer *observer)
    : sc_core::sc_module(name), unit("unit", wiring.units.size()), context(context), window(window),
      observer(observer), units(wiring.units) {
  for (size_t u = 0; u < units.size(); ++u)
    unit[u].bind(*units[u]);
  buildPorts(wiring.unitOfQueue);
  SC_METHOD(run);
  sensitive << wake;
  dont_initialize();
}

/// A MEM queue drives two ports, a read and a write generator (R1); every other queue drives one.
void Pe::buildPorts(const std::vector<unsigned> &unitOfQueue) {
  const unsigned queues = context.machine.queues();
  mainPort.resize(queues);
  writePort.resize(queues);
  auto add = [&](unsigned queue) {
    Port &port = ports.emplace_back();
    port.unit = units[unitOfQueue[queue]];
    port.busy = &context.counters.busy[queue];
    port.queue = queue;
    return unsigned(ports.size() - 1);
  };
  auto early = [&](unsigned queue) {
    UnitKind kind = context.machine.unit(queue).kind;
    return kind == UnitKind::Mem || kind == UnitKind::Receive;
  };
  for (unsigned q = 0; q < queues; ++q)
    if (early(q))
      mainPort[q] = add(q);
  earlyWords = (ports.size() + 63) / 64;
  ports.resize(earlyWords * 64);
  for (unsigned q = 0; q < queues; ++q)
    if (!early(q))
      mainPort[q] = add(q);
  for (unsigned q = 0; q < queues; ++q)
    writePort[q] = context.machine.unit(q).kind == UnitKind::Mem ? add(q) : mainPort[q];
  active.resize((ports.size() + 63) / 64);
  due.resize(ports.size());
}

void Pe::beginStep(unsigned step, PeRange range, Cycle base) {
  context.step = step;
  context.base = base;
  context.lastWriteSlot = context.lastDispatch = -1;
  order.resize(range.end - range.begin);
  std::iota(order.begin(), order.end(), range.begin);
  auto earlier = [&](uint32_t a, uint32_t b) {
    return context.instruction(a).cycle < context.instruction(b).cycle;
  };
  if (!std::is_sorted(order.begin(), order.end(), earlier))
    std::stable_sort(order.begin(), order.end(), earlier);
  queueFree.assign(context.machine.queues(), 0);
  previous.assign(context.machine.queues(), std::nullopt);
  for (Port &port : ports)
    port.active = false, port.free = 0;
  std::fill(active.begin(), active.end(), 0);
  patience = kPatience +
             2 * Cycle(std::min<uint64_t>(context.image.steps[step].predictedCycles, kNever / 4));
  cursor = 0;
  soonest = kNever;
  simulated = -1;
  running = true;
  startTime = sc_core::sc_time_stamp().value();
  wake.notify(sc_core::SC_ZERO_TIME);
}

bool Pe::anyActive() const {
  return std::any_of(active.begin(), active.end(), [](uint64_t w) { return w != 0; });
}

Cycle Pe::nextActivity() const {
  Cycle dispatches =
      cursor < order.size() ? Cycle(context.instruction(order[cursor]).cycle) : kNever;
  return std::min(dispatches, soonest);
}

/// The process: one window of cycles from the next one in which anything happens.
void Pe::run() {
  if (!running)
    return;
  Cycle here = Cycle(sc_core::sc_time_stamp().value() - startTime);
  Cycle next = nextActivity();
  while (next < here + window) {
    if (context.isPast(next)) {
      running = false;
      return;
    }
    if (next > patience)
      return stopEndless(next);
    cycle(next);
    next = nextActivity();
  }
  if (next != kNever)
    wake.notify(sc_core::sc_time::from_value(uint64_t(next - here)));
}

/// A damaged loop may ask for billions of cycles.
void Pe::stopEndless(Cycle now) {
  running = false;
  for (size_t k = 0; k < ports.size(); ++k)
    if (ports[k].active && due[k] == now)
      context.report(Invariant::S11, now, ports[k].burst, [&] {
        return "the program still runs; the image says that the step takes " +
               std::to_string(context.image.steps[context.step].predictedCycles) + " cycles";
      });
  if (cursor < order.size() && Cycle(context.instruction(order[cursor]).cycle) == now) {
    Burst late;
    late.index = order[cursor];
    context.report(Invariant::S11, now, late,
                   [] { return "is dispatched long after the step's end"; });
  }
}

bool Pe::cycle(Cycle now) {
  context.now = now;
  simulated = now;
  context.advanceStreams(now);
  while (cursor < order.size() && Cycle(context.instruction(order[cursor]).cycle) == now)
    dispatch(order[cursor++], now);
  soonest = kNever;
  elements(0, earlyWords, now);
  context.advanceStreams(now); // a read without delay is seen in its own cycle
  elements(earlyWords, active.size(), now);
  return true;
}

void Pe::elements(size_t firstWord, size_t endWord, Cycle now) {
  Cycle next = soonest;
  for (size_t word = firstWord; word < endWord; ++word)
    for (uint64_t bits = active[word]; bits; bits &= bits - 1) {
      const size_t k = word * 64 + size_t(std::countr_zero(bits));
      if (due[k] == now) {
        Port &port = ports[k];
        port.unit->element(port.burst, now);
        ++*port.busy;
        if (!port.burst.next(due[k])) {
          port.active = false;
          active[word] &= ~(bits & -bits);
          continue;
        }
      }
      next = std::min(next, due[k]);
    }
  soonest = next;
}

unsigned Pe::portOf(const Instruction &i) const {
  bool writes = i.opcode == Opcode::Write || i.opcode == Opcode::Scatter;
  return writes ? writePort[i.queue] : mainPort[i.queue];
}

Burst Pe::burstOf(uint32_t index, Cycle now) const {
  Burst burst;
  const Instruction &i = context.instruction(index);
  burst.index = index;
  burst.start = now;
  burst.instruction = &i;
  if (i.opcode == Opcode::Repeat) {
    burst.instruction = &context.instruction(*previous[i.queue]);
    burst.repeats = i.n0;
    burst.interval = i.c0;
  }
  if (info(burst.instruction->opcode).fields.has(Field::Loops)) {
    burst.n0 = burst.instruction->n0;
    burst.n1 = burst.instruction->n1;
  }
  burst.producers = context.image.producersOf(context.pe, i);
  return burst;
}

/// S1; then hands a burst to its port.
void Pe::dispatch(uint32_t index, Cycle now) {
  const Instruction &i = context.instruction(index);
  ++context.counters.instructions;
  context.lastDispatch = std::max(context.lastDispatch, now);
  Cycle &free = queueFree[i.queue];
  if (now < free)
    context.reportAt(Invariant::S1, now, i.queue, index, [&] {
      return "the queue is busy with an earlier instruction until cycle " +
             std::to_string(free - 1);
    });
  free = std::max(free, now + 1);
  if (i.opcode == Opcode::Nop) {
    free = std::max(free, now + Cycle(i.n0));
    return;
  }
  if (i.opcode == Opcode::Repeat) {
    if (!previous[i.queue]) {
      context.reportAt(Invariant::S1, now, i.queue, index,
                       [] { return "there is no earlier instruction in this queue to repeat"; });
      return;
    }
    free = std::max(free, now + Cycle(i.n0 - 1) * i.c0 + 1);
  } else {
    previous[i.queue] = index;
  }
  Burst burst = burstOf(index, now);
  if (!fitsItself(burst)) {
    context.report(Invariant::S2, now, burst, [] {
      return "elements of this burst overlap in its port; the outer stride must exceed the inner "
             "loop";
    });
    return;
  }
  if (context.checks(burst))
    if (auto reason = damage(burst, context.machine))
      context.report(Invariant::S4, now, burst, [&] { return *reason; });
  if (!start(burst, portOf(*burst.instruction), now))
    return;
  if (observer)
    observer->dispatched(context.pe, i.queue, burst);
}

bool Pe::fitsItself(const Burst &b) const {
  const Cycle inner = Cycle(b.n0 - 1) * b.instruction->c0,
              one = Cycle(b.n1 - 1) * b.instruction->c1 + inner;
  return (b.n1 == 1 || Cycle(b.instruction->c1) > inner) &&
         (b.repeats == 1 || Cycle(b.interval) > one);
}

/// S2: a port runs one burst at a time. A format of several planes holds the ports of all of them.
bool Pe::start(Burst &burst, unsigned portIndex, Cycle now) {
  const Instruction &i = *burst.instruction;
  std::array<unsigned, 4> ofPlanes{portIndex};
  const unsigned planes = i.opcode == Opcode::Activate ? byteWidth(i.format) : 1;
  for (unsigned p = 1; p < planes; ++p) {
    Unit partner = context.unitOf(i.queue);
    partner.index += p;
    ofPlanes[p] = mainPort[context.machine.queue(partner)];
  }
  const std::span held(ofPlanes.data(), planes);
  for (unsigned p : held)
    if (ports[p].free > now) {
      context.report(Invariant::S2, now, burst, [&] {
        return "the port of " + context.machine.queueName(ports[p].queue) +
               " is busy until cycle " + std::to_string(ports[p].free - 1);
      });
      return false;
    }
  for (unsigned p : held)
    ports[p].free = burst.lastCycle() + 1;
  Port &port = ports[portIndex];
  port.unit->dispatch(burst);
  port.burst = burst;
  due[portIndex] = now;
  port.active = true;
  active[portIndex / 64] |= uint64_t(1) << portIndex % 64;
  return true;
}

void Pe::settle() {
  // A PE that was stopped, because another one broke an invariant, rests until its next activity.
  const Cycle next = done() ? kNever / 4 : nextActivity();
  // What is still on its way reaches its register.
  context.advanceStreams(std::min(simulated + Cycle(context.timing.longestDelay), next - 1));
  for (UnitInterface *u : units)
    u->settle(next);
}

void Pe::endStep() {
  running = false;
  for (UnitInterface *u : units)
    u->endStep();
  context.streams.clear();
  assert(context.pool.references() == context.keptInMemory &&
         "a vector was retained and not released");
}

} // namespace millrace::sim
