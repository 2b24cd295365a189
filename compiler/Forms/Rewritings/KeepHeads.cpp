// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/KeepHeads.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Moves.h"
#include "compiler/Forms/Rewritings/KeptHeads.h"
#include "compiler/Forms/Simplify.h"

#include "arch/spec/Types.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

/// Changes the graph as a plan says.
class Keeper {
public:
  Keeper(KernelGraph &graph, const KeptHeads &plan) : graph(graph), heads(plan.heads), plan(plan) {}

  void apply() {
    for (const auto &[number, step] : plan.steps)
      if (step.way == HeadWay::Within)
        splitScores(number, step);
    std::vector<std::pair<unsigned, unsigned>> apart; ///< tensors: side by side, with heads apart
    for (const auto &[tensor, dim] : plan.dims) {
      if (plan.isAlsoApart(tensor)) {
        const Tensor its = graph.tensors[tensor];
        joined[tensor] = addTensor(graph, its.name + ".heads", its.shape, its.type, its.laneDim);
        apart.push_back({joined[tensor], tensor});
      } else {
        joined[tensor] = tensor;
      }
    }
    for (const auto &[number, step] : plan.steps)
      change(number, step);
    for (const auto &[tensor, dim] : plan.dims)
      widen(graph.tensors[joined[tensor]], dim);
    for (const auto &[from, to] : apart)
      setApart(from, to, plan.dims.at(to));
  }

private:
  KernelGraph &graph;
  const Heads heads;
  const KeptHeads &plan;
  std::map<unsigned, unsigned> cutInto; ///< per kernel whose loop is cut already: heads of a group
  std::map<unsigned, unsigned> joined;  ///< per tensor: the one with heads side by side
  Repeats repeats;
  std::map<std::vector<int64_t>, unsigned> blocks; ///< by constant, dimensions and first index

  void widen(Tensor &tensor, unsigned dim) const {
    tensor.shape[tensor.laneDim] *= heads.group;
    tensor.shape[dim] /= heads.group;
  }

  /// Of what sums over each head make, groups and the heads of one are dimensions of their own, so
  /// that these may lie side by side as well (packHeads).
  void splitScores(unsigned number, const HeadStep &step) {
    if (heads.group == heads.count)
      return;
    const Kernel &kernel = graph.kernels[number];
    const Access &result = kernel.results.front().access;
    for (unsigned d = 0; d < result.index.size(); ++d) {
      if (wholeLoop(kernel, result.index[d], heads.count, LoopKind::Parallel) != step.head)
        continue;
      std::optional<HeadPlan> scores = HeadPlanner(graph).plan(result.tensor, d, number);
      if (!scores || std::ranges::any_of(scores->loops, [&](const auto &its) {
            return its.first != number && plan.steps.contains(its.first);
          }))
        continue;
      splitHeads(graph, *scores, heads.group);
      cutInto[number] = scores->loops.at(number).head;
      return;
    }
  }

  /// A product with a constant that has each head that lies apart where it is to lie, as often as
  /// it has to.
  void bring(unsigned number, const HeadStep &step) {
    Kernel kernel = graph.kernels[number];
    const int64_t times = kernel.loops[step.head].extent,
                  together = std::max<int64_t>(1, heads.group / times);
    Access a = kernel.operands[step.operand];
    const Tensor &from = graph.tensors[a.tensor];
    const unsigned rows = *dimOf(graph, kernel, a, step.shared);
    const auto head = unsigned(kernel.loops.size()), sum = head + 1;
    kernel.loops.push_back({together, LoopKind::Contracted});
    kernel.loops.push_back({heads.lanes, LoopKind::Contracted});
    kernel.loops[step.lane].extent = heads.group * heads.lanes;
    kernel.loops[step.shared].extent /= together;
    kernel.loops[step.head].extent = std::max<int64_t>(1, times / heads.group);
    a.index[rows] = {0, {{step.shared, together}, {head, 1}}};
    a.index[from.laneDim] = at(sum);
    Access &result = kernel.results.front().access;
    AffineIndex &group = result.index[plan.dims.at(result.tensor)];
    group = heads.group == heads.count ? fixed(0) : at(step.shared);
    if (times > heads.group)
      group = {0, {{step.shared, times / heads.group}, {step.head, 1}}};
    result.tensor = joined.at(result.tensor);
    kernel.terms.push_back(
        {a, {placing(from.type, together), {at(step.lane), at(head), at(sum)}, 0}, 0});
    for (Node &node : kernel.nodes)
      if (node.kind == Node::Kind::Op && node.op == widenToF32(from.type) &&
          kernel.nodes[node.args[0]].kind == Node::Kind::Operand &&
          kernel.nodes[node.args[0]].index == step.operand)
        node = {Node::Kind::Accumulator, 0, 0, {}, {}};
    dropDeadNodes(kernel);
    graph.kernels[number] = std::move(kernel);
  }

