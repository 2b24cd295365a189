// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Gather.h"

namespace millrace::grid {

Expected<Piece::StreamVar> readLookup(Context &c, Piece &piece, unsigned operand, const Domain &d,
                                      const Flow &flow, Cycle arrive) {
  const Access &access = d.kernel->operands[operand];
  const Tensor &t = c.tensor(access.tensor);
  const LookupKey key = lookupKey(*d.kernel, operand);
  const int64_t lane = evaluate(access.index[t.laneDim], d.loops);
  std::optional<unsigned> tile = c.layouts[access.tensor].tileAt(lane);
  const TableCopy *table = tile ? c.tableCopy(key, d.pe, *tile) : nullptr;
  const IndexMap *map = table ? c.indexMap(key, d.pe, table->hemisphere) : nullptr;
  if (!map || c.layouts[access.tensor].tiles[*tile].count < d.lanes)
    return Error{"kernel '" + d.kernel->name + "': table '" + t.name + "' has no lane tile of " +
                 std::to_string(d.lanes) + " lanes at lane " + std::to_string(lane) + " on PE " +
                 std::to_string(d.pe)};
  const schedule::Timing &timing = c.program.timing;
  const RowPattern rows =
      rowsOf(c.layouts[key.indices], Access{key.indices, access.lookup->index, 0}, d);
  // Whatever its slice, a Gather's vector arrives where the map would have, but later by its own
  // time.
  const Cycle mapArrives = arrive - timing.gatherTo(table->slices.front(), 0) +
                           timing.hops(c.machine.position(table->slices.front()), 0);
  Instruction read = instruction(Opcode::Read, flow);
  read.address = unsigned(map->address + rows.row);
  read.s0 = int32_t(rows.step0);
  read.s1 = int32_t(rows.step1);
  read.tensor = map->region;
  read.provenance = d.provenance;
  const Piece::StreamVar addresses = piece.stream(d.pe, map->hemisphere, Direction::Inward, 1);
  const Piece::BurstId reading = piece.add(d.pe, {UnitKind::Mem, map->hemisphere, map->slice}, read,
                                           mapArrives - timing.readTo(map->slice, 0));
  piece.feed(reading, 0, addresses, 0, 1, c.machine.position(map->slice), timing.readInjects());

  const unsigned width = byteWidth(t.type);
  const Piece::StreamVar stream = piece.stream(d.pe, table->hemisphere, Direction::Inward, width);
  for (unsigned b = 0; b < width; ++b) {
    const unsigned slice = table->slices[b], position = c.machine.position(slice);
    Instruction gather = instruction(Opcode::Gather, flow);
    gather.address = table->addresses[b];
    gather.tensor = table->regions[b];
    gather.provenance = d.provenance;
    const Piece::BurstId burst = piece.add(d.pe, {UnitKind::Mem, table->hemisphere, slice}, gather,
                                           arrive - timing.gatherTo(slice, 0));
    piece.tap(burst, ProducerOf::A, addresses, 0, 1, position);
    piece.feed(burst, 0, stream, b, 1, position, timing.gatherInjects());
  }
  return stream;
}

} // namespace millrace::grid
