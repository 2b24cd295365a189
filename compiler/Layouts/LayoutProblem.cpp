// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/LayoutProblem.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/Materialize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

namespace millrace::layouts {

namespace {

/// Tensors that may have another layout than the plain one: made by one kernel, for kernels that
/// stream them.
std::vector<bool> freeTensors(const KernelGraph &graph) {
  const forms::Uses uses(graph);
  std::vector<bool> free;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    free.push_back(
        graph.tensors[t].shape.size() > 1 && !uses.onHost[t] &&
        (graph.tensors[t].role == TensorRole::Input
             ? graph.tensors[t].hostLoops.empty() && !graph.tensors[t].hostExtent
             : graph.tensors[t].role == TensorRole::Intermediate && uses.writers[t].size() == 1));
  for (const Kernel &kernel : graph.kernels) {
    std::set<unsigned> written;
    for (const forms::Result &r : kernel.results)
      if (!written.insert(r.access.tensor).second)
        free[r.access.tensor] = false;
    for (const Term &term : kernel.terms)
      free[term.w.tensor] = false;
    for (const Access &operand : kernel.operands)
      if (operand.lookup)
        free[operand.tensor] = free[operand.lookup->tensor] = false;
  }
  return free;
}

/// The access is the result's own index, or an index of 0 in dimensions of a single one.
bool meets(const KernelGraph &graph, const Kernel &kernel, const Access &access,
           const Access &result) {
  const Tensor &mine = graph.tensors[access.tensor], &theirs = graph.tensors[result.tensor];
  if (mine.shape.size() != theirs.shape.size() || mine.laneDim != theirs.laneDim ||
      mine.shape[mine.laneDim] != theirs.shape[theirs.laneDim])
    return false;
  for (unsigned d = 0; d < mine.shape.size(); ++d) {
    if (access.index[d].offset != result.index[d].offset)
      return false;
    bool same = true;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      same = same && (kernel.loops[l].extent == 1 ||
                      coefficient(access.index[d], l) == coefficient(result.index[d], l));
    if (!same && (mine.shape[d] != 1 || d == mine.laneDim))
      return false;
  }
  return true;
}

struct Sets { ///< union-find
  std::vector<unsigned> parent;
  explicit Sets(size_t n) : parent(n) { std::iota(parent.begin(), parent.end(), 0u); }
  unsigned find(unsigned x) { return parent[x] == x ? x : parent[x] = find(parent[x]); }
  void join(unsigned x, unsigned y) { parent[find(x)] = find(y); }
};

/// Bytes of a kernel's weights in whole vectors, as it is.
int64_t plainWeights(const KernelGraph &graph, const Kernel &kernel, int64_t vector) {
  int64_t bytes = 0;
  for (const Term &term : kernel.terms) {
    const Tensor &w = graph.tensors[term.w.tensor];
    const int64_t lanes = w.shape[w.laneDim];
    bytes += elementCount(w) / lanes * ((lanes + vector - 1) / vector) * vector * byteWidth(w.type);
  }
  return bytes;
}

int64_t extents(const Tensor &tensor) {
  int64_t rows = 1;
  for (unsigned d = 0; d < tensor.shape.size(); ++d)
    if (d != tensor.laneDim)
      rows *= tensor.shape[d];
  return rows;
}

} // namespace

LayoutProblem::LayoutProblem(const KernelGraph &graph, const Machine &machine,
                             std::shared_ptr<CostCache> shared)
    : graph(graph), machine(machine),
      cache(shared ? std::move(shared) : std::make_shared<CostCache>()) {
  for (const Tensor &tensor : graph.tensors)
    plain.push_back(Layout::plain(tensor));
  findHalos();
  findVariables();
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    Factor factor{k, {}};
    auto add = [&](unsigned t) {
      if (variableOf[t] >= 0 &&
          !std::count(factor.variables.begin(), factor.variables.end(), unsigned(variableOf[t])))
        factor.variables.push_back(unsigned(variableOf[t]));
    };
    for (const forms::Result &r : kernel.results)
      add(r.access.tensor);
    for (const Term &term : kernel.terms)
      add(term.a.tensor);
    for (const Access &operand : kernel.operands)
      add(operand.tensor);
    if (factor.variables.empty()) {
      otherBytes += plainWeights(graph, kernel, machine.lanes());
      const LayoutOf layouts = [&](unsigned t) -> const Layout & { return plain[t]; };
      if (const std::optional<KernelLayout> layout =
              KernelLayout::of(graph, kernel, machine, layouts))
        if (const std::optional<Cost> cost =
                layouts::costOf(graph, kernel, machine, *layout, layouts))
          otherCycles += cost->cycles(graph, kernel, machine);
    } else {
      factors.push_back(factor);
      kinds.push_back(
          cache->kinds.emplace(shapeOf(factor), unsigned(cache->kinds.size())).first->second);
      cache->known.resize(cache->kinds.size());
    }
  }
}

