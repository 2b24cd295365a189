// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/memory/MemorySlice.h"

#include <algorithm>

namespace millrace::sim {

MemorySlice::MemorySlice(const sc_core::sc_module_name &name, PeContext &context,
                         Hemisphere hemisphere, unsigned index)
    : UnitModule(name, context), hemisphere(hemisphere), index(index),
      position(context.machine.position(index)), rowCount(context.machine.rowsPerSlice()),
      held((rowCount + kChunkRows - 1) / kChunkRows) {}

uint32_t &MemorySlice::hold(uint32_t row) {
  std::unique_ptr<uint32_t[]> &chunk = held[row / kChunkRows];
  if (!chunk) {
    chunk = std::make_unique_for_overwrite<uint32_t[]>(kChunkRows);
    std::fill_n(chunk.get(), kChunkRows, kNothing);
  }
  return chunk[row % kChunkRows];
}

MemorySlice::Made &MemorySlice::makeAt(uint32_t row) {
  uint32_t &what = hold(row);
  if (what & kMade)
    return made[what & ~kMade];
  const Tag tag = madeBy(row).tag;
  if (freeMade.empty()) {
    freeMade.push_back(uint32_t(made.size()));
    made.emplace_back();
  }
  what = freeMade.back() | kMade;
  freeMade.pop_back();
  return made[what & ~kMade] = {.tag = tag};
}

MemorySlice::Contents MemorySlice::contentsOf(uint32_t row) const {
  const uint32_t what = holds(row);
  if (what & kMade)
    return {context.pool.bytes(made[what & ~kMade].value, nullptr), context.machine.lanes()};
  if (what == kNothing)
    return {};
  const Block &b = context.image.blocks[what];
  return {context.image.data.data() + b.offset + size_t(row - b.row) * b.bytes, b.bytes};
}

/// The row as a vector; one reference is the caller's.
VectorRef MemorySlice::valueOf(uint32_t row) {
  if (const uint32_t what = holds(row); what & kMade) {
    const VectorRef value = made[what & ~kMade].value;
    context.pool.retain(value);
    return value;
  }
  const Contents contents = contentsOf(row);
  if (contents.bytes == context.machine.lanes())
    return context.pool.acquireShown(contents.data);
  const VectorRef value = context.pool.acquireNarrow();
  readRow(row, context.pool.narrow(value));
  return value;
}

/// The row takes a reference of `value`, and gives back that of what it held.
void MemorySlice::keep(Made &row, VectorRef value) {
  context.keptInMemory += (value != 0) - (row.value != 0);
  context.pool.release(row.value);
  row.value = value;
}

void MemorySlice::load(uint32_t index) {
  const Block &block = context.image.blocks[index];
  for (uint32_t row = block.row; row < block.row + block.rows; ++row) {
    uint32_t &what = hold(row);
    if (what & kMade) {
      keep(made[what & ~kMade], 0);
      freeMade.push_back(what & ~kMade);
    }
    what = index;
  }
}

void MemorySlice::readRow(uint32_t row, uint8_t *out) const {
  const Contents from = contentsOf(row);
  if (from.bytes)
    std::memcpy(out, from.data, from.bytes);
  std::memset(out + from.bytes, 0, context.machine.lanes() - from.bytes);
}

uint8_t *MemorySlice::hostRow(uint32_t row, std::optional<Tag> tag) {
  if (const VectorRef old = madeBy(row).value; !context.pool.isSole(old)) {
    const VectorRef own = context.pool.acquireNarrow();
    readRow(row, context.pool.narrow(own));
    keep(makeAt(row), own);
  }
  Made &now = makeAt(row);
  if (tag)
    now.tag = *tag;
  return context.pool.narrow(now.value);
}

const Region *MemorySlice::regionOf(const Instruction &i) const {
  if (i.tensor >= context.image.tensors.size())
    return nullptr;
  const Region &region = context.image.tensors[i.tensor];
  bool here = region.pe == context.pe && region.hemisphere == hemisphere && region.slice == index;
  return here ? &region : nullptr;
}

/// A cycle of the image; beyond what a step can reach there is no difference.
static Cycle cycleOf(uint64_t cycle) { return Cycle(std::min<uint64_t>(cycle, INT64_MAX)); }

/// From the dispatch of an element to the cycle in which it holds its bank.
Cycle MemorySlice::slotDelay(const Instruction &i) const {
  return i.opcode == Opcode::Write || i.opcode == Opcode::Scatter ? context.timing.write : 0;
}

/// The last row that a Gather or Scatter at `row` may touch: the last one of its tensor.
uint32_t MemorySlice::lastRowOf(const Instruction &i, uint32_t row) const {
  const Region *region = regionOf(i);
  const uint32_t end = region ? std::min(region->row + region->rows, rowCount) : rowCount;
  return std::max(end, row + 1) - 1;
}

/// S10 for the whole burst: rows inside the named region, bank slots inside its lifetime.
void MemorySlice::dispatch(Burst &burst) {
  const Instruction &i = *burst.instruction;
  const Region *region = regionOf(i);
  const Cycle delay = slotDelay(i);
  if (!region) {
    context.report(Invariant::S10, burst.start + delay, burst, [&] {
      return "tensor " + std::to_string(i.tensor) + " has no rows in this slice";
    });
    return;
  }
  const unsigned step = context.step;
  const Cycle from = region->step0 < step   ? 0
                     : region->step0 > step ? INT64_MAX
                                            : cycleOf(region->from);
  const Cycle to = region->step1 > step   ? INT64_MAX
                   : region->step1 < step ? -1
                                          : cycleOf(region->to);
  auto inside = [&](const Burst &b) {
    int64_t row = b.row();
    return row >= region->row && row < int64_t(region->row) + region->rows &&
           b.at() + delay >= from && b.at() + delay <= to;
  };
  // Rows and cycles are linear in (i1, i0): the corners decide.
  Burst corner = burst;
  bool fits = true;
  for (uint16_t i1 : {uint16_t(0), uint16_t(burst.n1 - 1)})
    for (uint16_t i0 : {uint16_t(0), uint16_t(burst.n0 - 1)})
      for (uint32_t r : {0u, burst.repeats - 1}) {
        corner.i0 = i0, corner.i1 = i1, corner.repeat = r;
        fits &= inside(corner);
      }
  if (fits)
    return;
  corner = burst;
  while (!corner.finished() && inside(corner))
    corner.next();
  context.report(Invariant::S10, corner.at() + delay, burst, [&] {
    return "row " + std::to_string(corner.row()) + " in cycle " +
           std::to_string(corner.at() + delay) + " is outside tensor " + std::to_string(i.tensor) +
           ", which owns rows " + std::to_string(region->row) + " to " +
           std::to_string(region->row + region->rows - 1) + " from step " +
           std::to_string(region->step0) + " cycle " + std::to_string(region->from) + " to step " +
           std::to_string(region->step1) + " cycle " + std::to_string(region->to);
  });
}

void MemorySlice::element(Burst &burst, Cycle now) {
  int64_t row = burst.row();
  if (row < 0 || row >= int64_t(rowCount)) {
    context.report(Invariant::S10, now + slotDelay(*burst.instruction), burst, [&] {
      return "row " + std::to_string(row) + " does not exist; the slice has " +
             std::to_string(rowCount);
    });
    return;
  }
  switch (burst.instruction->opcode) {
  case Opcode::Read:
    return read(burst, uint32_t(row), now);
  case Opcode::Write:
    return write(burst, uint32_t(row), now);
  case Opcode::Gather:
    return gather(burst, uint32_t(row), now);
  default:
    return scatter(burst, uint32_t(row), now);
  }
}

/// S5: a bank serves one access per cycle. One port reads and one writes, so only a read can meet a
/// write.
void MemorySlice::checkBanks(const Burst &burst, uint32_t row, uint32_t lastRow, Cycle now) {
  for (const PendingWrite &w : writes) {
    if (w.slot != now)
      continue;
    const unsigned bank = std::max(bankOf(w.row), bankOf(row));
    if (bank <= std::min(bankOf(w.lastRow), bankOf(lastRow)))
      context.report(Invariant::S5, now, burst, [&] {
        return "bank " + std::to_string(bank) + " is read in row " + std::to_string(burst.row()) +
               " while instruction " + std::to_string(w.tag.instruction) + " writes its row " +
               std::to_string(w.row) + (w.row == w.lastRow ? "" : " or one behind it");
      });
  }
}

/// A read that holds the banks of [row, lastRow] begins.
void MemorySlice::beginRead(const Burst &burst, uint32_t row, uint32_t lastRow, Cycle now) {
  lastRead = now;
  lastReadRows[0] = row, lastReadRows[1] = lastRow;
  if (writes.empty())
    return;
  applyWrites(now);
  checkBanks(burst, row, lastRow, now);
}

void MemorySlice::notWritten(const Burst &burst, const Made &row, uint32_t address, Cycle now) {
  context.report(Invariant::S6, now, burst, [&] {
    return "row " + std::to_string(address) +
           (row.tag.empty()
                ? " is read, but nothing was ever written there"
                : " is read " + std::to_string(context.base + now - row.at) +
                      " cycles after its write slot; " +
                      std::to_string(context.machine.latency.readAfterWrite) + " are needed");
  });
}

/// A row does not hold the element that is meant, unless that is one of those that a Scatter may
/// have left there.
void MemorySlice::notMeant(Burst &burst, Tag tag, uint32_t address, Cycle now) {
  const auto expected = meant(burst, ProducerOf::Memory, slot::Memory, 0);
  if (expected && expected->pe == context.pe && tag.meets(expected->tag))
    return;
  context.report(Invariant::S6, now, burst, [&] {
    return "row " + std::to_string(address) +
           (expected ? " should hold " + context.describe(expected->tag) : " has no annotation") +
           ", but holds " + context.describe(tag);
  });
}

/// An annotation of a Gather names the burst that made the rows, not an element: which row it takes is data.
void MemorySlice::checkGathered(Burst &burst, Tag tag, uint32_t address, Cycle now) {
  if (!context.checks(burst))
    return;
  const auto expected = meant(burst, ProducerOf::Memory, slot::Memory, 0);
  if (!expected || (expected->pe == context.pe && expected->tag.instruction == tag.instruction))
    return;
  context.report(Invariant::S6, now, burst, [&] {
    return "row " + std::to_string(address) + " should be of the burst that makes " +
           context.describe(expected->tag) + ", but holds " + context.describe(tag);
  });
}

/// Fetches ahead what the burst's next row holds, and who made the one behind it: slices take
/// turns, so that the CPU's own prefetching sees no order in them.
inline void MemorySlice::fetchAhead(const Burst &burst, int64_t address) const {
  constexpr unsigned kLine = 64;
  const int64_t next = address + burst.instruction->s0, second = next + burst.instruction->s0;
  if (second >= 0 && second < int64_t(rowCount))
    if (const uint32_t what = holds(uint32_t(second)); what & kMade)
      __builtin_prefetch(&made[what & ~kMade]);
  if (!context.values || burst.i0 + 1u >= burst.n0 || next < 0 || next >= int64_t(rowCount))
    return;
  const Contents row = contentsOf(uint32_t(next));
  for (unsigned b = 0; b < row.bytes; b += kLine)
    __builtin_prefetch(row.data + b);
}

inline void MemorySlice::read(Burst &burst, uint32_t address, Cycle now) {
  beginRead(burst, address, address, now);
  fetchAhead(burst, address);
  Tag tag;
  if (const uint32_t what = holds(address); what & kMade) {
    const Made &row = made[what & ~kMade];
    checkWritten(burst, row, address, now);
    tag = row.tag;
  } else if (what != kNothing) {
    tag = initialTag(what, address);
  } else {
    notWritten(burst, {}, address, now);
  }
  checkMeant(burst, tag, address, now);
  ++context.counters.sramReads;
  const VectorRef value = context.values ? valueOf(address) : 0;
  context.inject(burst, now + context.timing.read, burst.instruction->out[0], position, value);
}

void MemorySlice::write(Burst &burst, uint32_t row, Cycle now) {
  VectorRef value =
      context.sample(burst, ProducerOf::A, slot::A, 0, burst.instruction->a.index, position, now);
  post(burst, now, row, row, value, 0);
}

uint32_t MemorySlice::addressOf(const uint8_t *map, unsigned superlane) const {
  const uint8_t *two = map + superlane * context.machine.lanesPerSuperlane;
  return uint32_t(two[0]) | uint32_t(two[1]) << 8;
}

/// The rows a Gather may touch are those of its tensor from its address on: their banks are held.
/// Which rows it reads is data, so S6 is checked where there are values.
void MemorySlice::gather(Burst &burst, uint32_t base, Cycle now) {
  const Machine &m = context.machine;
  VectorRef map =
      context.sample(burst, ProducerOf::A, slot::A, 0, burst.instruction->a.index, position, now);
  const uint32_t end = lastRowOf(*burst.instruction, base) + 1;
  beginRead(burst, base, end - 1, now);
  ++context.counters.sramReads;
  VectorRef value = 0;
  if (context.values) {
    mapBytes.resize(m.lanes());
    line.resize(m.lanes());
    const uint8_t *addresses = context.pool.bytes(map, mapBytes.data());
    value = context.pool.acquireNarrow();
    uint8_t *out = context.pool.narrow(value);
    for (unsigned s = 0; s < m.superlanes; ++s) {
      uint32_t address = base + addressOf(addresses, s);
      uint8_t *lanes = out + s * m.lanesPerSuperlane;
      if (address >= end) {
        context.report(Invariant::S10, now, burst, [&] {
          return "superlane " + std::to_string(s) + " gathers row " + std::to_string(address) +
                 ", but the tensor ends at row " + std::to_string(end - 1);
        });
        std::memset(lanes, 0, m.lanesPerSuperlane);
        continue;
      }
      checkWritten(burst, madeBy(address), address, now);
      checkGathered(burst, madeBy(address).tag, address, now);
      readRow(address, line.data());
      std::memcpy(lanes, line.data() + s * m.lanesPerSuperlane, m.lanesPerSuperlane);
    }
  }
  context.inject(burst, now + context.timing.gather, burst.instruction->out[0], position, value);
}

void MemorySlice::scatter(Burst &burst, uint32_t row, Cycle now) {
  VectorRef map =
      context.sample(burst, ProducerOf::A, slot::A, 0, burst.instruction->a.index, position, now);
  VectorRef value =
      context.sample(burst, ProducerOf::B, slot::B, 0, burst.instruction->b.index, position, now);
  context.pool.retain(map);
  post(burst, now, row, lastRowOf(*burst.instruction, row), value, map);
}

void MemorySlice::post(Burst &burst, Cycle now, uint32_t row, uint32_t lastRow, VectorRef value,
                       VectorRef map) {
  const Cycle slot = now + context.timing.write;
  if (!writes.empty() && writes.front().slot < now - 64)
    applyWrites(now);
  context.pool.retain(value);
  context.lastWriteSlot = std::max(context.lastWriteSlot, slot);
  ++context.counters.sramWrites;
  if (lastRead == slot) {
    const unsigned bank = std::max(bankOf(row), bankOf(lastReadRows[0]));
    if (bank <= std::min(bankOf(lastRow), bankOf(lastReadRows[1])))
      context.report(Invariant::S5, slot, burst, [&] {
        return "bank " + std::to_string(bank) + " is read in the slot of this write";
      });
  }
  writes.push_back(
      {slot, row, lastRow, burst.tag(), value, map, burst.instruction->opcode == Opcode::Scatter});
}

void MemorySlice::applyWrites(Cycle before) {
  while (!writes.empty() && writes.front().slot < before) {
    apply(writes.front());
    writes.pop_front();
  }
}

void MemorySlice::apply(PendingWrite &w) {
  const Machine &m = context.machine;
  if (!w.scatters) {
    Made &row = makeAt(w.row);
    row.tag = w.tag;
    row.at = context.base + w.slot;
    keep(row, context.pool.narrowed(w.value));
    return;
  }
  const uint32_t end = w.lastRow + 1;
  // Which rows are written is data. For timing any row of the tensor may have been.
  for (uint32_t r = w.row; r < end; ++r) {
    if (context.values)
      hostRow(r, std::nullopt);
    Made &row = makeAt(r);
    row.tag = {w.tag.instruction, Tag::kAnyElement};
    row.at = context.base + w.slot;
  }
  if (context.values) {
    mapBytes.resize(m.lanes());
    valueBytes.resize(m.lanes());
    const uint8_t *addresses = context.pool.bytes(w.map, mapBytes.data());
    const uint8_t *data = context.pool.bytes(w.value, valueBytes.data());
    for (unsigned s = 0; s < m.superlanes; ++s) {
      uint32_t address = w.row + addressOf(addresses, s);
      if (address >= end) {
        const uint32_t by = w.tag.instruction;
        context.reportAt(Invariant::S10, w.slot, context.queueOf(by), by, [&] {
          return "superlane " + std::to_string(s) + " scatters to row " + std::to_string(address) +
                 ", but the tensor ends at row " + std::to_string(end - 1);
        });
        continue;
      }
      uint8_t *own = hostRow(address, std::nullopt);
      std::memcpy(own + s * m.lanesPerSuperlane, data + s * m.lanesPerSuperlane,
                  m.lanesPerSuperlane);
    }
  }
  context.pool.release(w.map);
  context.pool.release(w.value);
}

void MemorySlice::endStep() {
  applyWrites(INT64_MAX);
  lastRead = -1;
}

} // namespace millrace::sim
