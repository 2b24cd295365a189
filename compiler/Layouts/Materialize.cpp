// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/Materialize.h"

#include "compiler/Forms/HostDims.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/KernelLayout.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace::layouts {

using forms::at;
using forms::Node;
using Point = std::vector<int64_t>;

namespace {

/// Calls note(tensor, pad) for windows that leave their tensor, of those tensors that are `wanted`.
template <class Wanted, class Note>
void forEachPad(const KernelGraph &graph, const Wanted &wanted, const Note &note) {
  const auto visit = [&](const Kernel &kernel, const Access &access) {
    if (!wanted(access.tensor))
      return;
    for (unsigned d = 0; d < access.index.size(); ++d)
      if (const auto [low, high] = rangeOf(kernel, access.index[d]);
          low < 0 || high >= graph.tensors[access.tensor].shape[d])
        note(access.tensor, access.pad);
  };
  for (const Kernel &kernel : graph.kernels) {
    for (const Term &term : kernel.terms)
      visit(kernel, term.a);
    for (const Access &operand : kernel.operands)
      visit(kernel, operand);
  }
}

std::optional<uint32_t> onlyPad(const std::set<uint32_t> &pads) {
  if (pads.size() > 1)
    return std::nullopt;
  return pads.empty() ? 0 : *pads.begin();
}

} // namespace

std::optional<uint32_t> padOf(const KernelGraph &graph, unsigned tensor) {
  std::set<uint32_t> pads;
  forEachPad(
      graph, [tensor](unsigned t) { return t == tensor; },
      [&](unsigned, uint32_t pad) { pads.insert(pad); });
  return onlyPad(pads);
}

std::vector<std::optional<uint32_t>> padsOf(const KernelGraph &graph) {
  std::vector<std::set<uint32_t>> pads(graph.tensors.size());
  forEachPad(
      graph, [](unsigned) { return true; }, [&](unsigned t, uint32_t pad) { pads[t].insert(pad); });
  std::vector<std::optional<uint32_t>> all;
  for (const std::set<uint32_t> &its : pads)
    all.push_back(onlyPad(its));
  return all;
}

namespace {

/// The kernel of one phase.
class PhaseBuilder {
public:
  PhaseBuilder(KernelGraph &graph, const Kernel &old, const KernelLayout &layout,
               const std::vector<Layout> &layouts, const Point &phase, const std::string &suffix)
      : graph(graph), old(old), layout(layout), layouts(layouts), phase(phase),
        result(layouts[old.results.front().access.tensor]),
        isSplit(!result.isPlain(graph.tensors[old.results.front().access.tensor])), suffix(suffix),
        channels(layout.channels()) {}

  /// `macs`: per term of the old kernel.
  Kernel build(const std::vector<int64_t> &macs);

private:
  KernelGraph &graph;
  const Kernel &old;
  const KernelLayout &layout;
  const std::vector<Layout> &layouts;
  const Point &phase;
  const Layout &result;
  const bool isSplit;
  const std::string suffix;
  const std::vector<Point> channels;
  Kernel kernel;
  unsigned lane = 0; ///< loop
  std::map<unsigned, unsigned> running;
  /// Nodes that say where there is an element, by the loop of rows and the bytes.
  std::map<std::pair<unsigned, std::vector<uint8_t>>, unsigned> masks;

