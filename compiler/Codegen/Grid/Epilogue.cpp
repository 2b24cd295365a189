// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Epilogue.h"

#include "compiler/Codegen/Grid/Gather.h"
#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <array>
#include <map>

namespace millrace::grid {

using forms::Node;

namespace {

constexpr Cycle kUnset = INT64_MIN;

/// Builds the mesh of one piece.
class Mesh {
public:
  Mesh(Context &c, Piece &piece, const Domain &domain,
       const std::vector<AccumulatorStream> &accumulator, Cycle start, Hemisphere side,
       unsigned which, unsigned passes)
      : c(c), piece(piece), d(domain), kernel(*domain.kernel), accumulator(accumulator),
        start(start), side(side), which(which), passes(passes), timing(c.program.timing) {}

  Status build();

private:
  /// What an ALU operand can be wired to.
  struct Source {
    enum class Kind { Burst, Stream } kind = Kind::Burst;
    Piece::BurstId burst = 0;
    Piece::StreamVar stream = 0;
    unsigned width = 0;
    Cycle ready = 0; ///< dispatch cycle of an ALU that takes it
  };

  Context &c;
  Piece &piece;
  const Domain &d;
  const Kernel &kernel;
  const std::vector<AccumulatorStream> &accumulator;
  Cycle start;
  Hemisphere side;
  unsigned which, passes;
  const schedule::Timing &timing;

  std::vector<bool> needed; ///< per node
  std::vector<bool> late;   ///< per node: taken once, after the running reduction, not per element
  std::vector<Cycle> dispatch;
  std::vector<std::optional<Piece::BurstId>> bursts;
  std::map<std::pair<unsigned, Cycle>, Source> delayed; ///< (node, ready cycle)
  std::map<unsigned, unsigned> operandReads; ///< tensor -> reads of it so far in this piece
  /// What an ALU has to have in its latch, by which cycle, and who takes it from there.
  struct Latched {
    unsigned node = 0;
    Piece::AluVar alu = 0;
    Cycle at = 0;
    Piece::BurstId user = 0;
    std::vector<ProducerOf> operands;
  };
  std::vector<Latched> latched;

  bool isOp(unsigned n) const {
    return kernel.nodes[n].kind == Node::Kind::Op || kernel.nodes[n].kind == Node::Kind::Reduce;
  }
  bool isConstant(unsigned n) const {
    return kernel.nodes[n].kind == Node::Kind::Operand &&
           c.tensor(kernel.operands[kernel.nodes[n].index].tensor).role ==
               forms::TensorRole::Constant &&
           !accessOf(n).lookup;
  }
  const Access &accessOf(unsigned n) const { return kernel.operands[kernel.nodes[n].index]; }
  /// The same value for every element of this piece: can be latched.
  bool isLatched(unsigned n) const;
  Flow flowOf(unsigned n) const { return late[n] ? d.flow.ofLastStep() : d.flow; }
  /// How often the node's value comes: that of a reduction once for each row, at its end.
  Flow resultFlow(unsigned n) const {
    return kernel.nodes[n].kind == Node::Kind::Reduce ? d.flow.ofLastStep() : flowOf(n);
  }
  /// Dispatch of an op to the dispatch of one chained to it.
  Cycle latency(unsigned n) const {
    Cycle last = kernel.nodes[n].kind == Node::Kind::Reduce ? d.flow.lastStep() : 0;
    return last + timing.aluToChained(kernel.nodes[n].op);
  }

  AluOp additionOf(const Kernel &of) const {
    return c.tensor(of.terms.front().a.tensor).type == ElementType::Int8 ? AluOp::AddI32
                                                                         : AluOp::AddF32;
  }
  /// When the contraction's result, or else the first operand, can be taken.
  Cycle begin() const {
    if (accumulator.empty())
      return start;
    const Cycle arrive = accumulator.front().arrive;
    return accumulator.size() == 1 ? arrive : arrive + timing.aluToChained(additionOf(kernel));
  }

