// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/KernelLayout.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace millrace::layouts {

using forms::Access;
using forms::AffineIndex;
using forms::Kernel;
using forms::KernelGraph;
using forms::LoopKind;
using forms::Tensor;
using forms::TensorRole;
using forms::Term;

namespace {

/// No split, a row for every index.
bool isTrivial(const DimLayout &dim) {
  return dim.slots == 1 && dim.rowStep == 1 && dim.start == 0;
}

bool isRowLoop(const Kernel &kernel, unsigned loop, const std::vector<unsigned> &laneLoops) {
  return kernel.loops[loop].kind == LoopKind::Parallel &&
         !std::count(laneLoops.begin(), laneLoops.end(), loop);
}

} // namespace

/// The row loop that moves the index, if there is one.
std::optional<size_t> KernelLayout::rowLoopOf(const AffineIndex &index) const {
  for (size_t j = 0; j < rowLoops_.size(); ++j)
    if (coefficient(index, rowLoops_[j].loop))
      return j;
  return std::nullopt;
}

/// The loops of the result's rows: those of its split dimensions step through them one by one.
bool KernelLayout::splitLoops() {
  const Access &result = kernel.results.front().access;
  const Layout &layout = layouts(result.tensor);
  for (auto [l, c] : result.index[layout.laneDim].terms)
    if (kernel.loops[l].extent > 1)
      laneLoops_.push_back(l);
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (isRowLoop(kernel, l, laneLoops_)) {
      RowLoop row{l, -1, {}, 1};
      row.split.rows = kernel.loops[l].extent;
      rowLoops_.push_back(row);
    }
  const Tensor &tensor = graph.tensors[result.tensor];
  for (unsigned d = 0; d < layout.dims.size(); ++d) {
    if (d == layout.laneDim || isTrivial(layout.dims[d]))
      continue;
    std::vector<std::pair<unsigned, int64_t>> terms;
    for (auto term : result.index[d].terms)
      if (kernel.loops[term.first].extent > 1)
        terms.push_back(term);
    if (result.index[d].offset || terms.size() > 1)
      return false;
    if (terms.empty()) {
      if (tensor.shape[d] != 1 || layout.dims[d].rows != 1)
        return false;
      continue; // one index, in every slot
    }
    const std::optional<size_t> j = rowLoopOf({0, terms});
    if (!j || terms[0].second != 1 || kernel.loops[terms[0].first].extent != tensor.shape[d] ||
        rowLoops_[*j].dim >= 0)
      return false;
    rowLoops_[*j].dim = int(d);
    rowLoops_[*j].split = layout.dims[d];
  }
  return true;
}

/// Finds the values of the loops along the lanes for every lane; all of the dimension's lanes where
/// the result is split, a run of them else.
bool KernelLayout::takesLanes() {
  const Access &result = kernel.results.front().access;
  const Layout &layout = layouts(result.tensor);
  const Tensor &tensor = graph.tensors[result.tensor];
  std::map<int64_t, std::vector<int64_t>> values;
  bool distinct = true;
  forEachPoint(kernel, laneLoops_, [&](const std::vector<int64_t> &point) {
    int64_t lane = result.index[layout.laneDim].offset;
    for (auto [l, c] : result.index[layout.laneDim].terms)
      lane += c * point[l];
    return distinct = values.emplace(lane, point).second;
  });
  if (!distinct || values.rbegin()->first - values.begin()->first + 1 != int64_t(values.size()))
    return false;
  if (!layout.isPlain(tensor) &&
      (values.begin()->first != 0 || int64_t(values.size()) != layout.dims[layout.laneDim].slots))
    return false;
  for (auto &[lane, point] : values)
    channels_.push_back(std::move(point));
  return true;
}

/// A contraction with constants whose rows follow the result's.
bool KernelLayout::fits(const Term &term) {
  if (graph.tensors[term.w.tensor].role != TensorRole::Constant)
    return false;
  for (const RowLoop &row : rowLoops_)
    if (kernel.loops[row.loop].extent > 1 && usesLoop(term.w, row.loop))
      return false;
  const Tensor &weights = graph.tensors[term.w.tensor];
  for (unsigned d = 0; d < weights.shape.size(); ++d)
    if (const auto [low, high] = rangeOf(kernel, term.w.index[d]);
        low < 0 || high >= weights.shape[d])
      return false;
  const Layout &layout = layouts(term.a.tensor);
  std::set<unsigned> contracted;
  for (unsigned d = 0; d < layout.dims.size(); ++d) {
    unsigned rows = 0;
    for (auto [l, c] : term.a.index[d].terms) {
      if (kernel.loops[l].extent == 1)
        continue;
      switch (kernel.loops[l].kind) {
      case LoopKind::Running:
        return false;
      case LoopKind::Contracted:
        if (!contracted.insert(l).second) // one loop in two dimensions
          return false;
        break;
      case LoopKind::Parallel:
        if (isRowLoop(kernel, l, laneLoops_) == (d == layout.laneDim))
          return false; // a sweep takes all lanes of a row, and all columns see that row
        rows += d != layout.laneDim;
      }
    }
    if (rows > 1)
      return false;
  }
  return widenPeriods(term.a);
}