  /// Heads that lie apart, `together` of them, in lanes of a group: each as often as there is room.
  unsigned placing(ElementType type, int64_t together) {
    const int64_t wide = heads.group * heads.lanes;
    std::vector<float> ones(size_t(wide * together * heads.lanes), 0);
    for (int64_t lane = 0; lane < wide; ++lane)
      ones[size_t((lane * together + lane * together / wide) * heads.lanes + lane % heads.lanes)] =
          1;
    return addConstant(graph, "place", {wide, together, heads.lanes}, type, 2, ones);
  }

  /// Constants in which the heads lie apart have them side by side.
  void layOut(Kernel &kernel, const HeadStep &step) {
    const auto layOut = [&](Access &access, bool isFactor) {
      if (graph.tensors[access.tensor].role == TensorRole::Constant && isUsed(access, step.head) &&
          !isInOneLoop(access, step.head, step.lane, heads.lanes))
        access = layOutHeads(graph, kernel, access, {step.head, step.lane, true}, isFactor);
    };
    for (Term &term : kernel.terms)
      layOut(term.w, /*isFactor=*/true);
    for (Access &operand : kernel.operands)
      layOut(operand, /*isFactor=*/false);
  }

  void change(unsigned number, const HeadStep &step) {
    if (step.way == HeadWay::Brings)
      return bring(number, step);
    Kernel kernel = graph.kernels[number];
    if (step.way == HeadWay::Joins)
      layOut(kernel, step);
    const auto cut = cutInto.find(number);
    const unsigned inner =
        cut != cutInto.end() ? cut->second
        : heads.group == heads.count
            ? step.head
            : splitLoop(kernel, step.head,
                        {kernel.loops[step.head].extent / heads.group, heads.group, heads.group});
    if (step.way == HeadWay::Joins)
      for (Term &term : kernel.terms)
        if (isUsed(term.a, inner))
          term.w = blockOf(kernel, term, step);
    for (Access &operand : kernel.operands)
      if (step.way == HeadWay::Joins && !plan.dims.contains(operand.tensor) &&
          !isInOneLoop(operand, inner, step.lane, heads.lanes))
        operand =
            Repeater(graph, heads.group, repeats).repeat(kernel, std::move(operand), step.lane);
    forEachAccess(kernel, [&](Access &access) {
      const auto its = plan.dims.find(access.tensor);
      if (its == plan.dims.end())
        return;
      access.index[its->second] = inner == step.head ? fixed(0) : at(step.head);
      AffineIndex &lane = access.index[graph.tensors[access.tensor].laneDim];
      if (step.way == HeadWay::Within)
        lane.terms.push_back({inner, heads.lanes});
      access.tensor = joined.at(access.tensor);
    });
    if (step.way != HeadWay::Within)
      join(kernel, step, inner);
    graph.kernels[number] = step.way == HeadWay::Joins && staysInPlace(kernel, step.lane)
                                ? asMap(graph, kernel)
                                : std::move(kernel);
  }

  /// The lanes of all results are those of what is summed.
  bool staysInPlace(const Kernel &kernel, unsigned lane) const {
    return kernel.terms.size() == 1 &&
           kernel.terms[0].a.index[graph.tensors[kernel.terms[0].a.tensor].laneDim].offset == 0 &&
           std::ranges::all_of(kernel.results, [&](const Result &result) {
             return result.access.index[graph.tensors[result.access.tensor].laneDim] == at(lane);
           });
  }

  /// The loop of a group's heads becomes part of those along lanes, and is gone.
  void join(Kernel &kernel, const HeadStep &step, unsigned inner) const {
    kernel.loops[step.lane].extent *= heads.group;
    for (const unsigned sum : step.summed)
      kernel.loops[sum].extent *= heads.group;
    eraseLoop(kernel, inner);
  }