/// Of both, the farther in each dimension.
void LayoutProblem::widen(std::map<unsigned, std::vector<Halo>> &all, unsigned tensor,
                          const std::vector<Halo> &halo) {
  std::vector<Halo> &its = all.try_emplace(tensor, halo.size()).first->second;
  for (unsigned d = 0; d < halo.size(); ++d)
    its[d] = {std::max(its[d].before, halo[d].before), std::max(its[d].after, halo[d].after),
              std::max(its[d].step, halo[d].step)};
}

void LayoutProblem::findHalos() {
  constexpr size_t kLongSum = 8; // terms: a factor costs as much as the square of their number
  for (const Kernel &kernel : graph.kernels) {
    if (kernel.terms.size() > kLongSum)
      for (const Term &term : kernel.terms)
        inLongSums.insert(term.a.tensor);
    std::map<unsigned, std::vector<const Access *>> reads;
    for (const Access &operand : kernel.operands)
      if (graph.tensors[operand.tensor].role != TensorRole::Constant)
        reads[operand.tensor].push_back(&operand);
    for (const auto &[tensor, taps] : reads) {
      if (taps.size() < 2)
        continue;
      const forms::Result &first = kernel.results.front();
      Window window{tensor, first.access.tensor,
                    std::vector<Halo>(graph.tensors[tensor].shape.size())};
      for (const Access *tap : taps)
        for (unsigned d = 0; d < window.halo.size(); ++d)
          if (const std::optional<unsigned> loop = onlyLoop(kernel, tap->index[d])) {
            const int64_t step = coefficient(tap->index[d], *loop), at = tap->index[d].offset;
            Halo &its = window.halo[d];
            its.step = std::max(its.step, step);
            its.before = std::max(its.before, -at);
            its.after = std::max(its.after, at + 1 - step);
          }
      widen(halos, tensor, window.halo);
      windows.push_back(std::move(window));
      nearWindows.insert(tensor);
      for (const forms::Result &r : kernel.results)
        nearWindows.insert(r.access.tensor);
    }
  }
}

/// What a row of a result holds beyond its band, its operands hold there, too: those of other
/// variables get the halo of the result's, unless the kernel is a window of them. `variableOf`: a
/// number, or -1 for what stays plain.
void LayoutProblem::spreadHalos(const std::function<int(unsigned)> &variableOf) {
  std::map<int, std::vector<Halo>> its; // by variable
  auto widen = [](std::vector<Halo> &all, size_t dim, const Halo &halo) {
    const Halo before = all[dim];
    all[dim].before = std::max(before.before, halo.before);
    all[dim].after = std::max(before.after, halo.after);
    return all[dim] != before;
  };
  for (const auto &[tensor, all] : halos)
    for (size_t d = 0; variableOf(tensor) >= 0 && d < all.size(); ++d)
      widen(its.try_emplace(variableOf(tensor), all.size()).first->second, d, all[d]);
  for (bool changed = !its.empty(); changed;) {
    changed = false;
    for (size_t k = graph.kernels.size(); k-- > 0;) {
      const Kernel &kernel = graph.kernels[k];
      const Access &result = kernel.results.front().access;
      const auto found = its.find(variableOf(result.tensor));
      if (found == its.end())
        continue;
      const std::vector<Halo> wanted = found->second;
      for (const Access &operand : kernel.operands) {
        const int variable = variableOf(operand.tensor);
        const auto isSame = [&](const Access &other) { return other.tensor == operand.tensor; };
        if (variable < 0 || variable == variableOf(result.tensor) || operand.lookup ||
            std::count_if(kernel.operands.begin(), kernel.operands.end(), isSame) > 1)
          continue;
        const size_t dims = graph.tensors[operand.tensor].shape.size();
        for (unsigned d = 0; d < dims; ++d)
          for (unsigned e = 0; e < result.index.size(); ++e) {
            const std::optional<unsigned> loop = onlyLoop(kernel, operand.index[d]);
            if (!loop || d == graph.tensors[operand.tensor].laneDim ||
                onlyLoop(kernel, result.index[e]) != loop ||
                coefficient(operand.index[d], *loop) != 1 ||
                (wanted[e].before == 0 && wanted[e].after == 0))
              continue;
            changed |= widen(its.try_emplace(variable, dims).first->second, d, wanted[e]);
            widen(halos.try_emplace(operand.tensor, dims).first->second, d, wanted[e]);
          }
      }
    }
  }
}

