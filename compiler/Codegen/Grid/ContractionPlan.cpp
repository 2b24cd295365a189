// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/ContractionPlan.h"

#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>

namespace millrace::grid {

using forms::Term;

ElementType contractedType(const Context &c, const Kernel &kernel) {
  return c.tensor(kernel.terms.front().a.tensor).type;
}

std::vector<Worker> workersOf(const Context &c, unsigned pe, ElementType type) {
  std::vector<Worker> workers;
  const MxmFormatSpec *format = c.machine.mxm.format(type);
  const unsigned planes = c.used.planes ? c.used.planes : c.machine.mxm.planes;
  for (unsigned plane = 0; format && plane + format->planes <= planes; plane += format->planes)
    for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
      workers.push_back({pe, h, plane});
  return workers;
}

int64_t longestShare(const Context &c, const Work &work) {
  const int64_t rows = c.machine.mxm.accumulatorRows / c.bands;
  return std::max<int64_t>(1, std::min(rows, work.burstRows.value_or(rows)) / work.stripRows);
}

namespace {

/// The contracted loop along the lanes of a; none when a single lane is contracted.
std::optional<unsigned> laneLoop(const Context &c, const Kernel &kernel, const Access &a) {
  return unitLoop(kernel, a.index[c.tensor(a.tensor).laneDim], forms::LoopKind::Contracted);
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

} // namespace

ContractionPlan::ContractionPlan(Context &c, const Kernel &kernel, size_t kernelIndex,
                                 const Work &work, const Share &share, const Worker &worker,
                                 uint32_t provenance)
    : c(c), m(c.machine), kernel(kernel), kernelIndex(kernelIndex), work(work), share(share),
      worker(worker), domain(domainOf(work, kernel, share, worker.pe, provenance)) {}

void ContractionPlan::addTiles(size_t index, const std::vector<int64_t> &loops,
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
    if (tile.k0 < tile.k1) // else the tap's lanes lie behind the last one
      tiles.push_back(std::move(tile));
  }
}

/// Calls f(column, first lane of the vector, lanes, first element of w, elements from one lane to
/// the next) for what every column of the tile multiplies, until f returns false.
template <class F> void ContractionPlan::forEachColumn(const Tile &tile, F f) const {
  const Term &term = kernel.terms[tile.term];
  const Tensor &w = c.tensor(term.w.tensor);
  std::optional<unsigned> contracted = laneLoop(c, kernel, term.a);
  const forms::AffineIndex &lanes = term.a.index[c.tensor(term.a.tensor).laneDim];
  std::vector<int64_t> elementPitch(w.shape.size(), 1);
  for (size_t d = w.shape.size(); d-- > 1;)
    elementPitch[d - 1] = elementPitch[d] * w.shape[d];
  int64_t step = 0;
  for (size_t d = 0; contracted && d < w.shape.size(); ++d)
    step += elementPitch[d] * coefficient(term.w.index[d], *contracted);
  Domain point = domain;
  point.loops = tile.loops;
  for (int64_t n = 0; n < domain.lanes; ++n) {
    const std::vector<int64_t> loops = loopsAtLane(point, n);
    const int64_t firstLane = evaluate(lanes, loops); // of a, for this column
    int64_t element = 0;
    for (size_t d = 0; d < w.shape.size(); ++d)
      element += elementPitch[d] * evaluate(term.w.index[d], loops);
    const int64_t extent = contracted ? kernel.loops[*contracted].extent : 1;
    const int64_t from = std::max<int64_t>(firstLane, tile.firstLane + tile.k0);
    const int64_t to = std::min<int64_t>(firstLane + extent, tile.firstLane + tile.k1);
    if (from < to && !f(n, from - tile.firstLane, to - from,
                        w.splat ? 0 : element + (from - firstLane) * step, w.splat ? 0 : step))
      return;
  }
}

/// Equal keys: equal bytes for equal lanes and columns, whichever kernels take them. Of weights
/// made at run time each kernel has its own.
std::string ContractionPlan::keyOf(const Tile &tile) const {
  const std::string lanes = tile.inRow > 1 ? "." + std::to_string(tile.k0) : "";
  const std::string name = "k" + std::to_string(kernelIndex) + ".i" +
                           std::to_string(share.instance) + ".n" + std::to_string(share.tile) +
                           ".t" + std::to_string(tile.term) + tile.tap + ".c" +
                           std::to_string(tile.aTile) + lanes;
  return isConstant(tile) ? c.keyOfContent(name, [&] { return contentOf(tile); }) : name;
}

std::vector<WeightRun> ContractionPlan::runsOf(const Tile &tile) const {
  std::vector<WeightRun> runs;
  forEachColumn(tile, [&](int64_t n, int64_t lane, int64_t lanes, int64_t element, int64_t step) {
    if (!runs.empty()) {
      WeightRun &run = runs.back();
      const int64_t laneStep = run.columns == 1 ? lane - run.lane : run.laneStep,
                    elementStep = run.columns == 1 ? element - run.element : run.elementStep;
      if (run.first + run.columns == n && run.lanes == lanes && run.step == step &&
          run.lane + run.columns * laneStep == lane &&
          run.element + run.columns * elementStep == element) {
        run.laneStep = laneStep;
        run.elementStep = elementStep;
        ++run.columns;
        return true;
      }
    }
    runs.push_back({n, 1, lane, lanes, element, step});
    return true;
  });
  return runs;
}

/// Which elements of which bytes the columns multiply.
std::string ContractionPlan::contentOf(const Tile &tile) const {
  const unsigned w = kernel.terms[tile.term].w.tensor;
  std::string content = std::to_string(c.numberOfData(w)) + ":" + nameOf(typeOf(tile)) + ":" +
                        std::to_string(tile.k1) + "x" + std::to_string(domain.lanes);
  if (tile.inRow > 1)
    content += ":" + std::to_string(tile.k0);
  for (const WeightRun &r : runsOf(tile))
    for (int64_t part :
         {r.first, r.columns, r.lane, r.lanes, r.element, r.step, r.laneStep, r.elementStep})
      content += "," + std::to_string(part);
  return content;
}

void ContractionPlan::planTiles() {
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
  if (tiles.empty()) { // all lanes that are summed lie outside: a sum of zeros
    Tile none;
    none.loops = domain.loops;
    none.k1 = 1;
    tiles.push_back(std::move(none));
  }
  if (c.sharesRows && !work.roles.heads)
    cutTiles();
  for (Tile &tile : tiles) {
    tile.key = keyOf(tile);
    if (tile.groups = groupsOf(tile, tile.k0, tile.k1); tile.groups.empty())
      tile.groups = {0, columnGroups()}; // what no other pass sums needs one that multiplies zeros
  }
}

Status ContractionPlan::planPasses() {
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
      passes.push_back(
          {t, k, end, *box, padded || box->covers(domain.flow), 0, 0, columnGroups(), 0});
      k = end;
    }
  }
  orderPasses();
  return Success{};
}

