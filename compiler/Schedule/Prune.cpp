// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Prune.h"

#include "compiler/Schedule/Hazards.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace millrace::schedule {
namespace {

class Pruner {
public:
  Pruner(Image &image, const Machine &machine) : image(image), machine(machine), timing(machine) {
    for (const auto &list : image.instructions)
      live.emplace_back(list.size(), false), sampled.emplace_back(list.size(), 0);
  }

  Pruned run() {
    pruned.latches = shareLatches();
    markWhatTheHostReads();
    follow();
    keepIdleSteps();
    pruned.bursts = leaveOut();
    return pruned;
  }

private:
  struct Place {
    unsigned pe;
    uint32_t index;
  };
  /// Row `row` of a slice of a PE.
  static uint64_t keyOf(unsigned pe, Hemisphere h, unsigned slice, uint64_t row) {
    return ((uint64_t(pe) * kHemispheres + unsigned(h)) << 16 | slice) << 32 | row;
  }
  const Instruction &at(Place p) const { return image.instructions[p.pe][p.index]; }

  std::optional<Producer> madeBy(Place consumer, ProducerOf of, unsigned byte,
                                 uint32_t element) const;
  std::string valueOf(Place latch) const;
  size_t shareLatches();
  void forEachWrite(const Step &step, const std::function<void(Place, uint64_t row)> &f) const;
  void forEachRow(const Binding &binding, const std::function<void(uint64_t row)> &f) const;
  void markWhatTheHostReads();
  void mark(Place p);
  void noteSample(Place consumer, const Producer &from);
  void follow();
  void keepIdleSteps();
  size_t leaveOut();
  void restate();

  Image &image;
  const Machine &machine;
  const Timing timing;
  Pruned pruned;
  std::vector<std::vector<bool>> live;       ///< [pe][instruction]
  std::vector<std::vector<uint8_t>> sampled; ///< [pe][instruction], bit s: live ones take out[s]
  std::vector<Place> open;                   ///< live, their producers not yet
};

/// The entry for one element, `first` being the element of its instruction or block.
std::optional<Producer> Pruner::madeBy(Place consumer, ProducerOf of, unsigned byte,
                                       uint32_t element) const {
  const Instruction &i = at(consumer);
  const uint32_t i0 = element % i.n0, i1 = element / i.n0;
  for (uint32_t n = i.producers; n < i.producers + i.producerCount; ++n) {
    Producer p = image.producers[consumer.pe][n];
    if (p.of != of || (p.byte != byte && p.byte != kAllBytes) || i0 - p.from0 >= p.count0 ||
        i1 - p.from1 >= p.count1)
      continue;
    p.first = uint32_t(int64_t(p.first) + int64_t(i0 - p.from0) * p.step0 +
                       int64_t(i1 - p.from1) * p.step1);
    return p;
  }
  return std::nullopt;
}

/// What a Latch loads, as text: equal texts are equal values. Empty: it is not known.
std::string Pruner::valueOf(Place latch) const {
  const Operand &operand = at(latch).a;
  std::string text;
  if (operand.kind != OperandKind::Stream)
    return text;
  for (unsigned byte = 0; byte < operand.width; ++byte) {
    const std::optional<Producer> read = madeBy(latch, ProducerOf::A, byte, 0);
    if (!read || read->instruction == kInitialContents ||
        at({read->pe, read->instruction}).opcode != Opcode::Read)
      return "";
    const std::optional<Producer> row =
        madeBy({read->pe, read->instruction}, ProducerOf::Memory, 0, read->first);
    if (!row)
      return "";
    const bool loaded = row->instruction == kInitialContents;
    const Block *block = loaded ? &image.blocks[row->block] : nullptr;
    text += std::to_string(byte) + ":";
    if (block && block->bytes) { // a constant: wherever it lies
      std::string bytes(block->bytes, '\0');
      std::copy_n(image.data.data() + block->offset + size_t(row->first) * block->bytes,
                  block->bytes, bytes.begin());
      bytes.resize(bytes.find_last_not_of('\0') + 1); // the rest of a row is zero
      text += "bytes " + std::to_string(bytes.size()) + " " + bytes;
    } else {
      text += loaded ? "block " + std::to_string(row->block)
                     : "burst " + std::to_string(row->pe) + " " + std::to_string(row->instruction);
      text += " " + std::to_string(row->first);
    }
    text += ";";
  }
  return text;
}

/// Lets the users of a Latch that loads what is there name the Latch before it.
size_t Pruner::shareLatches() {
  size_t count = 0;
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe) {
    std::vector<uint32_t> standsFor(image.instructions[pe].size());
    for (uint32_t k = 0; k < standsFor.size(); ++k)
      standsFor[k] = k;
    for (const Step &step : image.steps) {
      std::map<unsigned, std::pair<uint32_t, std::string>> held; ///< by queue: who loaded what
      for (uint32_t k = step.kind == Step::Kind::Grid ? step.pes[pe].begin : 0;
           step.kind == Step::Kind::Grid && k < step.pes[pe].end; ++k) {
        if (at({pe, k}).opcode != Opcode::Latch)
          continue;
        std::string value = valueOf({pe, k});
        auto &[who, what] = held[at({pe, k}).queue];
        if (!value.empty() && value == what) {
          standsFor[k] = who;
          ++count;
        } else {
          who = k, what = std::move(value);
        }
      }
    }
    for (Producer &p : image.producers[pe].edit()) // a latch serves its own ALU alone
      if (p.pe == pe && p.instruction != kInitialContents)
        p.instruction = standsFor[p.instruction];
  }
  return count;
}

