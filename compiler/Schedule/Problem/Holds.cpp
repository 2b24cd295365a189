// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a burst holds for cycles that are known from its dispatch: queue, port, banks, the way out
// of an ALU, a link, registers of streams.
#include "compiler/Schedule/Problem/Extractor.h"

#include <algorithm>
#include <set>

namespace millrace::schedule {
namespace {

std::vector<Cycle> cyclesOf(const Instruction &i, Cycle offset) {
  std::vector<Cycle> cycles;
  cycles.reserve(i.elements());
  forEachElement(
      i, [&](unsigned i0, unsigned i1) { cycles.push_back(offset + elementCycle(i, i0, i1)); });
  return cycles;
}

/// The few holds that take `length` cycles from each of `cycles` on.
std::vector<Hold> holdsOf(std::vector<Cycle> cycles, Cycle length) {
  std::sort(cycles.begin(), cycles.end());
  std::vector<Hold> runs; // cycles that follow each other without a gap
  for (const Cycle c : cycles)
    if (length == 1 && !runs.empty() && runs.back().at + runs.back().length == c)
      ++runs.back().length;
    else
      runs.push_back({0, 0, 0, c, length, 1, 0});
  std::vector<Hold> result; // runs of one length at one distance
  for (const Hold &run : runs) {
    Hold *last = result.empty() ? nullptr : &result.back();
    const Cycle distance = last ? run.at - last->at - Cycle(last->count - 1) * last->every : 0;
    if (last && last->length == run.length && (last->count == 1 || last->every == distance)) {
      last->every = distance;
      ++last->count;
    } else {
      result.push_back(run);
    }
  }
  return result;
}

} // namespace

/// In `like`'s resource, of a burst's bundle; `cycles` from the start of that.
void Extractor::hold(unsigned pe, uint32_t k, Hold like, std::vector<Cycle> cycles) {
  for (Hold h : holdsOf(std::move(cycles), like.length)) {
    h.resource = like.resource, h.low = like.low, h.high = like.high;
    bundleOf(pe, k).holds.push_back(h);
  }
}

static ResourceKind portOf(UnitKind kind) {
  switch (kind) {
  case UnitKind::MxmInstall:
  case UnitKind::MxmActivate:
  case UnitKind::MxmAccumulate:
    return ResourceKind::MxmPort;
  case UnitKind::Alu:
    return ResourceKind::Alu;
  case UnitKind::Send:
  case UnitKind::Receive:
    return ResourceKind::LinkPort;
  default:
    return ResourceKind::SxmPort;
  }
}

/// R1, R4.
void Extractor::addPorts(unsigned pe, uint32_t k) {
  const Instruction &i = at(pe, k);
  const Unit unit = machine.unit(i.queue);
  const Cycle offset = places[pe][k].at, length = lastElementCycle(i) + 1;
  const auto add = [&](uint32_t of, Cycle cycles) {
    bundleOf(pe, k).holds.push_back({of, 0, 0, offset, cycles, 1, 0});
  };
  if (unit.kind == UnitKind::Mem) {
    const bool writes = i.opcode == Opcode::Write;
    add(resource(ResourceKind::Queue, pe, i.queue, ""), 1);
    add(writes ? resource(ResourceKind::WritePort, pe, i.queue, ".write")
               : resource(ResourceKind::ReadPort, pe, i.queue, ".read"),
        length);
    return;
  }
  const unsigned planes = i.opcode == Opcode::Activate ? byteWidth(i.format) : 1;
  for (unsigned p = 0; p < planes; ++p)
    add(resource(portOf(unit.kind), pe, machine.queue({unit.kind, unit.hemisphere, unit.index + p}),
                 ""),
        length);
}

/// S5: by bank, in the cycles in which elements access them.
void Extractor::addBanks(unsigned pe, uint32_t k) {
  const Instruction &i = at(pe, k);
  if (machine.unit(i.queue).kind != UnitKind::Mem)
    return;
  const unsigned rowsPerBank = machine.memory.rowsPerBank;
  const Cycle offset = places[pe][k].at + (i.opcode == Opcode::Write ? timing.writeSlot() : 0);
  Hold like{resource(ResourceKind::Banks, pe, i.queue, ".banks"), 0, 0, 0, 1, 1, 0};
  if (i.opcode == Opcode::Gather) { // which rows it takes is data
    const Region &region = image.tensors[i.tensor];
    like.low = i.address / rowsPerBank;
    like.high = std::max(i.address, region.row + std::max(region.rows, 1u) - 1) / rowsPerBank;
    hold(pe, k, like, cyclesOf(i, offset));
    return;
  }
  std::map<unsigned, std::vector<Cycle>> byBank;
  forEachElement(i, [&](unsigned i0, unsigned i1) {
    byBank[elementAddress(i, i0, i1) / rowsPerBank].push_back(offset + elementCycle(i, i0, i1));
  });
  for (auto &[bank, cycles] : byBank) {
    like.low = like.high = bank;
    hold(pe, k, like, std::move(cycles));
  }
}

/// S8: of ALUs whose operations differ in latency; else results leave as they enter, one by one.
void Extractor::addAluResults(unsigned pe) {
  std::map<unsigned, std::set<Cycle>> latencies; // by queue
  const auto isOp = [&](const Instruction &i) { return i.opcode == Opcode::Alu; };
  for (const Instruction &i : image.instructions[pe])
    if (isOp(i))
      latencies[i.queue].insert(timing.aluOp(AluOp(i.function)));
  for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
    const Instruction &i = at(pe, k);
    if (!isOp(i) || latencies[i.queue].size() == 1)
      continue;
    std::vector<Cycle> cycles = cyclesOf(i, places[pe][k].at + timing.aluOp(AluOp(i.function)));
    if (i.flags & AluFlag::Running)
      cycles.erase(cycles.begin(), cycles.end() - i.n0);
    hold(pe, k, {resource(ResourceKind::AluResult, pe, i.queue, ".result"), 0, 0, 0, 1, 1, 0},
         std::move(cycles));
  }
}