  void plan();
  Source sum();
  Status place(unsigned n);
  Expected<Source> take(unsigned n, Cycle at);
  Expected<Source> origin(unsigned n, Cycle at);
  Expected<Source> delay(unsigned n, Source from, Cycle at);
  Status load(const Latched &latch);
  Expected<ConstantRow> constantRowOf(unsigned n, bool mayMeet);
  bool meets(const ConstantRow &row, Cycle arrive) const;
  Expected<Piece::StreamVar> readOperand(unsigned n, const Flow &flow, Cycle arrive);
  Expected<std::vector<uint8_t>> constantLanes(const Access &access) const;
  bool holds(const Copy &copy, unsigned tile, const Access &access, const Flow &flow) const;
  Status store();
  /// Do several results go to the tensor?
  bool writesOften(unsigned tensor) const {
    return std::count_if(kernel.results.begin(), kernel.results.end(),
                         [&](const forms::Result &r) { return r.access.tensor == tensor; }) > 1;
  }
  Cycle earliestUse(unsigned n) const;
};

bool Mesh::isLatched(unsigned n) const {
  if (kernel.nodes[n].kind != Node::Kind::Operand)
    return false;
  for (std::optional<unsigned> loop : {d.loop0, d.loop1})
    if (loop && forms::usesLoop(accessOf(n), *loop))
      return false;
  return true;
}

/// The epilogue's plan, from the cycle in which the accumulator or the first operand arrives.
void Mesh::plan() {
  forms::EpiloguePlan plan = forms::planEpilogue(
      kernel, [&](AluOp op) { return timing.aluToChained(op); }, d.flow.lastStep());
  const Cycle base = begin();
  needed = std::move(plan.needed);
  late = std::move(plan.late);
  dispatch = std::move(plan.dispatch);
  for (Cycle &at : dispatch)
    at += base;
  bursts.assign(kernel.nodes.size(), std::nullopt);
}

Expected<std::vector<uint8_t>> Mesh::constantLanes(const Access &access) const {
  const Tensor &t = c.tensor(access.tensor);
  const unsigned width = byteWidth(t.type);
  std::vector<uint8_t> bytes(size_t(d.lanes) * width);
  for (int64_t l = 0; l < d.lanes; ++l) {
    const std::vector<int64_t> loops = loopsAtLane(d, l);
    int64_t element = 0;
    bool inside = true;
    for (size_t k = 0; k < t.shape.size(); ++k) {
      int64_t x = evaluate(access.index[k], loops);
      inside &= x >= 0 && x < t.shape[k];
      element = element * t.shape[k] + x;
    }
    for (unsigned b = 0; b < width; ++b)
      bytes[size_t(l) * width + b] = inside ? t.data[size_t(t.splat ? 0 : element) * width + b]
                                            : uint8_t(access.pad >> (8 * b));
  }
  return bytes;
}

/// Does a copy hold all rows of the access that lie inside its tensor?
bool Mesh::holds(const Copy &copy, unsigned tile, const Access &access, const Flow &flow) const {
  const Expected<Box> box = insideOf(c, access, d, flow);
  if (!box || box->empty())
    return true;
  RowPattern rows = rowsOf(c.layouts[access.tensor], access, d);
  rows.row += box->from0 * rows.step0 + box->from1 * rows.step1;
  const Flow inside{unsigned(box->n0), unsigned(box->n1), flow.c0, flow.c1};
  return elementsHeld(copy, tile, rows, inside) == uint64_t(box->n0 * box->n1);
}

/// Streams operand `n` past position 0 at `arrive`, n0 x n1 times or once.
Expected<Piece::StreamVar> Mesh::readOperand(unsigned n, const Flow &flow, Cycle arrive) {
  const Access &access = accessOf(n);
  const Tensor &t = c.tensor(access.tensor);
  const TensorLayout &layout = c.layouts[access.tensor];
  const unsigned width = byteWidth(t.type);
  if (access.lookup)
    return readLookup(c, piece, kernel.nodes[n].index, d, flow, arrive);
  if (isConstant(n) && isLatched(n)) {
    Expected<ConstantRow> row = constantRowOf(n, /*mayMeet=*/false);
    if (!row)
      return row.takeError();
    Piece::StreamVar s = piece.stream(d.pe, side, Direction::Inward, width);
    readConstant(c, piece, d.pe, side, *row, flow, s, 0, arrive, d.provenance);
    return s;
  }
  const int64_t lane = evaluate(access.index[t.laneDim], d.loops);
  std::optional<unsigned> tile = layout.tileAt(t.uniform ? 0 : lane);
  if (!tile || layout.tiles[*tile].count < d.lanes)
    return Error{"kernel '" + kernel.name + "': operand '" + t.name + "' has no lane tile of " +
                 std::to_string(d.lanes) + " lanes at lane " + std::to_string(lane)};
  // Reads of one tensor in one piece need copies of their own: a slice has one read port.
  const unsigned nth = which + operandReads[access.tensor]++;
  const Hemisphere other = side == Hemisphere::West ? Hemisphere::East : Hemisphere::West;
  unsigned here = 0, there = 0;
  while (c.rowCopy(access.tensor, d.pe, side, here))
    ++here;
  while (c.rowCopy(access.tensor, d.pe, other, there))
    ++there;
  Copy none; // enough for an operand of which this share sees nothing but padding
  none.pe = d.pe, none.hemisphere = side;
  const Copy *copy = nullptr;
  if (here + there == 0) {
    Expected<Box> inside = insideOf(c, access, d, flow);
    if (!inside)
      return inside.takeError();
    if (!inside->empty())
      return Error{"kernel '" + kernel.name + "': operand '" + t.name + "' has no copy on PE " +
                   std::to_string(d.pe)};
    copy = &none;
  }
  for (unsigned turn = 0; turn < here + there;
       ++turn) { // the first whose slices this piece does not read yet
    const unsigned pick = (nth + turn) % (here + there);
    const Copy *candidate = pick < here ? c.rowCopy(access.tensor, d.pe, side, pick)
                                        : c.rowCopy(access.tensor, d.pe, other, pick - here);
    if (candidate->isPart && !holds(*candidate, *tile, access, flow))
      continue;
    bool taken = false;
    for (const Segment &segment : candidate->tiles[*tile])
      for (unsigned slice : segment.slices)
        taken |= piece.reads(d.pe, candidate->hemisphere, slice);
    if (!taken || !copy)
      copy = candidate;
    if (!taken)
      break;
  }
  if (!copy)
    return Error{"kernel '" + kernel.name + "': no copy of '" + t.name + "' on PE " +
                 std::to_string(d.pe) +
                 " holds all rows that it reads; please report it with the model and the machine"};
  Piece::StreamVar s = piece.stream(d.pe, copy->hemisphere, Direction::Inward, width);
  if (Status read = readWindow(c, piece, *copy, *tile, access, d, flow, s, 0, arrive); !read)
    return read.takeError();
  return s;
}

Cycle Mesh::earliestUse(unsigned n) const {
  Cycle least = INT64_MAX;
  for (size_t u = n + 1; u < kernel.nodes.size(); ++u)
    if (needed[u] && isOp(unsigned(u)))
      for (unsigned a : kernel.nodes[u].args)
        if (a == n)
          least = std::min(least, dispatch[u]);
  return least == INT64_MAX ? begin() : least;
}

/// The contraction's result: a stream, or the sum of the two that the halves of a split K leave.
Mesh::Source Mesh::sum() {
  Source s;
  s.ready = begin();
  if (accumulator.size() == 1) {
    s.kind = Source::Kind::Stream;
    s.stream = accumulator.front().stream;
    s.width = 4;
    return s;
  }
  Instruction add = instruction(Opcode::Alu, d.flow);
  add.function = uint8_t(additionOf(kernel));
  add.provenance = d.provenance;
  s.burst = piece.addAlu(piece.alu(d.pe), add, accumulator.front().arrive);
  for (size_t half = 0; half < accumulator.size(); ++half)
    piece.tap(s.burst, ProducerOf(half), accumulator[half].stream, 0, 4, 0);
  return s;
}

/// The node's value when it first can be taken.
Expected<Mesh::Source> Mesh::origin(unsigned n, Cycle at) {
  const Node &node = kernel.nodes[n];
  Source s;
  if (isOp(n)) {
    s.burst = *bursts[n];
    s.ready = dispatch[n] + latency(n);
    return s;
  }
  s.kind = Source::Kind::Stream;
  if (node.kind == Node::Kind::Accumulator)
    return sum();
  s.ready = std::min(at, earliestUse(n));
  Expected<Piece::StreamVar> stream = readOperand(n, flowOf(n), s.ready);
  if (!stream)
    return stream.takeError();
  s.stream = *stream;
  s.width = byteWidth(c.tensor(accessOf(n).tensor).type);
  return s;
}

void wire(Piece &piece, Piece::BurstId burst, ProducerOf operand, unsigned streamWidth,
          bool isStream, Piece::StreamVar stream, Piece::BurstId from) {
  if (isStream)
    piece.tap(burst, operand, stream, 0, streamWidth, 0);
  else
    piece.chain(burst, operand, from);
}

/// Holds a value back by passing it through ALUs until `at`.
Expected<Mesh::Source> Mesh::delay(unsigned n, Source from, Cycle at) {
  const Cycle step = timing.aluToChained(AluOp::Pass);
  while (from.ready < at) {
    if (at - from.ready < step)
      return Error{"kernel '" + kernel.name + "': node " + std::to_string(n) + " is ready " +
                   std::to_string(at - from.ready) + " cycles before its use, less than the " +
                   std::to_string(step) + " cycles of a pass; give the operations equal latencies"};
    auto key = std::pair(n, from.ready + step);
    if (auto it = delayed.find(key); it != delayed.end()) {
      from = it->second;
      continue;
    }
    Instruction pass = instruction(Opcode::Alu, resultFlow(n));
    pass.function = uint8_t(AluOp::Pass);
    pass.provenance = d.provenance;
    Piece::BurstId burst = piece.addAlu(piece.alu(d.pe), pass, from.ready);
    wire(piece, burst, ProducerOf::A, from.width, from.kind == Source::Kind::Stream, from.stream,
         from.burst);
    from = Source{Source::Kind::Burst, burst, 0, 0, from.ready + step};
    delayed[key] = from;
  }
  return from;
}

Expected<Mesh::Source> Mesh::take(unsigned n, Cycle at) {
  auto known = delayed.find({n, kUnset}); // the value where it first appears
  if (known == delayed.end()) {
    Expected<Source> first = origin(n, at);
    if (!first)
      return first;
    known = delayed.emplace(std::pair(n, kUnset), *first).first;
  }
  return delay(n, known->second, at);
}

Expected<ConstantRow> Mesh::constantRowOf(unsigned n, bool mayMeet) {
  const Access &access = accessOf(n);
  Expected<std::vector<uint8_t>> bytes = constantLanes(access);
  if (!bytes)
    return bytes.takeError();
  return constantRowBeside(c, piece, d, side, *bytes, byteWidth(c.tensor(access.tensor).type),
                           mayMeet);
}

/// Does something go on in its slices when the row is read?
bool Mesh::meets(const ConstantRow &row, Cycle arrive) const {
  return std::any_of(row.slices.begin(), row.slices.end(), [&](unsigned slice) {
    return piece.touches(d.pe, side, slice, arrive - timing.readTo(slice, 0));
  });
}

/// Loads a latch, once all else is there: a constant whose slices are read or written meanwhile
/// comes earlier, before that begins.
Status Mesh::load(const Latched &latch) {
  constexpr Cycle kEarliest = 128; // before it is taken: an ALU is held as long
  const unsigned width = byteWidth(c.tensor(accessOf(latch.node).tensor).type);
  Piece::StreamVar stream = 0;
  Cycle at = latch.at;
  if (isConstant(latch.node)) {
    Expected<ConstantRow> row = constantRowOf(latch.node, /*mayMeet=*/true);
    if (!row)
      return row.takeError();
    while (at > latch.at - kEarliest && meets(*row, at))
      --at;
    stream = piece.stream(d.pe, side, Direction::Inward, width);
    readConstant(c, piece, d.pe, side, *row, Flow{}, stream, 0, at, d.provenance);
  } else {
    Expected<Piece::StreamVar> read = readOperand(latch.node, Flow{}, at);
    if (!read)
      return read.takeError();
    stream = *read;
  }
  Instruction i = instruction(Opcode::Latch, Flow{});
  i.provenance = d.provenance;
  const Piece::BurstId burst = piece.addAlu(latch.alu, i, at);
  piece.tap(burst, ProducerOf::A, stream, 0, width, 0);
  for (const ProducerOf operand : latch.operands)
    piece.latch(latch.user, operand, burst);
  return Success{};
}

Status Mesh::place(unsigned n) {
  const Node &node = kernel.nodes[n];
  Instruction i = instruction(Opcode::Alu, flowOf(n));
  i.function = uint8_t(node.op);
  i.provenance = d.provenance;
  if (node.kind == Node::Kind::Reduce)
    i.flags = AluFlag::Running;
  Operand *operands[] = {&i.a, &i.b, &i.c};
  std::array<std::optional<Source>, 3> sources;
  std::optional<unsigned> latch; ///< the node whose value the ALU's latch gives
  std::array<bool, 3> fromLatch{};
  for (size_t k = 0; k < node.args.size(); ++k) {
    const unsigned a = node.args[k];
    if (kernel.nodes[a].kind == Node::Kind::Immediate) {
      operands[k]->kind = OperandKind::Immediate;
      i.immediate = kernel.nodes[a].bits;
    } else if (isLatched(a) && (!latch || *latch == a) && node.args.size() > 1 &&
               node.kind == Node::Kind::Op) {
      fromLatch[k] = true;
      latch = a;
    } else {
      Expected<Source> s = take(a, dispatch[n]);
      if (!s)
        return s.takeError();
      sources[k] = *s;
    }
  }
  const Piece::AluVar alu = piece.alu(d.pe);
  const Piece::BurstId burst = piece.addAlu(alu, i, dispatch[n]);
  bursts[n] = burst;
  if (latch)
    latched.push_back({*latch, alu, dispatch[n] - 1, burst, {}});
  for (size_t k = 0; k < node.args.size(); ++k)
    if (fromLatch[k])
      latched.back().operands.push_back(ProducerOf(k));
    else if (sources[k])
      wire(piece, burst, ProducerOf(k), sources[k]->width, sources[k]->kind == Source::Kind::Stream,
           sources[k]->stream, sources[k]->burst);
  return Success{};
}

/// Every stored node leaves through position 0 towards the hemispheres that hold copies of its
/// tensors.
Status Mesh::store() {
  for (size_t n = 0; n < kernel.nodes.size(); ++n) {
    std::vector<const forms::Result *> results;
    for (const forms::Result &r : kernel.results)
      if (r.node == n)
        results.push_back(&r);
    if (results.empty())
      continue;
    Piece::BurstId burst;
    Cycle leave;
    const Flow flow = resultFlow(unsigned(n));
    Cycle last = kernel.nodes[n].kind == Node::Kind::Reduce ? d.flow.lastStep() : 0;
    if (isOp(unsigned(n))) {
      burst = *bursts[n];
      leave = dispatch[n] + last + timing.aluToStream(kernel.nodes[n].op);
    } else { // an operand, an immediate, or the accumulator itself
      const Cycle at =
          kernel.nodes[n].kind == Node::Kind::Accumulator ? begin() : earliestUse(unsigned(n));
      Instruction pass = instruction(Opcode::Alu, flow);
      pass.function = uint8_t(AluOp::Pass);
      pass.provenance = d.provenance;
      if (kernel.nodes[n].kind == Node::Kind::Immediate) {
        pass.a.kind = OperandKind::Immediate;
        pass.immediate = kernel.nodes[n].bits;
        burst = piece.addAlu(piece.alu(d.pe), pass, at);
      } else {
        Expected<Source> s = take(unsigned(n), at);
        if (!s)
          return s.takeError();
        burst = piece.addAlu(piece.alu(d.pe), pass, at);
        wire(piece, burst, ProducerOf::A, s->width, s->kind == Source::Kind::Stream, s->stream,
             s->burst);
      }
      leave = at + timing.aluToStream(AluOp::Pass);
    }
    for (unsigned p = 0; p < passes; ++p) {
      Instruction pass = instruction(Opcode::Alu, flow);
      pass.function = uint8_t(AluOp::Pass);
      pass.provenance = d.provenance;
      const AluOp before = AluOp(piece.proto(burst).function);
      const Cycle at = leave - timing.aluToStream(before) + timing.aluToChained(before);
      const Piece::BurstId next = piece.addAlu(piece.alu(d.pe), pass, at);
      piece.chain(next, ProducerOf::A, burst);
      burst = next;
      last = 0;
      leave = at + timing.aluToStream(AluOp::Pass);
    }
    const unsigned width = byteWidth(c.tensor(results.front()->access.tensor).type);
    for (Hemisphere h : {Hemisphere::West, Hemisphere::East}) {
      std::optional<Piece::StreamVar> stream;
      for (const forms::Result *r : results) {
        const TensorLayout &layout = c.layouts[r->access.tensor];
        const Tensor &t = c.tensor(r->access.tensor);
        if (byteWidth(t.type) != width)
          return Error{"kernel '" + kernel.name + "': one node is stored in two widths"};
        std::optional<unsigned> tile = layout.tileAt(evaluate(r->access.index[t.laneDim], d.loops));
        if (!tile)
          return Error{"kernel '" + kernel.name + "': result '" + t.name +
                       "' begins within a lane tile"};
        for (const Copy &copy : layout.copies) {
          const RowPattern rows = rowsOf(layout, r->access, d);
          if (copy.pe != d.pe || copy.hemisphere != h ||
              (copy.isPart && !elementsHeld(copy, *tile, rows, flow)))
            continue;
          if (!stream) {
            stream = piece.stream(d.pe, h, Direction::Outward, width);
            piece.feed(burst, unsigned(h), *stream, 0, width, 0, leave - last - piece.at(burst));
          }
          writeRows(c, piece, layout, copy, *tile, rows, flow, *stream, leave, d.provenance, {},
                    writesOften(r->access.tensor));
        }
      }
      if (stream)
        piece.setOutWidth(burst, width);
    }
  }
  return Success{};
}

Status Mesh::build() {
  plan();
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (needed[n] && isOp(n))
      if (Status s = place(n); !s)
        return s;
  if (Status s = store(); !s)
    return s;
  for (const Latched &latch : latched)
    if (Status s = load(latch); !s)
      return s;
  return Success{};
}

} // namespace

Status addEpilogue(Context &c, Piece &piece, const Domain &domain,
                   const std::vector<AccumulatorStream> &accumulator, Cycle start, Hemisphere side,
                   unsigned which, unsigned passes) {
  return Mesh(c, piece, domain, accumulator, start, side, which, passes).build();
}

} // namespace millrace::grid
