// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Shares.h"

#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>

namespace millrace::grid {
namespace {

/// Calls f(rows) for the rows of an access over a domain that lie inside its tensor.
template <class F> void forEachRun(const Context &c, const Access &access, const Domain &d, F f) {
  Expected<Box> box = insideOf(c, access, d, d.flow);
  if (!box || box->empty())
    return;
  const RowPattern rows = rowsOf(c.layouts[access.tensor], access, d);
  const int64_t n0 = rows.step0 ? box->n0 : 1, n1 = rows.step1 ? box->n1 : 1;
  const int64_t first = rows.row + box->from1 * rows.step1 + box->from0 * rows.step0;
  if (n0 == 1)
    return f(SteppedRows{first, n1, rows.step1});
  if (rows.step1 == n0 * rows.step0)
    return f(SteppedRows{first, n1 * n0, rows.step0});
  for (int64_t i1 = 0; i1 < n1; ++i1)
    f(SteppedRows{first + i1 * rows.step1, n0, rows.step0});
}

/// Every lane tile of `tensor` that lanes [from, to) touch.
template <class F> void forEachTile(const TensorLayout &layout, int64_t from, int64_t to, F f) {
  for (unsigned t = layout.tileOf(from); t < layout.tiles.size() && layout.tiles[t].start < to; ++t)
    f(t);
}

/// Rows that stream into the MXM: for every tap, and every head of the tile.
void forEachStreamed(const Context &c, const Kernel &kernel, const Work &w, const Domain &d,
                     const Access &a, const RowVisitor &f) {
  const Tensor &t = c.tensor(a.tensor);
  std::vector<std::vector<int64_t>> points{d.loops};
  auto along = [&](unsigned loop, int64_t first, int64_t count) {
    std::vector<std::vector<int64_t>> next;
    for (const auto &point : points)
      for (int64_t v = first; v < first + count; ++v) {
        next.push_back(point);
        next.back()[loop] = v;
      }
    points = std::move(next);
  };
  int64_t below = 0, above = 0; // of the lanes that a single result multiplies
  for (unsigned l : w.roles.contracted) {
    const int64_t reach = (kernel.loops[l].extent - 1) * coefficient(a.index[t.laneDim], l);
    below += std::min<int64_t>(0, reach);
    above += std::max<int64_t>(0, reach);
    if (coefficient(a.index[t.laneDim], l))
      continue;
    if (forms::usesLoop(a, l)) // not another term's
      along(l, 0, kernel.loops[l].extent);
  }
  if (w.roles.heads) {
    const unsigned group = *w.roles.group;
    const int64_t perHead = kernel.loops[*w.roles.lane].extent;
    const int64_t start = d.loops[group] * perHead + d.loops[*w.roles.lane];
    along(group, start / perHead, (start + d.lanes - 1) / perHead - start / perHead + 1);
  }
  const int64_t from = evaluate(a.index[t.laneDim], d.loops) + below;
  const int64_t to = evaluate(a.index[t.laneDim], loopsAtLane(d, d.lanes - 1)) + above + 1;
  for (const auto &point : points) {
    Domain tap = d;
    tap.loops = point;
    forEachTile(c.layouts[a.tensor], from, to, [&](unsigned k) {
      forEachRun(c, a, tap, [&](const SteppedRows &rows) { f(a.tensor, k, rows); });
    });
  }
}

} // namespace

void forEachRead(const Context &c, const Kernel &kernel, const Work &w, const Share &share,
                 const RowVisitor &f) {
  const Domain d = domainOf(w, kernel, share, 0, 0);
  for (const Access &o : kernel.operands) {
    const Tensor &t = c.tensor(o.tensor);
    if (o.lookup && t.role == forms::TensorRole::Constant) // tables are on every PE that looks
      continue;
    const unsigned tile = c.layouts[o.tensor].tileOf(evaluate(o.index[t.laneDim], d.loops));
    forEachRun(c, o, d, [&](const SteppedRows &rows) { f(o.tensor, tile, rows); });
  }
  for (const forms::Term &term : kernel.terms) {
    forEachStreamed(c, kernel, w, d, term.a, f);
    if (c.tensor(term.w.tensor).role == forms::TensorRole::Constant)
      continue;
    const TensorLayout &layout = c.layouts[term.w.tensor]; // installed from a copy of all columns
    for (unsigned k = 0; k < layout.tiles.size(); ++k)
      f(term.w.tensor, k, {0, layout.rows, 1});
  }
}

void forEachStreamedConstant(const Context &c, const Kernel &kernel, const Work &w,
                             const Share &share, const RowVisitor &f) {
  const Domain d = domainOf(w, kernel, share, 0, 0);
  for (const forms::Term &term : kernel.terms)
    if (c.tensor(term.a.tensor).role == forms::TensorRole::Constant)
      forEachStreamed(c, kernel, w, d, term.a, f);
}

void forEachWritten(const Context &c, const Kernel &kernel, const Work &w, const Share &share,
                    const RowVisitor &f) {
  const Domain d = domainOf(w, kernel, share, 0, 0);
  for (const forms::Result &r : kernel.results) {
    const Tensor &t = c.tensor(r.access.tensor);
    const unsigned tile =
        c.layouts[r.access.tensor].tileOf(evaluate(r.access.index[t.laneDim], d.loops));
    forEachRun(c, r.access, d, [&](const SteppedRows &rows) { f(r.access.tensor, tile, rows); });
  }
}

int64_t unitsOf(const Work &work, const Share &share) {
  return work.roles.running.empty() ? share.strips : 1;
}

int64_t unitsOf(const Work &work) {
  return work.units() / (work.roles.running.empty() ? 1 : work.strips);
}

size_t teamOf(const Context &c, const Kernel &kernel) {
  return kernel.terms.empty() ? kHemispheres : workersOf(c, 0, contractedType(c, kernel)).size();
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
  if (partition.splitK[k]) {
    team /= kHemispheres;
    mine /= kHemispheres;
  } else if (const std::vector<Hemisphere> &dealt = partition.hemispheres[k][pe]; !dealt.empty()) {
    std::vector<Share> here;
    for (size_t i = 0; i < all.size(); ++i)
      if (dealt[i] == Hemisphere(member % kHemispheres))
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
                     [&](unsigned t, unsigned tile, const SteppedRows &rows) {
                       if (t == tensor)
                         written.mark(c.layouts[t], tile, rows);
                     });
    for (unsigned tile = 0; tile < written.tiles.size(); ++tile)
      for (int64_t row = 0; row < int64_t(written.tiles[tile].size()); ++row) {
        if (!written.tiles[tile][size_t(row)])
          continue;
        std::vector<unsigned> to;
        for (unsigned pe = 0; pe < pes; ++pe)
          if (pe != from && p.tensors[tensor].needed[pe].has(tile, row))
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
