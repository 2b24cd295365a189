// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The layouts that a tensor may have: blocks of neighbours, bands, and what the host can write.
#include "compiler/Layouts/LayoutProblem.h"

#include "compiler/Forms/HostDims.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Layouts/Materialize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

namespace millrace::layouts {

namespace {

/// Blocks of up to two dimensions with the lanes within: outer slots `pitch0` apart, inner ones
/// `pitch1`.
struct Block {
  int64_t outer = 1, inner = 1, pitch0 = 0, pitch1 = 0;
};

/// Ways to put outer x inner slots of `channels` lanes into a vector: side by side, and so that no
/// slot lies in two parts of a vector that activations take one at a time.
std::vector<Block> blocks(int64_t outer, int64_t inner, int64_t channels, int64_t vector,
                          int64_t part) {
  std::vector<Block> list;
  auto add = [&](int64_t pitch0, int64_t pitch1) {
    if ((outer - 1) * pitch0 + (inner - 1) * pitch1 + channels <= vector && pitch1 >= channels)
      list.push_back({outer, inner, outer > 1 ? pitch0 : 0, inner > 1 ? pitch1 : 0});
  };
  add(inner * channels, channels);
  const int64_t parts = vector / part;
  if (parts < 2 || outer * inner < 2 || part % channels == 0)
    return list;
  if (outer > 1 && outer % parts == 0) {
    if (const int64_t each = vector / outer; each >= inner * channels && each != inner * channels)
      add(each, channels);
  } else if (outer == 1 && inner % parts == 0 && vector / inner != channels) {
    add(0, vector / inner);
  }
  return list;
}

} // namespace

/// Columns of groups sum over lanes of their own: as many whole groups as one pass takes of an
/// operand lie in a run, for the operand, for what is made of it, and for what maps and reductions
/// make of either lane by lane.
std::map<unsigned, std::set<int64_t>> LayoutProblem::findGroupRuns() const {
  std::map<unsigned, std::set<int64_t>> runs;
  for (const Kernel &kernel : graph.kernels)
    for (const Term &term : kernel.terms) {
      const Access &result = kernel.results.front().access;
      const Tensor &from = graph.tensors[term.a.tensor], &to = graph.tensors[result.tensor];
      const MxmFormatSpec *format = machine.mxm.format(from.type);
      if (!format)
        continue;
      const int64_t part = format->lanesPerPass;
      const AffineIndex &lane = term.a.index[from.laneDim], &resultLane = result.index[to.laneDim];
      for (auto [l, each] : lane.terms) {
        const int64_t made = coefficient(resultLane, l), groups = kernel.loops[l].extent;
        if (kernel.loops[l].kind != LoopKind::Parallel || each < 2 || made < 1)
          continue;
        const int64_t many = part / std::max(each, made);
        if (many == 0 || many >= groups)
          continue;
        runs[term.a.tensor].insert(many * each);
        runs[result.tensor].insert(many * made);
      }
    }
  const auto spread = [&](unsigned from, unsigned to) {
    const std::set<int64_t> lengths = runs[from];
    std::set<int64_t> &its = runs[to];
    const size_t before = its.size();
    its.insert(lengths.begin(), lengths.end());
    return its.size() > before;
  };
  const auto lanesOf = [&](const Access &access) {
    const Tensor &tensor = graph.tensors[access.tensor];
    return std::pair(tensor.shape[tensor.laneDim], access.index[tensor.laneDim]);
  };
  for (bool changed = !runs.empty(); changed;) {
    changed = false;
    for (const Kernel &kernel : graph.kernels) {
      const Access &result = kernel.results.front().access;
      for (const Access &operand : kernel.operands)
        if (graph.tensors[operand.tensor].role != TensorRole::Constant && !operand.lookup &&
            lanesOf(operand) == lanesOf(result)) {
          changed |= spread(operand.tensor, result.tensor);
          changed |= spread(result.tensor, operand.tensor);
        }
    }
  }
  return runs;
}

/// Runs of whole groups, each of which begins a part of a vector that a pass takes.
void LayoutProblem::addRuns(Variable &variable) const {
  const Tensor &tensor = graph.tensors[variable.tensors.front()];
  const MxmFormatSpec *format = machine.mxm.format(tensor.type);
  const int64_t channels = tensor.shape[tensor.laneDim],
                vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  if (!format || channels <= vector)
    return;
  std::set<int64_t> lengths;
  for (unsigned t : variable.tensors)
    if (const auto found = groupRuns.find(t); found != groupRuns.end())
      lengths.insert(found->second.begin(), found->second.end());
  for (int64_t length : lengths) {
    Layout layout = variable.candidates.front();
    layout.runs = {length, format->lanesPerPass};
    layout.lanes = layout.runs.laneOf(channels - 1) + 1;
    if (length < layout.runs.pitch)
      variable.candidates.push_back(std::move(layout));
  }
}

void LayoutProblem::addCandidates(Variable &variable) const {
  const Tensor &tensor = graph.tensors[variable.tensors.front()];
  const unsigned laneDim = tensor.laneDim;
  const int64_t channels = tensor.shape[laneDim];
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  addRuns(variable);
  // Dimensions of rows, the innermost last; at most two.
  std::vector<unsigned> dims;
  for (unsigned d = unsigned(tensor.shape.size()); d-- > 0 && dims.size() < 2;)
    if (d != laneDim && tensor.shape[d] > 1)
      dims.insert(dims.begin(), d);
  for (unsigned t : variable.tensors)
    for (unsigned d = 0; d < tensor.shape.size(); ++d)
      if (graph.tensors[t].shape[d] != tensor.shape[d] && graph.tensors[t].shape[d] != 1)
        return;
  if (dims.empty() || channels * 2 > vector)
    return;
  const MxmFormatSpec *format = machine.mxm.format(tensor.type);
  const int64_t part = format ? format->lanesPerPass : vector, most = vector / channels;
  const bool mayLeave = std::all_of(variable.tensors.begin(), variable.tensors.end(),
                                    [&](unsigned t) { return pads[t].has_value(); });
  const int64_t outerExtent = dims.size() == 2 ? tensor.shape[dims[0]] : 1,
                innerExtent = tensor.shape[dims.back()];
  struct Ranked {
    int64_t rows;
    Layout layout;
  };
  std::map<int64_t, std::vector<Ranked>> ranked; // by the power of two below the slots
  auto starts = [](int64_t block) {
    std::set<int64_t> all{0, std::min<int64_t>(1, block - 1), block - 1};
    return std::vector<int64_t>(all.begin(), all.end());
  };
  for (int64_t outer = 1; outer <= std::min(most, outerExtent); ++outer)
    for (int64_t inner = 1; outer * inner <= most && inner <= innerExtent; ++inner) {
      if (outer * inner == 1)
        continue;
      for (const Block &b : blocks(outer, inner, channels, vector, part))
        for (int64_t s0 : starts(outer))
          for (int64_t s1 : starts(inner)) {
            Layout layout = variable.candidates.front();
            if (dims.size() == 2)
              layout.dims[dims[0]] = blocksOf(outerExtent, outer, s0, b.pitch0);
            layout.dims[dims.back()] = blocksOf(innerExtent, inner, s1, b.pitch1);
            layout.lanes = (outer - 1) * b.pitch0 + (inner - 1) * b.pitch1 + channels;
            if (layout.hasOutside(tensor) && !mayLeave)
              continue;
            int64_t rows = 1;
            for (unsigned d = 0; d < layout.dims.size(); ++d)
              rows *= d == laneDim ? 1 : layout.dims[d].rows;
            ranked[std::bit_width(uint64_t(outer * inner))].push_back({rows, std::move(layout)});
          }
    }
  // Where sums of many terms would have too many choices, only beside the windows themselves.
  const auto isAny = [&](const std::set<unsigned> &tensors) {
    return std::any_of(variable.tensors.begin(), variable.tensors.end(),
                       [&](unsigned t) { return tensors.contains(t); });
  };
  if (!halos.empty() && (isAny(nearWindows) || !isAny(inLongSums)))
    addBands(variable, dims.front());
  // Of few slots and of many, those of the fewest rows.
  constexpr size_t kMostCandidates = 56;
  for (auto &[slots, list] : ranked) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Ranked &x, const Ranked &y) { return x.rows < y.rows; });
    for (size_t i = 0; i < list.size() && i * ranked.size() < kMostCandidates; ++i)
      variable.candidates.push_back(std::move(list[i].layout));
  }
}

