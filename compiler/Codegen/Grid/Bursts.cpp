// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Bursts.h"

#include <algorithm>

namespace millrace::grid {

Instruction instruction(Opcode opcode, const Flow &flow) {
  Instruction i;
  i.opcode = opcode;
  i.n0 = uint16_t(flow.n0);
  i.n1 = uint16_t(flow.n1);
  i.c0 = uint32_t(flow.c0);
  i.c1 = uint32_t(flow.c1);
  return i;
}

namespace {

/// Elements [from0, from0 + n0) x [from1, from1 + n1) of a flow whose rows lie in one segment.
struct Cut {
  unsigned from0, n0, from1, n1;
  const Segment *segment;
};

const std::vector<Segment> &segmentsOf(const Copy &copy, unsigned tile) {
  static const std::vector<Segment> none;
  return tile < copy.tiles.size() ? copy.tiles[tile] : none;
}

/// The segment that holds the row of an element of a flow.
const Segment *findSegment(const std::vector<Segment> &segments, const RowPattern &rows,
                           unsigned i0, unsigned i1) {
  const int64_t row = rows.row + i1 * rows.step1 + i0 * rows.step0;
  for (const Segment &s : segments)
    if (row >= s.firstRow && row < s.firstRow + s.rows)
      return &s;
  return nullptr;
}

/// `skips`: without elements whose rows the copy does not hold.
std::vector<Cut> cutAtSegments(Piece &piece, const Copy &copy, unsigned tile,
                               const RowPattern &rows, const Flow &flow, bool skips) {
  const std::vector<Segment> &segments = segmentsOf(copy, tile);
  auto find = [&](unsigned i0, unsigned i1) -> const Segment * {
    const Segment *segment = findSegment(segments, rows, i0, i1);
    if (segment || skips)
      return segment;
    const int64_t row = rows.row + i1 * rows.step1 + i0 * rows.step0;
    piece.refuse("row " + std::to_string(row) + " of lane tile " + std::to_string(tile) +
                 " is touched on PE " + std::to_string(copy.pe) +
                 ", where no copy holds it; please report it with the model and the machine");
    return nullptr;
  };
  bool isInside = true; // what a flow touches lies between its corners
  for (unsigned i1 : {0u, flow.n1 - 1})
    for (unsigned i0 : {0u, flow.n0 - 1})
      isInside = isInside && find(i0, i1);
  if (!isInside && !skips)
    return {};
  if (isInside && segments.size() == 1)
    return {{0, flow.n0, 0, flow.n1, &segments[0]}};
  std::vector<Cut> cuts;
  for (unsigned i1 = 0; i1 < flow.n1; ++i1)
    for (unsigned i0 = 0; i0 < flow.n0;) {
      const Segment *segment = find(i0, i1);
      if (!segment && !skips)
        return {};
      if (!segment) {
        ++i0;
        continue;
      }
      unsigned n = 1;
      while (i0 + n < flow.n0 && find(i0 + n, i1) == segment)
        ++n;
      bool joined = false;
      for (Cut &cut : cuts) // only whole rounds: parts of rounds would interleave with others in
                            // the same slice
        if (n == flow.n0 && cut.segment == segment && cut.from0 == i0 && cut.n0 == n &&
            cut.from1 + cut.n1 == i1) {
          ++cut.n1;
          joined = true;
        }
      if (!joined)
        cuts.push_back({i0, n, i1, 1, segment});
      i0 += n;
    }
  return cuts;
}

Flow part(const Flow &flow, const Cut &cut) { return {cut.n0, cut.n1, flow.c0, flow.c1}; }
Cycle offset(const Flow &flow, const Cut &cut) { return cut.from1 * flow.c1 + cut.from0 * flow.c0; }

void setRows(Instruction &i, const Cut &cut, unsigned byte, const RowPattern &rows) {
  i.address = unsigned(cut.segment->addresses[byte] + rows.row + cut.from1 * rows.step1 +
                       cut.from0 * rows.step0 - cut.segment->firstRow);
  i.s0 = int32_t(rows.step0);
  i.s1 = int32_t(rows.step1);
}

/// A run of elements that land in one slice at even cycles and even addresses.
struct ColumnRun {
  unsigned place = 0, byte = 0; ///< which of the slices
  int64_t address = 0, addressStep = 1;
  Cycle at = 0, step = 0;
  unsigned count = 1;

