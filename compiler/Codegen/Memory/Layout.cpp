// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Memory/Layout.h"

#include "compiler/Codegen/Memory/Phases.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace::grid {

using forms::AffineIndex;
using forms::LoopKind;

int64_t evaluate(const AffineIndex &index, const std::vector<int64_t> &loops) {
  int64_t sum = index.offset;
  for (auto [l, c] : index.terms)
    sum += c * loops[l];
  return sum;
}

int64_t rowOf(const TensorLayout &layout, const Access &access, const std::vector<int64_t> &loops) {
  int64_t row = 0;
  for (size_t d = 0; d < access.index.size(); ++d)
    if (layout.pitch[d]) {
      const int64_t x = evaluate(access.index[d], loops), step = floorDivide(x, layout.phases[d]);
      row += layout.pitch[d] * step + layout.phasePitch[d] * (x - step * layout.phases[d]);
    }
  return row;
}

int64_t rowCoefficient(const TensorLayout &layout, const Access &access, unsigned loop) {
  int64_t sum = 0;
  for (size_t d = 0; d < access.index.size(); ++d) {
    const int64_t c = coefficient(access.index[d], loop), phases = layout.phases[d];
    sum += c % phases ? layout.phasePitch[d] * c : layout.pitch[d] * (c / phases);
  }
  return sum;
}

std::optional<unsigned> TensorLayout::tileAt(int64_t start) const {
  for (unsigned t = 0; t < tiles.size(); ++t)
    if (tiles[t].start == start)
      return t;
  return std::nullopt;
}

int64_t TensorLayout::columnOf(int64_t row) const {
  int64_t column = 0;
  for (size_t d = 0; d < pitch.size(); ++d) { // outer dimensions first: their pitches are larger
    if (!pitch[d])
      continue;
    column += row / pitch[d] * columnPitch[d];
    row %= pitch[d];
  }
  return column;
}

unsigned TensorLayout::tileOf(int64_t lane) const {
  unsigned t = 0;
  while (t + 1 < tiles.size() && tiles[t + 1].start <= lane)
    ++t;
  return t;
}

namespace {

/// Rows per step of each dimension in a column copy whose neighbouring columns differ in dimension
/// `inner`.
std::vector<int64_t> columnPitchOf(const Tensor &tensor, size_t inner) {
  std::vector<int64_t> pitch(tensor.shape.size(), 0);
  pitch[inner] = 1;
  int64_t rows = tensor.shape[inner];
  for (size_t d = tensor.shape.size(); d-- > 0;)
    if (d != inner && d != tensor.laneDim) {
      pitch[d] = rows;
      rows *= tensor.shape[d];
    }
  return pitch;
}

/// The dimension whose neighbours are neighbouring columns if `loop` runs through columns.
std::optional<size_t> columnDim(const Tensor &tensor, const Access &w, unsigned loop) {
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    if (d != tensor.laneDim && coefficient(w.index[d], loop))
      return d;
  return std::nullopt;
}

int64_t columnStep(const Tensor &tensor, const Access &w, size_t inner, unsigned loop) {
  const std::vector<int64_t> pitch = columnPitchOf(tensor, inner);
  int64_t step = 0;
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    step += pitch[d] * coefficient(w.index[d], loop);
  return step;
}

/// Can the steps of `loop` be heads: next to each other in the columns of every term's weights, in
/// whole column groups, and inside the other operand for every step?
bool areHeads(const KernelGraph &graph, const Kernel &kernel, const Machine &machine, unsigned lane,
              unsigned loop) {
  const int64_t perHead = kernel.loops[lane].extent, group = machine.mxm.columnsPerInstall;
  const int64_t vector = std::min(machine.lanes(), machine.mxm.columns);
  if (kernel.terms.empty() || perHead % group != 0 || vector % group != 0)
    return false;
  return std::all_of(kernel.terms.begin(), kernel.terms.end(), [&](const forms::Term &t) {
    const Tensor &a = graph.tensors[t.a.tensor], &w = graph.tensors[t.w.tensor];
    const std::optional<size_t> inner = columnDim(w, t.w, lane);
    if (w.role == forms::TensorRole::Constant || !inner || columnStep(w, t.w, *inner, lane) != 1 ||
        columnStep(w, t.w, *inner, loop) != perHead || coefficient(t.w.index[w.laneDim], loop) ||
        coefficient(t.a.index[a.laneDim], loop))
      return false;
    return staysInside(graph, kernel, t.a);
  });
}

} // namespace

