// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/PackHeads.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/HeadPlan.h"

#include "arch/spec/Types.h"

#include <algorithm>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

/// A product per head of what lies side by side.
struct Scores {
  unsigned kernel;
  unsigned head, column, contracted; ///< loops
  unsigned dim;                      ///< of the result: heads
  unsigned columnDim;                ///< of what is installed
  int64_t lanes, columns;            ///< of a head
};

std::optional<Scores> scoresOf(const KernelGraph &graph, unsigned number) {
  const Kernel &kernel = graph.kernels[number];
  if (kernel.terms.size() != 1 || kernel.results.size() != 1 ||
      std::any_of(kernel.loops.begin(), kernel.loops.end(),
                  [](const Loop &l) { return l.kind == LoopKind::Running; }))
    return std::nullopt;
  const Access &a = kernel.terms[0].a, &w = kernel.terms[0].w, &result = kernel.results[0].access;
  const Tensor &from = graph.tensors[a.tensor], &installed = graph.tensors[w.tensor],
               &to = graph.tensors[result.tensor];
  if (from.role == TensorRole::Constant || installed.role == TensorRole::Constant ||
      from.unbounded || // a zero of another head's would make a NaN of an infinity
      w.lookup || a.lookup || w.pad != 0)
    return std::nullopt;
  const AffineIndex &lanes = a.index[from.laneDim];
  if (lanes != w.index[installed.laneDim] || lanes.terms.size() != 2)
    return std::nullopt;
  Scores scores{number, 0, 0, 0, 0, 0, 0, to.shape[to.laneDim]};
  for (auto [loop, step] : lanes.terms)
    (kernel.loops[loop].kind == LoopKind::Contracted ? scores.contracted : scores.head) = loop;
  scores.lanes = kernel.loops[scores.contracted].extent;
  const std::optional<unsigned> column =
      wholeLoop(kernel, result.index[to.laneDim], scores.columns, LoopKind::Parallel);
  if (kernel.loops[scores.head].kind != LoopKind::Parallel ||
      kernel.loops[scores.contracted].kind != LoopKind::Contracted || !column ||
      coefficient(lanes, scores.contracted) != 1 ||
      coefficient(lanes, scores.head) != scores.lanes || usesLoop(a, *column))
    return std::nullopt;
  scores.column = *column;
  // Neither heads nor lanes move anything else of the factors, and columns are all rows of one
  // dimension.
  bool isFound = false;
  for (const auto &[access, laneDim] :
       {std::pair(&a, from.laneDim), std::pair(&w, installed.laneDim)})
    for (unsigned d = 0; d < access->index.size(); ++d) {
      const AffineIndex &index = access->index[d];
      if (d != laneDim &&
          (coefficient(index, scores.head) || coefficient(index, scores.contracted)))
        return std::nullopt;
      if (access == &w && coefficient(index, scores.column)) {
        if (isFound || d == laneDim ||
            wholeLoop(kernel, index, installed.shape[d], LoopKind::Parallel) != scores.column)
          return std::nullopt;
        scores.columnDim = d;
        isFound = true;
      }
    }
  for (unsigned d = 0; d < result.index.size(); ++d)
    if (d != to.laneDim &&
        wholeLoop(kernel, result.index[d], to.shape[d], LoopKind::Parallel) == scores.head) {
      scores.dim = d;
      if (isFound && to.shape[d] > 1)
        return scores;
    }
  return std::nullopt;
}

class Packer {
public:
  Packer(KernelGraph &graph, const Machine &machine, const Scores &scores, HeadPlan plan)
      : graph(graph), machine(machine), scores(scores), plan(std::move(plan)) {}

  /// How many heads of a vector take the fewest vectors; 1 if they do as they are.
  int64_t group() const {
    const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
    const int64_t heads = plan.heads;
    int64_t best = 1;
    double least = 0.9 * vectors(1); // a further step that makes what is installed
    for (int64_t group = 2; group <= heads && group * scores.columns <= vector; ++group)
      if (heads % group == 0 && vectors(group) < least) {
        least = vectors(group);
        best = group;
      }
    return best;
  }

  void apply(int64_t group, Repeats &repeats) {
    const unsigned masked = mask(group);
    splitHeads(graph, plan, group);
    Kernel &kernel = graph.kernels[scores.kernel];
    const unsigned head = plan.loops.at(scores.kernel).head;
    Term &term = kernel.terms[0];
    for (Access *access : {&term.a, &term.w})
      std::erase_if(access->index[graph.tensors[access->tensor].laneDim].terms,
                    [&](const auto &its) { return its.first == head; });
    kernel.loops[scores.contracted].extent *= group;
    term.w.tensor = masked;
    term.w.index[scores.columnDim].terms.push_back({head, scores.columns});
    joinHeads(graph, plan, repeats);
  }

private:
  KernelGraph &graph;
  const Machine &machine;
  const Scores scores;
  HeadPlan plan;

  int64_t rowsOf(const Kernel &kernel, const HeadPlan::Loops &loops) const {
    const Access &result = kernel.results[0].access;
    const AffineIndex &lanes = result.index[graph.tensors[result.tensor].laneDim];
    int64_t rows = 1;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (l != loops.head && l != loops.lane && !coefficient(lanes, l) &&
          kernel.loops[l].kind != LoopKind::Contracted)
        rows *= kernel.loops[l].extent;
    return rows;
  }

