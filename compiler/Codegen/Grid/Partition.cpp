// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Partition.h"

#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <array>
#include <set>

namespace millrace::grid {
namespace {

/// PEs in an order in which neighbours are linked: rows of the mesh back and forth.
std::vector<unsigned> snake(const Machine &m) {
  std::vector<unsigned> order;
  for (unsigned r = 0; r < m.fabric.rows; ++r)
    for (unsigned k = 0; k < m.fabric.columns; ++k)
      order.push_back(r * m.fabric.columns + (r % 2 ? m.fabric.columns - 1 - k : k));
  return order;
}

/// Bytes of weights that a PE needs to compute every lane tile of the kernel, in both hemispheres.
uint64_t weightBytes(const Context &c, const Kernel &kernel) {
  uint64_t bytes = 0;
  for (const forms::Term &t : kernel.terms) {
    const Tensor &w = c.tensor(t.w.tensor);
    uint64_t elements = 1;
    for (int64_t d : w.shape)
      elements *= uint64_t(d);
    bytes += elements * byteWidth(w.type);
  }
  return bytes * kHemispheres;
}

/// Which kernels' weights every PE holds: small ones, the smallest first, within a third of a PE's
/// memory.
std::vector<bool> everywhereOf(const Context &c) {
  const uint64_t memory = uint64_t(c.machine.rowsPerSlice()) * c.machine.memory.slices *
                          kHemispheres * c.machine.lanes();
  std::vector<std::pair<uint64_t, size_t>> bySize;
  for (size_t k = 0; k < c.graph.kernels.size(); ++k)
    bySize.push_back({weightBytes(c, c.graph.kernels[k]), k});
  std::sort(bySize.begin(), bySize.end());
  std::vector<bool> everywhere(c.graph.kernels.size(), false);
  uint64_t sum = 0;
  for (auto [bytes, k] : bySize) {
    sum += bytes;
    everywhere[k] = bytes <= memory / 24 && sum <= memory / 3;
  }
  return everywhere;
}

std::vector<std::vector<Share>> deal(const Work &w, const std::vector<unsigned> &order,
                                     bool everywhere) {
  const int64_t pes = int64_t(order.size());
  std::vector<std::vector<Share>> shares(order.size());
  const bool running = !w.roles.running.empty();
  if (!running && everywhere && w.strips >= pes) {
    for (int64_t p = 0; p < pes; ++p) {
      const int64_t from = w.strips * p / pes, to = w.strips * (p + 1) / pes;
      for (size_t i = 0; i < w.instances.size(); ++i)
        for (size_t t = 0; t < w.tiles.size(); ++t)
          shares[order[size_t(p)]].push_back({i, t, from, to - from});
    }
    return shares;
  }
  const int64_t whole = running ? w.strips : 1, units = w.units() / whole;
  for (int64_t p = 0; p < pes; ++p)
    shares[order[size_t(p)]] = sharesOf(w, units * p / pes * whole, units * (p + 1) / pes * whole,
                                        std::max<int64_t>(w.strips, 1));
  return shares;
}

/// Calls f(row) for every row of an access over a domain that lies inside its tensor.
template <class F> void forEachRow(const Context &c, const Access &access, const Domain &d, F f) {
  Expected<Box> box = insideOf(c, access, d, d.flow);
  if (!box || box->empty())
    return;
  const RowPattern rows = rowsOf(c.layouts[access.tensor], access, d);
  const int64_t n0 = rows.step0 ? box->n0 : 1, n1 = rows.step1 ? box->n1 : 1;
  for (int64_t i1 = 0; i1 < n1; ++i1)
    for (int64_t i0 = 0; i0 < n0; ++i0)
      f(rows.row + (box->from1 + i1) * rows.step1 + (box->from0 + i0) * rows.step0);
}

/// Every lane tile of `tensor` that lanes [from, to) touch.
template <class F> void forEachTile(const TensorLayout &layout, int64_t from, int64_t to, F f) {
  for (unsigned t = layout.tileOf(from); t < layout.tiles.size() && layout.tiles[t].start < to; ++t)
    f(t);
}

Domain domainForRows(const Work &w, const Kernel &kernel, const Share &share) {
  Domain d = domainOf(w, kernel, share, 0, 0);
  if (!w.roles.running.empty()) { // the running loop is walked too
    d.loop1 = d.loop0;
    d.loop0.reset();
    d.flow = Flow{1, d.flow.n0, 1, 1};
  }
  return d;
}

void forEachRead(const Context &c, const Kernel &kernel, const Work &w, const Share &share,
                 const std::function<void(unsigned, unsigned, int64_t)> &f) {
  const Domain d = domainForRows(w, kernel, share);
  for (const Access &o : kernel.operands) {
    const Tensor &t = c.tensor(o.tensor);
    if (t.role == forms::TensorRole::Constant)
      continue;
    const unsigned tile = c.layouts[o.tensor].tileOf(evaluate(o.index[t.laneDim], d.loops));
    forEachRow(c, o, d, [&](int64_t row) { f(o.tensor, tile, row); });
  }
  for (const forms::Term &term : kernel.terms) {
    for (const Access *a : {&term.a, &term.w}) {
      const Tensor &t = c.tensor(a->tensor);
      const TensorLayout &layout = c.layouts[a->tensor];
      if (t.role == forms::TensorRole::Constant)
        continue;
      if (a == &term.w) { // installed from a copy of all columns
        for (unsigned k = 0; k < layout.tiles.size(); ++k)
          for (int64_t row = 0; row < layout.rows; ++row)
            f(a->tensor, k, row);
        continue;
      }
      std::vector<std::vector<int64_t>> points{d.loops};
      int64_t lanes = 1;
      for (unsigned l : w.roles.contracted) {
        if (coefficient(a->index[t.laneDim], l)) {
          lanes += (kernel.loops[l].extent - 1) * coefficient(a->index[t.laneDim], l);
          continue;
        }
        if (!forms::usesLoop(*a, l)) // another term's
          continue;
        std::vector<std::vector<int64_t>> next;
        for (const auto &point : points)
          for (int64_t v = 0; v < kernel.loops[l].extent; ++v) {
            next.push_back(point);
            next.back()[l] = v;
          }
        points = std::move(next);
      }
      const int64_t from = evaluate(a->index[t.laneDim], d.loops);
      const int64_t to = evaluate(a->index[t.laneDim], loopsAtLane(d, d.lanes - 1)) + lanes;
      for (const auto &point : points) {
        Domain tap = d;
        tap.loops = point;
        forEachTile(layout, from, to, [&](unsigned k) {
          forEachRow(c, *a, tap, [&](int64_t row) { f(a->tensor, k, row); });
        });
      }
    }
  }
}

void mark(RowSet &set, const TensorLayout &layout, unsigned tile, int64_t row) {
  if (set.tiles.empty())
    set.tiles.assign(layout.tiles.size(), {});
  if (set.tiles[tile].empty())
    set.tiles[tile].assign(size_t(layout.rows), false);
  set.tiles[tile][size_t(row)] = true;
}

bool has(const RowSet &set, unsigned tile, int64_t row) {
  return !set.tiles.empty() && !set.tiles[tile].empty() && set.tiles[tile][size_t(row)];
}

} // namespace

bool RowSet::any() const {
  return std::any_of(tiles.begin(), tiles.end(),
                     [](const std::vector<bool> &rows) { return !rows.empty(); });
}

void forEachWritten(const Context &c, const Kernel &kernel, const Work &w, const Share &share,
                    const std::function<void(unsigned, unsigned, int64_t)> &f) {
  const Domain d = domainForRows(w, kernel, share);
  for (const forms::Result &r : kernel.results) {
    const Tensor &t = c.tensor(r.access.tensor);
    const unsigned tile =
        c.layouts[r.access.tensor].tileOf(evaluate(r.access.index[t.laneDim], d.loops));
    forEachRow(c, r.access, d, [&](int64_t row) { f(r.access.tensor, tile, row); });
  }
}

size_t teamOf(const Context &c, const Kernel &kernel) {
  return kernel.terms.empty() ? kHemispheres
                              : workersOf(c.machine, 0, contractedType(c, kernel)).size();
}

namespace {

/// Strips [from, to) of a list of shares, counted through, in pieces of at most `most`.
std::vector<Share> slice(const std::vector<Share> &all, int64_t from, int64_t to, int64_t most,
                         bool running) {
  std::vector<Share> mine;
  int64_t unit = 0;
  for (const Share &share : all) {
    const int64_t strips = running ? 1 : share.strips;
    const int64_t a = std::max(from - unit, int64_t(0)), b = std::min(to - unit, strips);
    unit += strips;
    if (a >= b)
      continue;
    if (running) {
      mine.push_back(share);
      continue;
    }
    const int64_t pieces = (b - a + most - 1) / most;
    for (int64_t p = 0; p < pieces; ++p) {
      const int64_t x = a + (b - a) * p / pieces, y = a + (b - a) * (p + 1) / pieces;
      mine.push_back({share.instance, share.tile, share.strip + x, y - x});
    }
  }
  return mine;
}

} // namespace

std::vector<Share> sharesOf(const Context &c, const Work &w, const Partition &partition, size_t k,
                            unsigned pe, size_t member, int64_t most) {
  const Kernel &kernel = c.graph.kernels[k];
  const bool running = !w.roles.running.empty();
  std::vector<Share> all = partition.shares[k][pe];
  int64_t team = int64_t(teamOf(c, kernel)), mine = int64_t(member);
  if (!partition.hemispheres.empty() && all.size() > 1) {
    std::vector<Share> here;
    for (size_t i = 0; i < all.size(); ++i)
      if (partition.hemispheres[k][pe][i] == Hemisphere(member % kHemispheres))
        here.push_back(all[i]);
    all = std::move(here);
    team /= kHemispheres;
    mine /= kHemispheres;
  }
  int64_t units = 0;
  for (const Share &share : all)
    units += running ? 1 : share.strips;
  return slice(all, units * mine / team, units * (mine + 1) / team, most, running);
}

namespace {

Expected<std::vector<uint64_t>> weightRowsOf(Context &c, const std::vector<Work> &works,
                                             const Partition &partition) {
  std::vector<uint64_t> rows(size_t(c.machine.pes()) * kHemispheres, 0);
  std::vector<std::set<std::string>> tiles(rows.size());
  for (size_t k = 0; k < works.size(); ++k) {
    const Kernel &kernel = c.graph.kernels[k];
    if (kernel.terms.empty())
      continue;
    const int64_t most = longestShare(c.machine, works[k]);
    for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
      std::set<std::string> *counted = &tiles[size_t(pe) * kHemispheres];
      const std::vector<Worker> team = workersOf(c.machine, pe, contractedType(c, kernel));
      for (size_t member = 0; member < team.size(); ++member) {
        const Hemisphere h = team[member].hemisphere;
        auto count = [&](const std::string &key, unsigned n) {
          if (counted[size_t(h)].insert(key).second)
            rows[size_t(pe) * kHemispheres + size_t(h)] += n;
        };
        for (const Share &share : sharesOf(c, works[k], partition, k, pe, member, most))
          if (Status s = forEachWeightTile(c, kernel, k, works[k], share, team[member], count); !s)
            return s.takeError();
      }
    }
  }
  return rows;
}

/// Gives every share of a kernel with constant weights to one hemisphere: to the one with fewer
/// columns of weights so far.
std::vector<std::vector<std::vector<Hemisphere>>>
dealHemispheres(const Context &c, const std::vector<Work> &works, const Partition &p) {
  std::vector<std::vector<std::vector<Hemisphere>>> dealt(works.size());
  std::vector<std::array<int64_t, kHemispheres>> load(c.machine.pes(), {0, 0});
  for (size_t k = 0; k < works.size(); ++k) {
    dealt[k].resize(c.machine.pes());
    int64_t depth = 0; // contracted points, for each column
    for (const forms::Term &t : c.graph.kernels[k].terms)
      depth += t.macs / std::max<int64_t>(1, works[k].units() * works[k].stripRows);
    for (unsigned pe = 0; pe < c.machine.pes(); ++pe)
      for (const Share &share : p.shares[k][pe]) {
        const size_t h = load[pe][0] <= load[pe][1] ? 0 : 1;
        load[pe][h] += depth * works[k].tiles[share.tile].count;
        dealt[k][pe].push_back(Hemisphere(h));
      }
  }
  return dealt;
}

/// Are there more rows of weights than 7/8 of a hemisphere?
bool tooMany(const Context &c, const std::vector<uint64_t> &rows) {
  const uint64_t all = uint64_t(c.machine.memory.slices) * c.machine.rowsPerSlice() /
                       c.machine.mxm.columnsPerInstall;
  return *std::max_element(rows.begin(), rows.end()) > all - all / 8;
}

} // namespace