LoopRoles rolesOf(const KernelGraph &graph, const Kernel &kernel, const Machine &machine) {
  LoopRoles roles;
  const Access &result = kernel.results.front().access;
  const Tensor &out = graph.tensors[result.tensor];
  const AffineIndex &lanes = result.index[out.laneDim];
  auto inAccess = [](const Access &access, unsigned loop) {
    return std::any_of(access.index.begin(), access.index.end(),
                       [&](const AffineIndex &i) { return coefficient(i, loop) != 0; });
  };
  auto laneIndex = [&](const Access &access) -> const AffineIndex & {
    return access.index[graph.tensors[access.tensor].laneDim];
  };
  auto movesRowsOf = [&](const Access &access, unsigned loop) {
    for (size_t d = 0; d < access.index.size(); ++d)
      if (d != graph.tensors[access.tensor].laneDim && coefficient(access.index[d], loop) != 0)
        return true;
    return false;
  };
  // All lanes of a result see the same rows of what is swept.
  auto sweepsOtherRows = [&](unsigned loop) {
    return kernel.loops[loop].extent > 1 &&
           std::any_of(kernel.terms.begin(), kernel.terms.end(),
                       [&](const forms::Term &t) { return movesRowsOf(t.a, loop); });
  };
  // And they lie in one row of every result and operand.
  auto crossesRows = [&](unsigned loop) {
    return kernel.loops[loop].extent > 1 &&
           (std::any_of(kernel.results.begin(), kernel.results.end(),
                        [&](const forms::Result &r) { return movesRowsOf(r.access, loop); }) ||
            std::any_of(kernel.operands.begin(), kernel.operands.end(), [&](const Access &o) {
              return graph.tensors[o.tensor].role != forms::TensorRole::Constant &&
                     movesRowsOf(o, loop);
            }));
  };
  // The lane loop steps by one lane; of several (an extent of 1 hides others) the longest.
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Parallel && coefficient(lanes, l) == 1 &&
        !sweepsOtherRows(l) && !crossesRows(l) &&
        (!roles.lane || kernel.loops[l].extent > kernel.loops[*roles.lane].extent))
      roles.lane = l;
  const bool constantWeights =
      std::all_of(kernel.terms.begin(), kernel.terms.end(), [&](const forms::Term &t) {
        return graph.tensors[t.w.tensor].role == forms::TensorRole::Constant;
      });
  for (unsigned l = 0; l < kernel.loops.size(); ++l) {
    if (roles.lane == l)
      continue;
    switch (kernel.loops[l].kind) {
    case LoopKind::Running:
      roles.running.push_back(l);
      continue;
    case LoopKind::Contracted:
      roles.contracted.push_back(l);
      continue;
    case LoopKind::Parallel:
      break;
    }
    const bool alongLanes =
        std::any_of(kernel.results.begin(), kernel.results.end(), [&](const forms::Result &r) {
          return coefficient(laneIndex(r.access), l) != 0;
        });
    bool inWeights = false;
    for (const forms::Term &t : kernel.terms)
      inWeights |= inAccess(t.w, l);
    // Several pixels in one row: each takes its lanes in a sweep of its own. So does each lane of
    // an operand that becomes a row.
    auto alongOperandLanes = [&](unsigned loop) {
      auto along = [&](const Access &a) { return coefficient(laneIndex(a), loop) != 0; };
      return std::any_of(kernel.terms.begin(), kernel.terms.end(),
                         [&](const forms::Term &t) { return along(t.a); }) ||
             std::any_of(kernel.operands.begin(), kernel.operands.end(), along);
    };
    const bool dense =
        roles.lane &&
        std::all_of(kernel.results.begin(), kernel.results.end(), [&](const forms::Result &r) {
          return coefficient(laneIndex(r.access), l) == kernel.loops[*roles.lane].extent;
        });
    const bool joins = alongLanes && inWeights && dense && !roles.group;
    if (joins && constantWeights && !sweepsOtherRows(l) && !crossesRows(l))
      roles.group = l;
    else if (joins && !crossesRows(l) && areHeads(graph, kernel, machine, *roles.lane, l))
      roles.group = l, roles.heads = true;
    else if (alongLanes || inWeights || alongOperandLanes(l))
      roles.batch.push_back(l);
    else
      roles.rows.push_back(l);
  }
  auto rowStride = [&](unsigned l) {
    int64_t stride = 0, pitch = 1;
    for (size_t d = out.shape.size(); d-- > 0;) {
      if (d == out.laneDim)
        continue;
      stride += pitch * coefficient(result.index[d], l);
      pitch *= out.shape[d];
    }
    return stride;
  };
  std::stable_sort(roles.rows.begin(), roles.rows.end(),
                   [&](unsigned x, unsigned y) { return rowStride(x) > rowStride(y); });
  return roles;
}