/// S9: a vector takes the link for its slot.
void Extractor::addLink(unsigned pe, uint32_t k) {
  const Instruction &i = at(pe, k);
  if (i.opcode != Opcode::Send)
    return;
  for (const Link &link : machine.links)
    if (link.from == pe && link.port == machine.unit(i.queue).index)
      hold(pe, k,
           {resource(ResourceKind::Link, pe, i.queue, ".link"), 0, 0, 0, Cycle(link.slot), 1, 0},
           cyclesOf(i, places[pe][k].at));
}

/// What the burst puts out, byte by byte.
std::vector<StreamId> Extractor::streamsOf(const Instruction &i) const {
  std::vector<StreamId> streams;
  const auto add = [&](StreamId first, unsigned width) {
    for (unsigned b = 0; first != kNoStream && b < width; ++b)
      streams.push_back(StreamId(first + b));
  };
  if (i.opcode == Opcode::Alu)
    for (const StreamId out : i.out)
      add(out, i.outWidth);
  else if (info(i.opcode).fields.has(Field::OutStream))
    add(i.out[0], i.opcode == Opcode::Accumulate ? 4 : i.opcode == Opcode::Transpose ? 16 : 1);
  return streams;
}

/// Streams that the burst samples as an operand.
unsigned Extractor::operandWidth(const Instruction &i, const Operand &o) const {
  switch (i.opcode) {
  case Opcode::Alu:
  case Opcode::Latch:
    return o.width;
  case Opcode::Install:
    return machine.mxm.columnsPerInstall;
  case Opcode::Transpose:
    return 16;
  case Opcode::Activate:
    return byteWidth(i.format);
  default:
    return 1;
  }
}

/// Where the unit stands along the line.
unsigned Extractor::positionOf(const Instruction &i) const {
  const Unit unit = machine.unit(i.queue);
  switch (unit.kind) {
  case UnitKind::Mem:
    return machine.position(unit.index);
  case UnitKind::Alu:
    return 0;
  case UnitKind::Send:
  case UnitKind::Receive:
    return machine.c2c.position;
  default:
    return machine.lastPosition();
  }
}

/// From an element's cycle to that in which its result stands at the unit's position.
Cycle Extractor::injection(const Instruction &i) const {
  const UnitKind kind = machine.unit(i.queue).kind;
  switch (kind) {
  case UnitKind::Mem:
    return i.opcode == Opcode::Gather ? timing.gatherInjects() : timing.readInjects();
  case UnitKind::MxmAccumulate:
    return timing.accumulateToStream();
  case UnitKind::Alu:
    return timing.aluToStream(AluOp(i.function));
  case UnitKind::Receive:
    return timing.receiveInjects();
  default:
    return timing.switchToStream(kind);
  }
}

/// All registers that a vector passes have one diagonal.
Cycle Extractor::diagonal(StreamId stream, Cycle cycle, unsigned position) const {
  const Cycle reach = timing.hops(0, position);
  return machine.directionOf(stream) == Direction::Outward ? cycle - reach : cycle + reach;
}