/// An operand of the epilogue: its lane is the result's, up to a distance that is the same for all.
bool KernelLayout::meetsResult(const Access &access) {
  if (access.lookup)
    return false;
  const Tensor &tensor = graph.tensors[access.tensor];
  if (tensor.role == TensorRole::Constant)
    return true;
  const Access &result = kernel.results.front().access;
  const Layout &mine = layouts(access.tensor), &theirs = layouts(result.tensor);
  const AffineIndex &lane = access.index[mine.laneDim], &resultLane = result.index[theirs.laneDim];
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].extent > 1 && coefficient(lane, l) != coefficient(resultLane, l))
      return false;
  const bool split = !theirs.isPlain(graph.tensors[result.tensor]) || !mine.isPlain(tensor);
  if (split && (lane.offset != resultLane.offset || mine.lanes != theirs.lanes ||
                mine.dims[mine.laneDim] != theirs.dims[theirs.laneDim]))
    return false;
  std::set<unsigned> met;
  for (unsigned d = 0; d < mine.dims.size(); ++d) {
    const DimLayout &dim = mine.dims[d];
    if (d == mine.laneDim)
      continue;
    unsigned rows = 0;
    for (auto [l, c] : access.index[d].terms) {
      if (kernel.loops[l].extent == 1)
        continue;
      if (!isRowLoop(kernel, l, laneLoops_) &&
          (kernel.loops[l].kind != LoopKind::Running || !isTrivial(dim)))
        return false;
      rows += kernel.loops[l].kind == LoopKind::Parallel;
    }
    if (rows > 1)
      return false;
    if (dim.slots == 1)
      continue;
    // Its slots are those of one dimension of the result.
    bool found = false;
    for (unsigned e = 0; e < theirs.dims.size() && !found; ++e) {
      if (e == theirs.laneDim || theirs.dims[e].slots != dim.slots ||
          theirs.dims[e].pitch != dim.pitch || met.count(e))
        continue;
      const std::optional<size_t> j = rowLoopOf(access.index[d]);
      const bool moved = j && rowLoops_[*j].dim == int(e);
      const int64_t step =
          moved ? coefficient(access.index[d], rowLoops_[*j].loop) * theirs.dims[e].slotStep : 0;
      if (step == dim.slotStep) {
        met.insert(e);
        found = true;
      }
    }
    if (!found)
      return false;
  }
  for (unsigned e = 0; e < theirs.dims.size(); ++e)
    if (e != theirs.laneDim && theirs.dims[e].slots > 1 && !met.count(e))
      return false;
  if (!widenPeriods(access))
    return false;
  for (unsigned d = 0; d < mine.dims.size(); ++d) { // rows are whole in every phase
    if (d == mine.laneDim || mine.dims[d].rowStep == 1)
      continue;
    const std::optional<size_t> j = rowLoopOf(access.index[d]);
    int64_t at = access.index[d].offset + mine.dims[d].start;
    if (j) {
      const int64_t c = coefficient(access.index[d], rowLoops_[*j].loop);
      at -= c * rowLoops_[*j].split.start;
      if (c * rowLoops_[*j].split.rowStep % mine.dims[d].rowStep)
        return false; // the slots of some phases would lie elsewhere
    }
    if (at % mine.dims[d].rowStep)
      return false;
  }
  return true;
}

/// Rows of the result step through the access's rows in whole steps.
bool KernelLayout::widenPeriods(const Access &access) {
  const Layout &layout = layouts(access.tensor);
  for (unsigned d = 0; d < layout.dims.size(); ++d) {
    const std::optional<size_t> j = rowLoopOf(access.index[d]);
    if (!j || d == layout.laneDim || kernel.loops[rowLoops_[*j].loop].extent == 1)
      continue;
    const int64_t step = coefficient(access.index[d], rowLoops_[*j].loop) *
                         rowLoops_[*j].split.rowStep,
                  rows = layout.dims[d].rowStep, least = rows / std::gcd(rows, step);
    rowLoops_[*j].period = std::lcm(rowLoops_[*j].period, least);
  }
  return true;
}