namespace {

/// Lane x of one tensor meets lane x + shift of the other, for x in [from, to).
struct Meeting {
  unsigned left, right;
  int64_t shift, from, to;
};

using Breaks = std::vector<std::set<int64_t>>;

/// Ranges of as many lanes each that one kernel writes one after the other: it deals all of them in
/// the same tiles.
struct Repetition {
  unsigned tensor;
  std::vector<int64_t> starts;
  int64_t count;
};

/// Breaks every range where another is broken. Whether that was new.
bool repeat(const Repetition &repetition, std::set<int64_t> &breaks) {
  std::set<int64_t> offsets;
  for (int64_t start : repetition.starts)
    for (auto edge = breaks.upper_bound(start);
         edge != breaks.end() && *edge < start + repetition.count; ++edge)
      offsets.insert(*edge - start);
  bool changed = false;
  for (int64_t start : repetition.starts)
    for (int64_t offset : offsets)
      changed |= breaks.insert(start + offset).second;
  return changed;
}

/// The longest of the loops that step by one lane, if any: with `roles` only the kernel's lane
/// loop.
std::optional<unsigned> unitLoop(const Kernel &kernel, const AffineIndex &index,
                                 const LoopRoles *roles = nullptr) {
  std::optional<unsigned> unit;
  for (auto [l, c] : index.terms)
    if (c == 1 && (!roles || l == roles->lane) &&
        kernel.loops[l].extent >= (unit ? kernel.loops[*unit].extent : 1))
      unit = l;
  return unit;
}

/// Every value of the lane index with its unit loop at 0, and how many lanes follow.
struct LaneRange {
  int64_t start, count;
};
std::vector<LaneRange> laneRanges(const Kernel &kernel, const AffineIndex &index,
                                  const LoopRoles *roles = nullptr) {
  const std::optional<unsigned> unit = unitLoop(kernel, index, roles);
  const int64_t count = unit ? kernel.loops[*unit].extent : 1;
  std::vector<LaneRange> ranges{{index.offset, count}};
  for (auto [l, c] : index.terms) {
    if (l == unit)
      continue;
    std::vector<LaneRange> next;
    for (const LaneRange &r : ranges)
      for (int64_t v = 0; v < kernel.loops[l].extent; ++v)
        next.push_back({r.start + v * c, count});
    ranges = std::move(next);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const LaneRange &x, const LaneRange &y) { return x.start < y.start; });
  return ranges;
}

