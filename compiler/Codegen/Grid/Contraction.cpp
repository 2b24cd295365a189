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

  /// Plans the passes, of a half or all, and takes accumulator rows.
  Status begin(std::optional<unsigned> half);
  bool isAtLastTile() const { return passes[next].tile == passes.back().tile; }
  /// Places the next passes that take one tile, up to the last pass.
  Status run();
  /// Places the last pass, beside that of the other half if there is one, and the epilogue.
  Status finish(Contraction *other);

private:
  MxmState &mxm;
  ContractionCounts &counts;
  unsigned row = 0;                      ///< first accumulator row
  size_t next = 0;                       ///< pass
  Cycle from = 0;                        ///< start of the pass before
  std::vector<schedule::Origin> partial; ///< per accumulator row of the share: who left its sum

  Expected<unsigned> install(Tile &tile, Cycle from);
  /// The Installs, one per plane, as numbers in the PE's program.
  using Installs = std::vector<uint32_t>;
  Expected<Installs> installConstant(Tile &tile, unsigned buffer, Cycle from);
  Expected<Installs> installRows(const Tile &tile, unsigned buffer, Cycle from);
  Expected<Installs> placeInstalls(Piece &piece, Piece::StreamVar stream, const Tile &tile,
                                   unsigned buffer, Cycle from);
  void annotateWeights(Piece &piece, Piece::BurstId activate, unsigned planes, unsigned buffer);
  /// The Accumulate of a pass, once it has a place.
  struct Swept {
    Piece::BurstId burst = 0;
    Instruction accumulate;
    std::optional<AccumulatorStream> out; ///< of the last pass
  };
  Expected<Swept> sweep(Piece &piece, const Pass &pass, unsigned buffer);
  Piece::StreamVar moveUp(Piece &piece, Piece::StreamVar stream, unsigned bytes, const Flow &flow,
                          int lanes) const;
  void noteSums(const Piece &piece, const Swept &swept);
  schedule::Origin &sumOf(const Instruction &accumulate, unsigned i0, unsigned i1) {
    return partial[schedule::elementAddress(accumulate, i0, i1) - row];
  }
};