/// Groups of columns from the first to the last whose weights in these lanes are not all zero.
/// Bands have corners of zeros, and so have groups of channels.
ColumnGroups ContractionPlan::groupsOf(const Tile &tile, unsigned k0, unsigned k1) const {
  if (!isConstant(tile))
    return {0, columnGroups()};
  return c.groupsOf({tile.key, k0, k1}, [&] {
    const Tensor &w = c.tensor(kernel.terms[tile.term].w.tensor);
    const unsigned width = byteWidth(w.type);
    const std::vector<WeightRun> runs = runsOf(tile);
    const auto isZero = [&](const WeightRun &run, int64_t column) {
      const int64_t lane = run.lane + column * run.laneStep,
                    element = run.element + column * run.elementStep;
      for (int64_t k = std::max<int64_t>(0, k0 - lane), to = std::min(run.lanes, k1 - lane); k < to;
           ++k) {
        const auto first = w.data.begin() + (element + k * run.step) * width;
        if (std::any_of(first, first + width, [](uint8_t byte) { return byte != 0; }))
          return false;
      }
      return true;
    };
    const unsigned perGroup = m.mxm.columnsPerInstall;
    for (auto run = runs.begin(); run != runs.end(); ++run)
      for (int64_t column = 0; column < run->columns; ++column) {
        if (isZero(*run, column))
          continue;
        const auto from = unsigned(run->first + column) / perGroup;
        for (auto last = runs.rbegin();; ++last)
          for (int64_t at = last->columns; at-- > 0;)
            if (!isZero(*last, at))
              return ColumnGroups{from, unsigned(last->first + at) / perGroup + 1};
      }
    return ColumnGroups{};
  });
}

/// Cuts the passes between two tiles, where their halves are evenest: for all shares alike, since
/// sums in fp32 depend on it.
void ContractionPlan::splitPasses() {
  const auto unevenness = [&](size_t at) {
    return std::max(at, passes.size() - at) - std::min(at, passes.size() - at);
  };
  size_t cut = passes.size();
  for (size_t at = 1; at < passes.size(); ++at)
    if (passes[at].tile != passes[at - 1].tile && unevenness(at) < unevenness(cut))
      cut = at;
  for (size_t at = cut; at < passes.size(); ++at)
    passes[at].half = 1;
}

