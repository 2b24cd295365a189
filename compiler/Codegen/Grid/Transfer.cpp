// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Transfer.h"

#include "compiler/Codegen/Grid/Detours.h"

#include <algorithm>

namespace millrace::grid {

namespace {

/// What has arrived on a PE: on a stream past the C2C position at a cycle.
struct Arrival {
  Piece::StreamVar stream = 0;
  Cycle at = 0;
  bool here = false;
};

/// One byte of the rows, one piece: all PEs of the tree work in step.
class Move {
public:
  Move(Context &c, unsigned tensor, const Transfer &transfer, unsigned byte, uint32_t provenance)
      : c(c), m(c.machine), tensor(tensor), transfer(transfer), byte(byte), provenance(provenance),
        piece(c.program), arrivals(m.pes()) {}

  Status run(const std::vector<const Link *> &links) {
    Cycle slot = 1;
    for (const Link *link : links)
      slot = std::max<Cycle>(slot, link->slot);
    flow = Flow{unsigned(transfer.rows), 1, slot, Cycle(transfer.rows) * slot};
    depart();
    for (const Link *link : links)
      hop(*link);
    for (unsigned pe : transfer.to)
      store(pe);
    if (Expected<Cycle> start = place(c, piece, 0); !start)
      return start.takeError();
    return Success{};
  }

private:
  Context &c;
  const Machine &m;
  unsigned tensor;
  const Transfer &transfer;
  unsigned byte;
  uint32_t provenance;
  Piece piece;
  Flow flow;
  std::vector<Arrival> arrivals;

  RowPattern rows() const { return {transfer.row, 1, 0}; }

  void depart() {
    const Copy *copy = c.rowCopy(tensor, transfer.from, Hemisphere::West);
    if (!copy)
      copy = c.rowCopy(tensor, transfer.from, Hemisphere::East);
    Arrival &root = arrivals[transfer.from];
    root.here = true;
    const Piece::StreamVar inward =
        piece.stream(transfer.from, copy->hemisphere, Direction::Inward, 1);
    const bool passes = passesC2c(*copy);
    readRows(c, piece, *copy, transfer.tile, rows(), flow, inward, passes ? m.c2c.position : 0, 0,
             provenance, byte);
    if (passes) {
      root.stream = inward;
      return;
    }
    const Piece::BurstId alu = piece.addAlu(piece.alu(transfer.from), passThrough(), 0);
    piece.tap(alu, ProducerOf::A, inward, 0, 1, 0);
    root.stream = piece.stream(transfer.from, copy->hemisphere, Direction::Outward, 1);
    const Cycle delay = c.program.timing.aluToStream(AluOp::Pass);
    piece.feed(alu, unsigned(copy->hemisphere), root.stream, 0, 1, 0, delay);
    root.at = delay + c.program.timing.hops(0, m.c2c.position);
  }

  /// Rows on their way to the VXM pass the C2C position. Those that lie between the two turn round
  /// at the VXM.
  bool passesC2c(const Copy &copy) const {
    for (const Segment &s : copy.tiles[transfer.tile])
      if (s.firstRow < transfer.row + transfer.rows && transfer.row < s.firstRow + s.rows &&
          m.position(s.slices[byte]) < m.c2c.position)
        return false;
    return true;
  }

  Instruction passThrough() const {
    Instruction pass = instruction(Opcode::Alu, flow);
    pass.function = uint8_t(AluOp::Pass);
    pass.outWidth = 1;
    pass.provenance = provenance;
    return pass;
  }

  void hop(const Link &link) {
    const Arrival &from = arrivals[link.from];
    Instruction send = instruction(Opcode::Send, flow),
                receive = instruction(Opcode::Receive, flow);
    send.provenance = receive.provenance = provenance;
    Piece::BurstId sent =
        piece.add(link.from, {UnitKind::Send, Hemisphere::West, link.port}, send, from.at);
    piece.tap(sent, ProducerOf::A, from.stream, 0, 1, m.c2c.position);
    const Cycle at = from.at + link.latency;
    Piece::BurstId received =
        piece.add(link.to, {UnitKind::Receive, Hemisphere::West, link.toPort}, receive, at);
    piece.link(received, sent);
    Arrival &to = arrivals[link.to];
    to.here = true;
    // Both hemispheres take their share of what passes by.
    const Hemisphere h = Hemisphere((link.to + transfer.tile + byte) % kHemispheres);
    to.stream = piece.stream(link.to, h, Direction::Inward, 1);
    to.at = at + c.program.timing.receiveInjects();
    piece.feed(received, 0, to.stream, 0, 1, m.c2c.position, c.program.timing.receiveInjects());
  }

  void store(unsigned pe) {
    const Arrival &arrival = arrivals[pe];
    const Cycle at = arrival.at + c.program.timing.hops(m.c2c.position, 0);
    Piece::BurstId alu = piece.addAlu(piece.alu(pe), passThrough(), at);
    piece.tap(alu, ProducerOf::A, arrival.stream, 0, 1, 0);
    const Cycle delay = c.program.timing.aluToStream(AluOp::Pass);
    for (Hemisphere h : {Hemisphere::West, Hemisphere::East}) {
      std::optional<Piece::StreamVar> stream;
      for (const Copy &copy : c.layouts[tensor].copies) {
        if (copy.pe != pe || copy.hemisphere != h ||
            (copy.isPart && !elementsHeld(copy, transfer.tile, rows(), flow)))
          continue;
        if (!stream) {
          stream = piece.stream(pe, h, Direction::Outward, 1);
          piece.feed(alu, unsigned(h), *stream, 0, 1, 0, delay);
        }
        writeRows(c, piece, c.layouts[tensor], copy, transfer.tile, rows(), flow, *stream,
                  at + delay, provenance, byte);
      }
    }
  }
};

} // namespace

Status moveRows(Context &c, const placement::Routes &routes, unsigned tensor,
                const Transfer &transfer, uint32_t provenance) {
  const std::vector<const Link *> links = routes.tree(transfer.from, transfer.to);
  if (links.empty())
    return Error{"rows of '" + c.tensor(tensor).name + "' cannot travel from PE " +
                 std::to_string(transfer.from) + ": no route over the links of '" + c.machine.name +
                 "'"};
  for (unsigned b = 0; b < byteWidth(c.tensor(tensor).type); ++b)
    if (Status s = Move(c, tensor, transfer, b, provenance).run(links); !s)
      return s;
  return Success{};
}

} // namespace millrace::grid