/// From the last window to the first: a window over a result that is read beside itself reaches
/// further. Tensors of one layout reach as far as each other.
void LayoutProblem::findReaches(const std::map<unsigned, Variable> &byRoot) {
  reaches = halos;
  std::vector<unsigned> rootOf(graph.tensors.size(), ~0u);
  for (const auto &[root, variable] : byRoot)
    for (unsigned t : variable.tensors)
      rootOf[t] = root;
  const auto share = [&](unsigned tensor, const std::vector<Halo> &halo) {
    if (rootOf[tensor] != ~0u)
      for (unsigned t : byRoot.at(rootOf[tensor]).tensors)
        widen(reaches, t, halo);
  };
  for (const auto &[tensor, halo] : halos)
    share(tensor, halo);
  for (auto window = windows.rbegin(); window != windows.rend(); ++window) {
    const auto behind = reaches.find(window->result);
    if (behind == reaches.end() || behind->second.size() != window->halo.size())
      continue;
    std::vector<Halo> sum = window->halo;
    for (unsigned d = 0; d < sum.size(); ++d) {
      if (!sum[d].before && !sum[d].after) // it moves along another dimension
        continue;
      sum[d].before += sum[d].step * behind->second[d].before;
      sum[d].after += sum[d].step * behind->second[d].after;
    }
    share(window->tensor, sum);
  }
}

void LayoutProblem::findVariables() {
  const std::vector<bool> free = freeTensors(graph);
  Sets sets(graph.tensors.size());
  for (const Kernel &kernel : graph.kernels) {
    const Access &result = kernel.results.front().access;
    auto join = [&](const Access &access) {
      // Neighbours that a window reads, too, are not where the result is.
      for (const Access &other : kernel.operands)
        if (other.tensor == access.tensor && !meets(graph, kernel, other, result))
          return;
      if (free[access.tensor] && free[result.tensor] &&
          graph.tensors[access.tensor].role == TensorRole::Intermediate &&
          meets(graph, kernel, access, result))
        sets.join(access.tensor, result.tensor);
    };
    for (const forms::Result &r : kernel.results)
      join(r.access);
    for (const Access &operand : kernel.operands)
      join(operand);
  }
  spreadHalos([&](unsigned tensor) { return free[tensor] ? int(sets.find(tensor)) : -1; });
  std::map<unsigned, Variable> byRoot;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (free[t])
      byRoot[sets.find(t)].tensors.push_back(t);
  findReaches(byRoot);
  variableOf.assign(graph.tensors.size(), -1);
  for (auto &[root, variable] : byRoot) {
    // The one with the most rows leads.
    std::stable_sort(variable.tensors.begin(), variable.tensors.end(), [&](unsigned x, unsigned y) {
      return extents(graph.tensors[x]) > extents(graph.tensors[y]);
    });
    if (graph.tensors[variable.tensors.front()].role == TensorRole::Input)
      addInputCandidates(variable);
    else
      addCandidates(variable);
    if (variable.candidates.size() < 2)
      continue;
    for (unsigned t : variable.tensors)
      variableOf[t] = int(variables.size());
    variables.push_back(std::move(variable));
  }
}

/// What the layout of the variable's first tensor means for another: the same slots in its
/// dimensions, or in those of one index that index in every slot.
Layout LayoutProblem::memberLayout(const Variable &variable, unsigned tensor,
                                   const Layout &layout) const {
  const Tensor &lead = graph.tensors[variable.tensors.front()], &member = graph.tensors[tensor];
  Layout its = layout;
  for (unsigned d = 0; d < its.dims.size(); ++d)
    if (member.shape[d] != lead.shape[d])
      its.dims[d] = {1, 1, layout.dims[d].slots, 0, 0, layout.dims[d].pitch};
  return its;
}

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