namespace {

/// Rows that a band of one slot holds: each for as many slots as there can be, and rounded so that
/// windows of a step find whole bands, and those behind them, all of whose steps are `steps`.
std::set<int64_t> bandsOf(int64_t extent, int64_t mostSlots, int64_t step, int64_t steps) {
  std::set<int64_t> bands;
  for (int64_t slots = 2; slots <= std::min(mostSlots, extent); ++slots)
    for (int64_t multiple : {step, 2 * step, steps}) {
      const int64_t band = (((extent + slots - 1) / slots + multiple - 1) / multiple) * multiple;
      if (band < extent)
        bands.insert(band);
    }
  return bands;
}

} // namespace

LayoutProblem::Halo LayoutProblem::farthest(const std::map<unsigned, std::vector<Halo>> &all,
                                            const std::vector<unsigned> &tensors,
                                            unsigned dim) const {
  Halo halo;
  for (unsigned t : tensors)
    if (auto found = all.find(t); found != all.end()) {
      halo.before = std::max(halo.before, found->second[dim].before);
      halo.after = std::max(halo.after, found->second[dim].after);
      halo.step = std::max(halo.step, found->second[dim].step);
    }
  return halo;
}

/// Bands that suit the windows over tensors of one layout, and those over what these make.
std::set<int64_t> LayoutProblem::windowBands(const std::vector<unsigned> &tensors,
                                             unsigned dim) const {
  const Tensor &lead = graph.tensors[tensors.front()];
  return bandsOf(lead.shape[dim],
                 std::min<int64_t>(machine.lanes(), machine.mxm.columns) / lead.shape[lead.laneDim],
                 farthest(halos, tensors, dim).step, farthest(reaches, tensors, dim).step);
}

