// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/ContractionPlan.h"
#include "compiler/Codegen/Grid/Detours.h"

#include <algorithm>
#include <deque>

namespace millrace::grid {

using forms::Term;

namespace {

class Contraction : ContractionPlan {
public:
  Contraction(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
              const Share &share, const Worker &worker, MxmState &mxm, ContractionCounts &counts,
              uint32_t provenance)
      : ContractionPlan(c, kernel, kernelIndex, work, share, worker, provenance), mxm(mxm),
        counts(counts) {}

  /// Plans the passes and takes accumulator rows.
  Status begin();
  bool isDone() const { return next == passes.size(); }
  /// Places the next passes that take one tile.
  Status run();

private:
  MxmState &mxm;
  ContractionCounts &counts;
  unsigned row = 0;                      ///< first accumulator row
  size_t next = 0;                       ///< pass
  Cycle from = 0;                        ///< start of the pass before
  std::vector<schedule::Origin> partial; ///< per accumulator row of the share: who left its sum

  Expected<unsigned> install(const Tile &tile, Cycle from);
  /// The Installs, one per plane, as numbers in the PE's program.
  using Installs = std::vector<uint32_t>;
  Expected<Installs> installConstant(const Tile &tile, unsigned buffer, Cycle from);
  Expected<Installs> installRows(const Tile &tile, unsigned buffer, Cycle from);
  Expected<Installs> placeInstalls(Piece &piece, Piece::StreamVar stream, unsigned planes,
                                   unsigned buffer, Cycle from);
  void annotateWeights(Piece &piece, Piece::BurstId activate, unsigned planes, unsigned buffer);
  Expected<Cycle> sweep(const Pass &pass, unsigned buffer, unsigned row, bool first, bool last,
                        Cycle from, unsigned attempt = 0);
};

Expected<Contraction::Installs> Contraction::placeInstalls(Piece &piece, Piece::StreamVar stream,
                                                           unsigned planes, unsigned buffer,
                                                           Cycle from) {
  std::vector<Piece::BurstId> bursts;
  for (unsigned p = 0; p < planes; ++p) {
    Instruction i = instruction(Opcode::Install, dense(columnGroups(), 1));
    i.s0 = 1;
    i.buffer = uint8_t(buffer);
    i.provenance = domain.provenance;
    bursts.push_back(piece.add(domain.pe,
                               {UnitKind::MxmInstall, worker.hemisphere, worker.plane + p}, i,
                               Cycle(p) * columnGroups()));
    piece.tap(bursts.back(), ProducerOf::A, stream, 0, m.mxm.columnsPerInstall, m.lastPosition());
  }
  ++counts.installs;
  if (Expected<Cycle> start = place(c, piece, from); !start)
    return start.takeError();
  Installs installs;
  for (Piece::BurstId burst : bursts)
    installs.push_back(piece.idOf(burst));
  return installs;
}

Expected<Contraction::Installs> Contraction::installConstant(const Tile &tile, unsigned buffer,
                                                             Cycle from) {
  const unsigned planes = m.mxm.format(typeOf(tile))->planes;
  Expected<WeightTile> stored = store(tile);
  if (!stored)
    return stored.takeError();
  Piece piece(c.program);
  Piece::StreamVar stream =
      piece.stream(worker.pe, worker.hemisphere, Direction::Outward, m.mxm.columnsPerInstall);
  for (unsigned s = 0; s < stored->slices.size(); ++s) {
    Instruction i = instruction(Opcode::Read, dense(stored->groups * planes, 1));
    i.address = stored->addresses[s];
    i.s0 = 1;
    i.tensor = stored->regions[s];
    i.provenance = domain.provenance;
    const unsigned slice = stored->slices[s];
    Piece::BurstId burst = piece.add(worker.pe, {UnitKind::Mem, worker.hemisphere, slice}, i,
                                     -c.program.timing.readTo(slice, m.lastPosition()));
    piece.feed(burst, 0, stream, s, 1, m.position(slice), c.program.timing.readInjects());
  }
  return placeInstalls(piece, stream, planes, buffer, from);
}

/// Columns of a column copy from one step of the loop to the next.
int64_t columnStep(const TensorLayout &layout, const Access &w, unsigned loop) {
  int64_t step = 0;
  for (size_t d = 0; d < w.index.size(); ++d)
    step += layout.columnPitch[d] * coefficient(w.index[d], loop);
  return step;
}

/// Weights made at run time: rows of a tensor, column n of the tile is column base + n of the copy.
Expected<Contraction::Installs> Contraction::installRows(const Tile &tile, unsigned buffer,
                                                         Cycle from) {
  const Term &term = kernel.terms[tile.term];
  const Tensor &w = c.tensor(term.w.tensor);
  const TensorLayout &layout = c.layouts[term.w.tensor];
  const Copy *copy = c.columnCopy(term.w.tensor, worker.pe, worker.hemisphere);
  const int64_t lane = evaluate(term.w.index[w.laneDim], tile.loops) +
                       (tile.firstLane + tile.k0 -
                        evaluate(term.a.index[c.tensor(term.a.tensor).laneDim], tile.loops));
  const unsigned wTile = layout.tileOf(lane);
  const LoopRoles &roles = work.roles;
  const bool inColumns = !roles.lane || domain.lanes == 1 ||
                         (columnStep(layout, term.w, *roles.lane) == 1 &&
                          (!roles.group || columnStep(layout, term.w, *roles.group) ==
                                               kernel.loops[*roles.lane].extent));
  bool isAlongLanes = true; // what runs along the lanes of a runs along those of w
  for (auto [l, k] : term.a.index[c.tensor(term.a.tensor).laneDim].terms)
    isAlongLanes &= k != 1 || kernel.loops[l].kind != forms::LoopKind::Contracted ||
                    kernel.loops[l].extent == 1 || coefficient(term.w.index[w.laneDim], l) == 1;
  if (!copy || lane - layout.tiles[wTile].start != int64_t(tile.k0) || !inColumns || !isAlongLanes)
    return Error{"kernel '" + kernel.name + "': '" + w.name + "' does not lie as weights for '" +
                 c.tensor(term.a.tensor).name + "': lanes or columns do not match"};
  const Columns &columns = copy->columnTiles[wTile];
  const unsigned width = m.mxm.columnsPerInstall, planes = m.mxm.format(typeOf(tile))->planes;
  const int64_t base = layout.columnOf(rowOf(layout, term.w, tile.loops));
  Piece piece(c.program);
  Piece::StreamVar stream = piece.stream(worker.pe, worker.hemisphere, Direction::Outward, width);
  for (unsigned p = 0; p < planes; ++p)
    for (unsigned s = 0; s < width; ++s) {
      const unsigned place = p * width + unsigned(base + s + int64_t(width / 2) * p) % width;
      const unsigned slice = columns.slices[place];
      Instruction i = instruction(Opcode::Read, dense(columnGroups(), 1));
      i.address = columns.addresses[place] + unsigned((base + s) / width);
      i.s0 = 1;
      i.tensor = columns.regions[place];
      i.provenance = domain.provenance;
      Piece::BurstId burst =
          piece.add(worker.pe, {UnitKind::Mem, worker.hemisphere, slice}, i,
                    Cycle(p) * columnGroups() - c.program.timing.readTo(slice, m.lastPosition()));
      piece.feed(burst, 0, stream, s, 1, m.position(slice), c.program.timing.readInjects());
    }
  return placeInstalls(piece, stream, planes, buffer, from);
}

/// Which buffer holds the tile, after installing it if none does.
Expected<unsigned> Contraction::install(const Tile &tile, Cycle from) {
  const unsigned planes = m.mxm.format(typeOf(tile))->planes;
  unsigned &last = mxm.plane(worker.pe, worker.hemisphere, worker.plane).lastBuffer;
  if (const std::optional<unsigned> held = mxm.bufferOf(worker, planes, tile.key))
    return last = *held;
  const unsigned buffer = (last + 1) % m.mxm.buffers;
  Expected<Installs> done =
      isConstant(tile) ? installConstant(tile, buffer, from) : installRows(tile, buffer, from);
  if (!done)
    return done.takeError();
  for (unsigned p = 0; p < planes; ++p)
    mxm.plane(worker.pe, worker.hemisphere, worker.plane + p).resident[buffer] = {tile.key, p,
                                                                                  (*done)[p]};
  return last = buffer;
}

/// The weights that the pass means, whatever the scheduler believes to be installed.
void Contraction::annotateWeights(Piece &piece, Piece::BurstId activate, unsigned planes,
                                  unsigned buffer) {
  const Instruction &i = piece.proto(activate);
  for (unsigned p = 0; p < planes; ++p) {
    const ResidentTile &held =
        mxm.plane(worker.pe, worker.hemisphere, worker.plane + p).resident[buffer];
    std::vector<schedule::Origin> groups;
    for (unsigned g = i.g0; g < i.g1; ++g)
      groups.push_back({held.install, g, 0});
    piece.weights(activate, p, std::move(groups));
  }
}

/// Activations through a tile into accumulator rows; the last sweep emits and runs the epilogue.
Expected<Cycle> Contraction::sweep(const Pass &pass, unsigned buffer, unsigned row, bool first,
                                   bool last, Cycle from, unsigned attempt) {
  const Tile &tile = tiles[pass.tile];
  const Access &a = kernel.terms[tile.term].a;
  const ElementType type = typeOf(tile);
  const MxmFormatSpec *format = m.mxm.format(type);
  // Only sums that leave wait for a running reduction.
  const Flow all = last ? domain.flow : dense(domain.flow.n0, domain.flow.n1);
  const bool whole = first || last || pass.full;
  const Flow flow = whole ? all
                          : Flow{unsigned(pass.box.n0), unsigned(pass.box.n1), all.c0,
                                 std::max<Cycle>(pass.box.n0, all.n0 == 1 ? all.c1 : 1)};
  Copy none; // enough for an operand of which this share sees nothing but padding
  none.pe = worker.pe, none.hemisphere = worker.hemisphere;
  const Copy *copy = nullptr;
  for (unsigned which = worker.plane / format->planes; !copy; --which) { // fewer copies are shared
    copy = c.rowCopy(a.tensor, worker.pe, worker.hemisphere, which);
    if (!copy && which == 0 && pass.box.empty())
      copy = &none;
    else if (!copy && which == 0)
      return Error{"kernel '" + kernel.name + "': '" + c.tensor(a.tensor).name +
                   "' has no copy where it is needed"};
  }
  Piece piece(c.program);
  Piece::StreamVar stream =
      piece.stream(worker.pe, worker.hemisphere, Direction::Outward, byteWidth(type));
  Domain tap = domain;
  tap.loops = tile.loops;
  if (work.roles.heads)
    tap.loops[*work.roles.group] = pass.group;
  if (whole) {
    if (Status s =
            readWindow(c, piece, *copy, tile.aTile, a, tap, flow, stream, m.lastPosition(), 0);
        !s)
      return s.takeError();
  } else {
    RowPattern rows = rowsOf(c.layouts[a.tensor], a, tap);
    rows.row += pass.box.from0 * rows.step0 + pass.box.from1 * rows.step1;
    readRows(c, piece, *copy, tile.aTile, rows, flow, stream, m.lastPosition(), 0,
             domain.provenance);
  }
  Instruction activate = instruction(Opcode::Activate, flow);
  activate.buffer = uint8_t(buffer);
  activate.format = type;
  activate.k0 = uint16_t(pass.k0);
  activate.k1 = uint16_t(pass.k1);
  activate.g0 = uint16_t(pass.g0);
  activate.g1 = uint16_t(pass.g1);
  activate.provenance = domain.provenance;
  Piece::BurstId act =
      piece.add(worker.pe, {UnitKind::MxmActivate, worker.hemisphere, worker.plane}, activate, 0);
  piece.tap(act, ProducerOf::A, stream, 0, byteWidth(type), m.lastPosition());
  annotateWeights(piece, act, format->planes, buffer);
  Instruction accumulate = instruction(Opcode::Accumulate, flow);
  accumulate.address = row + (whole ? 0 : unsigned(pass.box.from1 * all.n0 + pass.box.from0));
  accumulate.s0 = 1;
  accumulate.s1 = int32_t(all.n0);
  accumulate.format = type;
  accumulate.function =
      uint8_t((first ? 0 : AccumulateMode::Add) | (last ? AccumulateMode::Emit : 0));
  accumulate.provenance = domain.provenance;
  const Cycle at = c.program.timing.activateToAccumulate();
  Piece::BurstId acc = piece.add(
      worker.pe, {UnitKind::MxmAccumulate, worker.hemisphere, worker.plane}, accumulate, at);
  piece.product(acc, act);
  const auto sumOf = [&](unsigned i0, unsigned i1) -> schedule::Origin & {
    return partial[schedule::elementAddress(accumulate, i0, i1) - row];
  };
  if (!first) {
    std::vector<schedule::Origin> before;
    schedule::forEachElement(accumulate,
                             [&](unsigned i0, unsigned i1) { before.push_back(sumOf(i0, i1)); });
    piece.sum(acc, std::move(before));
  }
  if (last) {
    Piece::StreamVar out = piece.stream(worker.pe, worker.hemisphere, Direction::Inward, 4);
    piece.feed(acc, 0, out, 0, 4, m.lastPosition(), c.program.timing.accumulateToStream());
    if (Status s = addEpilogue(c, piece, domain, {{out, c.program.timing.activateToAlu()}}, 0,
                               worker.hemisphere, worker.plane / format->planes, passesOf(attempt));
        !s)
      return s.takeError();
    if (triesAgain(c, piece, attempt))
      return sweep(pass, buffer, row, first, last, from, attempt + 1);
  }
  counts.vectors += flow.n0 * flow.n1;
  if (last)
    counts.emitted += flow.n0 * flow.n1;
  Expected<Cycle> start = place(c, piece, from, attempt);
  uint32_t element = 0;
  schedule::forEachElement(accumulate, [&](unsigned i0, unsigned i1) {
    sumOf(i0, i1) = {piece.idOf(acc), element++, 0};
  });
  return start;
}

Status Contraction::begin() {
  const unsigned rows = domain.flow.n0 * domain.flow.n1;
  if (rows > m.mxm.accumulatorRows)
    return Error{"kernel '" + kernel.name + "' needs " + std::to_string(rows) +
                 " accumulator rows at once, the plane has " +
                 std::to_string(m.mxm.accumulatorRows)};
  if (Status s = make(); !s)
    return s;
  unsigned &free = mxm.plane(worker.pe, worker.hemisphere, worker.plane).nextAccumulator;
  if (free + rows > m.mxm.accumulatorRows)
    free = 0;
  row = free;
  free += rows;
  partial.assign(rows, {}); // the first pass writes every row
  return Success{};
}

Status Contraction::run() {
  for (const size_t tile = passes[next].tile; !isDone() && passes[next].tile == tile; ++next) {
    Expected<unsigned> buffer = install(tiles[tile], 0);
    if (!buffer)
      return buffer.takeError();
    Expected<Cycle> start =
        sweep(passes[next], *buffer, row, next == 0, next + 1 == passes.size(), from);
    if (!start)
      return start.takeError();
    from = *start;
  }
  return Success{};
}

} // namespace

void MxmState::beginStep() {
  PlaneState empty;
  empty.resident.resize(machine.mxm.buffers);
  planes.assign(size_t(machine.pes()) * kHemispheres * machine.mxm.planes, empty);
}

std::optional<unsigned> MxmState::bufferOf(const Worker &worker, unsigned count,
                                           const std::string &key) {
  for (unsigned b = 0; b < machine.mxm.buffers; ++b) {
    bool whole = true;
    for (unsigned p = 0; p < count && whole; ++p) {
      const ResidentTile &held = plane(worker.pe, worker.hemisphere, worker.plane + p).resident[b];
      whole = held.key == key && held.part == p;
    }
    if (whole)
      return b;
  }
  return std::nullopt;
}

size_t sharesAtOnce(const Machine &machine, const Work &work, const std::vector<Share> &shares) {
  int64_t rows = 1;
  for (const Share &share : shares)
    rows = std::max(rows, share.strips * work.stripRows);
  const int64_t interval = machine.latency.accumulateInterval;
  return size_t(std::max<int64_t>(
      1, std::min((interval + rows - 1) / rows, machine.mxm.accumulatorRows / 2 / rows)));
}

Status contract(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                std::span<const Share> shares, const Worker &worker, MxmState &mxm,
                ContractionCounts &counts, uint32_t provenance) {
  std::deque<Contraction> contractions;
  Status done = Success{};
  for (size_t i = 0; done && i < shares.size(); ++i)
    done =
        contractions
            .emplace_back(c, kernel, kernelIndex, work, shares[i], worker, mxm, counts, provenance)
            .begin();
  for (bool any = true; done && any;) {
    any = false;
    for (Contraction &contraction : contractions)
      if (done && !contraction.isDone()) {
        done = contraction.run();
        any = true;
      }
  }
  if (!done && done.error().find("kernel '") == std::string::npos)
    return Error{"kernel '" + kernel.name + "': " + done.error()};
  return done;
}

} // namespace millrace::grid
