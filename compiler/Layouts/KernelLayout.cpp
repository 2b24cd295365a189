// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/KernelLayout.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace millrace::layouts {

namespace {

/// No split, a row for every index.
bool isTrivial(const DimLayout &dim) {
  return dim.slots == 1 && dim.rowStep == 1 && dim.start == 0;
}

/// Neighbours lie in neighbouring rows, in several slots.
bool isBanded(const DimLayout &dim) { return dim.rowStep == 1 && dim.slots > 1; }

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

/// The loops along the lanes take each lane of a run once: all of the dimension's lanes where the
/// result is split.
bool KernelLayout::takesLanes() {
  const Access &result = kernel.results.front().access;
  const Layout &layout = layouts(result.tensor);
  const AffineIndex &index = result.index[layout.laneDim];
  // Mixed radix: each loop steps over all that the faster ones reach.
  std::vector<std::pair<int64_t, int64_t>> digits; // step, extent
  for (unsigned l : laneLoops_)
    digits.push_back({coefficient(index, l), kernel.loops[l].extent});
  std::sort(digits.begin(), digits.end());
  for (auto [step, extent] : digits) {
    if (step != channelCount_)
      return false;
    channelCount_ *= extent;
  }
  return layout.isPlain(graph.tensors[result.tensor]) ||
         (index.offset == 0 && channelCount_ == layout.dims[layout.laneDim].slots);
}

std::vector<std::vector<int64_t>> KernelLayout::channels() const {
  const Access &result = kernel.results.front().access;
  const AffineIndex &index = result.index[layouts(result.tensor).laneDim];
  std::vector<std::vector<int64_t>> all(static_cast<size_t>(channelCount_));
  forEachPoint(kernel, laneLoops_, [&](const std::vector<int64_t> &point) {
    int64_t lane = 0;
    for (auto [l, c] : index.terms)
      lane += c * point[l];
    all[size_t(lane)] = point;
    return true;
  });
  return all;
}

/// A contraction with constants whose rows follow the result's.
bool KernelLayout::fits(const Term &term) {
  if (graph.tensors[term.w.tensor].role != TensorRole::Constant)
    return false;
  for (const RowLoop &row : rowLoops_)
    if (kernel.loops[row.loop].extent > 1 && usesLoop(term.w, row.loop))
      return false;
  if (!forms::staysInside(graph, kernel, term.w))
    return false;
  const Layout &layout = layouts(term.a.tensor);
  const auto [lowLane, highLane] = rangeOf(kernel, term.a.index[layout.laneDim]);
  if (layout.runs.length && (lowLane < 0 || highLane >= layout.dims[layout.laneDim].slots))
    return false;
  std::set<unsigned> contracted;
  for (unsigned d = 0; d < layout.dims.size(); ++d) {
    unsigned rows = 0;
    for (auto [l, c] : term.a.index[d].terms) {
      if (kernel.loops[l].extent == 1)
        continue;
      switch (kernel.loops[l].kind) {
      case LoopKind::Running: // steps from row to row
        if (d == layout.laneDim || !isTrivial(layout.dims[d]) || usesLoop(term.w, l))
          return false;
        break;
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
    if (rows > 1 && !isTrivial(layout.dims[d]))
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
                mine.runs != theirs.runs || mine.dims[mine.laneDim] != theirs.dims[theirs.laneDim]))
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
    if (rows > 1 && !isTrivial(dim))
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

/// Another result: the rows that are made are all of its rows, bands with what windows read beyond
/// them too.
bool KernelLayout::hasRowsOfResult(const Access &access) const {
  const Layout &mine = layouts(access.tensor);
  for (unsigned d = 0; d < mine.dims.size(); ++d)
    if (const std::optional<size_t> j = rowLoopOf(access.index[d]);
        d != mine.laneDim && j && rowLoops_[*j].dim >= 0 &&
        (mine.dims[d].rows != rowLoops_[*j].split.rows ||
         mine.dims[d].start != rowLoops_[*j].split.start))
      return false;
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

/// The row behind the last one up to which each index that the term meets in a dimension has a
/// place that steps along from row `first` on; `first` if one has none.
int64_t KernelLayout::runEnd(const Term &term, unsigned dim, size_t j, int64_t first) const {
  const DimLayout &d = layouts(term.a.tensor).dims[dim];
  const RowLoop &row = rowLoops_[j];
  const int64_t extent = graph.tensors[term.a.tensor].shape[dim], rows = row.split.rows,
                indexBy = coefficient(term.a.index[dim], row.loop) * row.split.rowStep;
  if (isTrivial(d))
    return rows;
  if (indexBy <= 0 || indexBy % d.rowStep)
    return first;
  std::vector<unsigned> taps;
  for (auto [l, c] : term.a.index[dim].terms)
    if (kernel.loops[l].kind == LoopKind::Contracted)
      taps.push_back(l);
  std::vector<int64_t> phase(rowLoops_.size(), 0);
  phase[j] = first;
  const Layout &result = layouts(kernel.results.front().access.tensor);
  std::vector<int64_t> slots(result.dims.size(), 0);
  int64_t end = rows;
  for (int64_t s = 0; s < (row.dim >= 0 ? row.split.slots : 1); ++s) {
    if (row.dim >= 0)
      slots[size_t(row.dim)] = s;
    forEachPoint(kernel, taps, [&](const std::vector<int64_t> &point) {
      const int64_t index = indexAt(term.a.index[dim], phase, slots, point);
      int64_t furthest = first;
      for (const Place &place : layouts(term.a.tensor).placesOf(dim, index)) {
        int64_t r = first;
        for (; r < rows; ++r) {
          const int64_t at = index + (r - first) * indexBy,
                        its = place.row + (r - first) * (indexBy / d.rowStep);
          if (at >= 0 && at < extent && (its < 0 || its >= d.rows))
            break;
        }
        furthest = std::max(furthest, r);
      }
      end = std::min(end, furthest);
      return end > first;
    });
  }
  return end;
}

/// Where an operand lies in bands, a row of results may need another band than the row before: rows
/// are cut into runs that step through the same bands.
bool KernelLayout::cutRuns() {
  constexpr size_t kMostRuns = 16;
  for (size_t j = 0; j < rowLoops_.size(); ++j) {
    if (rowLoops_[j].period > 1)
      continue;
    const auto meetsBands = [&](const Term &term, unsigned d) {
      const Layout &layout = layouts(term.a.tensor);
      return d != layout.laneDim && isBanded(layout.dims[d]) &&
             coefficient(term.a.index[d], rowLoops_[j].loop);
    };
    std::vector<int64_t> runs;
    for (int64_t first = 0, end; first < rowLoops_[j].split.rows; first = end) {
      end = rowLoops_[j].split.rows;
      for (const Term &term : kernel.terms)
        for (unsigned d = 0; d < term.a.index.size(); ++d)
          if (meetsBands(term, d))
            end = std::min(end, runEnd(term, d, j, first));
      if (end == first || runs.size() == kMostRuns)
        return false;
      runs.push_back(first);
    }
    rowLoops_[j].runs = std::move(runs);
  }
  return true;
}

/// Has every element of an operand that a row of results needs a row?
bool KernelLayout::staysInside(const Access &operand) const {
  const Layout &its = layouts(operand.tensor);
  if (graph.tensors[operand.tensor].role == TensorRole::Constant)
    return true;
  const std::vector<int64_t> point(kernel.loops.size(), 0);
  for (const std::vector<int64_t> &phase : phases())
    for (unsigned d = 0; d < its.dims.size(); ++d) {
      if (d == its.laneDim || !isBanded(its.dims[d]))
        continue;
      const std::optional<size_t> j = rowLoopOf(operand.index[d]);
      const Layout &result = layouts(kernel.results.front().access.tensor);
      std::vector<int64_t> slots(result.dims.size(), 0);
      const int64_t row = (indexAt(operand.index[d], phase, slots, point) + its.dims[d].start) /
                          its.dims[d].rowStep;
      const int dim = j ? rowLoops_[*j].dim : -1;
      for (int64_t s = 0; s < (dim >= 0 ? result.dims[size_t(dim)].slots : 1); ++s) {
        if (dim >= 0)
          slots[size_t(dim)] = s;
        if (!staysInside(operand, d, phase, indexAt(operand.index[d], phase, slots, point), row))
          return false;
      }
    }
  return true;
}

std::optional<KernelLayout> KernelLayout::of(const KernelGraph &graph, const Kernel &kernel,
                                             const Machine &machine, const LayoutOf &layouts) {
  KernelLayout layout(graph, kernel, machine, layouts);
  if (!layout.splitLoops() || !layout.takesLanes())
    return std::nullopt;
  for (const forms::Result &r : kernel.results)
    if (!layout.meetsResult(r.access) || !layout.hasRowsOfResult(r.access))
      return std::nullopt;
  for (const Term &term : kernel.terms)
    if (!layout.fits(term))
      return std::nullopt;
  for (const Access &operand : kernel.operands)
    if (!layout.meetsResult(operand))
      return std::nullopt;
  constexpr int64_t kMostPhases = 16;
  auto phases = [&] {
    int64_t all = 1;
    for (const RowLoop &row : layout.rowLoops_)
      all *= row.period * int64_t(row.runs.size());
    return all;
  };
  if (phases() > kMostPhases || !layout.cutRuns() || phases() > kMostPhases ||
      !std::all_of(kernel.operands.begin(), kernel.operands.end(),
                   [&](const Access &operand) { return layout.staysInside(operand); }))
    return std::nullopt;
  return layout;
}

std::vector<std::vector<int64_t>> KernelLayout::phases() const {
  std::vector<std::vector<int64_t>> list{{}};
  for (const RowLoop &row : rowLoops_) {
    std::vector<std::vector<int64_t>> next;
    for (const auto &phase : list) {
      for (int64_t p : row.runs) {
        next.push_back(phase);
        next.back().push_back(p);
      }
      for (int64_t p = 1; p < std::min(row.period, row.split.rows); ++p) {
        next.push_back(phase);
        next.back().push_back(p);
      }
    }
    list = std::move(next);
  }
  return list;
}

int64_t KernelLayout::rowsIn(size_t j, int64_t phase) const {
  const std::vector<int64_t> &runs = rowLoops_[j].runs;
  if (runs.size() > 1) {
    const auto next = std::upper_bound(runs.begin(), runs.end(), phase);
    return (next == runs.end() ? rowLoops_[j].split.rows : *next) - phase;
  }
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

/// Is the row there for each row of the phase's kernel that needs an element of the tensor? `index`
/// and `row`: for the kernel's row 0.
bool KernelLayout::staysInside(const Access &access, unsigned dim,
                               const std::vector<int64_t> &phase, int64_t index,
                               int64_t row) const {
  const DimLayout &d = layouts(access.tensor).dims[dim];
  const int64_t extent = graph.tensors[access.tensor].shape[dim];
  const std::optional<size_t> j = rowLoopOf(access.index[dim]);
  const int64_t count = j ? rowsIn(*j, phase[*j]) : 1;
  const int64_t rowBy = j ? rowStep(access, dim, *j) : 0,
                indexBy = j ? coefficient(access.index[dim], rowLoops_[*j].loop) *
                                  rowLoops_[*j].split.rowStep * rowLoops_[*j].period
                            : 0;
  int64_t first = 0, last = count - 1; // steps at which the index lies in the tensor
  if (indexBy == 0) {
    if (index < 0 || index >= extent)
      return true;
  } else {
    auto isInside = [&](int64_t i) {
      return index + i * indexBy >= 0 && index + i * indexBy < extent;
    };
    while (first < count && !isInside(first))
      ++first;
    while (last >= first && !isInside(last))
      --last;
    if (first > last)
      return true;
  }
  auto isRow = [&](int64_t i) { return row + i * rowBy >= 0 && row + i * rowBy < d.rows; };
  return isRow(first) && isRow(last);
}

std::optional<DimPlaces> KernelLayout::placesOf(const Term &term, unsigned dim,
                                                const std::vector<int64_t> &phase) const {
  const Layout &result = layouts(kernel.results.front().access.tensor),
               &layout = layouts(term.a.tensor);
  const AffineIndex &index = term.a.index[dim];
  std::vector<unsigned> taps;
  for (auto [l, c] : index.terms)
    if (kernel.loops[l].kind == LoopKind::Contracted)
      taps.push_back(l);
  std::vector<std::vector<int64_t>> slots{std::vector<int64_t>(result.dims.size(), 0)};
  for (const RowLoop &row : rowLoops_)
    if (row.dim >= 0 && coefficient(index, row.loop)) // several only where rows are plain
      for (size_t i = slots.size(); i-- > 0;)
        for (int64_t s = 1; s < row.split.slots; ++s) {
          slots.push_back(slots[i]);
          slots.back()[size_t(row.dim)] = s;
        }
  std::vector<int64_t> indices;
  for (const std::vector<int64_t> &own : slots)
    forEachPoint(kernel, taps, [&](const std::vector<int64_t> &point) {
      indices.push_back(indexAt(index, phase, own, point));
      return true;
    });
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  DimPlaces places;
  places.reserve(indices.size());
  if (isTrivial(layout.dims[dim])) { // a row for each index
    for (int64_t i : indices)
      places.push_back({i, {i + layout.dims[dim].start, 0}});
    return places;
  }
  std::vector<int64_t> rows; // few of them: where rows overlap, a greedy choice
  std::vector<Place> all;
  for (bool choice : {false, true})
    for (int64_t i : indices) {
      layout.findPlaces(dim, i, all);
      std::erase_if(all,
                    [&](const Place &p) { return !staysInside(term.a, dim, phase, i, p.row); });
      if (all.empty())
        return std::nullopt;
      if ((all.size() > 1) != choice)
        continue;
      auto best = std::find_if(all.begin(), all.end(), [&](const Place &p) {
        return std::find(rows.begin(), rows.end(), p.row) != rows.end();
      });
      // The row that reaches furthest: indices come in their order.
      places.push_back({i, best == all.end() ? all.back() : *best});
      if (best == all.end())
        rows.push_back(all.back().row);
    }
  std::sort(places.begin(), places.end(),
            [](const auto &x, const auto &y) { return x.first < y.first; });
  return places;
}

const Place &placeIn(const DimPlaces &places, int64_t index) {
  return std::lower_bound(places.begin(), places.end(), index,
                          [](const auto &p, int64_t i) { return p.first < i; })
      ->second;
}

DimRows KernelLayout::findRows(const Term &term, unsigned dim,
                               const std::vector<int64_t> &phase) const {
  const std::optional<DimPlaces> places = placesOf(term, dim, phase);
  if (!places)
    return std::nullopt;
  std::vector<Place> sorted;
  for (const auto &[index, place] : *places)
    sorted.push_back(place);
  std::sort(sorted.begin(), sorted.end(), [](const Place &x, const Place &y) {
    return std::pair(x.row, x.slot) < std::pair(y.row, y.slot);
  });
  std::vector<DimRow> rows;
  for (const Place &place : sorted) {
    if (rows.empty() || rows.back().row != place.row)
      rows.push_back({place.row, {}});
    rows.back().starts.push_back(place.slot * layouts(term.a.tensor).dims[dim].pitch);
  }
  return rows;
}

/// All that findRows() depends on: how the operand is split in the dimension, and how the rows are
/// that move its index.
std::string KernelLayout::rowsKey(const Term &term, unsigned dim, const std::vector<int64_t> &phase,
                                  int64_t shape) const {
  std::vector<int64_t> numbers{shape, dim};
  const auto append = [&](const DimLayout &d) {
    numbers.insert(numbers.end(), {d.rows, d.rowStep, d.slots, d.slotStep, d.start, d.pitch});
  };
  append(layouts(term.a.tensor).dims[dim]);
  for (size_t j = 0; j < rowLoops_.size(); ++j)
    if (const RowLoop &row = rowLoops_[j]; coefficient(term.a.index[dim], row.loop)) {
      numbers.insert(numbers.end(), {row.dim >= 0, row.period, phase[j], int64_t(row.runs.size())});
      numbers.insert(numbers.end(), row.runs.begin(), row.runs.end());
      append(row.split);
    }
  return {reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

std::optional<std::vector<TermRow>>
KernelLayout::termRows(const std::vector<int64_t> &phase) const {
  std::vector<TermRow> all;
  for (size_t t = 0; t < kernel.terms.size(); ++t) {
    std::optional<std::vector<TermRow>> rows = termRows(t, phase);
    if (!rows)
      return std::nullopt;
    std::move(rows->begin(), rows->end(), std::back_inserter(all));
  }
  return all;
}

std::optional<std::vector<TermRow>>
KernelLayout::termRows(size_t t, const std::vector<int64_t> &phase, const KnownRows &known) const {
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  std::vector<TermRow> list;
  const Access &a = kernel.terms[t].a;
  const Layout &layout = layouts(a.tensor);
  const MxmFormatSpec *format = machine.mxm.format(graph.tensors[a.tensor].type);
  const int64_t part = format ? format->lanesPerPass : vector, parts = (vector + part - 1) / part;
  const auto [lowIndex, highIndex] = rangeOf(kernel, a.index[layout.laneDim]);
  const int64_t low = layout.runs.laneOf(lowIndex), high = layout.runs.laneOf(highIndex);
  // Every dimension by itself: its rows, and where the slots that are needed of each begin.
  struct Needed {
    std::vector<int64_t> rows, starts;
  };
  std::vector<Needed> needed{{std::vector<int64_t>(layout.dims.size(), 0), {low}}};
  for (unsigned d = 0; d < layout.dims.size(); ++d) {
    if (d == layout.laneDim)
      continue;
    DimRows found;
    const DimRows *rows = &found;
    if (known.all) {
      const auto [at, isNew] =
          known.all->try_emplace(rowsKey(kernel.terms[t], d, phase, known.shape));
      if (isNew)
        at->second = findRows(kernel.terms[t], d, phase);
      rows = &at->second;
    } else {
      found = findRows(kernel.terms[t], d, phase);
    }
    if (!*rows)
      return std::nullopt;
    std::vector<Needed> next;
    for (const DimRow &row : **rows)
      for (const Needed &before : needed) {
        next.push_back({before.rows, {}});
        next.back().rows[d] = row.row;
        for (int64_t start : before.starts)
          for (int64_t slot : row.starts)
            next.back().starts.push_back(start + slot);
      }
    needed = std::move(next);
  }
  struct Cell {
    int64_t number, from, to;
  };
  std::vector<Cell> cells;
  for (Needed &n : needed) {
    std::sort(n.starts.begin(), n.starts.end());
    cells.clear();
    for (int64_t start : n.starts)
      for (int64_t lane = start, end, last = start + high - low + 1; lane < last; lane = end) {
        const int64_t in = lane % vector, number = lane / vector * parts + in / part;
        end = std::min(last, lane - in + std::min(vector, (in / part + 1) * part));
        auto cell = std::find_if(cells.rbegin(), cells.rend(),
                                 [=](const Cell &c) { return c.number <= number; });
        if (cell != cells.rend() && cell->number == number) {
          cell->from = std::min(cell->from, lane);
          cell->to = std::max(cell->to, end);
        } else {
          cells.insert(cell.base(), {number, lane, end});
        }
      }
    for (size_t i = 0; i < cells.size(); ++i)
      if (i && cells[i].number == cells[i - 1].number + 1) {
        list.back().to = cells[i].to;
        ++list.back().cells;
      } else {
        list.push_back({t, n.rows, cells[i].from, cells[i].to, 1});
      }
  }
  return list;
}

} // namespace millrace::layouts
