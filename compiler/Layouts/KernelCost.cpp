// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a kernel costs in the layouts of its tensors.
#include "compiler/Layouts/KernelLayout.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <set>

namespace millrace::layouts {

namespace {

/// What a row of results takes of a row of an operand in which groups of columns have lanes of
/// their own: the parts of vectors that its vectors meet; the vectors, and the parts of them, that
/// each of its lanes meets, summed.
struct Diagonal {
  int64_t cells = 0, vectors = 0, parts = 0;
};

/// Nothing if slots lie between.
std::optional<Diagonal> diagonalOf(const Kernel &kernel, const KernelLayout &layout,
                                   const Layout &result, const Layout &operand,
                                   const AffineIndex &laneIndex, int64_t vector, int64_t part) {
  for (const Layout *its : {&result, &operand})
    for (unsigned d = 0; d < its->dims.size(); ++d)
      if (d != its->laneDim && its->dims[d].slots > 1)
        return std::nullopt;
  const int64_t parts = (vector + part - 1) / part;
  int64_t low = laneIndex.offset, high = laneIndex.offset; // of the results' first lane
  for (auto [l, c] : laneIndex.terms)
    if (kernel.loops[l].kind == LoopKind::Contracted) {
      low += std::min<int64_t>(0, c * (kernel.loops[l].extent - 1));
      high += std::max<int64_t>(0, c * (kernel.loops[l].extent - 1));
    }
  std::set<std::pair<int64_t, int64_t>> cells;
  Diagonal diagonal;
  const std::vector<std::vector<int64_t>> channels = layout.channels();
  for (size_t channel = 0; channel < channels.size(); ++channel) {
    int64_t group = 0;
    for (unsigned l : layout.laneLoops())
      group += coefficient(laneIndex, l) * channels[channel][l];
    const int64_t first = operand.runs.laneOf(group + low),
                  last = operand.runs.laneOf(group + high);
    diagonal.vectors += last / vector - first / vector + 1;
    const auto cellAt = [&](int64_t lane) { return lane / vector * parts + lane % vector / part; };
    diagonal.parts += cellAt(last) - cellAt(first) + 1;
    for (int64_t cell = cellAt(first); cell <= cellAt(last); ++cell)
      cells.insert({result.runs.laneOf(int64_t(channel)) / vector, cell});
  }
  diagonal.cells = int64_t(cells.size());
  if (result.runs.length) { // what lies in gaps is a copy
    diagonal.vectors += result.lanes - int64_t(channels.size());
    diagonal.parts += result.lanes - int64_t(channels.size());
  }
  return diagonal;
}

/// Of all running loops.
int64_t stepsOf(const Kernel &kernel) {
  int64_t steps = 1;
  for (const forms::Loop &loop : kernel.loops)
    steps *= loop.kind == LoopKind::Running ? loop.extent : 1;
  return steps;
}

} // namespace

/// Of columns of `columnBytes` a lane, in lanes of a term's row. What is cut to the lanes of a pass
/// lies beside others if that takes fewer rows (ContractionPlan::cutTiles).
static WeightBytes weightBytesOf(const TermRow &row, int64_t columnBytes, int64_t vector,
                                 int64_t step) {
  WeightBytes bytes;
  for (int64_t from = row.from, to = from; from < row.to; from = to) {
    to = std::min(row.to, (from / vector + 1) * vector);
    int64_t shared = 0;
    for (int64_t k = from, end = k; k < to; k = end) {
      end = std::min(to, (k / step + 1) * step);
      shared += vector / (vector / step * (step / (end - k)));
    }
    bytes += {vector * columnBytes, std::min(vector, shared) * columnBytes};
  }
  return bytes;
}

std::optional<TermCost> termCostOf(const KernelGraph &graph, const Kernel &kernel,
                                   const Machine &machine, const KernelLayout &layout,
                                   const LayoutOf &layouts, size_t t, const KnownRows &known) {
  const Tensor &tensor = graph.tensors[kernel.results.front().access.tensor];
  const Layout &result = layouts(kernel.results.front().access.tensor);
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  const int64_t lanes = result.isPlain(tensor) ? layout.channelCount() : result.lanes;
  const int64_t tiles = (lanes + vector - 1) / vector;
  // Columns of groups have lanes of their own: cells of the diagonal, about if slots lie between.
  const Access &a = kernel.terms[t].a;
  const AffineIndex &laneIndex = a.index[graph.tensors[a.tensor].laneDim];
  const bool groups =
      std::any_of(laneIndex.terms.begin(), laneIndex.terms.end(), [&](const auto &term) {
        return kernel.loops[term.first].kind == LoopKind::Parallel &&
               kernel.loops[term.first].extent > 1;
      });
  const MxmFormatSpec *format = machine.mxm.format(graph.tensors[a.tensor].type);
  const std::optional<Diagonal> diagonal =
      groups && tiles > 1 ? diagonalOf(kernel, layout, result, layouts(a.tensor), laneIndex, vector,
                                       format ? format->lanesPerPass : vector)
                          : std::nullopt;
  const auto cellsOf = [&](const TermRow &row) {
    return diagonal ? diagonal->cells : groups ? std::max(tiles, row.cells) : tiles * row.cells;
  };
  TermCost cost;
  for (const std::vector<int64_t> &phase : layout.phases()) {
    int64_t rows = stepsOf(kernel);
    for (size_t j = 0; j < phase.size(); ++j)
      rows *= layout.rowsIn(j, phase[j]);
    const std::optional<std::vector<TermRow>> termRows = layout.termRows(t, phase, known);
    if (!termRows)
      return std::nullopt;
    for (const TermRow &row : *termRows) {
      cost.sweeps += rows * cellsOf(row);
      cost.waits +=
          std::max<int64_t>(0, int64_t(machine.latency.accumulateInterval) - rows) * cellsOf(row);
      const int64_t width = byteWidth(graph.tensors[kernel.terms[t].w.tensor].type);
      const int64_t step = format && machine.sxm.shifters >= width
                               ? std::min<int64_t>(format->lanesPerPass, vector)
                               : vector;
      if (diagonal) {
        const int64_t whole = diagonal->vectors * vector;
        cost.weights += {whole * width, std::min(whole, diagonal->parts * step) * width};
      } else {
        cost.weights += weightBytesOf(row, lanes * width, vector, step);
      }
    }
  }
  return cost;
}

std::optional<Cost> costOf(const KernelGraph &graph, const Kernel &kernel, const Machine &machine,
                           const KernelLayout &layout, const LayoutOf &layouts,
                           const std::function<std::optional<TermCost>(size_t term)> &termCost) {
  const Layout &result = layouts(kernel.results.front().access.tensor);
  const Tensor &tensor = graph.tensors[kernel.results.front().access.tensor];
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  const int64_t lanes = result.isPlain(tensor) ? layout.channelCount() : result.lanes;
  int64_t alus = result.hasOutside(tensor) ? 1 : 0;
  for (const forms::Node &node : kernel.nodes)
    alus += node.kind == forms::Node::Kind::Op || node.kind == forms::Node::Kind::Reduce;
  Cost cost;
  cost.kernels = 0;
  for (const std::vector<int64_t> &phase : layout.phases()) {
    int64_t rows = (lanes + vector - 1) / vector * stepsOf(kernel);
    for (size_t j = 0; j < phase.size(); ++j)
      rows *= layout.rowsIn(j, phase[j]);
    ++cost.kernels;
    cost.operations += rows * alus;
  }
  for (size_t t = 0; t < kernel.terms.size(); ++t) {
    const std::optional<TermCost> its = termCost(t);
    if (!its)
      return std::nullopt;
    cost.sweeps += its->sweeps;
    cost.waits += its->waits;
    cost.weights += its->weights;
  }
  return cost;
}

/// How much of what few rows wait for an accumulator other rows and kernels do not fill, about.
constexpr double kWaited = 0.5;

double Cost::cycles(const KernelGraph &graph, const Kernel &kernel, const Machine &machine) const {
  const double pes = machine.pes();
  double mxm = 0;
  if (!kernel.terms.empty())
    if (const MxmFormatSpec *format =
            machine.mxm.format(graph.tensors[kernel.terms[0].a.tensor].type))
      mxm = (double(sweeps) + kWaited * double(waits)) /
            (pes * kHemispheres * (machine.mxm.planes / format->planes));
  const double vxm = double(operations) / (pes * machine.vxm.alus);
  return std::max(mxm, vxm) + 0.5 * std::min(mxm, vxm) + 16.0 * double(kernels - 1);
}

} // namespace millrace::layouts
