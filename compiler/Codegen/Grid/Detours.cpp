// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Detours.h"

namespace millrace::grid {

namespace {

using BurstId = Piece::BurstId;

/// Rows of a burst in their own place and in the one where they wait.
struct Detour {
  Instruction burst; ///< in its own place
  unsigned pe = 0;
  Unit unit;
  Context::WaitingRows rows;
  Flow flow;              ///< of the copy
  int32_t s0 = 0, s1 = 0; ///< steps of the rows that wait
};

/// Each row once: a burst that stays on one is fed from one.
Flow copyFlow(const Instruction &i) { return dense(i.s0 ? i.n0 : 1u, i.s1 ? i.n1 : 1u); }

std::optional<Detour> detourOf(Context &c, const Piece &piece, const Piece::Conflicts &conflicts,
                               BurstId id) {
  Detour d;
  d.burst = piece.proto(id);
  d.pe = piece.peOf(id);
  d.unit = piece.unitOf(id);
  d.flow = copyFlow(d.burst);
  d.s0 = d.burst.s0 ? 1 : 0;
  d.s1 = d.burst.s1 ? int32_t(d.flow.n0) : 0;
  std::vector<unsigned> cost;
  for (const bool isFree : conflicts.freePlaces(id))
    cost.push_back(isFree ? 0 : memory::HemisphereAllocator::kForbidden);
  std::optional<Context::WaitingRows> rows =
      c.takeWaitingRows(d.pe, d.unit.hemisphere, d.flow.n0 * d.flow.n1, cost);
  if (!rows)
    return std::nullopt;
  d.rows = *rows;
  return d;
}

/// The rows from one place to the other: through an ALU, where inward streams turn round.
Status copyRows(Context &c, const Detour &d, bool back) {
  const schedule::Timing &timing = c.program.timing;
  const Hemisphere h = d.unit.hemisphere;
  Instruction own = instruction(Opcode::Read, d.flow), waiting = own;
  own.address = d.burst.address;
  own.s0 = d.burst.s0;
  own.s1 = d.burst.s1;
  own.tensor = d.burst.tensor;
  waiting.address = d.rows.address;
  waiting.s0 = d.s0;
  waiting.s1 = d.s1;
  waiting.tensor = d.rows.region;
  Instruction read = back ? waiting : own, write = back ? own : waiting;
  const unsigned from = back ? d.rows.slice : d.unit.index, to = back ? d.unit.index : d.rows.slice;
  write.opcode = Opcode::Write;
  Instruction pass = instruction(Opcode::Alu, d.flow);
  pass.function = uint8_t(AluOp::Pass);
  pass.outWidth = 1;
  read.provenance = write.provenance = pass.provenance = d.burst.provenance;
  Piece piece(c.program);
  const Piece::StreamVar inward = piece.stream(d.pe, h, Direction::Inward, 1),
                         outward = piece.stream(d.pe, h, Direction::Outward, 1);
  const BurstId in = piece.add(d.pe, {UnitKind::Mem, h, from}, read, -timing.readTo(from, 0));
  piece.feed(in, 0, inward, 0, 1, c.machine.position(from), timing.readInjects());
  const BurstId alu = piece.addAlu(piece.alu(d.pe), pass, 0);
  piece.tap(alu, ProducerOf::A, inward, 0, 1, 0);
  const Cycle leave = timing.aluToStream(AluOp::Pass);
  piece.feed(alu, unsigned(h), outward, 0, 1, 0, leave);
  const unsigned position = c.machine.position(to);
  const BurstId out =
      piece.add(d.pe, {UnitKind::Mem, h, to}, write, leave + timing.hops(0, position));
  piece.tap(out, ProducerOf::A, outward, 0, 1, position);
  if (Expected<Cycle> start = piece.place(0); !start)
    return start.takeError();
  return Success{};
}

/// Leads bursts around each other until none meet, or no rows are left.
std::vector<Detour> leadAround(Context &c, Piece &piece) {
  std::vector<Detour> detours;
  Piece::Conflicts conflicts(piece);
  while (const auto conflict = conflicts.next()) {
    const auto rows = [&](BurstId b) {
      const Flow flow = copyFlow(piece.proto(b));
      return piece.proto(b).opcode == Opcode::Gather ? INT64_MAX : int64_t(flow.n0) * flow.n1;
    };
    BurstId first = conflict->first, second = conflict->second;
    if (rows(second) < rows(first))
      std::swap(first, second);
    std::optional<Detour> detour;
    for (BurstId b : {first, second})
      if (!detour && piece.proto(b).opcode != Opcode::Gather)
        if ((detour = detourOf(c, piece, conflicts, b)))
          conflicts.move(b, detour->rows.slice, detour->rows.address, detour->s0, detour->s1,
                         detour->rows.region);
    if (!detour)
      break; // Piece::place says what meets
    detours.push_back(std::move(*detour));
  }
  return detours;
}

} // namespace

bool triesAgain(const Context &c, Piece &piece, unsigned attempt) {
  const bool serves = !piece.clashes() && (attempt == 0 || piece.findsAlus());
  return !serves && attempt < kMostPasses + c.detours;
}

Expected<Cycle> place(Context &c, Piece &piece, Cycle from, unsigned attempt) {
  std::vector<Detour> detours;
  if (c.detours)
    detours = leadAround(c, piece);
  for (const Detour &d : detours)
    if (d.burst.opcode == Opcode::Read)
      if (Status s = copyRows(c, d, /*back=*/false); !s)
        return s.takeError();
  Expected<Cycle> start = piece.place(from);
  c.program.crowded |= !start && attempt > 0; // it would have been built otherwise
  for (const Detour &d : detours) {
    if (start && d.burst.opcode == Opcode::Write)
      if (Status s = copyRows(c, d, /*back=*/true); !s)
        return s.takeError();
    c.give(d.rows);
  }
  return start;
}

} // namespace millrace::grid