void LayoutProblem::addCandidates(Variable &variable) const {
  const Tensor &tensor = graph.tensors[variable.tensors.front()];
  const unsigned laneDim = tensor.laneDim;
  const int64_t channels = tensor.shape[laneDim];
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  variable.candidates.push_back(plain[variable.tensors.front()]);
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
                                    [&](unsigned t) { return padOf(graph, t).has_value(); });
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
/// windows of a step find whole bands.
std::set<int64_t> bandsOf(int64_t extent, int64_t mostSlots, int64_t step) {
  std::set<int64_t> bands;
  for (int64_t slots = 2; slots <= std::min(mostSlots, extent); ++slots)
    for (int64_t multiple : {step, 2 * step}) {
      const int64_t band = (((extent + slots - 1) / slots + multiple - 1) / multiple) * multiple;
      if (band < extent)
        bands.insert(band);
    }
  return bands;
}

} // namespace

/// A dimension cut into bands, one in each slot, so that neighbours lie in neighbouring rows:
/// alone, and with what windows read beyond a band.
void LayoutProblem::addBands(Variable &variable, unsigned dim) const {
  const Tensor &tensor = graph.tensors[variable.tensors.front()];
  const int64_t channels = tensor.shape[tensor.laneDim], extent = tensor.shape[dim],
                most = std::min<int64_t>(machine.lanes(), machine.mxm.columns) / channels;
  const auto farthest = [&](const std::map<unsigned, std::vector<Halo>> &all) {
    Halo halo;
    for (unsigned t : variable.tensors)
      if (auto found = all.find(t); found != all.end()) {
        halo.before = std::max(halo.before, found->second[dim].before);
        halo.after = std::max(halo.after, found->second[dim].after);
        halo.step = std::max(halo.step, found->second[dim].step);
      }
    return halo;
  };
  const Halo halo = farthest(halos), reach = farthest(reaches);
  const bool mayLeave = std::all_of(variable.tensors.begin(), variable.tensors.end(),
                                    [&](unsigned t) { return padOf(graph, t).has_value(); });
  for (int64_t band : bandsOf(extent, most, halo.step))
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

std::optional<WindowSteps> windowSteps(const KernelGraph &graph, unsigned tensor, unsigned dim) {
  std::optional<WindowSteps> all;
  for (const Kernel &kernel : graph.kernels) {
    for (const Access &operand : kernel.operands)
      if (operand.tensor == tensor)
        return std::nullopt;
    for (const Term &term : kernel.terms) {
      if (term.a.tensor != tensor)
        continue;
      WindowSteps own{0, term.a.index[dim].offset, term.a.index[dim].offset, 1,
                      graph.tensors[tensor].shape[dim]};
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
      if (all && own.step != all->step)
        return std::nullopt;
      all = all ? WindowSteps{own.step, std::min(own.low, all->low), std::max(own.high, all->high),
                              std::max(own.count, all->count), own.extent}
                : own;
    }
  }
  return all && all->step ? all : std::nullopt;
}

} // namespace