/// Bands of what products make of the tensors for windows, in rows of those results.
std::set<int64_t> LayoutProblem::bandsOfResults(const std::vector<unsigned> &tensors,
                                                unsigned dim) const {
  std::set<int64_t> bands;
  for (const Kernel &kernel : graph.kernels)
    for (const Term &term : kernel.terms) {
      const Access &result = kernel.results.front().access;
      if (!peers.contains(result.tensor) ||
          std::find(tensors.begin(), tensors.end(), term.a.tensor) == tensors.end())
        continue;
      for (unsigned d = 0; d < result.index.size(); ++d)
        if (const std::optional<unsigned> loop = onlyLoop(kernel, result.index[d]);
            loop && coefficient(term.a.index[dim], *loop))
          bands.merge(windowBands(peers.at(result.tensor), d));
    }
  return bands;
}

/// Bands that fit into those of what products make of the tensors for windows, or into those of
/// windows' results that products make them of: a row meets one row then. Of each of those, which
/// have few slots, that of as many slots as there can be, and the one that is as long.
std::set<int64_t> LayoutProblem::bandsBeside(const std::vector<unsigned> &tensors,
                                             unsigned dim) const {
  constexpr int64_t kFewSlots = 4; // with more, others have the same ones
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  const Tensor &lead = graph.tensors[tensors.front()];
  const int64_t extent = lead.shape[dim], most = vector / lead.shape[lead.laneDim];
  std::set<int64_t> bands;
  const auto add = [&](int64_t whole) {
    for (int64_t parts : {int64_t(1), most})
      for (; parts > 0 && parts <= whole; --parts)
        if (const int64_t band = whole / parts;
            whole % parts == 0 && (extent + band - 1) / band <= most) {
          bands.insert(band);
          break;
        }
  };
  const auto isOne = [&](unsigned tensor) {
    return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
  };
  for (const Kernel &kernel : graph.kernels)
    for (const Term &term : kernel.terms) {
      const Access &result = kernel.results.front().access;
      const bool reads = isOne(term.a.tensor) && peers.contains(result.tensor),
                 makes = isOne(result.tensor) && peers.contains(term.a.tensor);
      if (reads == makes)
        continue;
      const Access &own = reads ? term.a : result, &other = reads ? result : term.a;
      if (const Tensor &its = graph.tensors[other.tensor];
          vector / its.shape[its.laneDim] > kFewSlots)
        continue;
      for (unsigned d = 0; d < other.index.size(); ++d)
        for (const auto &[loop, step] : other.index[d].terms)
          if (const int64_t ours = coefficient(own.index[dim], loop);
              kernel.loops[loop].kind == LoopKind::Parallel && ours > 0 && step > 0)
            for (const int64_t band : windowBands(peers.at(other.tensor), d))
              if (band * ours % step == 0)
                add(band * ours / step);
    }
  return bands;
}