/// Where ranges of lanes of two indices begin that are met at the same time.
std::set<std::pair<int64_t, int64_t>> startsTogether(const Kernel &kernel, const AffineIndex &x,
                                                     const AffineIndex &y) {
  const std::optional<unsigned> unitX = unitLoop(kernel, x), unitY = unitLoop(kernel, y);
  std::set<std::pair<int64_t, int64_t>> starts{{x.offset, y.offset}};
  for (unsigned l = 0; l < kernel.loops.size(); ++l) {
    const int64_t inX = l == unitX ? 0 : coefficient(x, l),
                  inY = l == unitY ? 0 : coefficient(y, l);
    if (!inX && !inY)
      continue;
    std::set<std::pair<int64_t, int64_t>> next;
    for (const auto &[a, b] : starts)
      for (int64_t v = 0; v < kernel.loops[l].extent; ++v)
        next.insert({a + v * inX, b + v * inY});
    starts = std::move(next);
  }
  return starts;
}

/// Joins ranges that touch when they need not be apart.
std::vector<LaneRange> joined(std::vector<LaneRange> ranges) {
  std::vector<LaneRange> out;
  for (const LaneRange &r : ranges)
    if (!out.empty() && out.back().start + out.back().count == r.start)
      out.back().count += r.count;
    else
      out.push_back(r);
  return out;
}

void breakAt(std::set<int64_t> &breaks, const std::vector<LaneRange> &ranges, int64_t extent) {
  for (const LaneRange &r : ranges)
    for (int64_t edge : {r.start, r.start + r.count})
      if (edge > 0 && edge < extent)
        breaks.insert(edge);
}

/// Who reads a constant row by row, and the number of a copy of its own.
using Readers = std::map<const Access *, unsigned>;

/// One vector for all rows is made as its user needs it; others lie as all that reads them does.
bool readsRows(const KernelGraph &graph, const Access &constant) {
  const Tensor &tensor = graph.tensors[constant.tensor];
  bool byRow = constant.lookup.has_value();
  for (size_t d = 0; d < constant.index.size(); ++d)
    byRow |= d != tensor.laneDim && !constant.index[d].terms.empty();
  return byRow && !tensor.uniform;
}

void collect(const KernelGraph &graph, const Kernel &kernel, const Machine &machine,
             const Readers &readers, Breaks &breaks, std::vector<Meeting> &meetings,
             std::vector<Repetition> &repetitions) {
  const LoopRoles roles = rolesOf(graph, kernel, machine);
  auto lanesOf = [&](const Access &a) -> const AffineIndex & {
    return a.index[graph.tensors[a.tensor].laneDim];
  };
  auto extentOf = [&](const Access &a) {
    const Tensor &t = graph.tensors[a.tensor];
    return t.shape[t.laneDim];
  };
  const Access &first = kernel.results.front().access;
  auto placeOf = [&](const Access &a) {
    const auto own = readers.find(&a);
    return own != readers.end() ? own->second : a.tensor;
  };
  auto meet = [&](const Access &x, const Access &y) {
    const std::optional<unsigned> unit = unitLoop(kernel, lanesOf(x));
    const int64_t count = unit ? kernel.loops[*unit].extent : 1;
    for (const auto &[u, v] : startsTogether(kernel, lanesOf(x), lanesOf(y)))
      meetings.push_back({placeOf(x), placeOf(y), v - u, u, u + count});
  };
  for (const forms::Result &r : kernel.results) {
    std::vector<LaneRange> ranges = laneRanges(kernel, lanesOf(r.access), &roles);
    if (roles.group)
      ranges = joined(std::move(ranges));
    breakAt(breaks[r.access.tensor], ranges, extentOf(r.access));
    const int64_t count = ranges.front().count;
    if (ranges.size() > 1 && count > 1 &&
        std::all_of(ranges.begin(), ranges.end(),
                    [&](const LaneRange &range) { return range.count == count; })) {
      repetitions.push_back({r.access.tensor, {}, count});
      for (const LaneRange &range : ranges)
        repetitions.back().starts.push_back(range.start);
    }
    if (r.access.tensor != first.tensor)
      meet(first, r.access);
  }
  for (const Access &o : kernel.operands) {
    const Tensor &t = graph.tensors[o.tensor];
    if (t.uniform || (t.role == forms::TensorRole::Constant && !readsRows(graph, o)))
      continue;
    const std::vector<LaneRange> ranges = laneRanges(kernel, lanesOf(o), &roles);
    for (const LaneRange &r : roles.group ? joined(ranges) : ranges)
      if (r.start > 0) // it may end within a tile: the lanes behind it go nowhere
        breaks[placeOf(o)].insert(r.start);
    meet(first, o);
  }
  for (const forms::Term &t : kernel.terms) {
    if (graph.tensors[t.w.tensor].role == forms::TensorRole::Constant)
      continue;
    meet(t.a, t.w); // contracted lanes meet in the array
    const std::vector<LaneRange> a = laneRanges(kernel, lanesOf(t.a)),
                                 w = laneRanges(kernel, lanesOf(t.w));
    if (a.front().start == w.front().start)
      continue;
    breakAt(breaks[placeOf(t.a)], a, extentOf(t.a)); // elsewhere in both: tiles of their own
    breakAt(breaks[t.w.tensor], w, extentOf(t.w));
  }
}