  /// Two that are no neighbours: perhaps by chance, and a burst holds its port in between.
  bool isLoose() const { return count == 2 && addressStep != 1; }
  bool takes(int64_t nextAddress, Cycle nextAt) {
    if (count == 1)
      addressStep = nextAddress - address, step = nextAt - at;
    if (nextAddress != address + addressStep * count || nextAt != at + step * count)
      return false;
    ++count;
    return true;
  }
  /// Leaves the first of two; the second.
  ColumnRun takeSecond() {
    ColumnRun second{place, byte, address + addressStep, 1, at + step, 0, 1};
    addressStep = 1, step = 0, count = 1;
    return second;
  }
};

std::vector<ColumnRun> columnRuns(const TensorLayout &layout, const Columns &columns,
                                  const RowPattern &rows, const Flow &flow, unsigned bytes,
                                  unsigned width, std::optional<unsigned> only, bool alternates) {
  std::vector<ColumnRun> runs;
  // The last run of each slice. Runs of two bytes never interleave: a port serves one burst.
  std::vector<size_t> open(width, SIZE_MAX);
  auto add = [&](int64_t n, Cycle at) {
    for (unsigned b = 0; b < bytes; ++b) {
      if (only && *only != b)
        continue;
      const unsigned place = unsigned(n + int64_t(width / 2) * b) % width;
      const int64_t address = columns.addresses[b * width + place] + n / width;
      size_t &last = open[place];
      const bool goesOn = !alternates && last != SIZE_MAX && runs[last].byte == b;
      if (goesOn && runs[last].takes(address, at))
        continue;
      const bool isLoose = goesOn && runs[last].isLoose();
      runs.push_back(isLoose ? runs[last].takeSecond() : ColumnRun{place, b, address, 1, at, 0, 1});
      last = runs.size() - 1;
      if (isLoose)
        runs[last].takes(address, at);
    }
  };
  for (unsigned i1 = 0; i1 < flow.n1; ++i1)
    for (unsigned i0 = 0; i0 < flow.n0; ++i0) {
      const int64_t n = layout.columnOf(rows.row + i1 * rows.step1 + i0 * rows.step0);
      const Cycle at = i1 * flow.c1 + i0 * flow.c0;
      add(n, at);
      if (const int64_t again = n + repeatDistance(width);
          columns.repeats && again >= columns.rows && again < columns.rows + width - 1)
        add(again, at);
    }
  for (size_t i = 0, all = runs.size(); i < all; ++i)
    if (runs[i].isLoose()) {
      const ColumnRun second = runs[i].takeSecond();
      runs.push_back(second);
    }
  return runs;
}

void writeColumns(Context &c, Piece &piece, const TensorLayout &layout, const Copy &copy,
                  const Columns &columns, const RowPattern &rows, const Flow &flow,
                  Piece::StreamVar stream, Cycle leave, uint32_t provenance,
                  std::optional<unsigned> only, bool alternates) {
  const unsigned width = c.machine.mxm.columnsPerInstall;
  const unsigned bytes = unsigned(columns.slices.size()) / width;
  for (const ColumnRun &run :
       columnRuns(layout, columns, rows, flow, bytes, width, only, alternates)) {
    const unsigned at = run.byte * width + run.place, slice = columns.slices[at],
                   position = c.machine.position(slice);
    Instruction i = instruction(Opcode::Write, Flow{run.count, 1, std::max<Cycle>(run.step, 1), 1});
    i.address = unsigned(run.address);
    i.s0 = int32_t(run.addressStep);
    i.tensor = columns.regions[at];
    i.provenance = provenance;
    Piece::BurstId burst = piece.add(copy.pe, {UnitKind::Mem, copy.hemisphere, slice}, i,
                                     leave + c.program.timing.hops(0, position) + run.at);
    piece.tap(burst, ProducerOf::A, stream, only ? 0 : run.byte, 1, position);
  }
}

} // namespace

uint64_t elementsHeld(const Copy &copy, unsigned tile, const RowPattern &rows, const Flow &flow) {
  const std::vector<Segment> &segments = segmentsOf(copy, tile);
  uint64_t held = 0;
  for (unsigned i1 = 0; i1 < flow.n1; ++i1)
    for (unsigned i0 = 0; i0 < flow.n0; ++i0)
      held += findSegment(segments, rows, i0, i1) != nullptr;
  return held;
}

void readRows(Context &c, Piece &piece, const Copy &copy, unsigned tile, const RowPattern &rows,
              const Flow &flow, Piece::StreamVar stream, unsigned position, Cycle arrive,
              uint32_t provenance, std::optional<unsigned> only) {
  for (const Cut &cut : cutAtSegments(piece, copy, tile, rows, flow, /*skips=*/false))
    for (unsigned b = 0; b < cut.segment->slices.size(); ++b) {
      if (only && *only != b)
        continue;
      const unsigned slice = cut.segment->slices[b];
      Instruction i = instruction(Opcode::Read, part(flow, cut));
      setRows(i, cut, b, rows);
      i.tensor = cut.segment->regions[b];
      i.provenance = provenance;
      Piece::BurstId burst =
          piece.add(copy.pe, {UnitKind::Mem, copy.hemisphere, slice}, i,
                    arrive + offset(flow, cut) - c.program.timing.readTo(slice, position));
      piece.feed(burst, 0, stream, only ? 0 : b, 1, c.machine.position(slice),
                 c.program.timing.readInjects());
    }
}

void readConstant(Context &c, Piece &piece, unsigned pe, Hemisphere h, const ConstantRow &row,
                  const Flow &flow, Piece::StreamVar stream, unsigned position, Cycle arrive,
                  uint32_t provenance) {
  for (unsigned b = 0; b < row.slices.size(); ++b) {
    Instruction i = instruction(Opcode::Read, flow);
    i.address = row.addresses[b];
    i.tensor = row.regions[b];
    i.provenance = provenance;
    Piece::BurstId burst = piece.add(pe, {UnitKind::Mem, h, row.slices[b]}, i,
                                     arrive - c.program.timing.readTo(row.slices[b], position));
    piece.feed(burst, 0, stream, b, 1, c.machine.position(row.slices[b]),
               c.program.timing.readInjects());
  }
}

void writeRows(Context &c, Piece &piece, const TensorLayout &layout, const Copy &copy,
               unsigned tile, const RowPattern &rows, const Flow &flow, Piece::StreamVar stream,
               Cycle leave, uint32_t provenance, std::optional<unsigned> only, bool alternates) {
  if (copy.columns) {
    writeColumns(c, piece, layout, copy, copy.columnTiles[tile], rows, flow, stream, leave,
                 provenance, only, alternates);
    return;
  }
  for (const Cut &cut : cutAtSegments(piece, copy, tile, rows, flow, copy.isPart))
    for (unsigned b = 0; b < cut.segment->slices.size(); ++b) {
      if (only && *only != b)
        continue;
      const unsigned slice = cut.segment->slices[b], position = c.machine.position(slice);
      Instruction i = instruction(Opcode::Write, part(flow, cut));
      setRows(i, cut, b, rows);
      i.tensor = cut.segment->regions[b];
      i.provenance = provenance;
      Piece::BurstId burst =
          piece.add(copy.pe, {UnitKind::Mem, copy.hemisphere, slice}, i,
                    leave + offset(flow, cut) + c.program.timing.hops(0, position));
      piece.tap(burst, ProducerOf::A, stream, only ? 0 : b, 1, position);
    }
}

} // namespace millrace::grid