/// A dimension cut into bands, one in each slot, so that neighbours lie in neighbouring rows:
/// alone, and with what windows read beyond a band.
void LayoutProblem::addBands(Variable &variable, unsigned dim) const {
  const Tensor &tensor = graph.tensors[variable.tensors.front()];
  const int64_t channels = tensor.shape[tensor.laneDim], extent = tensor.shape[dim];
  const Halo halo = farthest(halos, variable.tensors, dim),
             reach = farthest(reaches, variable.tensors, dim);
  const bool mayLeave = std::all_of(variable.tensors.begin(), variable.tensors.end(),
                                    [&](unsigned t) { return pads[t].has_value(); });
  std::set<int64_t> bands = windowBands(variable.tensors, dim);
  bands.merge(bandsBeside(variable.tensors, dim));
  bands.erase(bands.lower_bound(extent), bands.end());
  for (int64_t band : bands)
    for (const Halo &h :
         std::set<Halo>{Halo{}, {halo.before, halo.after, 1}, {reach.before, reach.after, 1}}) {
      Layout layout = variable.candidates.front();
      const int64_t slots = (extent + band - 1) / band;
      layout.dims[dim] = {band + h.before + h.after, 1, slots, band, h.before, channels};
      layout.lanes = slots * channels;
      if (mayLeave || !layout.hasOutside(tensor))
        variable.candidates.push_back(std::move(layout));
    }
}

namespace {

/// How all kernels that sum over windows of an input step through a dimension of it: from `low` to
/// `high` for the first of `count` results, `step` further for each.
struct WindowSteps {
  int64_t step = 0, low = 0, high = 0, count = 0;
  int64_t extent = 1; ///< of the dimension
};

/// Of windows over any of these tensors, which have one layout; whoever reads them otherwise is not
/// asked here.
std::optional<WindowSteps> windowSteps(const KernelGraph &graph,
                                       const std::vector<unsigned> &tensors, unsigned dim) {
  const auto isOne = [&](unsigned tensor) {
    return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
  };
  std::optional<WindowSteps> all;
  for (const Kernel &kernel : graph.kernels) {
    for (const Term &term : kernel.terms) {
      if (!isOne(term.a.tensor))
        continue;
      WindowSteps own{0, term.a.index[dim].offset, term.a.index[dim].offset, 1,
                      graph.tensors[term.a.tensor].shape[dim]};
      for (auto [l, c] : term.a.index[dim].terms) {
        if (kernel.loops[l].extent == 1)
          continue;
        if (kernel.loops[l].kind == LoopKind::Contracted) {
          own.low += std::min<int64_t>(0, c * (kernel.loops[l].extent - 1));
          own.high += std::max<int64_t>(0, c * (kernel.loops[l].extent - 1));
        } else if (kernel.loops[l].kind == LoopKind::Parallel && c > 0 && !own.step) {
          own.step = c;
          own.count = kernel.loops[l].extent;
        } else {
          return std::nullopt;
        }
      }
      if (!own.step) // it sums the whole dimension, or one index of it
        continue;
      if (all && (own.step != all->step || own.extent != all->extent))
        return std::nullopt;
      all = all ? WindowSteps{own.step, std::min(own.low, all->low), std::max(own.high, all->high),
                              std::max(own.count, all->count), own.extent}
                : own;
    }
  }
  return all;
}

} // namespace

/// How often the host may repeat each element of what it writes of the variable's, on average
/// (docs/spec, R15): three times in all copies and views of an input together.
double LayoutProblem::mostRepetition(const Variable &variable) const {
  double most = forms::kMostRepetition;
  for (unsigned t : variable.tensors) {
    const std::string &name = graph.tensors[t].hostName;
    if (!fromHost[t] || name.empty())
      continue;
    double times = 0;
    for (unsigned other = 0; other < graph.tensors.size(); ++other)
      if (const Tensor &its = graph.tensors[other]; its.role == TensorRole::Input &&
                                                    its.hostName == name && lives[other].end > 0 &&
                                                    forms::hostDims(its))
        times += std::min(1.0, double(elementCount(its)) / double(forms::hostElementCount(its)));
    most = std::min(most, double(forms::kMostRepetition) / times);
  }
  return most;
}