  /// The element of lane `l` of a row: the slots of its dimensions and the values of the loops
  /// along the lanes. In a gap the one before it again: readers multiply gaps by 0, which is 0 only
  /// for what is finite, no operation makes more of a copy than of the element itself, and no group
  /// takes other lanes for it.
  struct Element {
    Point slots, point;
  };
  Element elementAt(int64_t l) const;
  void addLoops();
  Access placed(const Access &access) const;
  AffineIndex rowIndex(const Access &access, unsigned dim, int64_t row) const;
  void addTerm(size_t index, const std::vector<TermRow> &rows, int64_t macs);
  Access constant(const Access &access);
  unsigned maskOf(unsigned rowLoop, std::vector<uint8_t> inside, const std::string &name);
  void maskOutside(size_t resultIndex);
};

PhaseBuilder::Element PhaseBuilder::elementAt(int64_t l) const {
  if (!isSplit)
    return Element{Point(result.dims.size(), 0), channels[size_t(l)]};
  std::optional<Point> slots;
  while (!(slots = result.slotsAt(l)))
    --l;
  return Element{*slots, channels[size_t((*slots)[result.laneDim])]};
}

/// Rows, lanes, and what runs. Terms bring a loop each.
void PhaseBuilder::addLoops() {
  for (size_t j = 0; j < phase.size(); ++j)
    kernel.loops.push_back({layout.rowsIn(j, phase[j]), LoopKind::Parallel});
  lane = unsigned(kernel.loops.size());
  kernel.loops.push_back({isSplit ? result.lanes : layout.channelCount(), LoopKind::Parallel});
  for (unsigned l = 0; l < old.loops.size(); ++l)
    if (old.loops[l].kind == LoopKind::Running) {
      running[l] = unsigned(kernel.loops.size());
      kernel.loops.push_back(old.loops[l]);
    }
}

/// `row`, and what the loops add to it.
AffineIndex PhaseBuilder::rowIndex(const Access &access, unsigned dim, int64_t row) const {
  AffineIndex index{row, {}};
  for (unsigned j = 0; j < layout.rowLoops().size(); ++j)
    if (coefficient(access.index[dim], layout.rowLoops()[j].loop))
      if (const int64_t step = layout.rowStep(access, dim, j))
        index.terms.push_back({j, step});
  for (auto [from, to] : running)
    if (const int64_t c = coefficient(access.index[dim], from))
      index.terms.push_back({to, c});
  return index;
}

/// An access to a tensor made at run time whose lanes meet the result's.
Access PhaseBuilder::placed(const Access &access) const {
  const Layout &its = layouts[access.tensor];
  const Tensor &tensor = graph.tensors[access.tensor];
  const Point none(result.dims.size(), 0), &first = channels.front();
  const bool plain = its.isPlain(tensor);
  Access out{access.tensor, {}, access.pad};
  AffineIndex lanes = at(lane);
  for (unsigned d = 0; d < its.dims.size(); ++d) {
    if (d == its.laneDim) {
      lanes.offset = plain ? layout.indexAt(access.index[d], phase, none, first) : 0;
      if (plain)
        out.index.push_back(lanes);
      continue;
    }
    const int64_t index = layout.indexAt(access.index[d], phase, none, Point(old.loops.size(), 0));
    out.index.push_back(rowIndex(access, d, (index + its.dims[d].start) / its.dims[d].rowStep));
  }
  if (!plain)
    out.index.push_back(lanes);
  return out;
}

/// Weights become bands: for each row that a row of results takes, a matrix of its lanes.
void PhaseBuilder::addTerm(size_t index, const std::vector<TermRow> &rows, int64_t macs) {
  const Term &term = old.terms[index];
  const Layout &its = layouts[term.a.tensor];
  const Tensor weights = graph.tensors[term.w.tensor];
  const unsigned bytes = byteWidth(weights.type);
  std::vector<DimPlaces> places;
  for (unsigned d = 0; d < its.dims.size(); ++d)
    places.push_back(d == its.laneDim ? DimPlaces() : *layout.placesOf(term, d, phase));
  std::vector<unsigned> contracted;
  for (unsigned l = 0; l < old.loops.size(); ++l)
    if (old.loops[l].kind == LoopKind::Contracted && (usesLoop(term.a, l) || usesLoop(term.w, l)))
      contracted.push_back(l);
  std::map<Point, std::vector<size_t>> byRows;
  std::vector<std::vector<uint8_t>> data;
  const int64_t lanes = kernel.loops[lane].extent;
  for (const TermRow &row : rows) {
    byRows[row.rows].push_back(data.size());
    data.emplace_back(size_t(lanes * (row.to - row.from)) * bytes, uint8_t(0));
  }
  std::vector<int64_t> pitch(weights.shape.size(), 1);
  for (size_t d = pitch.size(); d-- > 1;)
    pitch[d - 1] = pitch[d] * weights.shape[d];
  auto elementOf = [&](const Point &point) {
    int64_t element = 0;
    for (size_t d = 0; d < pitch.size(); ++d) {
      int64_t i = 0;
      for (auto [l, c] : term.w.index[d].terms)
        i += c * point[l];
      element += pitch[d] * i;
    }
    return element;
  };
  int64_t base = 0;
  for (size_t d = 0; d < pitch.size(); ++d)
    base += pitch[d] * term.w.index[d].offset;
  struct Product { ///< of one contracted point, for results in slots of their own
    size_t row;
    int64_t lane, element; ///< lane of the row's range, without the part of the result's lane
  };
  std::map<Point, std::vector<Product>> bySlots;
  const AffineIndex &laneIndex = term.a.index[its.laneDim];
  for (int64_t l = 0; l < lanes; ++l) {
    const Element element = elementAt(l);
    Point key = element.slots;
    key[result.laneDim] = 0;
    for (unsigned own : layout.laneLoops()) // groups have lanes of their own
      if (coefficient(laneIndex, own))
        key.push_back(element.point[own]);
    auto [found, fresh] = bySlots.try_emplace(key);
    if (fresh)
      forEachPoint(old, contracted, [&](const Point &point) {
        Point all = point;
        for (unsigned own : layout.laneLoops())
          all[own] = element.point[own];
        Point where(its.dims.size(), 0);
        int64_t from = its.runs.laneOf(layout.indexAt(laneIndex, phase, element.slots, all));
        for (unsigned d = 0; d < its.dims.size(); ++d)
          if (d != its.laneDim) {
            const Place &place =
                placeIn(places[d], layout.indexAt(term.a.index[d], phase, element.slots, all));
            where[d] = place.row;
            from += place.slot * its.dims[d].pitch;
          }
        for (size_t r : byRows.at(where))
          if (from >= rows[r].from && from < rows[r].to)
            found->second.push_back({r, from - rows[r].from, elementOf(point)});
        return true;
      });
    const int64_t column = base + elementOf(element.point);
    for (const Product &p : found->second) {
      const int64_t from = weights.splat ? 0 : column + p.element;
      std::copy_n(&weights.data[size_t(from) * bytes], bytes,
                  &data[p.row][size_t(l * (rows[p.row].to - rows[p.row].from) + p.lane) * bytes]);
    }
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const unsigned loop = unsigned(kernel.loops.size());
    const int64_t count = rows[r].to - rows[r].from;
    kernel.loops.push_back({count, LoopKind::Contracted});
    const unsigned band = addTensor(graph, weights.name + suffix + ".band" + std::to_string(r),
                                    {lanes, count}, weights.type, 1, TensorRole::Constant);
    graph.tensors[band].data = std::move(data[r]);
    Access a{term.a.tensor, {}, term.a.pad};
    for (unsigned d = 0; d < its.dims.size(); ++d)
      if (d != its.laneDim)
        a.index.push_back(rowIndex(term.a, d, rows[r].rows[d]));
    const bool plain = its.isPlain(graph.tensors[term.a.tensor]);
    a.index.insert(plain ? a.index.begin() + its.laneDim : a.index.end(),
                   at(loop, 1, rows[r].from));
    kernel.terms.push_back({a, {band, {at(lane), at(loop)}}, r ? 0 : macs});
  }
}

/// A constant operand as rows of the result take it: of the loops that move it, and the lanes.
Access PhaseBuilder::constant(const Access &access) {
  const Tensor source = graph.tensors[access.tensor];
  const unsigned bytes = byteWidth(source.type);
  std::vector<std::pair<unsigned, unsigned>> moving; // old loop, new loop
  for (unsigned j = 0; j < layout.rowLoops().size(); ++j)
    if (kernel.loops[j].extent > 1 && usesLoop(access, layout.rowLoops()[j].loop))
      moving.push_back({layout.rowLoops()[j].loop, j});
  for (auto [from, to] : running)
    if (usesLoop(access, from))
      moving.push_back({from, to});
  const int64_t lanes = kernel.loops[lane].extent;
  std::vector<int64_t> shape;
  std::vector<unsigned> loops;
  Access out{0, {}, 0};
  for (auto [from, to] : moving) {
    shape.push_back(kernel.loops[to].extent);
    loops.push_back(to);
    out.index.push_back(at(to));
  }
  shape.push_back(lanes);
  out.index.push_back(at(lane));
  out.tensor = addTensor(graph, source.name + suffix, shape, source.type,
                         unsigned(shape.size() - 1), TensorRole::Constant);
  std::vector<uint8_t> data;
  forEachPoint(kernel, loops, [&](const Point &step) {
    for (int64_t l = 0; l < lanes; ++l) {
      const Element element = elementAt(l);
      Point point = element.point;
      for (unsigned j = 0; j < layout.rowLoops().size(); ++j) {
        const RowLoop &row = layout.rowLoops()[j];
        point[row.loop] = row.split.indexAt(row.period * step[j] + phase[j],
                                            row.dim >= 0 ? element.slots[size_t(row.dim)] : 0);
      }
      for (auto [from, to] : running)
        point[from] = step[to];
      uint32_t bits = access.pad;
      if (const int64_t from = linearOffset(source, access, point); from >= 0) {
        bits = 0;
        std::memcpy(&bits, &source.data[source.splat ? 0 : size_t(from) * bytes], bytes);
      }
      for (unsigned b = 0; b < bytes; ++b)
        data.push_back(uint8_t(bits >> 8 * b));
    }
    return true;
  });
  graph.tensors[out.tensor].data = std::move(data);
  return out;
}

/// The node that reads a mask, which several results may share.
unsigned PhaseBuilder::maskOf(unsigned rowLoop, std::vector<uint8_t> inside,
                              const std::string &name) {
  const auto [known, isNew] =
      masks.emplace(std::pair(rowLoop, inside), unsigned(kernel.nodes.size()));
  if (!isNew)
    return known->second;
  const int64_t rows = kernel.loops[rowLoop].extent, lanes = kernel.loops[lane].extent;
  const unsigned mask =
      addTensor(graph, name, {rows, lanes}, ElementType::UInt8, 1, TensorRole::Constant);
  graph.tensors[mask].data = std::move(inside);
  kernel.nodes.push_back({Node::Kind::Operand, unsigned(kernel.operands.size()), 0, {}, {}});
  kernel.operands.push_back({mask, {at(rowLoop), at(lane)}, 0});
  return known->second;
}

/// Stores what readers expect beside the tensor in places that no element has.
void PhaseBuilder::maskOutside(size_t index) {
  const unsigned tensor = old.results[index].access.tensor;
  const Layout &its = layouts[tensor];
  const std::vector<int64_t> logical = graph.tensors[tensor].shape;
  const uint32_t pad = padOf(graph, tensor).value_or(0);
  for (unsigned d = 0; d < its.dims.size(); ++d) {
    if (d == its.laneDim)
      continue;
    const auto row = std::find_if(layout.rowLoops().begin(), layout.rowLoops().end(),
                                  [&](const RowLoop &r) { return r.dim == int(d); });
    if (row == layout.rowLoops().end())
      continue;
    const auto j = unsigned(row - layout.rowLoops().begin());
    const int64_t rows = kernel.loops[j].extent, lanes = kernel.loops[lane].extent;
    std::vector<uint8_t> inside(size_t(rows * lanes), 1);
    bool any = false;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t l = 0; l < lanes; ++l) {
        const int64_t i = its.dims[d].indexAt(row->period * r + phase[j], elementAt(l).slots[d]);
        if (i < 0 || i >= logical[d])
          inside[size_t(r * lanes + l)] = 0, any = true;
      }
    if (!any)
      continue;
    const unsigned mask = maskOf(
        j, std::move(inside), graph.tensors[tensor].name + suffix + ".inside" + std::to_string(d));
    const unsigned first = unsigned(kernel.nodes.size());
    kernel.nodes.push_back({Node::Kind::Immediate, 0, pad, {}, {}});
    kernel.nodes.push_back(
        {Node::Kind::Op, 0, 0, AluOp::SelectF32, {mask, kernel.results[index].node, first}});
    kernel.results[index].node = first + 1;
  }
}