Expected<Partition> partitionOf(Context &c, const std::vector<Work> &works) {
  Partition p;
  p.tensors.resize(c.graph.tensors.size());
  for (TensorRows &rows : p.tensors) {
    rows.owned.resize(c.machine.pes());
    rows.needed.resize(c.machine.pes());
  }
  const std::vector<unsigned> order = snake(c.machine);
  const std::vector<bool> everywhere = everywhereOf(c);
  for (size_t k = 0; k < works.size(); ++k) {
    const Kernel &kernel = c.graph.kernels[k];
    p.shares.push_back(deal(works[k], order, everywhere[k]));
    for (unsigned pe = 0; pe < c.machine.pes(); ++pe)
      for (const Share &share : p.shares[k][pe]) {
        forEachRead(c, kernel, works[k], share, [&](unsigned t, unsigned tile, int64_t row) {
          mark(p.tensors[t].needed[pe], c.layouts[t], tile, row);
        });
        forEachWritten(c, kernel, works[k], share, [&](unsigned t, unsigned tile, int64_t row) {
          mark(p.tensors[t].owned[pe], c.layouts[t], tile, row);
        });
      }
  }
  for (bool wholeTiles : {false, true}) {
    if (wholeTiles)
      p.hemispheres = dealHemispheres(c, works, p);
    Expected<std::vector<uint64_t>> rows = weightRowsOf(c, works, p);
    if (!rows)
      return rows.takeError();
    p.weightRows = std::move(*rows);
    if (!tooMany(c, p.weightRows))
      break;
  }
  return p;
}