Expected<Contraction::Installs> Contraction::placeInstalls(Piece &piece, Piece::StreamVar stream,
                                                           const Tile &tile, unsigned buffer,
                                                           Cycle from) {
  const unsigned planes = m.mxm.format(typeOf(tile))->planes;
  std::vector<Piece::BurstId> bursts;
  for (unsigned p = 0; p < planes; ++p) {
    Instruction i = instruction(Opcode::Install, dense(tile.groups.size(), 1));
    i.address = tile.groups.from;
    i.s0 = 1;
    i.buffer = uint8_t(buffer);
    i.provenance = domain.provenance;
    bursts.push_back(piece.add(domain.pe,
                               {UnitKind::MxmInstall, worker.hemisphere, worker.plane + p}, i,
                               Cycle(p) * tile.groups.size()));
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

Expected<Contraction::Installs> Contraction::installConstant(Tile &tile, unsigned buffer,
                                                             Cycle from) {
  const unsigned planes = m.mxm.format(typeOf(tile))->planes;
  Expected<WeightTile> stored = store(tile);
  if (!stored)
    return stored.takeError();
  Piece piece(c.program);
  Piece::StreamVar stream =
      piece.stream(worker.pe, worker.hemisphere, Direction::Outward, m.mxm.columnsPerInstall);
  for (unsigned s = 0; s < stored->slices.size(); ++s) {
    Instruction i = instruction(Opcode::Read, stored->pitch == stored->groups
                                                  ? dense(stored->groups * planes, 1)
                                                  : dense(stored->groups, planes));
    i.address = stored->addresses[s];
    i.s0 = 1;
    i.s1 = int32_t(stored->pitch);
    i.tensor = stored->regions[s];
    i.provenance = domain.provenance;
    const unsigned slice = stored->slices[s];
    Piece::BurstId burst = piece.add(worker.pe, {UnitKind::Mem, worker.hemisphere, slice}, i,
                                     -c.program.timing.readTo(slice, m.lastPosition()));
    piece.feed(burst, 0, stream, s, 1, m.position(slice), c.program.timing.readInjects());
  }
  return placeInstalls(piece, stream, tile, buffer, from);
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
  if (!copy || lane - layout.tiles[wTile].start != int64_t(tile.k0) ||
      int64_t(tile.k1) > layout.tiles[wTile].count || !inColumns || !isAlongLanes)
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
  return placeInstalls(piece, stream, tile, buffer, from);
}

/// Which buffer holds the tile, after installing it if none does.
Expected<unsigned> Contraction::install(Tile &tile, Cycle from) {
  if (tile.inRow > 1) // where it lies says how far activations move
    if (Expected<WeightTile> stored = store(tile); !stored)
      return stored.takeError();
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
    mxm.plane(worker.pe, worker.hemisphere, worker.plane + p).resident[buffer] = {
        tile.key, p, (*done)[p], tile.groups.from};
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
      groups.push_back({held.install, g - held.first, 0});
    piece.weights(activate, p, std::move(groups));
  }
}

/// The vectors of a stream, which shifters sample at the last position, by so many lanes further
/// up: there as of the flow's own cycles.
Piece::StreamVar Contraction::moveUp(Piece &piece, Piece::StreamVar stream, unsigned bytes,
                                     const Flow &flow, int lanes) const {
  const Cycle takes = c.program.timing.switchToStream(UnitKind::Shifter);
  const Piece::StreamVar moved =
      piece.stream(worker.pe, worker.hemisphere, Direction::Outward, bytes);
  for (unsigned b = 0; b < bytes; ++b) {
    Instruction i = instruction(Opcode::Shift, flow);
    i.immediate = uint32_t(lanes);
    i.provenance = domain.provenance;
    // Workers of a hemisphere take turns with shifters of their own, as far as there are some.
    const unsigned shifter =
        (worker.plane / m.mxm.format(typeOf(tiles.front()))->planes * bytes + b) % m.sxm.shifters;
    const Piece::BurstId burst =
        piece.add(worker.pe, {UnitKind::Shifter, worker.hemisphere, shifter}, i, -takes);
    piece.tap(burst, ProducerOf::A, stream, b, 1, m.lastPosition());
    piece.feed(burst, 0, moved, b, 1, m.lastPosition(), takes);
  }
  return moved;
}

/// Activations through a tile into accumulator rows; the last sweep emits.
Expected<Contraction::Swept> Contraction::sweep(Piece &piece, const Pass &pass, unsigned buffer) {
  const bool first = &pass == &passes.front(), last = &pass == &passes.back();
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
  Piece::StreamVar stream =
      piece.stream(worker.pe, worker.hemisphere, Direction::Outward, byteWidth(type));
  Domain tap = domain;
  tap.loops = tile.loops;
  if (work.roles.heads)
    tap.loops[*work.roles.group] = pass.group;
  const Cycle arrive = tile.shift ? -c.program.timing.switchToStream(UnitKind::Shifter) : 0;
  if (whole) {
    if (Status s =
            readWindow(c, piece, *copy, tile.aTile, a, tap, flow, stream, m.lastPosition(), arrive);
        !s)
      return s.takeError();
  } else {
    RowPattern rows = rowsOf(c.layouts[a.tensor], a, tap);
    rows.row += pass.box.from0 * rows.step0 + pass.box.from1 * rows.step1;
    readRows(c, piece, *copy, tile.aTile, rows, flow, stream, m.lastPosition(), arrive,
             domain.provenance);
  }
  if (tile.shift)
    stream = moveUp(piece, stream, byteWidth(type), flow, tile.shift);
  Instruction activate = instruction(Opcode::Activate, flow);
  activate.buffer = uint8_t(buffer);
  activate.format = type;
  activate.k0 = uint16_t(int(pass.k0) + tile.shift);
  activate.k1 = uint16_t(int(pass.k1) + tile.shift);
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
  if (!first) {
    std::vector<schedule::Origin> before;
    schedule::forEachElement(
        accumulate, [&](unsigned i0, unsigned i1) { before.push_back(sumOf(accumulate, i0, i1)); });
    piece.sum(acc, std::move(before));
  }
  Swept swept{acc, accumulate, std::nullopt};
  if (last) {
    Piece::StreamVar out = piece.stream(worker.pe, worker.hemisphere, Direction::Inward, 4);
    piece.feed(acc, 0, out, 0, 4, m.lastPosition(), c.program.timing.accumulateToStream());
    swept.out = {out, c.program.timing.activateToAlu()};
  }
  return swept;
}

/// Of a pass that has its place.
void Contraction::noteSums(const Piece &piece, const Swept &swept) {
  uint32_t element = 0;
  schedule::forEachElement(swept.accumulate, [&](unsigned i0, unsigned i1) {
    sumOf(swept.accumulate, i0, i1) = {piece.idOf(swept.burst), element++, 0};
  });
  counts.vectors += element;
}

Status Contraction::begin(std::optional<unsigned> half) {
  const unsigned rows = domain.flow.n0 * domain.flow.n1;
  if (rows > m.mxm.accumulatorRows)
    return Error{"kernel '" + kernel.name + "' needs " + std::to_string(rows) +
                 " accumulator rows at once, the plane has " +
                 std::to_string(m.mxm.accumulatorRows)};
  if (Status s = make(half); !s)
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
  const size_t tile = passes[next].tile;
  for (; next + 1 < passes.size() && passes[next].tile == tile; ++next) {
    Expected<unsigned> buffer = install(tiles[tile], 0);
    if (!buffer)
      return buffer.takeError();
    Piece piece(c.program);
    Expected<Swept> swept = sweep(piece, passes[next], *buffer);
    if (!swept)
      return swept.takeError();
    Expected<Cycle> start = place(c, piece, from, 0);
    if (!start)
      return start.takeError();
    noteSums(piece, *swept);
    from = *start;
  }
  return Success{};
}

Status Contraction::finish(Contraction *other) {
  std::vector<Contraction *> halves{this};
  if (other)
    halves.push_back(other);
  std::vector<unsigned> buffers;
  for (Contraction *half : halves) {
    Expected<unsigned> buffer = half->install(half->tiles[half->passes.back().tile], 0);
    if (!buffer)
      return buffer.takeError();
    buffers.push_back(*buffer);
    from = std::max(from, half->from);
  }
  for (unsigned attempt = 0;; ++attempt) {
    Piece piece(c.program);
    std::vector<Swept> swept;
    std::vector<AccumulatorStream> sums;
    for (size_t i = 0; i < halves.size(); ++i) {
      Expected<Swept> its = halves[i]->sweep(piece, halves[i]->passes.back(), buffers[i]);
      if (!its)
        return its.takeError();
      sums.push_back(*its->out);
      swept.push_back(std::move(*its));
    }
    const unsigned planes = m.mxm.format(typeOf(tiles[passes.back().tile]))->planes;
    if (Status s = addEpilogue(c, piece, domain, sums, 0, worker.hemisphere, worker.plane / planes,
                               passesOf(attempt));
        !s)
      return s;
    if (triesAgain(c, piece, attempt))
      continue;
    if (Expected<Cycle> start = place(c, piece, from, attempt); !start)
      return start.takeError();
    for (size_t i = 0; i < halves.size(); ++i)
      halves[i]->noteSums(piece, swept[i]);
    counts.emitted += domain.flow.n0 * domain.flow.n1;
    return Success{};
  }
}

/// The sums of a share: by one worker, or the halves of a split K by two.
class Sums {
public:
  Sums(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work, const Share &share,
       std::span<const Worker> workers, MxmState &mxm, ContractionCounts &counts,
       uint32_t provenance) {
    for (const Worker &worker : workers)
      halves.emplace_back(c, kernel, kernelIndex, work, share, worker, mxm, counts, provenance);
  }
  Status begin() {
    for (unsigned h = 0; h < halves.size(); ++h)
      if (Status s = halves[h].begin(halves.size() > 1 ? std::optional(h) : std::nullopt); !s)
        return s;
    return Success{};
  }
  bool isDone() const { return done; }
  /// Places the next passes that take one tile of each half.
  Status run() {
    const bool isLast = std::all_of(halves.begin(), halves.end(),
                                    [](const Contraction &half) { return half.isAtLastTile(); });
    for (Contraction &half : halves)
      if (Status s = half.run(); !s)
        return s;
    done = isLast;
    if (!isLast)
      return Success{};
    return halves.front().finish(halves.size() > 1 ? &halves.back() : nullptr);
  }

private:
  std::deque<Contraction> halves;
  bool done = false;
};

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

size_t sharesAtOnce(const Machine &machine, const Kernel &kernel, const Work &work,
                    const std::vector<Share> &shares) {
  if (work.burstRows) // of one pass: no sum waits for another
    return 1;
  int64_t rows = 1;
  for (const Share &share : shares) { // steps of a running reduction have rows of their own
    const Flow flow = domainOf(work, kernel, share, 0, 0).flow;
    rows = std::max(rows, int64_t(flow.n0) * flow.n1);
  }
  const int64_t interval = machine.latency.accumulateInterval;
  return size_t(std::max<int64_t>(
      1, std::min((interval + rows - 1) / rows, machine.mxm.accumulatorRows / 2 / rows)));
}

Status contract(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                std::span<const Share> shares, std::span<const Worker> workers, MxmState &mxm,
                ContractionCounts &counts, uint32_t provenance) {
  std::deque<Sums> all;
  Status done = Success{};
  for (size_t i = 0; done && i < shares.size(); ++i)
    done =
        all.emplace_back(c, kernel, kernelIndex, work, shares[i], workers, mxm, counts, provenance)
            .begin();
  for (bool any = true; done && any;) {
    any = false;
    for (Sums &sums : all)
      if (done && !sums.isDone()) {
        done = sums.run();
        any = true;
      }
  }
  if (!done && done.error().find("kernel '") == std::string::npos)
    return Error{"kernel '" + kernel.name + "': " + done.error()};
  return done;
}

} // namespace millrace::grid