Kernel PhaseBuilder::build(const std::vector<int64_t> &macs) {
  kernel.name = old.name + suffix;
  kernel.provenance = old.provenance;
  kernel.nodes = old.nodes;
  addLoops();
  const std::vector<TermRow> rows = *layout.termRows(phase); // verify() has seen them all
  for (size_t t = 0; t < old.terms.size(); ++t) {
    std::vector<TermRow> its;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(its),
                 [t](const TermRow &row) { return row.term == t; });
    addTerm(t, its, macs[t]);
  }
  for (const Access &operand : old.operands)
    kernel.operands.push_back(graph.tensors[operand.tensor].role == TensorRole::Constant
                                  ? constant(operand)
                                  : placed(operand));
  for (const forms::Result &r : old.results)
    kernel.results.push_back({r.node, placed(r.access)});
  for (size_t r = 0; r < old.results.size(); ++r)
    if (layouts[old.results[r].access.tensor].hasOutside(
            graph.tensors[old.results[r].access.tensor]))
      maskOutside(r);
  return std::move(kernel);
}

/// The host writes the input as it lies in rows and lanes.
void fillByHost(Tensor &tensor, const Layout &layout, uint32_t pad) {
  const std::vector<forms::HostDim> dims = *forms::hostDims(tensor);
  if (forms::endsWithHost(tensor))
    tensor.hostFill = pad;
  if (tensor.hostLoops.empty())
    tensor.hostShape = tensor.shape;
  tensor.hostStart.resize(tensor.hostShape.size(), 0);
  tensor.hostLoops.clear();
  const unsigned lanes = unsigned(layout.dims.size() - 1);
  unsigned row = 0;
  for (unsigned d = 0; d < layout.dims.size(); ++d) {
    const auto [hostDim, step] = dims[d];
    if (step)
      tensor.hostStart[hostDim] -= layout.dims[d].start * step;
    if (d != layout.laneDim)
      tensor.hostLoops.push_back(
          {layout.dims[d].rows, row++, 1, hostDim, layout.dims[d].rowStep * step});
  }
  for (unsigned d = 0; d < layout.dims.size(); ++d)
    if (const DimLayout &its = layout.dims[d]; its.slots > 1)
      tensor.hostLoops.push_back(
          {its.slots, lanes, its.pitch, dims[d].dim, its.slotStep * dims[d].step});
}

} // namespace