void Pruner::forEachWrite(const Step &step,
                          const std::function<void(Place, uint64_t row)> &f) const {
  for (unsigned pe = 0; pe < step.pes.size(); ++pe)
    for (uint32_t k = step.pes[pe].begin; k < step.pes[pe].end; ++k) {
      const Instruction &i = at({pe, k});
      if (i.opcode != Opcode::Write)
        continue;
      const Unit unit = machine.unit(i.queue);
      forEachElement(i, [&](unsigned i0, unsigned i1) {
        f({pe, k}, keyOf(pe, unit.hemisphere, unit.index, elementAddress(i, i0, i1)));
      });
    }
}

/// Calls f for the rows of every placement; loops that only walk along lanes aside.
void Pruner::forEachRow(const Binding &binding, const std::function<void(uint64_t row)> &f) const {
  for (const Placement &p : binding.placements) {
    std::vector<int64_t> rows{p.row};
    for (const BindingLoop &loop : p.loops) {
      if (!loop.rowStep)
        continue;
      std::vector<int64_t> next;
      for (int64_t row : rows)
        for (uint32_t n = 0; n < loop.count; ++n)
          next.push_back(row + int64_t(n) * loop.rowStep);
      rows = std::move(next);
    }
    for (unsigned slice : p.slices)
      for (int64_t row : rows)
        f(keyOf(p.pe, p.hemisphere, slice, uint64_t(row)));
  }
}

/// The last write before a host step, or before the end, of each row that is read there.
void Pruner::markWhatTheHostReads() {
  std::unordered_map<uint64_t, Place> last;
  const auto read = [&](const Binding &binding) {
    forEachRow(binding, [&](uint64_t row) {
      if (auto found = last.find(row); found != last.end())
        mark(found->second);
    });
  };
  for (const Step &step : image.steps) {
    if (step.kind == Step::Kind::Grid)
      forEachWrite(step, [&](Place p, uint64_t row) { last[row] = p; });
    for (uint32_t binding : step.inputs)
      read(image.bindings[binding]);
  }
  for (const Binding &binding : image.bindings)
    if (binding.role == Binding::Role::Output)
      read(binding);
}

void Pruner::mark(Place p) {
  if (live[p.pe][p.index])
    return;
  live[p.pe][p.index] = true;
  open.push_back(p);
}

/// Which of an Alu's two results, west and east, a live burst takes.
void Pruner::noteSample(Place consumer, const Producer &from) {
  const Instruction &to = at(consumer), &made = at({from.pe, from.instruction});
  if (from.of > ProducerOf::C || made.opcode != Opcode::Alu)
    return;
  const Operand *operands[] = {&to.a, &to.b, &to.c};
  const Operand &o = *operands[unsigned(from.of)];
  if (o.kind != OperandKind::Stream)
    return; // chained
  const unsigned stream = o.index + (from.byte == kAllBytes ? 0 : from.byte);
  for (unsigned s = 0; s < 2; ++s)
    if (made.out[s] != kNoStream && stream - made.out[s] < made.outWidth)
      sampled[from.pe][from.instruction] |= uint8_t(1 << s);
}

/// What a live burst takes is live. Opcodes that act on what no annotation names stay.
void Pruner::follow() {
  std::vector<std::vector<Place>> writers(image.tensors.size()); ///< by region
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      const Instruction &i = at({pe, k});
      if (i.opcode == Opcode::Write && i.tensor < writers.size())
        writers[i.tensor].push_back({pe, k});
      if (i.opcode == Opcode::Config || i.opcode == Opcode::Repeat || i.opcode == Opcode::Scatter)
        mark({pe, k});
    }
  while (!open.empty()) {
    const Place p = open.back();
    open.pop_back();
    const Instruction &i = at(p);
    for (uint32_t n = i.producers; n < i.producers + i.producerCount; ++n)
      if (const Producer &from = image.producers[p.pe][n]; from.instruction != kInitialContents) {
        mark({from.pe, from.instruction});
        noteSample(p, from);
      }
    if (i.opcode == Opcode::Gather && i.tensor < writers.size()) // which rows is data
      for (Place writer : writers[i.tensor])
        mark(writer);
  }
}