/// The first pass writes every accumulator row and the last one emits every row, so both sweep all
/// of them, padded with constant rows if need be. What lies outside altogether adds nothing, nor do
/// products with zeros.
void ContractionPlan::trimPasses() {
  const Pass any = passes.front();
  for (Pass &pass : passes) {
    const ColumnGroups its = groupsOf(tiles[pass.tile], pass.k0, pass.k1);
    pass.g0 = its.from;
    pass.g1 = its.to;
  }
  std::erase_if(passes, [](const Pass &p) { return p.g0 == p.g1; });
  if (passes.empty())
    passes.push_back(any);
  passes.front().full = passes.back().full = true;
  passes.erase(std::remove_if(passes.begin(), passes.end(),
                              [](const Pass &p) { return !p.full && p.box.empty(); }),
               passes.end());
}

/// One pass becomes one per head of the tile, each through the head's own columns; the others
/// receive zeros. A head's sums are added in the order of the passes.
void ContractionPlan::sweepHeads() {
  const int64_t start = work.tiles[share.tile].start;
  const std::vector<Head> heads = headsOf(kernel, work, start, domain.lanes);
  std::vector<Pass> all;
  for (Pass pass : passes)
    for (const Head &head : heads) {
      pass.full = true; // heads lie inside (areHeads)
      pass.group = head.number;
      pass.g0 = unsigned(head.from) / m.mxm.columnsPerInstall;
      pass.g1 = unsigned(head.to) / m.mxm.columnsPerInstall;
      all.push_back(pass);
    }
  passes = std::move(all);
}

