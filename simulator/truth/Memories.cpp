// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Memories.h"

#include <algorithm>

namespace millrace::sim::truth {

Memories::Row &Memories::row(Hemisphere hemisphere, unsigned slice, uint32_t number) {
  Row &row = rows[{core.machine.queue({UnitKind::Mem, hemisphere, slice}), number}];
  row.bytes.resize(core.machine.lanes());
  return row;
}

Memories::Row &Memories::rowOf(const Work &work, uint32_t number) {
  const Unit unit = core.machine.unit(work.what->queue);
  return row(unit.hemisphere, unit.index, number);
}

/// T4 to T6: the cycle in which the access holds its bank.
Cycle Memories::slotOf(const Work &work, Cycle now) const {
  const Opcode opcode = work.what->opcode;
  const bool writes = opcode == Opcode::Write || opcode == Opcode::Scatter;
  return writes ? now + core.machine.latency.memWrite : now;
}

/// The tensor that the instruction names, if it lies in the instruction's slice.
const Region *Memories::regionOf(const Work &work) const {
  if (work.what->tensor >= core.image.tensors.size())
    return nullptr;
  const Region &r = core.image.tensors[work.what->tensor];
  const Unit unit = core.machine.unit(work.what->queue);
  const bool here = r.pe == core.pe && r.hemisphere == unit.hemisphere && r.slice == unit.index;
  return here ? &r : nullptr;
}

/// S10.
void Memories::checkRegion(const Work &work, Cycle slot) {
  const Region *r = regionOf(work);
  if (!r)
    return core.report(Invariant::S10, slot, work, "the tensor named is not in this slice");
  const auto moment = std::pair(uint64_t(core.step), uint64_t(slot));
  const bool lives = moment >= std::pair(uint64_t(r->step0), r->from) &&
                     moment <= std::pair(uint64_t(r->step1), r->to);
  const bool inside = work.row() >= r->row && work.row() < int64_t(r->row) + r->rows;
  if (!lives || !inside)
    core.report(Invariant::S10, slot, work,
                "row " + std::to_string(work.row()) + " is not of a live tensor that it names");
}

/// R12: the access holds the banks up to the last row of its tensor.
uint32_t Memories::lastRow(const Work &work, uint32_t first) const {
  const Opcode opcode = work.what->opcode;
  if (opcode == Opcode::Read || opcode == Opcode::Write)
    return first;
  const Region *r = regionOf(work);
  const uint32_t end =
      std::min(r ? r->row + r->rows : core.machine.rowsPerSlice(), core.machine.rowsPerSlice());
  return end > first ? end - 1 : first;
}

void Memories::element(const Work &work, Cycle now) {
  const Instruction &i = *work.what;
  const Cycle slot = slotOf(work, now);
  checkRegion(work, slot);
  if (work.row() < 0 || work.row() >= int64_t(core.machine.rowsPerSlice()))
    return core.report(Invariant::S10, slot, work, "the row does not exist");
  const uint32_t first = uint32_t(work.row()), last = lastRow(work, first);
  const unsigned position = core.machine.position(core.machine.unit(i.queue).index);
  if (i.opcode == Opcode::Read || i.opcode == Opcode::Gather) {
    reads.push_back({work, first, last});
    ++core.counters.sramReads;
    if (i.opcode == Opcode::Read)
      read(work, now, rowOf(work, first));
    else
      gather(work, now, first);
    return;
  }
  Write write{slot, work, first, last, nullptr, nullptr};
  Bytes a = core.sample(work, ProducerOf::A, 0, i.a.index, position, now);
  if (i.opcode == Opcode::Scatter) {
    write.map = a;
    write.value = core.sample(work, ProducerOf::B, 0, i.b.index, position, now);
  } else {
    write.value = a;
  }
  ++core.counters.sramWrites;
  core.lastWriteSlot = std::max(core.lastWriteSlot, slot);
  writes.push_back(write);
}

/// S6, without who wrote the row.
void Memories::checkReadable(const Work &work, const Row &row, Cycle now) {
  if (row.tag.empty())
    core.report(Invariant::S6, now, work, "reads a row that nothing was ever put into");
  else if (row.step == core.step && now < row.slot + core.machine.latency.readAfterWrite)
    core.report(Invariant::S6, now, work, "reads a row too soon after its write slot");
}

void Memories::read(const Work &work, Cycle now, Row &row) {
  checkReadable(work, row, now);
  if (core.checks(work)) {
    const std::optional<Meant> expected = meant(work, ProducerOf::Memory, 0);
    if (!expected || expected->pe != core.pe || !row.tag.meets(expected->tag))
      core.report(Invariant::S6, now, work, "the row does not hold what is meant");
  }
  Bytes value = core.vector();
  if (value)
    *value = row.bytes;
  const unsigned position = core.machine.position(core.machine.unit(work.what->queue).index);
  core.inject(work, now + core.machine.latency.memRead, work.what->out[0], position, value);
}

uint32_t Memories::addressIn(const Lanes &map, unsigned superlane) const {
  const size_t lane = size_t(superlane) * core.machine.lanesPerSuperlane;
  return map[lane] + 256u * map[lane + 1];
}

/// Each superlane takes its own row (R12).
void Memories::gather(const Work &work, Cycle now, uint32_t first) {
  const Instruction &i = *work.what;
  const unsigned width = core.machine.lanesPerSuperlane;
  const unsigned position = core.machine.position(core.machine.unit(i.queue).index);
  const Bytes map = core.sample(work, ProducerOf::A, 0, i.a.index, position, now);
  Bytes value = core.vector();
  for (unsigned s = 0; value && s < core.machine.superlanes; ++s) {
    const uint32_t number = first + addressIn(*map, s);
    if (number > lastRow(work, first)) {
      core.report(Invariant::S10, now, work, "gathers a row beyond its tensor");
      continue;
    }
    const Row &row = rowOf(work, number);
    checkReadable(work, row, now);
    if (const std::optional<Meant> expected = meant(work, ProducerOf::Memory, 0);
        core.checks(work) && expected &&
        (expected->pe != core.pe || expected->tag.instruction != row.tag.instruction))
      core.report(Invariant::S6, now, work, "the row is not of the burst that is meant");
    std::copy_n(row.bytes.begin() + s * width, width, value->begin() + s * width);
  }
  core.inject(work, now + core.machine.latency.memGather, i.out[0], position, value);
}

/// Each superlane goes to its own row. Which rows were written is data: for who reads them, any may
/// have been.
void Memories::scatter(const Write &write) {
  for (uint32_t number = write.first; number <= write.last; ++number) {
    Row &row = rowOf(write.work, number);
    row.tag = {write.work.index, Tag::kAnyElement};
    row.step = core.step, row.slot = write.slot;
  }
  const unsigned width = core.machine.lanesPerSuperlane;
  for (unsigned s = 0; core.values && s < core.machine.superlanes; ++s) {
    const uint32_t number = write.first + addressIn(*write.map, s);
    if (number > write.last) {
      core.report(Invariant::S10, write.slot, write.work, "scatters to a row beyond its tensor");
      continue;
    }
    std::copy_n(write.value->begin() + s * width, width,
                rowOf(write.work, number).bytes.begin() + s * width);
  }
}

void Memories::perform(const Write &write) {
  if (write.work.what->opcode == Opcode::Scatter)
    return scatter(write);
  Row &row = rowOf(write.work, write.first);
  row.tag = write.work.tag();
  row.step = core.step, row.slot = write.slot;
  if (core.values)
    row.bytes = *write.value;
}

void Memories::endCycle(Cycle now) {
  for (const Write &w : writes)
    for (const Read &r : reads)
      if (w.slot == now && w.work.what->queue == r.work.what->queue &&
          bank(w.first) <= bank(r.last) && bank(r.first) <= bank(w.last))
        core.report(Invariant::S5, now, r.work, "reads a bank that is written in this cycle");
  reads.clear();
  for (const Write &w : writes)
    if (w.slot == now)
      perform(w);
  std::erase_if(writes, [&](const Write &w) { return w.slot == now; });
}

} // namespace millrace::sim::truth