/// Windows of an image of few channels: the host writes rows that hold what a block of results
/// needs, three times as much as there is at most.
void LayoutProblem::addInputCandidates(Variable &variable) const {
  constexpr double kMostRepetition = 3; // docs/spec, R15
  constexpr size_t kMostInputs = 96;
  const unsigned t = variable.tensors.front();
  const Tensor &tensor = graph.tensors[t];
  variable.candidates.push_back(plain[t]);
  std::vector<unsigned> dims;
  for (unsigned d = unsigned(tensor.shape.size()); d-- > 0 && dims.size() < 2;)
    if (d != tensor.laneDim && tensor.shape[d] > 1)
      dims.insert(dims.begin(), d);
  const int64_t channels = tensor.shape[tensor.laneDim],
                vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  const MxmFormatSpec *format = machine.mxm.format(tensor.type);
  if (dims.empty() || !format || channels * 2 > vector || !padOf(graph, t))
    return;
  const std::optional<WindowSteps> inner = windowSteps(graph, t, dims.back()),
                                   outer = dims.size() == 2 ? windowSteps(graph, t, dims.front())
                                                            : WindowSteps{1, 0, 0, 1, 1};
  if (!inner || !outer)
    return;
  struct Ranked {
    double sweeps;                     ///< per result, about
    std::pair<int64_t, int64_t> block; ///< results beside and below each other
    Layout layout;
  };
  std::vector<Ranked> ranked;
  const int64_t part = format->lanesPerPass, window = outer->high - outer->low + 1;
  for (int64_t wide = 1; wide <= inner->count; ++wide) {
    DimLayout x{(inner->count + wide - 1) / wide,
                inner->step * wide,
                inner->step * (wide - 1) + inner->high - inner->low + 1,
                1,
                -inner->low,
                channels};
    if (x.slots * channels > vector)
      break;
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
        if (lanes > vector || repetition > kMostRepetition)
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
            double((lanes + part - 1) / part) *
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
  for (int64_t band : dims.size() == 2 && !halos.empty()
                          ? bandsOf(outer->count, vector / channels, 1)
                          : std::set<int64_t>())
    for (const Halo &h : beside) {
      const int64_t slots = (outer->count + band - 1) / band;
      const DimLayout x{inner->count, inner->step, inner->high - inner->low + 1, 1,
                        -inner->low,  channels};
      const DimLayout y{outer->step * (band + h.before + h.after - 1) + window,
                        1,
                        slots,
                        outer->step * band,
                        outer->step * h.before - outer->low,
                        x.slots * channels};
      const int64_t lanes = slots * x.slots * channels;
      const double repetition =
          double(y.rows * slots) / double(outer->extent) * double(x.slots) / double(x.rowStep);
      if (lanes > vector || repetition > kMostRepetition)
        continue;
      Layout layout = plain[t];
      layout.dims[dims.back()] = x;
      layout.dims[dims.front()] = y;
      layout.lanes = lanes;
      ranked.push_back({double((lanes + part - 1) / part * window) / double(slots),
                        {-slots, h.before + h.after},
                        std::move(layout)});
    }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked &x, const Ranked &y) { return x.sweeps < y.sweeps; });
  std::map<std::pair<int64_t, int64_t>, unsigned> ofBlock; // several for each
  for (Ranked &r : ranked)
    if (ofBlock[r.block]++ < 4 && variable.candidates.size() < kMostInputs)
      variable.candidates.push_back(std::move(r.layout));
}

std::vector<Layout> LayoutProblem::layoutsOf(const Choice &choice) const {
  std::vector<Layout> layouts = plain;
  for (size_t v = 0; v < variables.size(); ++v)
    if (choice[v])
      for (unsigned t : variables[v].tensors)
        layouts[t] = memberLayout(variables[v], t, variables[v].candidates[choice[v]]);
  return layouts;
}

namespace {

void appendNumbers(std::string &text, std::initializer_list<int64_t> numbers) {
  for (int64_t n : numbers)
    text += std::to_string(n) + ",";
}

void append(std::string &text, const AffineIndex &index) {
  appendNumbers(text, {index.offset});
  for (auto [l, c] : index.terms)
    appendNumbers(text, {l, c});
  text += ";";
}

void append(std::string &text, const Layout &layout) {
  for (const DimLayout &d : layout.dims)
    appendNumbers(text, {d.rows, d.rowStep, d.slots, d.slotStep, d.start, d.pitch});
  appendNumbers(text, {layout.laneDim, layout.lanes});
}

} // namespace

/// Factors of equal text have equal candidates and costs.
std::string LayoutProblem::shapeOf(const Factor &factor) const {
  const Kernel &kernel = graph.kernels[factor.kernel];
  std::string text;
  for (const forms::Loop &loop : kernel.loops)
    appendNumbers(text, {loop.extent, int64_t(loop.kind)});
  auto add = [&](const char *what, const Access &access) {
    const Tensor &tensor = graph.tensors[access.tensor];
    text += what;
    appendNumbers(text, {int64_t(tensor.type), int64_t(tensor.role), tensor.laneDim,
                         access.lookup ? 1 : 0,
                         variableOf[access.tensor] < 0
                             ? -1
                             : std::find(factor.variables.begin(), factor.variables.end(),
                                         unsigned(variableOf[access.tensor])) -
                                   factor.variables.begin()});
    for (int64_t extent : tensor.shape)
      appendNumbers(text, {extent});
    for (const AffineIndex &index : access.index)
      append(text, index);
  };
  for (const forms::Result &r : kernel.results)
    add("r", r.access);
  for (const Term &term : kernel.terms)
    add("a", term.a), add("w", term.w);
  for (const Access &operand : kernel.operands)
    add("o", operand);
  int64_t operations = 0;
  for (const forms::Node &node : kernel.nodes)
    operations += node.kind == forms::Node::Kind::Op || node.kind == forms::Node::Kind::Reduce;
  appendNumbers(text, {operations});
  for (unsigned v : factor.variables)
    for (const Layout &layout : variables[v].candidates)
      append(text, layout);
  return text;
}