Status materialize(KernelGraph &graph, const Machine &machine, const std::vector<Layout> &layouts) {
  const std::vector<bool> fromHost = forms::Uses(graph).fromHost;
  std::vector<bool> split;
  for (size_t t = 0; t < layouts.size(); ++t)
    split.push_back(!layouts[t].isPlain(graph.tensors[t]));
  auto touches = [&](const Kernel &kernel) {
    auto is = [&](const Access &a) { return split[a.tensor]; };
    return std::any_of(kernel.operands.begin(), kernel.operands.end(), is) ||
           std::any_of(kernel.results.begin(), kernel.results.end(),
                       [&](const forms::Result &r) { return is(r.access); }) ||
           std::any_of(kernel.terms.begin(), kernel.terms.end(),
                       [&](const Term &t) { return is(t.a) || is(t.w); });
  };
  // Groups, whose columns have lanes of their own, become bands, too: what is zero is not swept.
  auto hasGroups = [&](const Kernel &kernel) {
    return std::any_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &t) {
      const auto &lanes = t.a.index[graph.tensors[t.a.tensor].laneDim].terms;
      return std::any_of(lanes.begin(), lanes.end(), [&](const auto &term) {
        return kernel.loops[term.first].extent > 1 &&
               kernel.loops[term.first].kind == LoopKind::Parallel;
      });
    });
  };
  const std::vector<Kernel> before = graph.kernels;
  std::vector<Kernel> after;
  std::vector<std::vector<unsigned>> replacement(before.size());
  const LayoutOf layoutOf = [&](unsigned t) -> const Layout & { return layouts[t]; };
  for (size_t k = 0; k < before.size(); ++k) {
    const bool isTouched = touches(before[k]);
    const std::optional<KernelLayout> layout =
        isTouched || hasGroups(before[k]) ? KernelLayout::of(graph, before[k], machine, layoutOf)
                                          : std::nullopt;
    if (!layout && !isTouched) {
      replacement[k] = {unsigned(after.size())};
      after.push_back(before[k]);
      continue;
    }
    if (!layout)
      return Error{"kernel '" + before[k].name + "' cannot work in the layouts of its tensors"};
    const std::vector<Point> phases = layout->phases();
    for (size_t p = 0; p < phases.size(); ++p) {
      std::vector<int64_t> macs;
      for (const Term &term : before[k].terms)
        macs.push_back(term.macs / int64_t(phases.size()) +
                       (p ? 0 : term.macs % int64_t(phases.size())));
      const std::string suffix = phases.size() > 1 ? ".phase" + std::to_string(p) : "";
      replacement[k].push_back(unsigned(after.size()));
      after.push_back(
          PhaseBuilder(graph, before[k], *layout, layouts, phases[p], suffix).build(macs));
    }
  }
  for (size_t t = 0; t < layouts.size(); ++t)
    if (split[t]) {
      Tensor &tensor = graph.tensors[t];
      if (fromHost[t])
        fillByHost(tensor, layouts[t], padOf(graph, unsigned(t)).value_or(0));
      tensor.shape = layouts[t].rowShape();
      tensor.laneDim = unsigned(tensor.shape.size() - 1);
      tensor.value.clear();
    }
  graph.kernels = std::move(after);
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : graph.order)
    if (host)
      order.push_back({true, index});
    else
      for (unsigned k : replacement[index])
        order.push_back({false, k});
  graph.order = std::move(order);
  return Success{};
}

} // namespace millrace::layouts