/// Where lane tiles of every tensor begin, but for the first, and behind those of the copies that
/// `readers` have.
Breaks inferBreaks(const KernelGraph &graph, const Machine &machine, const Readers &readers) {
  // A tile is a vector that a plane takes in and gives out whole.
  const int64_t lanes = std::min(machine.lanes(), machine.mxm.columns);
  std::vector<int64_t> extents;
  for (const Tensor &tensor : graph.tensors)
    extents.push_back(tensor.shape[tensor.laneDim]);
  extents.resize(extents.size() + readers.size());
  for (const auto &[reader, place] : readers)
    extents[place] = extents[reader->tensor];
  Breaks breaks(extents.size());
  std::vector<Meeting> meetings;
  std::vector<Repetition> repetitions;
  for (const Kernel &kernel : graph.kernels)
    collect(graph, kernel, machine, readers, breaks, meetings, repetitions);
  const auto spread = [&] {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Repetition &r : repetitions)
        changed |= repeat(r, breaks[r.tensor]);
      for (const Meeting &m : meetings) {
        auto carry = [&](unsigned from, unsigned to, int64_t shift, int64_t lo, int64_t hi) {
          std::vector<int64_t> edges(breaks[from].lower_bound(lo), breaks[from].upper_bound(hi));
          if (lo == 0) // a tile begins there, too
            edges.push_back(0);
          else if (const auto after = breaks[from].upper_bound(lo);
                   shift == 0 && after != breaks[from].begin())
            edges.push_back(*std::prev(after)); // lanes behind it have one place in both tiles
          for (int64_t e : edges)
            if (e + shift > 0 && e + shift < extents[to])
              changed |= breaks[to].insert(e + shift).second;
        };
        carry(m.left, m.right, m.shift, m.from, m.to);
        carry(m.right, m.left, -m.shift, m.from + m.shift, m.to + m.shift);
      }
    }
  };
  spread();
  for (size_t t = 0; t < breaks.size(); ++t) { // the longest vector breaks what is left
    int64_t from = 0;
    std::set<int64_t> given = breaks[t];
    given.insert(extents[t]);
    for (int64_t edge : given) {
      for (int64_t x = from + lanes; x < edge; x += lanes)
        breaks[t].insert(x);
      from = edge;
    }
  }
  spread();
  return breaks;
}

} // namespace