std::optional<KernelLayout> KernelLayout::of(const KernelGraph &graph, const Kernel &kernel,
                                             const Machine &machine, const LayoutOf &layouts) {
  KernelLayout layout(graph, kernel, machine, layouts);
  if (!layout.splitLoops() || !layout.takesLanes())
    return std::nullopt;
  for (const forms::Result &r : kernel.results)
    if (!layout.meetsResult(r.access))
      return std::nullopt;
  for (const Term &term : kernel.terms)
    if (!layout.fits(term))
      return std::nullopt;
  for (const Access &operand : kernel.operands)
    if (!layout.meetsResult(operand))
      return std::nullopt;
  constexpr int64_t kMostPhases = 16;
  int64_t phases = 1;
  for (const RowLoop &row : layout.rowLoops_)
    phases *= row.period;
  if (phases > kMostPhases)
    return std::nullopt;
  return layout;
}

std::vector<std::vector<int64_t>> KernelLayout::phases() const {
  std::vector<std::vector<int64_t>> list{{}};
  for (const RowLoop &row : rowLoops_) {
    std::vector<std::vector<int64_t>> next;
    for (const auto &phase : list)
      for (int64_t p = 0; p < std::min(row.period, row.split.rows); ++p) {
        next.push_back(phase);
        next.back().push_back(p);
      }
    list = std::move(next);
  }
  return list;
}

int64_t KernelLayout::rowsIn(size_t j, int64_t phase) const {
  return (rowLoops_[j].split.rows - phase + rowLoops_[j].period - 1) / rowLoops_[j].period;
}

int64_t KernelLayout::indexAt(const AffineIndex &index, const std::vector<int64_t> &phase,
                              const std::vector<int64_t> &slots,
                              const std::vector<int64_t> &point) const {
  int64_t at = index.offset;
  for (auto [l, c] : index.terms) {
    const auto row = std::find_if(rowLoops_.begin(), rowLoops_.end(),
                                  [l = l](const RowLoop &r) { return r.loop == l; });
    if (row == rowLoops_.end())
      at += c * point[l];
    else
      at += c * row->split.indexAt(phase[size_t(row - rowLoops_.begin())],
                                   row->dim >= 0 ? slots[size_t(row->dim)] : 0);
  }
  return at;
}

int64_t KernelLayout::rowStep(const Access &access, unsigned dim, size_t j) const {
  const RowLoop &row = rowLoops_[j];
  return coefficient(access.index[dim], row.loop) * row.split.rowStep * row.period /
         layouts(access.tensor).dims[dim].rowStep;
}

DimPlaces KernelLayout::placesOf(const Term &term, unsigned dim,
                                 const std::vector<int64_t> &phase) const {
  const Layout &result = layouts(kernel.results.front().access.tensor),
               &layout = layouts(term.a.tensor);
  const AffineIndex &index = term.a.index[dim];
  std::vector<unsigned> taps;
  for (auto [l, c] : index.terms)
    if (kernel.loops[l].kind == LoopKind::Contracted)
      taps.push_back(l);
  const std::optional<size_t> j = rowLoopOf(index);
  const int split = j ? rowLoops_[*j].dim : -1;
  std::set<int64_t> indices;
  std::vector<int64_t> slots(result.dims.size(), 0);
  for (int64_t s = 0; s < (split >= 0 ? result.dims[size_t(split)].slots : 1); ++s) {
    if (split >= 0)
      slots[size_t(split)] = s;
    forEachPoint(kernel, taps, [&](const std::vector<int64_t> &point) {
      indices.insert(indexAt(index, phase, slots, point));
      return true;
    });
  }
  DimPlaces places;
  std::set<int64_t> rows; // few of them: where rows overlap, a greedy choice
  for (bool choice : {false, true})
    for (int64_t i : indices) {
      const std::vector<Place> all = layout.placesOf(dim, i);
      if (all.empty() || (all.size() > 1) != choice)
        continue;
      auto best = std::find_if(all.begin(), all.end(),
                               [&](const Place &p) { return rows.count(p.row) != 0; });
      places[i] = best == all.end() ? all.front() : *best;
      rows.insert(places[i].row);
    }
  return places;
}