std::optional<Cost> LayoutProblem::costOf(size_t f, const std::vector<unsigned> &candidates) const {
  const Factor &factor = factors[f];
  std::map<unsigned, Layout> own;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i])
      for (unsigned t : variables[factor.variables[i]].tensors)
        own[t] = memberLayout(variables[factor.variables[i]], t,
                              variables[factor.variables[i]].candidates[candidates[i]]);
  const LayoutOf layouts = [&](unsigned t) -> const Layout & {
    auto found = own.find(t);
    return found == own.end() ? plain[t] : found->second;
  };
  const Kernel &kernel = graph.kernels[factor.kernel];
  const std::optional<KernelLayout> layout = KernelLayout::of(graph, kernel, machine, layouts);
  if (!layout)
    return std::nullopt;
  return layouts::costOf(graph, kernel, machine, *layout, layouts);
}

const CostCache::Known &LayoutProblem::look(size_t f,
                                            const std::vector<unsigned> &candidates) const {
  const Factor &factor = factors[f];
  uint64_t key = 0;
  for (size_t i = 0; i < candidates.size(); ++i)
    key = key * variables[factor.variables[i]].candidates.size() + candidates[i];
  auto [found, fresh] = cache->known[kinds[f]].try_emplace(key);
  if (!fresh)
    return found->second;
  CostCache::Known &entry = found->second;
  const Kernel &kernel = graph.kernels[factor.kernel];
  if (const std::optional<Cost> cost = costOf(f, candidates)) {
    entry = {cost->cycles(graph, kernel, machine), cost->weightBytes};
  } else {
    const bool allPlain =
        std::all_of(candidates.begin(), candidates.end(), [](unsigned c) { return c == 0; });
    entry.cycles = allPlain ? 0 : kImpossible; // a kernel of another kind, and as it is
    entry.weightBytes = plainWeights(graph, kernel, machine.lanes());
  }
  return entry;
}

double LayoutProblem::cost(size_t f, const std::vector<unsigned> &candidates,
                           double bytePrice) const {
  const CostCache::Known &entry = look(f, candidates);
  return entry.cycles + bytePrice * double(entry.weightBytes);
}

double LayoutProblem::cost(const Choice &choice, double bytePrice) const {
  double sum = 0;
  for (size_t f = 0; f < factors.size(); ++f) {
    std::vector<unsigned> own;
    for (unsigned v : factors[f].variables)
      own.push_back(choice[v]);
    sum += cost(f, own, bytePrice);
  }
  return sum;
}

double LayoutProblem::graphCost(const Choice &choice) const { return otherCycles + cost(choice); }

int64_t LayoutProblem::weightBytes(const Choice &choice) const {
  int64_t sum = otherBytes;
  for (size_t f = 0; f < factors.size(); ++f) {
    std::vector<unsigned> own;
    for (unsigned v : factors[f].variables)
      own.push_back(choice[v]);
    sum += look(f, own).weightBytes;
  }
  return sum;
}

/// While they do, weights lie in both hemispheres, so that all engines share a kernel's rows; where
/// they do not as it is, packing may add a tenth.
int64_t LayoutProblem::mostWeightBytes() const {
  const double bytes = double(machine.pes()) * kHemispheres * machine.memory.slices *
                       machine.rowsPerSlice() * machine.lanes();
  const auto both = int64_t(bytes * 0.4), one = int64_t(bytes * 0.8),
             least = weightBytes(Choice(variables.size(), 0));
  return least <= both ? both : std::max(least, std::min(one, least + least / 10));
}

Status verify(const LayoutProblem &problem, const Choice &choice) {
  if (choice.size() != problem.variables.size())
    return Error{"the layouts name " + std::to_string(choice.size()) + " of " +
                 std::to_string(problem.variables.size()) + " variables"};
  for (size_t v = 0; v < choice.size(); ++v)
    if (choice[v] >= problem.variables[v].candidates.size())
      return Error{"variable " + std::to_string(v) + " has no layout " + std::to_string(choice[v])};
  const std::vector<Layout> layouts = problem.layoutsOf(choice);
  for (size_t t = 0; t < layouts.size(); ++t)
    if (!layouts[t].isPlain(problem.graph.tensors[t]))
      if (std::string wrong = layouts[t].verify(problem.graph.tensors[t]); !wrong.empty())
        return Error{wrong};
  if (problem.cost(choice) == kImpossible)
    return Error{"a kernel cannot work in the layouts of its tensors"};
  return Success{};
}

} // namespace millrace::layouts