std::optional<KernelGraph> withOwnConstants(const KernelGraph &graph, const Machine &machine) {
  std::map<unsigned, std::vector<const Access *>> shared;
  const auto note = [&](const Access &access) {
    if (graph.tensors[access.tensor].role == forms::TensorRole::Constant && !access.lookup)
      shared[access.tensor].push_back(&access);
  };
  for (const Kernel &kernel : graph.kernels) {
    for (const Access &o : kernel.operands)
      if (readsRows(graph, o))
        note(o);
    for (const forms::Term &t : kernel.terms)
      if (graph.tensors[t.w.tensor].role != forms::TensorRole::Constant)
        note(t.a);
  }
  Readers readers;
  for (const auto &[tensor, its] : shared)
    for (const Access *reader : its)
      if (its.size() > 1)
        readers[reader] = unsigned(graph.tensors.size() + readers.size());
  if (readers.empty())
    return std::nullopt;
  const Breaks breaks = inferBreaks(graph, machine, readers);
  std::optional<KernelGraph> result;
  std::map<const Access *, unsigned> moved;
  for (const auto &[tensor, its] : shared) {
    std::map<std::set<int64_t>, unsigned> copies; // by where their tiles begin
    for (const Access *reader : its) {
      const auto known = readers.find(reader);
      if (known == readers.end())
        continue;
      const auto [copy, isNew] = copies.try_emplace(breaks[known->second], tensor);
      if (isNew && copies.size() > 1) {
        if (!result)
          result = graph;
        copy->second = unsigned(result->tensors.size());
        result->tensors.push_back(graph.tensors[tensor]);
      }
      moved[reader] = copy->second;
    }
  }
  for (size_t k = 0; result && k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    const auto move = [&](const Access &from, Access &to) {
      if (const auto copy = moved.find(&from); copy != moved.end())
        to.tensor = copy->second;
    };
    for (size_t i = 0; i < kernel.operands.size(); ++i)
      move(kernel.operands[i], result->kernels[k].operands[i]);
    for (size_t i = 0; i < kernel.terms.size(); ++i)
      move(kernel.terms[i].a, result->kernels[k].terms[i].a);
  }
  return result;
}

std::vector<TensorLayout> inferLayouts(const KernelGraph &graph, const Machine &machine) {
  std::vector<TensorLayout> layouts(graph.tensors.size());
  Breaks breaks = inferBreaks(graph, machine, {});
  std::vector<std::vector<int64_t>> phases = phasesOf(graph);
  for (size_t t = 0; t < layouts.size(); ++t) {
    const Tensor &tensor = graph.tensors[t];
    TensorLayout &layout = layouts[t];
    layout.phases = std::move(phases[t]);
    layout.pitch.assign(tensor.shape.size(), 0);
    layout.phasePitch.assign(tensor.shape.size(), 0);
    for (size_t d = tensor.shape.size(); d-- > 0;)
      if (d != tensor.laneDim) {
        layout.pitch[d] = layout.rows;
        layout.rows *= (tensor.shape[d] + layout.phases[d] - 1) / layout.phases[d];
      }
    for (size_t d = tensor.shape.size(); d-- > 0;)
      if (layout.phases[d] > 1) {
        layout.phasePitch[d] = layout.rows;
        layout.rows *= layout.phases[d];
      }
    layout.columnPitch = layout.pitch;
    int64_t from = 0;
    breaks[t].insert(tensor.shape[tensor.laneDim]);
    for (int64_t edge : breaks[t]) {
      layout.tiles.push_back({from, edge - from});
      from = edge;
    }
  }
  for (const Kernel &kernel : graph.kernels) {
    const LoopRoles roles = rolesOf(graph, kernel, machine);
    for (const forms::Term &t : kernel.terms)
      if (graph.tensors[t.w.tensor].role != forms::TensorRole::Constant && roles.lane)
        if (const Tensor &w = graph.tensors[t.w.tensor];
            std::optional<size_t> inner = columnDim(w, t.w, *roles.lane))
          layouts[t.w.tensor].columnPitch = columnPitchOf(w, *inner);
  }
  return layouts;
}

} // namespace millrace::grid
