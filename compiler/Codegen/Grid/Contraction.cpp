// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Contraction.h"

#include <algorithm>

namespace millrace::grid {

using forms::Term;

ElementType contractedType(const Context &c, const Kernel &kernel) {
  return c.tensor(kernel.terms.front().a.tensor).type;
}

std::vector<Worker> workersOf(const Machine &m, unsigned pe, ElementType type) {
  std::vector<Worker> workers;
  const MxmFormatSpec *format = m.mxm.format(type);
  for (unsigned plane = 0; format && plane + format->planes <= m.mxm.planes;
       plane += format->planes)
    for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
      workers.push_back({pe, h, plane});
  return workers;
}

int64_t longestShare(const Machine &machine, const Work &work) {
  return std::max<int64_t>(1, machine.mxm.accumulatorRows / 2 / work.stripRows);
}

namespace {

/// One weight tile: the lanes of one activation tile (for one tap) times the lanes of the result
/// tile.
struct Tile {
  size_t term = 0;
  std::vector<int64_t> loops; ///< with the tap's values; the contracted lane loop at 0
  unsigned aTile = 0;         ///< lane tile of a
  int64_t firstLane = 0;      ///< absolute lane of a at lane 0 of the vector
  unsigned k0 = 0, k1 = 0;    ///< lanes of the vector that multiply
  std::string tap, key;
};

/// One sweep of activations through an installed tile.
struct Pass {
  size_t tile = 0;
  unsigned k0 = 0, k1 = 0;
  Box box;           ///< elements of the flow whose tap lies inside
  bool full = false; ///< all of them, or padded to all
};

/// A pass as Evaluate knows it, and what it has in common with those of other result tiles.
struct PlannedPass {
  std::pair<size_t, std::string> tap; ///< term and tap
  int64_t cell = 0;                   ///< first of the lanes of a that could be in one pass
  forms::Pass pass;
};

class Contraction {
public:
  Contraction(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
              const Share &share, WorkerState &state, ContractionCounts &counts,
              uint32_t provenance)
      : c(c), m(c.machine), kernel(kernel), kernelIndex(kernelIndex), work(work), state(state),
        counts(counts), domain(domainOf(work, kernel, share, state.worker.pe, provenance)),
        share(share) {
    if (work.roles.running.empty())
      return;
    // One row after another through one running accumulator, as far apart as the operation takes.
    Cycle interval = 1;
    for (const forms::Node &node : kernel.nodes)
      if (node.kind == forms::Node::Kind::Reduce)
        interval = std::max(interval, c.program.timing.aluOp(node.op));
    domain.loop1 = domain.loop0;
    domain.loop0.reset();
    domain.flow = Flow{1, domain.flow.n0, 1, interval};
  }

  Status run();
  Status storeWeights();
  Status forEachWeightTile(const std::function<void(const std::string &, unsigned)> &f);
  Expected<std::vector<PlannedPass>> plannedPasses();

private:
  Context &c;
  const Machine &m;
  const Kernel &kernel;
  size_t kernelIndex;
  const Work &work;
  WorkerState &state;
  ContractionCounts &counts;
  Domain domain;
  Share share;
  std::vector<Tile> tiles;
  std::vector<Pass> passes;

  unsigned columnGroups() const {
    return unsigned((domain.lanes + m.mxm.columnsPerInstall - 1) / m.mxm.columnsPerInstall);
  }
  bool isConstant(const Tile &tile) const {
    return c.tensor(kernel.terms[tile.term].w.tensor).role == forms::TensorRole::Constant;
  }
  ElementType typeOf(const Tile &tile) const {
    return c.tensor(kernel.terms[tile.term].a.tensor).type;
  }