/// Does the tap lie inside its tensor for every row of the kernel?
bool ContractionPlan::isAlwaysInside(const Tile &tile) const {
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
void ContractionPlan::orderPasses() {
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

/// Bytes [slice][plane][group][lane] of the tile.
ConstantData::Writer ContractionPlan::writerOf(const Tile &tile) const {
  const Tensor &w = c.tensor(kernel.terms[tile.term].w.tensor);
  return [runs = runsOf(tile), &w, width = byteWidth(w.type), perGroup = m.mxm.columnsPerInstall,
          groups = tile.groups, lanes = tile.k1](uint8_t *bytes) {
    for (const WeightRun &run : runs)
      for (int64_t column = 0; column < run.columns; ++column) {
        const int64_t n = run.first + column - int64_t(groups.from * perGroup),
                      lane = run.lane + column * run.laneStep,
                      element = run.element + column * run.elementStep;
        if (n < 0 || n >= int64_t(groups.size() * perGroup))
          continue;
        for (unsigned b = 0; b < width; ++b) {
          uint8_t *to =
              bytes +
              ((size_t(n % perGroup) * width + b) * groups.size() + size_t(n / perGroup)) * lanes +
              lane;
          const uint8_t *from = w.data.data() + size_t(element) * width + b;
          for (int64_t k = 0; k < run.lanes; ++k)
            to[k] = from[k * run.step * width];
        }
      }
  };
}

Expected<WeightTile> ContractionPlan::store(Tile &tile) {
  const MxmFormatSpec &format = *m.mxm.format(typeOf(tile));
  const auto writer = [&] { return writerOf(tile); };
  const WeightShape shape{tile.groups.size(), format.planes, tile.k0, tile.k1, format.lanesPerPass};
  const std::string &name = c.tensor(kernel.terms[tile.term].w.tensor).name;
  const Installer by{kernelIndex, worker};
  Expected<WeightTile> stored = tile.inRow > 1
                                    ? c.weightTileBeside(tile.key, name, by, shape, writer)
                                    : c.weightTile(tile.key, name, by, shape, writer);
  if (stored)
    tile.shift = stored->shift;
  return stored;
}

Status ContractionPlan::make(std::optional<unsigned> half, bool trimmed) {
  planTiles();
  if (Status s = planPasses(); !s)
    return s;
  if (half) {
    splitPasses();
    std::erase_if(passes, [&](const Pass &pass) { return pass.half != *half; });
  }
  if (trimmed)
    trimPasses();
  if (trimmed && work.roles.heads)
    sweepHeads();
  return Success{};
}

Status forEachWeightTile(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                         const Share &share, const Worker &worker, std::optional<unsigned> half,
                         const std::function<void(const std::string &, unsigned)> &f) {
  ContractionPlan plan(c, kernel, kernelIndex, work, share, worker, 0);
  if (Status s = plan.make(half); !s)
    return s;
  for (const Pass &pass : plan.passes)
    if (const Tile &tile = plan.tiles[pass.tile]; plan.isConstant(tile))
      f(tile.key,
        (tile.groups.size() * plan.m.mxm.format(plan.typeOf(tile))->planes + tile.inRow - 1) /
            tile.inRow);
  return Success{};
}

Status storeWeightsOf(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                      const Share &share, const Worker &worker, std::optional<unsigned> half) {
  ContractionPlan plan(c, kernel, kernelIndex, work, share, worker, 0);
  if (Status s = plan.make(half); !s)
    return s;
  for (const Pass &pass : plan.passes)
    if (plan.isConstant(plan.tiles[pass.tile]))
      if (Expected<WeightTile> tile = plan.store(plan.tiles[pass.tile]); !tile)
        return tile.takeError();
  return Success{};
}

namespace {

/// A pass as Evaluate knows it, and what it has in common with those of other result tiles.
struct PlannedPass {
  std::pair<size_t, std::string> tap; ///< term and tap
  int64_t cell = 0;                   ///< first of the lanes of a that could be in one pass
  forms::Pass pass;
};

Expected<std::vector<PlannedPass>> plannedPasses(ContractionPlan plan,
                                                 std::optional<unsigned> half) {
  if (Status s = plan.make(half, /*trimmed=*/false); !s)
    return s.takeError();
  std::vector<PlannedPass> planned;
  for (const Pass &pass : plan.passes) {
    const Tile &tile = plan.tiles[pass.tile];
    const unsigned step = plan.m.mxm.format(plan.typeOf(tile))->lanesPerPass;
    PlannedPass p;
    p.tap = {tile.term, tile.tap};
    p.cell = tile.firstLane + pass.k0 / step * step;
    p.pass.term = unsigned(tile.term);
    p.pass.point = tile.loops;
    p.pass.laneLoop = laneLoop(plan.c, plan.kernel, plan.kernel.terms[tile.term].a);
    p.pass.firstLane = tile.firstLane + pass.k0;
    p.pass.endLane = tile.firstLane + pass.k1;
    p.pass.half = pass.half;
    planned.push_back(std::move(p));
  }
  return planned;
}

std::vector<forms::Pass> passesOf(std::vector<PlannedPass> planned) {
  std::vector<forms::Pass> passes;
  for (PlannedPass &p : planned)
    passes.push_back(std::move(p.pass));
  return passes;
}

} // namespace

Expected<bool> canSplitK(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work) {
  if (kernel.terms.empty() || hasOwnLanes(c, kernel) || work.roles.heads)
    return false;
  for (const Term &term : kernel.terms) // what is made at run time is copied as a whole
    if (c.tensor(term.w.tensor).role != forms::TensorRole::Constant)
      return false;
  forms::EpilogueNeeds needs = forms::epilogueNeeds(kernel, c.graph, c.machine);
  ++needs.alus; // adds the sums
  ContractionPlan plan(c, kernel, kernelIndex, work, Share{0, 0, 0, 1}, Worker{}, 0);
  if (Status s = plan.make(1, /*trimmed=*/false); !s)
    return s.takeError();
  return !plan.passes.empty() && needs.fit(c.machine);
}

Expected<std::vector<forms::Pass>> passesOf(Context &c, const Kernel &kernel, size_t kernelIndex,
                                            const Work &work, bool splitK) {
  std::vector<PlannedPass> all;
  if (splitK) {
    for (const unsigned half : {0u, 1u}) {
      Expected<std::vector<PlannedPass>> its = plannedPasses(
          ContractionPlan(c, kernel, kernelIndex, work, Share{0, 0, 0, 1}, Worker{}, 0), half);
      if (!its)
        return its.takeError();
      std::move(its->begin(), its->end(), std::back_inserter(all));
    }
    return passesOf(std::move(all));
  }
  const bool alike = !hasOwnLanes(c, kernel);
  const size_t tiles = alike ? 1 : work.tiles.size(), instances = alike ? 1 : work.instances.size();
  for (size_t n = 0; n < tiles * instances; ++n) {
    Expected<std::vector<PlannedPass>> passes =
        plannedPasses(ContractionPlan(c, kernel, kernelIndex, work,
                                      Share{n / tiles, n % tiles, 0, 1}, Worker{}, 0),
                      std::nullopt);
    if (!passes)
      return passes.takeError();
    // They differ at most in which lanes of a they need: each column finds its own.
    if (alike)
      all = std::move(*passes);
    for (const PlannedPass &p : alike ? std::vector<PlannedPass>() : *passes) {
      // Within a tap each share takes cells from the first lanes to the last.
      auto at = std::find_if(all.begin(), all.end(),
                             [&](const PlannedPass &q) { return q.tap == p.tap; });
      while (at != all.end() && at->tap == p.tap && at->cell < p.cell)
        ++at;
      if (at == all.end() || at->tap != p.tap || at->cell != p.cell) {
        all.insert(at, p);
        continue;
      }
      at->pass.firstLane = std::min(at->pass.firstLane, p.pass.firstLane);
      at->pass.endLane = std::max(at->pass.endLane, p.pass.endLane);
    }
  }
  return passesOf(std::move(all));
}

} // namespace millrace::grid