  /// The constant of a term once for each head of a group, along a diagonal.
  Access blockOf(const Kernel &kernel, const Term &term, const HeadStep &step) {
    const Tensor from = graph.tensors[term.w.tensor];
    const unsigned lane = *dimOf(graph, kernel, term.w, step.lane);
    unsigned sum = 0;
    for (const unsigned l : step.summed)
      sum = isUsed(term.w, l) ? l : sum;
    std::vector<int64_t> key{term.w.tensor, lane, *dimOf(graph, kernel, term.w, sum)};
    for (const AffineIndex &index : term.w.index)
      key.push_back(index.offset);
    const auto [known, isNew] = blocks.try_emplace(key, unsigned(graph.tensors.size()));
    if (isNew) {
      const int64_t wide = heads.group * heads.lanes;
      const unsigned width = byteWidth(from.type);
      std::vector<uint8_t> data(size_t(wide * wide) * width, 0);
      forEachPoint(kernel, {step.lane, sum}, [&](const std::vector<int64_t> &point) {
        const int64_t element = linearOffset(from, term.w, point);
        for (int64_t h = 0; h < heads.group && element >= 0; ++h)
          std::copy_n(from.data.begin() + (from.splat ? 0 : element * width), width,
                      data.begin() + ((h * heads.lanes + point[step.lane]) * wide +
                                      h * heads.lanes + point[sum]) *
                                         width);
        return true;
      });
      const unsigned made =
          addTensor(graph, from.name, {wide, wide}, from.type, 1, TensorRole::Constant);
      graph.tensors[made].data = std::move(data);
    }
    return {known->second, {at(step.lane), at(sum)}, 0};
  }

  /// Makes [.., heads, .., d] of heads that lie side by side.
  void setApart(unsigned from, unsigned to, unsigned dim) {
    const Tensor tensor = graph.tensors[to];
    KernelBuilder build(graph);
    Access a{from, {}, 0}, result{to, {}, 0};
    unsigned lane = 0;
    for (unsigned d = 0; d < tensor.shape.size(); ++d) {
      const unsigned loop = build.loop(d == dim ? heads.count / heads.group : tensor.shape[d]);
      lane = d == tensor.laneDim ? loop : lane;
      a.index.push_back(at(loop));
      result.index.push_back(at(loop));
    }
    const unsigned head = build.loop(heads.group),
                   sum = build.loop(heads.lanes, LoopKind::Contracted);
    result.index[dim] = {0, {{result.index[dim].terms[0].first, heads.group}, {head, 1}}};
    a.index[tensor.laneDim] = {0, {{head, heads.lanes}, {sum, 1}}};
    build.term(a, {identity(tensor.type), {at(lane), at(sum)}, 0}, 0);
    build.store(build.accumulator(), result);
    const auto writes = [&](const Kernel &kernel) {
      return std::ranges::any_of(kernel.results,
                                 [&](const Result &r) { return r.access.tensor == from; });
    };
    const auto writer =
        unsigned(std::ranges::find_if(graph.kernels, writes) - graph.kernels.begin());
    const unsigned made = build.finish(tensor.name + ".lanes", graph.kernels[writer].provenance);
    graph.order.pop_back();
    graph.order.insert(std::ranges::find(graph.order, std::pair(false, writer)) + 1, {false, made});
  }

  std::map<ElementType, unsigned> identities;
  unsigned identity(ElementType type) {
    const auto [known, isNew] = identities.try_emplace(type, 0);
    if (isNew) {
      std::vector<float> ones(size_t(heads.lanes * heads.lanes), 0);
      for (int64_t i = 0; i < heads.lanes; ++i)
        ones[size_t(i * heads.lanes + i)] = 1;
      known->second = addConstant(graph, "select", {heads.lanes, heads.lanes}, type, 1, ones);
    }
    return known->second;
  }
};

} // namespace

unsigned keepHeads(KernelGraph &graph, const Machine &machine) {
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  std::set<std::pair<int64_t, int64_t>> all; ///< heads, lanes of one
  for (const Kernel &kernel : graph.kernels)
    for (const Result &result : kernel.results) {
      const Tensor &tensor = graph.tensors[result.access.tensor];
      const int64_t lanes = tensor.shape[tensor.laneDim];
      for (unsigned d = 0; d < tensor.shape.size(); ++d)
        if (d != tensor.laneDim && tensor.shape[d] > 1 && lanes > 1 && lanes * 2 <= vector)
          all.insert({tensor.shape[d], lanes});
    }
  unsigned kept = 0;
  for (const auto &[count, lanes] : all) {
    std::optional<KeptHeads> best;
    for (int64_t group = 2; group <= count && group * lanes <= vector; ++group)
      if (count % group == 0)
        if (KeptHeads plan(graph, machine, {count, lanes, group});
            plan.saves > (best ? best->saves : 0))
          best.emplace(std::move(plan));
    if (!best)
      continue;
    Keeper(graph, *best).apply();
    kept += unsigned(best->dims.size());
  }
  return kept;
}

} // namespace millrace::forms