/// Windows of an image of few channels, as the host writes it, and as maps of the image then have
/// it: rows that hold what a block of results needs, some elements of it more than once.
void LayoutProblem::addWindows(Variable &variable, size_t mostWindows) const {
  const unsigned t = variable.tensors.front();
  const Tensor &tensor = graph.tensors[t];
  const double mostRepetition = this->mostRepetition(variable);
  std::vector<unsigned> dims;
  for (unsigned d = unsigned(tensor.shape.size()); d-- > 0 && dims.size() < 2;)
    if (d != tensor.laneDim && tensor.shape[d] > 1)
      dims.insert(dims.begin(), d);
  const int64_t channels = tensor.shape[tensor.laneDim],
                vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  const MxmFormatSpec *format = machine.mxm.format(tensor.type);
  const auto mayTake = [&](unsigned other) {
    const std::vector<int64_t> &shape = graph.tensors[other].shape;
    for (unsigned d = 0; d < shape.size(); ++d)
      if (shape[d] != tensor.shape[d] && shape[d] != 1)
        return false;
    return pads[other].has_value();
  };
  if (dims.empty() || !format || channels * 2 > vector ||
      !std::all_of(variable.tensors.begin(), variable.tensors.end(), mayTake))
    return;
  const std::optional<WindowSteps> inner = windowSteps(graph, variable.tensors, dims.back()),
                                   outer = dims.size() == 2
                                               ? windowSteps(graph, variable.tensors, dims.front())
                                               : WindowSteps{1, 0, 0, 1, 1};
  if (!inner || !outer)
    return;
  const auto overlap = [](const WindowSteps &steps) {
    return steps.high - steps.low >= steps.step;
  };
  const bool isOfHost = std::any_of(variable.tensors.begin(), variable.tensors.end(),
                                    [&](unsigned other) { return fromHost[other]; });
  if (!isOfHost && !overlap(*inner) && !overlap(*outer))
    return; // blocks, as other tensors have them
  struct Ranked {
    double sweeps;                     ///< per result, about
    std::pair<int64_t, int64_t> block; ///< results beside and below each other
    Layout layout;
  };
  std::vector<Ranked> ranked;
  const int64_t part = format->lanesPerPass, window = outer->high - outer->low + 1;
  struct Columns {
    int64_t wide;   ///< results beside each other
    int64_t behind; ///< rows, one behind the other, that a window takes
    DimLayout layout;
  };
  std::vector<Columns> columns;
  const int64_t taps = inner->high - inner->low + 1;
  for (int64_t wide = 1; wide <= inner->count; ++wide) {
    const int64_t slots = inner->step * (wide - 1) + taps;
    if (slots * channels > vector)
      break;
    columns.push_back(
        {wide,
         1,
         {(inner->count + wide - 1) / wide, inner->step * wide, slots, 1, -inner->low, channels}});
  }
  if (columns.empty()) // windows longer than a vector, as patches are: in equal pieces
    for (int64_t slots = vector / channels; slots > 1; --slots)
      if (inner->step % slots == 0)
        columns.push_back({1,
                           (taps + slots - 1) / slots,
                           {(inner->step * (inner->count - 1) + taps - 1) / slots + 1, slots, slots,
                            1, -inner->low, channels}});
  for (const auto &[wide, behind, x] : columns) {
    // A row begins every `step` image rows and holds `rows` of them.
    const int64_t most = dims.size() == 2 ? 4 * outer->step : 1;
    for (int64_t step = 1; step <= most; ++step) {
      if (step < outer->step ? outer->step % step : step % outer->step)
        continue; // results would differ in where their rows begin
      const int64_t high = std::max<int64_t>(1, step / outer->step);
      for (int64_t rows = std::min(step, window);
           rows <= outer->step * (high - 1) + window && rows <= outer->extent; ++rows) {
        const int64_t lanes = rows * x.slots * channels;
        const double repetition = double(rows) / double(step) * double(x.slots) / double(x.rowStep);
        if (lanes > vector || repetition > mostRepetition)
          break;
        Layout layout = plain[t];
        layout.dims[dims.back()] = x;
        layout.lanes = lanes;
        if (dims.size() == 2) {
          const int64_t last = outer->step * (outer->count - 1) + window - 1;
          layout.dims[dims.front()] = {std::max<int64_t>(1, (last - rows + step) / step + 1),
                                       step,
                                       rows,
                                       1,
                                       -outer->low,
                                       rows > 1 ? x.slots * channels : 0};
        }
        const int64_t apart = rows / step * step; // from one sweep to the next
        const double sweeps =
            double((lanes + part - 1) / part * behind) *
            (1 + std::ceil(double(std::max<int64_t>(0, outer->step * (high - 1) + window - rows)) /
                           double(apart))) /
            double(wide * high);
        ranked.push_back({sweeps, {wide, high}, std::move(layout)});
      }
    }
  }
  // Bands of results: a row holds as many windows of one column each.
  std::set<Halo> beside{Halo{}};
  for (const auto *all : {&halos, &reaches})
    for (const auto &[tensor, its] : *all)
      for (const Halo &h : its)
        beside.insert({h.before, h.after, 1});
  const auto isOne = [&](unsigned other) {
    return std::find(variable.tensors.begin(), variable.tensors.end(), other) !=
           variable.tensors.end();
  };
  const auto narrowest = [&] { // of results of its windows: as many bands as theirs are read
    int64_t lanes = vector;
    for (const Kernel &kernel : graph.kernels)
      for (const Term &term : kernel.terms)
        if (const Tensor &result = graph.tensors[kernel.results.front().access.tensor];
            isOne(term.a.tensor))
          lanes = std::min(lanes, result.shape[result.laneDim]);
    return std::max(lanes, channels);
  };
  std::vector<Ranked> banded;
  std::set<int64_t> bands;
  if (dims.size() == 2 && !halos.empty()) {
    bands = bandsOf(outer->count, vector / narrowest(), 1, 1);
    bands.merge(bandsOfResults(variable.tensors, dims.front()));
  }
  for (int64_t band : bands)
    for (const Halo &h : beside) {
      const int64_t slots = (outer->count + band - 1) / band, wide = inner->high - inner->low + 1;
      // As many columns of a window in a row as may be repeated; the others in rows behind.
      for (int64_t columns = wide; columns >= std::min(inner->step, wide); --columns) {
        const int64_t behind = (wide - columns + inner->step - 1) / inner->step;
        const DimLayout x{inner->count + behind,     inner->step, columns, 1, -inner->low,
                          columns > 1 ? channels : 0};
        const DimLayout y{outer->step * (band + h.before + h.after - 1) + window,
                          1,
                          slots,
                          outer->step * band,
                          outer->step * h.before - outer->low,
                          x.slots * channels};
        const int64_t lanes = slots * x.slots * channels;
        const double repetition =
            double(y.rows * slots) / double(outer->extent) * double(x.slots) / double(x.rowStep);
        if (lanes > vector || repetition > mostRepetition)
          continue;
        Layout layout = plain[t];
        layout.dims[dims.back()] = x;
        layout.dims[dims.front()] = y;
        layout.lanes = lanes;
        banded.push_back({double((lanes + part - 1) / part * window * (behind + 1)) / double(slots),
                          {-slots, h.before + h.after},
                          std::move(layout)});
        break;
      }
    }
  std::map<std::pair<int64_t, int64_t>, unsigned> ofBlock; // several for each
  size_t most = variable.candidates.size() - 1;            // beside the plain one
  for (std::vector<Ranked> *list : {&ranked, &banded}) {
    std::stable_sort(list->begin(), list->end(),
                     [](const Ranked &x, const Ranked &y) { return x.sweeps < y.sweeps; });
    most += list == &ranked ? mostWindows : mostWindows / 3;
    for (Ranked &r : *list)
      if (ofBlock[r.block]++ < 4 && variable.candidates.size() < most)
        variable.candidates.push_back(std::move(r.layout));
  }
}

} // namespace millrace::layouts