void Pruner::keepIdleSteps() {
  for (const Step &step : image.steps) {
    bool writes = false;
    for (unsigned pe = 0; pe < step.pes.size(); ++pe)
      for (uint32_t k = step.pes[pe].begin; k < step.pes[pe].end; ++k)
        writes |= live[pe][k] && at({pe, k}).opcode == Opcode::Write;
    for (unsigned pe = 0; pe < step.pes.size() && !writes; ++pe)
      for (uint32_t k = step.pes[pe].begin; k < step.pes[pe].end; ++k)
        mark({pe, k});
  }
  follow();
}

size_t Pruner::leaveOut() {
  size_t count = 0;
  pruned.kept.resize(image.instructions.size());
  std::vector<std::vector<uint32_t>> now(image.instructions.size()); ///< [pe][old number]
  for (unsigned pe = 0; pe < now.size(); ++pe) {
    uint32_t next = 0;
    for (bool stays : live[pe]) {
      now[pe].push_back(next);
      next += stays;
      count += !stays;
    }
    now[pe].push_back(next);
  }
  for (unsigned pe = 0; pe < now.size(); ++pe) {
    std::vector<Instruction> instructions;
    std::vector<Producer> producers;
    for (uint32_t k = 0; k < live[pe].size(); ++k) {
      if (!live[pe][k])
        continue;
      Instruction i = at({pe, k});
      for (unsigned s = 0; s < 2 && i.opcode == Opcode::Alu; ++s)
        if (!(sampled[pe][k] & 1 << s))
          i.out[s] = kNoStream;
      if (i.opcode == Opcode::Alu && !sampled[pe][k])
        i.outWidth = 0;
      const uint32_t first = i.producers;
      i.producers = uint32_t(producers.size());
      for (uint32_t n = first; n < first + i.producerCount; ++n) {
        Producer p = image.producers[pe][n];
        if (p.instruction != kInitialContents)
          p.instruction = now[p.pe][p.instruction];
        producers.push_back(p);
      }
      instructions.push_back(i);
      pruned.kept[pe].push_back(k);
    }
    image.instructions[pe] = std::move(instructions);
    image.producers[pe] = std::move(producers);
    for (Step &step : image.steps)
      if (step.kind == Step::Kind::Grid)
        step.pes[pe] = {now[pe][step.pes[pe].begin], now[pe][step.pes[pe].end]};
  }
  restate();
  return count;
}

/// Counts of grid steps, and lives of regions, which end with their step, or with the last access
/// of a burst that goes on behind it, as others need its first elements.
void Pruner::restate() {
  std::vector<Cycle> lastAccess(image.tensors.size(), 0); ///< in the step in which the region ends
  for (unsigned s = 0; s < image.steps.size(); ++s) {
    Step &step = image.steps[s];
    if (step.kind != Step::Kind::Grid)
      continue;
    Cycle last = 0;
    for (unsigned pe = 0; pe < step.pes.size(); ++pe)
      for (uint32_t k = step.pes[pe].begin; k < step.pes[pe].end; ++k) {
        const Instruction &i = at({pe, k});
        if (machine.unit(i.queue).kind != UnitKind::Mem)
          continue;
        const bool writes = i.opcode == Opcode::Write;
        const Cycle end = Cycle(i.cycle) + (writes ? timing.writeSlot() : 0) + lastElementCycle(i);
        if (writes)
          last = std::max(last, end);
        if (i.tensor < lastAccess.size() && image.tensors[i.tensor].step1 == s)
          lastAccess[i.tensor] = std::max(lastAccess[i.tensor], end);
      }
    step.predictedCycles = uint64_t(timing.countFrom(last));
  }
  for (size_t r = 0; r < image.tensors.size(); ++r) {
    Region &region = image.tensors[r];
    if (region.step1 >= image.steps.size()) // of an image from text: to the end
      continue;
    if (const Step &step = image.steps[region.step1]; step.kind == Step::Kind::Grid)
      region.to = std::min(region.to, std::max(step.predictedCycles, uint64_t(lastAccess[r])));
  }
}

} // namespace

Pruned prune(Image &image, const Machine &machine) { return Pruner(image, machine).run(); }

} // namespace millrace::schedule