/// That instruction `k` samples what `from` says.
void Extractor::noteSampler(unsigned pe, uint32_t k, const Producer &from) {
  const Instruction &to = at(pe, k), &made = at(from.pe, from.instruction);
  const Operand *operands[] = {&to.a, &to.b, &to.c};
  const Operand &o = *operands[unsigned(from.of)];
  if (from.pe != pe)
    return refuse(pe, k, "samples a stream of another pe");
  const unsigned position = positionOf(to), width = operandWidth(to, o);
  for (unsigned byte = 0; byte < width; ++byte) {
    if (from.byte != kAllBytes && from.byte != byte)
      continue;
    const auto stream = StreamId(o.index + byte);
    Output *output = nullptr;
    for (Output &candidate : outputs[pe][from.instruction])
      if (candidate.stream == stream)
        output = &candidate;
    if (!output)
      return refuse(pe, k,
                    "samples a stream that instruction " + std::to_string(from.instruction) +
                        " puts nothing on");
    const bool isOutward = machine.directionOf(stream) == Direction::Outward;
    const unsigned made0 = positionOf(made);
    bool meets = true;
    forEachProduced(from, [&](unsigned i0, unsigned i1, uint32_t e) {
      if (e >= output->last.size()) {
        meets = false;
        return;
      }
      const Cycle sampled = Cycle(to.cycle) + elementCycle(to, i0, i1),
                  put = Cycle(made.cycle) + cycleOfElement(made, e) + injection(made);
      meets &= diagonal(stream, sampled, position) == diagonal(stream, put, made0) &&
               (isOutward ? position >= made0 : position <= made0);
      uint16_t &last = output->last[e];
      last = uint16_t(isOutward ? std::max<unsigned>(last, position)
                                : std::min<unsigned>(last, position));
    });
    if (!meets)
      return refuse(pe, k,
                    "does not meet what instruction " + std::to_string(from.instruction) +
                        " puts on its stream");
  }
}

void Extractor::followSamplers() {
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe) {
    outputs.emplace_back(image.instructions[pe].size());
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      for (const StreamId stream : streamsOf(at(pe, k)))
        outputs[pe][k].push_back(
            {stream, std::vector<uint16_t>(at(pe, k).elements(), uint16_t(positionOf(at(pe, k))))});
  }
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      const Instruction &i = at(pe, k);
      const Operand *operands[] = {&i.a, &i.b, &i.c};
      for (const Producer &p : image.producersOf(pe, i))
        if (p.of <= ProducerOf::C && operands[unsigned(p.of)]->kind == OperandKind::Stream)
          noteSampler(pe, k, p);
    }
}

/// S3: a vector takes the registers from where it enters to its last sampler.
void Extractor::addStreams(unsigned pe, uint32_t k) {
  const Instruction &i = at(pe, k);
  const bool running = i.opcode == Opcode::Alu && (i.flags & AluFlag::Running);
  const unsigned position = positionOf(i);
  for (const Output &output : outputs[pe][k]) {
    std::map<uint16_t, std::vector<Cycle>> byEnd;
    for (uint32_t e = running ? i.elements() - i.n0 : 0; e < i.elements(); ++e)
      byEnd[output.last[e]].push_back(
          diagonal(output.stream, cycleIn(pe, k, e) + injection(i), position));
    const Hemisphere h = machine.hemisphereOf(output.stream);
    const bool isOutward = machine.directionOf(output.stream) == Direction::Outward;
    const std::string name = std::string(h == Hemisphere::West ? "w." : "e.") +
                             (isOutward ? "out." : "in.") +
                             std::to_string(machine.indexOf(output.stream));
    const Cycle hop = isOutward ? timing.hops(0, 1) : -timing.hops(0, 1);
    Hold like{resource(ResourceKind::Stream, pe, machine.queues(), name, hop), 0, 0, 0, 1, 1, 0};
    for (auto &[end, cycles] : byEnd) {
      like.low = std::min<uint32_t>(end, position);
      like.high = std::max<uint32_t>(end, position);
      hold(pe, k, like, std::move(cycles));
    }
  }
}

void Extractor::addHolds() {
  followSamplers();
  for (unsigned pe = 0; pe < image.instructions.size() && wrong.empty(); ++pe) {
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      addPorts(pe, k);
      addBanks(pe, k);
      addLink(pe, k);
      addStreams(pe, k);
    }
    addAluResults(pe);
  }
  outputs.clear();
}

} // namespace millrace::schedule