std::vector<Transfer> transfersOf(const Partition &p, const Context &c, size_t kernel,
                                  unsigned tensor, const Work &work) {
  constexpr int64_t kLongest =
      128; // rows that travel as one burst: short enough to follow the rows' making
  std::vector<Transfer> transfers;
  const unsigned pes = c.machine.pes();
  for (unsigned from = 0; from < pes; ++from) {
    RowSet written;
    for (const Share &share : p.shares[kernel][from])
      forEachWritten(c, c.graph.kernels[kernel], work, share,
                     [&](unsigned t, unsigned tile, int64_t row) {
                       if (t == tensor)
                         mark(written, c.layouts[t], tile, row);
                     });
    for (unsigned tile = 0; tile < written.tiles.size(); ++tile)
      for (int64_t row = 0; row < int64_t(written.tiles[tile].size()); ++row) {
        if (!written.tiles[tile][size_t(row)])
          continue;
        std::vector<unsigned> to;
        for (unsigned pe = 0; pe < pes; ++pe)
          if (pe != from && has(p.tensors[tensor].needed[pe], tile, row))
            to.push_back(pe);
        if (to.empty())
          continue;
        Transfer *last = transfers.empty() ? nullptr : &transfers.back();
        if (last && last->from == from && last->tile == tile && last->row + last->rows == row &&
            last->to == to && last->rows < kLongest)
          ++last->rows;
        else
          transfers.push_back({tile, row, 1, from, to});
      }
  }
  return transfers;
}

} // namespace millrace::grid