  /// Sweeps over `lanes` lanes from `from` on.
  int64_t passes(int64_t from, int64_t lanes) const {
    const MxmFormatSpec *format =
        machine.mxm.format(graph.tensors[graph.kernels[scores.kernel].terms[0].a.tensor].type);
    const auto step = int64_t(format ? format->lanesPerPass : machine.lanes());
    return (from + lanes + step - 1) / step - from / step;
  }

  /// Vectors through MXM and VXM with so many heads in each.
  double vectors(int64_t group) const {
    double sum = 0;
    for (const auto &[number, loops] : plan.loops) {
      const Kernel &kernel = graph.kernels[number];
      const auto rows = double(rowsOf(kernel, loops));
      if (number == scores.kernel) {
        const Tensor &a = graph.tensors[kernel.terms[0].a.tensor];
        const int64_t first = kernel.terms[0].a.index[a.laneDim].offset;
        for (int64_t head = 0; head < plan.heads; head += group)
          sum += rows * double(passes(first + head * scores.lanes, group * scores.lanes));
      } else if (!loops.areJoined) {
        for (int64_t head = 0; head < plan.heads; ++head)
          sum += rows * double(passes(head % group * plan.lanes, plan.lanes) + 1);
        continue;
      }
      sum += rows * double(plan.heads / group);
    }
    if (group == 1)
      return sum;
    const Access &w = graph.kernels[scores.kernel].terms[0].w;
    const Tensor &installed = graph.tensors[w.tensor];
    const int64_t lanes = installed.shape[installed.laneDim];
    double rows = double((lanes + machine.lanes() - 1) / int64_t(machine.lanes()));
    for (unsigned d = 0; d < installed.shape.size(); ++d)
      rows *= d == installed.laneDim ? 1.0 : double(installed.shape[d]);
    return sum + rows * double(group);
  }

  /// How many heads from `head` on may be masked together: whose columns of one row go to different
  /// slices, and so do those that lie behind the last column again.
  int64_t headsAtOnce(int64_t head, int64_t group, unsigned bytes) const {
    constexpr int64_t kMost = 4; // of six, swin_t took longer
    const int64_t slices = machine.mxm.columnsPerInstall;
    std::set<int64_t> taken;
    const auto take = [&](int64_t column) {
      bool isFree = true;
      for (unsigned b = 0; b < bytes; ++b)
        isFree &= taken.insert((column + slices / 2 * b) % slices).second;
      return isFree;
    };
    int64_t heads = 0;
    for (; head + heads < group && heads < kMost; ++heads) {
      const int64_t column = (head + heads) * scores.columns;
      const bool isLast = head + heads + 1 == group;
      if (!take(column) || (isLast && !take(column + 1)))
        break;
    }
    return std::max<int64_t>(1, heads);
  }

  /// What is installed, once for each head of a group, with the lanes of other heads zero.
  unsigned mask(int64_t group) {
    const Access from = graph.kernels[scores.kernel].terms[0].w;
    const Tensor installed = graph.tensors[from.tensor];
    const int64_t lanes = installed.shape[installed.laneDim];
    const int64_t first = from.index[installed.laneDim].offset;
    std::vector<int64_t> shape = installed.shape;
    shape[scores.columnDim] *= group;
    const unsigned masked =
        addTensor(graph, installed.name + ".masked", shape, installed.type, installed.laneDim);
    graph.tensors[masked].unbounded = installed.unbounded;
    const std::string name = installed.name + ".masked",
                      provenance = graph.kernels[scores.kernel].provenance;
    const unsigned width = byteWidth(installed.type);
    for (int64_t head = 0; head < group;) {
      KernelBuilder b(graph);
      Access whole{from.tensor, {}, 0};
      for (int64_t extent : installed.shape)
        whole.index.push_back(at(b.loop(extent)));
      const unsigned value = b.operand(whole);
      for (const int64_t end = head + headsAtOnce(head, group, width); head < end; ++head) {
        const unsigned bits = addTensor(graph, installed.name + ".head" + std::to_string(head),
                                        {lanes}, installed.type, 0, TensorRole::Constant);
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const bool isOf = lane >= first && (lane - first) / scores.lanes % group == head;
          graph.tensors[bits].data.insert(graph.tensors[bits].data.end(), width, isOf ? 0xff : 0);
        }
        const Access lanesOfHead{bits, {whole.index[installed.laneDim]}, 0};
        Access to{masked, whole.index, 0};
        to.index[scores.columnDim].offset = head * scores.columns;
        b.storeBits(b.op(AluOp::And, {value, b.operand(lanesOfHead)}), to);
      }
      const unsigned made = b.finish(name, provenance);
      graph.order.pop_back();
      graph.order.insert(
          std::find(graph.order.begin(), graph.order.end(), std::pair(false, scores.kernel)),
          {false, made});
    }
    return masked;
  }
};

} // namespace

unsigned packHeads(KernelGraph &graph, const Machine &machine) {
  unsigned packed = 0;
  Repeats repeats;
  const size_t kernels = graph.kernels.size();
  for (unsigned k = 0; k < kernels; ++k) {
    const std::optional<Scores> scores = scoresOf(graph, k);
    if (!scores)
      continue;
    std::optional<HeadPlan> plan =
        HeadPlanner(graph).plan(graph.kernels[k].results[0].access.tensor, scores->dim, k);
    if (!plan)
      continue;
    Packer packer(graph, machine, *scores, std::move(*plan));
    if (const int64_t group = packer.group(); group > 1) {
      packer.apply(group, repeats);
      ++packed;
    }
  }
  return packed;
}

} // namespace millrace::forms