  Status planTiles();
  void addTiles(size_t term, const std::vector<int64_t> &loops, const std::string &tap);
  std::string keyOf(const Tile &tile) const;
  Status planPasses();
  void orderPasses();
  void trimPasses();
  bool isAlwaysInside(const Tile &tile) const;
  Expected<unsigned> install(const Tile &tile, Cycle from);
  Expected<WeightTile> store(const Tile &tile);
  Status installConstant(const Tile &tile, unsigned buffer, Cycle from);
  Status installRows(const Tile &tile, unsigned buffer, Cycle from);
  void addInstalls(Piece &piece, Piece::StreamVar stream, unsigned planes, unsigned buffer);
  void fillTile(const Tile &tile, std::vector<uint8_t> &bytes) const;
  Expected<Cycle> sweep(const Pass &pass, unsigned buffer, unsigned row, bool first, bool last,
                        Cycle from, unsigned passes = 0);
};

/// The contracted loop along the lanes of a; none when a single lane is contracted.
std::optional<unsigned> laneLoop(const Context &c, const Kernel &kernel, const Access &a) {
  std::optional<unsigned> loop;
  for (auto [l, k] : a.index[c.tensor(a.tensor).laneDim].terms)
    if (k == 1 && kernel.loops[l].kind == forms::LoopKind::Contracted &&
        (!loop || kernel.loops[l].extent > kernel.loops[*loop].extent))
      loop = l;
  return loop;
}

/// Do columns, or shares, multiply lanes of their own (groups, depthwise filters, heads)? Then lane
/// tiles of one tap stay together, so that each sees the same order.
bool hasOwnLanes(const Context &c, const Kernel &kernel) {
  for (const Term &term : kernel.terms)
    for (auto [l, k] : term.a.index[c.tensor(term.a.tensor).laneDim].terms)
      if (kernel.loops[l].kind != forms::LoopKind::Contracted && kernel.loops[l].extent > 1)
        return true;
  return false;
}

void Contraction::addTiles(size_t index, const std::vector<int64_t> &loops,
                           const std::string &tap) {
  const Term &term = kernel.terms[index];
  const Tensor &a = c.tensor(term.a.tensor);
  const TensorLayout &layout = c.layouts[term.a.tensor];
  const forms::AffineIndex &lanes = term.a.index[a.laneDim];
  std::optional<unsigned> contracted = laneLoop(c, kernel, term.a);
  // From the first column's lanes to the last one's: a group, or a depthwise filter, has lanes of
  // its own.
  Domain point = domain;
  point.loops = loops;
  const int64_t from = evaluate(lanes, loops);
  const int64_t to = evaluate(lanes, loopsAtLane(point, domain.lanes - 1)) +
                     (contracted ? kernel.loops[*contracted].extent : 1);
  for (unsigned t = layout.tileOf(from); t < layout.tiles.size() && layout.tiles[t].start < to;
       ++t) {
    Tile tile;
    tile.term = index;
    tile.loops = loops;
    tile.aTile = t;
    tile.firstLane = layout.tiles[t].start;
    tile.k0 = unsigned(std::max(from, tile.firstLane) - tile.firstLane);
    tile.k1 = unsigned(std::min(to, tile.firstLane + layout.tiles[t].count) - tile.firstLane);
    tile.tap = tap;
    tile.key = keyOf(tile);
    tiles.push_back(std::move(tile));
  }
}

/// Equal keys: equal bytes for equal lanes and columns.
std::string Contraction::keyOf(const Tile &tile) const {
  const Term &term = kernel.terms[tile.term];
  const Tensor &a = c.tensor(term.a.tensor), &w = c.tensor(term.w.tensor);
  const bool ofOneValue =
      w.splat &&
      (!work.roles.lane || coefficient(term.a.index[a.laneDim], *work.roles.lane) == 0) &&
      !work.roles.group;
  if (!ofOneValue)
    return "k" + std::to_string(kernelIndex) + ".i" + std::to_string(share.instance) + ".n" +
           std::to_string(share.tile) + ".t" + std::to_string(tile.term) + tile.tap + ".c" +
           std::to_string(tile.aTile);
  std::string key = "all"; // sums over lanes: many kernels share one tile
  for (unsigned b = 0; b < byteWidth(w.type); ++b)
    key += "." + std::to_string(w.data[b]);
  return key + ":" + nameOf(w.type) + ":" + std::to_string(tile.k0) + "-" +
         std::to_string(tile.k1) + "x" + std::to_string(domain.lanes);
}

Status Contraction::planTiles() {
  for (size_t index = 0; index < kernel.terms.size(); ++index) {
    const Term &term = kernel.terms[index];
    std::optional<unsigned> lane = laneLoop(c, kernel, term.a);
    std::vector<unsigned> taps;
    for (unsigned l : work.roles.contracted)
      if (l != lane)
        for (const Access *access : {&term.a, &term.w})
          if (std::any_of(access->index.begin(), access->index.end(),
                          [&](const forms::AffineIndex &i) { return coefficient(i, l) != 0; })) {
            taps.push_back(l);
            break;
          }
    std::vector<std::pair<std::vector<int64_t>, std::string>> points{{domain.loops, ""}};
    for (unsigned l : taps) {
      std::vector<std::pair<std::vector<int64_t>, std::string>> next;
      for (const auto &[loops, name] : points)
        for (int64_t v = 0; v < kernel.loops[l].extent; ++v) {
          next.push_back({loops, name + "." + std::to_string(v)});
          next.back().first[l] = v;
        }
      points = std::move(next);
    }
    for (const auto &[loops, name] : points)
      addTiles(index, loops, name);
  }
  return Success{};
}

Status Contraction::planPasses() {
  for (size_t t = 0; t < tiles.size(); ++t) {
    const Access &a = kernel.terms[tiles[t].term].a;
    Domain tap = domain;
    tap.loops = tiles[t].loops;
    Expected<Box> box = insideOf(c, a, tap, domain.flow);
    if (!box)
      return box.takeError();
    const bool padded = a.pad != 0;
    const unsigned step = m.mxm.format(typeOf(tiles[t]))->lanesPerPass;
    for (unsigned k = tiles[t].k0; k < tiles[t].k1;) {
      unsigned end = std::min(tiles[t].k1, (k / step + 1) * step);
      passes.push_back({t, k, end, *box, padded || box->covers(domain.flow)});
      k = end;
    }
  }
  orderPasses();
  return Success{};
}

/// The first pass writes every accumulator row and the last one emits every row, so both sweep all
/// of them, padded with constant rows if need be. What lies outside altogether adds nothing.
void Contraction::trimPasses() {
  passes.front().full = passes.back().full = true;
  passes.erase(std::remove_if(passes.begin(), passes.end(),
                              [](const Pass &p) { return !p.full && p.box.empty(); }),
               passes.end());
}

/// Does the tap lie inside its tensor for every row of the kernel?
bool Contraction::isAlwaysInside(const Tile &tile) const {
  const Access &a = kernel.terms[tile.term].a;
  const Tensor &t = c.tensor(a.tensor);
  if (a.pad != 0)
    return true; // padded rows count as rows
  for (size_t d = 0; d < a.index.size(); ++d) {
    if (d == t.laneDim)
      continue;
    int64_t low = a.index[d].offset, high = low;
    for (auto [l, k] : a.index[d].terms)
      if (kernel.loops[l].kind == forms::LoopKind::Contracted) {
        low += k * tile.loops[l];
        high += k * tile.loops[l];
      } else {
        low += std::min<int64_t>(0, k * (kernel.loops[l].extent - 1));
        high += std::max<int64_t>(0, k * (kernel.loops[l].extent - 1));
      }
    if (low < 0 || high >= t.shape[d])
      return false;
  }
  return true;
}

/// Passes in the order in which their sums are added: the same for every share of the kernel, since
/// sums in fp32 depend on it (docs/spec/machine.md, Numerics). A tap that never needs padding goes
/// first and another such tile goes last.
void Contraction::orderPasses() {
  auto key = [&](const Pass &p) { // of what moves together
    const Tile &tile = tiles[p.tile];
    return std::tuple(tile.term, tile.tap, hasOwnLanes(c, kernel) ? 0u : tile.aTile);
  };
  auto inside = [&](const Pass &p) { return isAlwaysInside(tiles[p.tile]); };
  auto first = std::find_if(passes.begin(), passes.end(), inside);
  const auto firstKey = key(first == passes.end() ? passes.front() : *first);
  auto middle = std::stable_partition(passes.begin(), passes.end(),
                                      [&](const Pass &p) { return key(p) == firstKey; });
  auto last = std::find_if(std::make_reverse_iterator(passes.end()),
                           std::make_reverse_iterator(middle), inside);
  if (last.base() == middle)
    return;
  const auto lastKey = key(*last);
  std::stable_partition(middle, passes.end(), [&](const Pass &p) { return key(p) != lastKey; });
}

Expected<std::vector<PlannedPass>> Contraction::plannedPasses() {
  if (Status s = planTiles(); !s)
    return s.takeError();
  if (Status s = planPasses(); !s)
    return s.takeError();
  std::vector<PlannedPass> planned;
  for (const Pass &pass : passes) {
    const Tile &tile = tiles[pass.tile];
    const unsigned step = m.mxm.format(typeOf(tile))->lanesPerPass;
    PlannedPass p;
    p.tap = {tile.term, tile.tap};
    p.cell = tile.firstLane + pass.k0 / step * step;
    p.pass.term = unsigned(tile.term);
    p.pass.point = tile.loops;
    p.pass.laneLoop = laneLoop(c, kernel, kernel.terms[tile.term].a);
    p.pass.firstLane = tile.firstLane + pass.k0;
    p.pass.endLane = tile.firstLane + pass.k1;
    planned.push_back(std::move(p));
  }
  return planned;
}

void Contraction::fillTile(const Tile &tile, std::vector<uint8_t> &bytes) const {
  const Term &term = kernel.terms[tile.term];
  const Tensor &w = c.tensor(term.w.tensor);
  const unsigned width = byteWidth(w.type), perGroup = m.mxm.columnsPerInstall,
                 groups = columnGroups();
  std::optional<unsigned> contracted = laneLoop(c, kernel, term.a);
  const forms::AffineIndex &lanes = term.a.index[c.tensor(term.a.tensor).laneDim];
  std::vector<int64_t> elementPitch(w.shape.size(), 1);
  for (size_t d = w.shape.size(); d-- > 1;)
    elementPitch[d - 1] = elementPitch[d] * w.shape[d];
  int64_t step = 0; // elements of w from one contracted lane to the next
  for (size_t d = 0; contracted && d < w.shape.size(); ++d)
    step += elementPitch[d] * coefficient(term.w.index[d], *contracted);
  for (int64_t n = 0; n < domain.lanes; ++n) {
    Domain point = domain;
    point.loops = tile.loops;
    const std::vector<int64_t> loops = loopsAtLane(point, n);
    const int64_t firstLane = evaluate(lanes, loops); // of a, for this column
    int64_t element = 0;
    for (size_t d = 0; d < w.shape.size(); ++d)
      element += elementPitch[d] * evaluate(term.w.index[d], loops);
    const int64_t extent = contracted ? kernel.loops[*contracted].extent : 1;
    const int64_t from = std::max<int64_t>(firstLane, tile.firstLane + tile.k0);
    const int64_t to = std::min<int64_t>(firstLane + extent, tile.firstLane + tile.k1);
    for (int64_t x = from; x < to; ++x) {
      const int64_t e = w.splat ? 0 : element + (x - firstLane) * step;
      const size_t k = size_t(x - tile.firstLane);
      for (unsigned b = 0; b < width; ++b)
        bytes[((size_t(n % perGroup) * width + b) * groups + size_t(n / perGroup)) * tile.k1 + k] =
            w.data[size_t(e) * width + b];
    }
  }
}

void Contraction::addInstalls(Piece &piece, Piece::StreamVar stream, unsigned planes,
                              unsigned buffer) {
  for (unsigned p = 0; p < planes; ++p) {
    Instruction i = instruction(Opcode::Install, dense(columnGroups(), 1));
    i.s0 = 1;
    i.buffer = uint8_t(buffer);
    i.provenance = domain.provenance;
    Piece::BurstId burst = piece.add(
        domain.pe, {UnitKind::MxmInstall, state.worker.hemisphere, state.worker.plane + p}, i,
        Cycle(p) * columnGroups());
    piece.tap(burst, ProducerOf::A, stream, 0, m.mxm.columnsPerInstall, m.lastPosition());
  }
  ++counts.installs;
}

Expected<WeightTile> Contraction::store(const Tile &tile) {
  return c.weightTile(tile.key, state.worker.pe, state.worker.hemisphere, columnGroups(),
                      m.mxm.format(typeOf(tile))->planes, tile.k1,
                      [&](std::vector<uint8_t> &bytes) { fillTile(tile, bytes); });
}

Status Contraction::installConstant(const Tile &tile, unsigned buffer, Cycle from) {
  const unsigned planes = m.mxm.format(typeOf(tile))->planes;
  const Worker &worker = state.worker;
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
  addInstalls(piece, stream, planes, buffer);
  if (Expected<Cycle> start = piece.place(from); !start)
    return start.takeError();
  return Success{};
}

/// Does each step of the loop lead to the next column of a column copy?
bool stepsByColumn(const TensorLayout &layout, const Access &w, unsigned loop) {
  int64_t step = 0;
  for (size_t d = 0; d < w.index.size(); ++d)
    step += layout.columnPitch[d] * coefficient(w.index[d], loop);
  return step == 1;
}

/// Weights made at run time: rows of a tensor, column n of the tile is column base + n of the copy.
Status Contraction::installRows(const Tile &tile, unsigned buffer, Cycle from) {
  const Term &term = kernel.terms[tile.term];
  const Tensor &w = c.tensor(term.w.tensor);
  const TensorLayout &layout = c.layouts[term.w.tensor];
  const Worker &worker = state.worker;
  const Copy *copy = c.columnCopy(term.w.tensor, worker.pe, worker.hemisphere);
  const int64_t lane = evaluate(term.w.index[w.laneDim], tile.loops) +
                       (tile.firstLane + tile.k0 -
                        evaluate(term.a.index[c.tensor(term.a.tensor).laneDim], tile.loops));
  const unsigned wTile = layout.tileOf(lane);
  if (!copy || lane - layout.tiles[wTile].start != int64_t(tile.k0) ||
      !stepsByColumn(layout, term.w, *work.roles.lane))
    return Error{"kernel '" + kernel.name + "': '" + w.name + "' does not lie as weights for '" +
                 c.tensor(term.a.tensor).name + "': lanes or columns do not match"};
  const Columns &columns = copy->columnTiles[wTile];
  const unsigned width = m.mxm.columnsPerInstall, planes = m.mxm.format(typeOf(tile))->planes;
  const int64_t base = layout.columnOf(rowOf(layout, term.w, tile.loops));
  Piece piece(c.program);
  Piece::StreamVar stream = piece.stream(worker.pe, worker.hemisphere, Direction::Outward, width);
  for (unsigned p = 0; p < planes; ++p)
    for (unsigned s = 0; s < width; ++s) {
      const unsigned place = unsigned(base + s + int64_t(width / 2) * p) % width;
      const unsigned slice = columns.slices[place];
      Instruction i = instruction(Opcode::Read, dense(columnGroups(), 1));
      i.address = columns.addresses[place] + p * columns.groups + unsigned((base + s) / width);
      i.s0 = 1;
      i.tensor = columns.regions[place];
      i.provenance = domain.provenance;
      Piece::BurstId burst =
          piece.add(worker.pe, {UnitKind::Mem, worker.hemisphere, slice}, i,
                    Cycle(p) * columnGroups() - c.program.timing.readTo(slice, m.lastPosition()));
      piece.feed(burst, 0, stream, s, 1, m.position(slice), c.program.timing.readInjects());
    }
  addInstalls(piece, stream, planes, buffer);
  if (Expected<Cycle> start = piece.place(from); !start)
    return start.takeError();
  return Success{};
}

/// Which buffer holds the tile, after installing it if none does.
Expected<unsigned> Contraction::install(const Tile &tile, Cycle from) {
  for (unsigned b = 0; b < state.resident.size(); ++b)
    if (state.resident[b] == tile.key) {
      state.lastBuffer = b;
      return b;
    }
  const unsigned buffer = (state.lastBuffer + 1) % m.mxm.buffers;
  Status done =
      isConstant(tile) ? installConstant(tile, buffer, from) : installRows(tile, buffer, from);
  if (!done)
    return done.takeError();
  state.resident[buffer] = tile.key;
  state.lastBuffer = buffer;
  return buffer;
}

/// Activations through a tile into accumulator rows; the last sweep emits and runs the epilogue.
Expected<Cycle> Contraction::sweep(const Pass &pass, unsigned buffer, unsigned row, bool first,
                                   bool last, Cycle from, unsigned passes) {
  const Tile &tile = tiles[pass.tile];
  const Access &a = kernel.terms[tile.term].a;
  const ElementType type = typeOf(tile);
  const Worker &worker = state.worker;
  const MxmFormatSpec *format = m.mxm.format(type);
  const Flow &all = domain.flow;
  const bool whole = first || last || pass.full;
  const Flow flow = whole ? all
                          : Flow{unsigned(pass.box.n0), unsigned(pass.box.n1), all.c0,
                                 std::max<Cycle>(pass.box.n0, all.n0 == 1 ? all.c1 : 1)};
  const Copy *copy = nullptr;
  for (unsigned which = worker.plane / format->planes; !copy; --which) { // fewer copies are shared
    copy = c.rowCopy(a.tensor, worker.pe, worker.hemisphere, which);
    if (!copy && which == 0)
      return Error{"kernel '" + kernel.name + "': '" + c.tensor(a.tensor).name +
                   "' has no copy where it is needed"};
  }
  Piece piece(c.program);
  Piece::StreamVar stream =
      piece.stream(worker.pe, worker.hemisphere, Direction::Outward, byteWidth(type));
  Domain tap = domain;
  tap.loops = tile.loops;
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
  activate.g1 = uint16_t(columnGroups());
  activate.provenance = domain.provenance;
  Piece::BurstId act =
      piece.add(worker.pe, {UnitKind::MxmActivate, worker.hemisphere, worker.plane}, activate, 0);
  piece.tap(act, ProducerOf::A, stream, 0, byteWidth(type), m.lastPosition());
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
  if (last) {
    Piece::StreamVar out = piece.stream(worker.pe, worker.hemisphere, Direction::Inward, 4);
    piece.feed(acc, 0, out, 0, 4, m.lastPosition(), c.program.timing.accumulateToStream());
    if (Status s = addEpilogue(c, piece, domain, {{out, c.program.timing.activateToAlu()}}, 0,
                               worker.hemisphere, worker.plane / format->planes, passes);
        !s)
      return s.takeError();
    if (piece.clashes() && passes < kMostPasses)
      return sweep(pass, buffer, row, first, last, from, passes + 1);
  }
  counts.vectors += flow.n0 * flow.n1;
  if (last)
    counts.emitted += flow.n0 * flow.n1;
  return piece.place(from);
}

Status Contraction::run() {
  const unsigned rows = domain.flow.n0 * domain.flow.n1;
  if (rows > m.mxm.accumulatorRows)
    return Error{"kernel '" + kernel.name + "' needs " + std::to_string(rows) +
                 " accumulator rows at once, the plane has " +
                 std::to_string(m.mxm.accumulatorRows)};
  if (Status s = planTiles(); !s)
    return s;
  if (Status s = planPasses(); !s)
    return s;
  trimPasses();
  if (state.nextAccumulator + rows > m.mxm.accumulatorRows)
    state.nextAccumulator = 0;
  const unsigned row = state.nextAccumulator;
  state.nextAccumulator += rows;
  Cycle from = 0;
  for (size_t p = 0; p < passes.size(); ++p) {
    Expected<unsigned> buffer = install(tiles[passes[p].tile], 0);
    if (!buffer)
      return buffer.takeError();
    Expected<Cycle> start = sweep(passes[p], *buffer, row, p == 0, p + 1 == passes.size(), from);
    if (!start)
      return start.takeError();
    from = *start;
  }
  return Success{};
}

Status Contraction::storeWeights() {
  if (Status s = planTiles(); !s)
    return s;
  if (Status s = planPasses(); !s)
    return s;
  trimPasses();
  for (const Pass &pass : passes)
    if (isConstant(tiles[pass.tile]))
      if (Expected<WeightTile> tile = store(tiles[pass.tile]); !tile)
        return tile.takeError();
  return Success{};
}

Status Contraction::forEachWeightTile(const std::function<void(const std::string &, unsigned)> &f) {
  if (Status s = planTiles(); !s)
    return s;
  if (Status s = planPasses(); !s)
    return s;
  trimPasses();
  for (const Pass &pass : passes)
    if (isConstant(tiles[pass.tile]))
      f(tiles[pass.tile].key, columnGroups() * m.mxm.format(typeOf(tiles[pass.tile]))->planes);
  return Success{};
}

} // namespace

Status forEachWeightTile(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                         const Share &share, const Worker &worker,
                         const std::function<void(const std::string &, unsigned)> &f) {
  WorkerState state;
  state.worker = worker;
  ContractionCounts counts;
  return Contraction(c, kernel, kernelIndex, work, share, state, counts, 0).forEachWeightTile(f);
}

Expected<std::vector<forms::Pass>> passesOf(Context &c, const Kernel &kernel, size_t kernelIndex,
                                            const Work &work) {
  std::vector<PlannedPass> all;
  const bool alike = !hasOwnLanes(c, kernel);
  const size_t tiles = alike ? 1 : work.tiles.size(), instances = alike ? 1 : work.instances.size();
  for (size_t n = 0; n < tiles * instances; ++n) {
    WorkerState state;
    ContractionCounts counts;
    Expected<std::vector<PlannedPass>> passes =
        Contraction(c, kernel, kernelIndex, work, Share{n / tiles, n % tiles, 0, 1}, state, counts,
                    0)
            .plannedPasses();
    if (!passes)
      return passes.takeError();
    // They differ at most in which lanes of a they need: each column finds its own.
    if (alike)
      all = std::move(*passes);
    for (const PlannedPass &p : alike ? std::vector<PlannedPass>() : *passes) {
      auto at = all.end();
      for (auto q = all.begin(); q != all.end(); ++q)
        if (q->tap == p.tap && (at = q)->cell == p.cell)
          break;
      if (at == all.end() || at->cell != p.cell) {
        all.insert(at == all.end() ? at : at + 1, p);
        continue;
      }
      at->pass.firstLane = std::min(at->pass.firstLane, p.pass.firstLane);
      at->pass.endLane = std::max(at->pass.endLane, p.pass.endLane);
    }
  }
  std::vector<forms::Pass> passes;
  for (PlannedPass &p : all)
    passes.push_back(std::move(p.pass));
  return passes;
}

Status storeWeightsOf(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                      const Share &share, const Worker &worker) {
  WorkerState state;
  state.worker = worker;
  ContractionCounts counts;
  return Contraction(c, kernel, kernelIndex, work, share, state, counts, 0).storeWeights();
}

Status contract(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                const Share &share, WorkerState &state, ContractionCounts &counts,
                uint32_t provenance) {
  Status done = Contraction(c, kernel, kernelIndex, work, share, state, counts, provenance).run();
  if (!done && done.error().find("kernel '") == std::string::npos)
    return Error{"kernel '" + kernel.name + "': " + done.error()};
  return done;
}

} // namespace millrace::grid