std::vector<TermRow> KernelLayout::termRows(const std::vector<int64_t> &phase) const {
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  std::vector<TermRow> list;
  for (size_t t = 0; t < kernel.terms.size(); ++t) {
    const Access &a = kernel.terms[t].a;
    const Layout &layout = layouts(a.tensor);
    const MxmFormatSpec *format = machine.mxm.format(graph.tensors[a.tensor].type);
    const int64_t part = format ? format->lanesPerPass : vector, parts = (vector + part - 1) / part;
    // Every dimension by itself: its rows, and the slots that are needed of each.
    std::vector<std::pair<std::vector<int64_t>, std::vector<std::set<int64_t>>>> rows{{{}, {}}};
    std::pair<int64_t, int64_t> lanes{INT64_MAX, INT64_MIN};
    for (unsigned d = 0; d < layout.dims.size(); ++d) {
      if (d == layout.laneDim) {
        const auto [low, high] = rangeOf(kernel, a.index[d]);
        lanes = {low, high + 1};
        for (auto &[row, slots] : rows) {
          row.push_back(0);
          slots.push_back({});
        }
        continue;
      }
      std::map<int64_t, std::set<int64_t>> needed;
      for (const auto &[index, place] : placesOf(kernel.terms[t], d, phase))
        needed[place.row].insert(place.slot);
      std::vector<std::pair<std::vector<int64_t>, std::vector<std::set<int64_t>>>> next;
      for (const auto &[row, slots] : needed)
        for (const auto &[before, used] : rows) {
          next.push_back({before, used});
          next.back().first.push_back(row);
          next.back().second.push_back(slots);
        }
      rows = std::move(next);
    }
    for (const auto &[row, slots] : rows) {
      std::vector<int64_t> starts{0}; // lanes where the slots begin
      for (unsigned d = 0; d < layout.dims.size(); ++d) {
        if (d == layout.laneDim)
          continue;
        std::vector<int64_t> next;
        for (int64_t start : starts)
          for (int64_t slot : slots[d])
            next.push_back(start + slot * layout.dims[d].pitch);
        starts = std::move(next);
      }
      std::map<int64_t, std::pair<int64_t, int64_t>> cells; // what of each is needed
      for (int64_t start : starts)
        for (int64_t lane = start + lanes.first; lane < start + lanes.second;) {
          const int64_t in = lane % vector, cell = lane / vector * parts + in / part;
          const int64_t end =
              std::min(start + lanes.second, lane - in + std::min(vector, (in / part + 1) * part));
          auto [at, fresh] = cells.try_emplace(cell, std::pair(lane, end));
          at->second = {std::min(at->second.first, lane), std::max(at->second.second, end)};
          lane = end;
        }
      int64_t last = INT64_MIN;
      for (const auto &[cell, range] : cells) {
        if (cell == last + 1) {
          list.back().to = range.second;
          ++list.back().cells;
        } else {
          list.push_back({t, row, range.first, range.second, 1});
        }
        last = cell;
      }
    }
  }
  return list;
}

Cost costOf(const KernelGraph &graph, const Kernel &kernel, const Machine &machine,
            const KernelLayout &layout, const LayoutOf &layouts) {
  const Layout &result = layouts(kernel.results.front().access.tensor);
  const Tensor &tensor = graph.tensors[kernel.results.front().access.tensor];
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  const int64_t lanes = result.isPlain(tensor) ? int64_t(layout.channels().size()) : result.lanes;
  const int64_t tiles = (lanes + vector - 1) / vector;
  int64_t alus = result.hasOutside(tensor) ? 1 : 0;
  for (const forms::Node &node : kernel.nodes)
    alus += node.kind == forms::Node::Kind::Op || node.kind == forms::Node::Kind::Reduce;
  Cost cost;
  cost.kernels = 0;
  for (const std::vector<int64_t> &phase : layout.phases()) {
    int64_t rows = tiles;
    for (size_t j = 0; j < phase.size(); ++j)
      rows *= layout.rowsIn(j, phase[j]);
    ++cost.kernels;
    cost.operations += rows * alus;
    for (const TermRow &row : layout.termRows(phase)) {
      // Columns of groups have lanes of their own: cells of the diagonal, about.
      const forms::Access &a = kernel.terms[row.term].a;
      const auto &laneTerms = a.index[graph.tensors[a.tensor].laneDim].terms;
      const bool groups = std::any_of(laneTerms.begin(), laneTerms.end(), [&](const auto &t) {
        return kernel.loops[t.first].kind == LoopKind::Parallel && kernel.loops[t.first].extent > 1;
      });
      cost.sweeps += groups ? rows / tiles * std::max(tiles, row.cells) : rows * row.cells;
      cost.weightBytes += ((row.to - 1) / vector - row.from / vector + 1) * vector * lanes *
                          byteWidth(graph.tensors[kernel.terms[row.term].w.tensor].type);
    }
  }
  return cost;
}

double Cost::cycles(const KernelGraph &graph, const Kernel &kernel, const Machine &machine) const {
  const double pes = machine.pes();
  double mxm = 0;
  if (!kernel.terms.empty())
    if (const MxmFormatSpec *format =
            machine.mxm.format(graph.tensors[kernel.terms[0].a.tensor].type))
      mxm = double(sweeps) / (pes * kHemispheres * (machine.mxm.planes / format->planes));
  const double vxm = double(operations) / (pes * machine.vxm.alus);
  return std::max(mxm, vxm) + 0.1 * std::min(mxm, vxm) + 16.0 * double(kernels - 1);
}

} // namespace millrace::layouts
