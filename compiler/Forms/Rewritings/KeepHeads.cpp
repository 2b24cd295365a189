// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/KeepHeads.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Moves.h"
#include "compiler/Forms/Rewritings/HeadPlan.h"
#include "compiler/Forms/Simplify.h"
#include "compiler/Forms/Uses.h"

#include "arch/spec/Types.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

/// Heads of so many lanes, of which `group` lie in one vector.
struct Heads {
  int64_t count = 0, lanes = 0, group = 0;
};

enum class Way : uint8_t {
  Joins,  ///< heads and lanes of results become one loop, and those of what is summed
  Within, ///< sums over the lanes of one head of two tensors
  Across, ///< sums over heads and lanes, in one loop then
  Brings, ///< maps heads that lie apart, each several times in turn: now by a product
};

/// How a kernel goes through heads that lie side by side.
struct Step {
  Way way = Way::Joins;
  unsigned head = 0, lane = 0;   ///< loops
  std::set<unsigned> summed;     ///< Joins: loops over the lanes of one head
  std::vector<unsigned> tensors; ///< side by side that it touches
  unsigned shared = 0;           ///< Brings: loop over heads that lie apart; `head`: their times
  unsigned operand = 0;          ///< Brings: that reads them
};

/// What would lie side by side, of all tensors with so many heads of so many lanes.
class Plan {
public:
  Plan(const KernelGraph &graph, const Machine &machine, const Heads &heads)
      : heads(heads), graph(graph), machine(machine), uses(graph), planner(graph),
        isBanned(graph.tensors.size(), false) {
    for (const Kernel &kernel : graph.kernels)
      for (const Access &operand : kernel.operands)
        if (operand.lookup)
          isBanned[operand.tensor] = isBanned[operand.lookup->tensor] = true;
    do
      grow();
    while (ban());
    keepWhatPays();
  }

  std::map<unsigned, unsigned> dims; ///< per tensor that lies side by side: of its heads
  std::map<unsigned, Step> steps;    ///< per kernel that meets one
  Heads heads;
  double saves = 0; ///< vectors, as far as they can be told

  /// Who meets the tensor otherwise reads the heads apart.
  bool isAlsoApart(unsigned tensor) const {
    return uses.onHost[tensor] || graph.tensors[tensor].role != TensorRole::Intermediate ||
           std::ranges::any_of(uses.readers[tensor],
                               [&](unsigned reader) { return !steps.contains(reader); });
  }

private:
  const KernelGraph &graph;
  const Machine &machine;
  Uses uses;
  HeadPlanner planner;
  std::vector<bool> isBanned; ///< per tensor: has to stay as it is

  void grow();
  bool ban();
  void keepWhatPays();
  std::optional<Step> stepOf(const Kernel &kernel) const;
  std::optional<Step> joins(const Kernel &kernel, unsigned head, unsigned lane) const;
  std::optional<Step> sumsWithin(const Kernel &kernel) const;
  std::optional<Step> sumsAcross(const Kernel &kernel) const;
  std::optional<Step> brings(const Kernel &kernel) const;
  bool joinsTerm(const Kernel &kernel, const Term &term, Step &step) const;
  bool joinsOperand(const Kernel &kernel, const Access &access, Step &step) const;
  bool isMadeOfOthers(unsigned tensor, unsigned depth) const;
  std::optional<unsigned> headDim(const Kernel &kernel, const Access &access, unsigned head,
                                  unsigned lane) const;
  bool meets(const Kernel &kernel, const Access &access, unsigned head, unsigned lane) const;
  int64_t passes(ElementType type, int64_t from, int64_t lanes) const;
  double saved(unsigned number, const Step &step) const;
  double costApart(unsigned tensor) const;
};

/// The dimension of heads of an access that `head` and `lane` step through, lane by lane.
std::optional<unsigned> Plan::headDim(const Kernel &kernel, const Access &access, unsigned head,
                                      unsigned lane) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  const std::optional<unsigned> dim = dimOf(graph, kernel, access, head);
  return !access.lookup && dim && *dim != tensor.laneDim && tensor.shape[*dim] == heads.count &&
                 tensor.shape[tensor.laneDim] == heads.lanes &&
                 dimOf(graph, kernel, access, lane) == tensor.laneDim
             ? dim
             : std::nullopt;
}

/// The access meets a tensor that lies side by side by these loops.
bool Plan::meets(const Kernel &kernel, const Access &access, unsigned head, unsigned lane) const {
  const auto its = dims.find(access.tensor);
  return its != dims.end() && headDim(kernel, access, head, lane) == its->second;
}

/// A sum within each head of what lies side by side, with a constant; or one over lanes that are
/// not of heads, in columns for each head.
bool Plan::joinsTerm(const Kernel &kernel, const Term &term, Step &step) const {
  const Tensor &a = graph.tensors[term.a.tensor], &w = graph.tensors[term.w.tensor];
  if (w.role != TensorRole::Constant || term.a.lookup || term.w.lookup || term.w.pad != 0 ||
      isUsed(term.a, step.lane))
    return false;
  if (!isUsed(term.a, step.head))
    return isUsed(term.w, step.head) && isInOneLoop(term.w, step.head, step.lane, heads.lanes);
  const std::optional<unsigned> sum =
      unitLoop(kernel, term.a.index[a.laneDim], LoopKind::Contracted);
  if (!sum || kernel.loops[*sum].extent != heads.lanes || a.unbounded || term.a.pad != 0 ||
      !(meets(kernel, term.a, step.head, *sum) ||
        (!dims.contains(term.a.tensor) && isInOneLoop(term.a, step.head, *sum, heads.lanes))))
    return false;
  // The constant is a block: lane by lane, the same for all heads.
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (isUsed(term.w, l) && (l != step.lane && l != *sum))
      return false;
  if (!dimOf(graph, kernel, term.w, step.lane) || !dimOf(graph, kernel, term.w, *sum))
    return false;
  step.summed.insert(*sum);
  if (dims.contains(term.a.tensor))
    step.tensors.push_back(term.a.tensor);
  return true;
}

/// Who makes it, and what it is made of, meets nothing that lies side by side.
bool Plan::isMadeOfOthers(unsigned tensor, unsigned depth) const {
  return std::ranges::all_of(uses.writers[tensor], [&](unsigned writer) {
    bool isOther = depth > 0;
    forEachAccess(graph.kernels[writer], [&](const Access &access) {
      isOther = isOther && !dims.contains(access.tensor);
    });
    return isOther && std::ranges::all_of(graph.kernels[writer].operands, [&](const Access &from) {
             return isMadeOfOthers(from.tensor, depth - 1);
           });
  });
}

bool Plan::joinsOperand(const Kernel &kernel, const Access &access, Step &step) const {
  if (meets(kernel, access, step.head, step.lane)) {
    step.tensors.push_back(access.tensor);
    return true;
  }
  return !dims.contains(access.tensor) && !access.lookup &&
         (isInOneLoop(access, step.head, step.lane, heads.lanes) ||
          (planner.canRepeat(kernel, access, {step.head, step.lane, true}) &&
           isMadeOfOthers(access.tensor, HeadPlanner::kMostRepeated)));
}

std::optional<Step> Plan::joins(const Kernel &kernel, unsigned head, unsigned lane) const {
  Step step{Way::Joins, head, lane, {}, {}};
  const bool works =
      std::ranges::all_of(kernel.terms,
                          [&](const Term &term) { return joinsTerm(kernel, term, step); }) &&
      std::ranges::all_of(
          kernel.operands,
          [&](const Access &operand) { return joinsOperand(kernel, operand, step); }) &&
      std::ranges::all_of(kernel.results, [&](const Result &result) {
        const Access &access = result.access;
        return isInOneLoop(access, head, lane, heads.lanes) ||
               (headDim(kernel, access, head, lane) && !isBanned[access.tensor] &&
                uses.writers[access.tensor].size() == 1);
      });
  // A loop over the lanes of a head is over nothing else.
  for (const Term &term : kernel.terms)
    for (const unsigned sum : step.summed)
      if (!isUsed(term.a, head) && (isUsed(term.a, sum) || isUsed(term.w, sum)))
        return std::nullopt;
  const bool begins = step.tensors.empty();
  // What begins has heads side by side in what it reads, or makes them so.
  if (!works || (begins && kernel.terms.empty() &&
                 std::ranges::none_of(kernel.operands, [&](const Access &operand) {
                   return isUsed(operand, head);
                 })))
    return std::nullopt;
  return step;
}

/// Both factors lie side by side, and nothing else does.
std::optional<Step> Plan::sumsWithin(const Kernel &kernel) const {
  std::optional<Step> step;
  for (const Term &term : kernel.terms) {
    if (!dims.contains(term.a.tensor) && !dims.contains(term.w.tensor))
      continue;
    const Tensor &a = graph.tensors[term.a.tensor];
    const std::optional<unsigned> sum =
        wholeLoop(kernel, term.a.index[a.laneDim], heads.lanes, LoopKind::Contracted);
    const auto its = dims.find(term.a.tensor);
    const std::optional<unsigned> head =
        its == dims.end()
            ? std::nullopt
            : wholeLoop(kernel, term.a.index[its->second], heads.count, LoopKind::Parallel);
    if (!sum || !head || !meets(kernel, term.a, *head, *sum) ||
        !meets(kernel, term.w, *head, *sum) || (step && step->head != *head))
      return std::nullopt;
    if (!step)
      step = Step{Way::Within, *head, *sum, {}, {}};
    step->tensors.insert(step->tensors.end(), {term.a.tensor, term.w.tensor});
  }
  const bool readsOthers = std::ranges::any_of(
      kernel.operands, [&](const Access &operand) { return dims.contains(operand.tensor); });
  return readsOthers ? std::nullopt : step;
}

std::optional<Step> Plan::sumsAcross(const Kernel &kernel) const {
  std::optional<Step> step;
  for (const Term &term : kernel.terms) {
    const auto its = dims.find(term.a.tensor);
    if (its == dims.end())
      continue;
    const Tensor &a = graph.tensors[term.a.tensor];
    const std::optional<unsigned> sum = wholeLoop(kernel, term.a.index[a.laneDim], heads.lanes,
                                                  LoopKind::Contracted),
                                  head = wholeLoop(kernel, term.a.index[its->second], heads.count,
                                                   LoopKind::Contracted);
    if (!sum || !head || !meets(kernel, term.a, *head, *sum) ||
        graph.tensors[term.w.tensor].role != TensorRole::Constant ||
        !isInOneLoop(term.w, *head, *sum, heads.lanes) ||
        (step && (step->head != *head || step->lane != *sum)))
      return std::nullopt;
    if (!step)
      step = Step{Way::Across, *head, *sum, {}, {}};
    step->tensors.push_back(term.a.tensor);
  }
  const auto isOther = [&](const Access &access) {
    return dims.contains(access.tensor) ||
           (step && (isUsed(access, step->head) || isUsed(access, step->lane)));
  };
  for (const Term &term : kernel.terms)
    if (!dims.contains(term.a.tensor) && (isOther(term.a) || isOther(term.w)))
      return std::nullopt;
  return std::ranges::any_of(kernel.operands, isOther) ? std::nullopt : step;
}

std::optional<Step> Plan::stepOf(const Kernel &kernel) const {
  if (std::ranges::any_of(kernel.loops, [](const Loop &l) { return l.kind == LoopKind::Running; }))
    return sumsWithin(kernel);
  const Access &result = kernel.results.front().access;
  const Tensor &to = graph.tensors[result.tensor];
  if (const std::optional<unsigned> lane =
          wholeLoop(kernel, result.index[to.laneDim], heads.lanes, LoopKind::Parallel))
    for (unsigned d = 0; d < to.shape.size(); ++d)
      if (const std::optional<unsigned> head =
              wholeLoop(kernel, result.index[d], heads.count, LoopKind::Parallel);
          head && head != lane)
        if (std::optional<Step> step = joins(kernel, *head, *lane))
          return step;
  if (std::optional<Step> step = sumsWithin(kernel))
    return step;
  if (std::optional<Step> step = sumsAcross(kernel))
    return step;
  return brings(kernel);
}

/// Keys that several heads of queries share: [.., heads / n, .., d] is mapped to [.., heads, ..,
/// d].
std::optional<Step> Plan::brings(const Kernel &kernel) const {
  const Access &result = kernel.results.front().access;
  const Tensor &to = graph.tensors[result.tensor];
  const std::optional<unsigned> lane =
      wholeLoop(kernel, result.index[to.laneDim], heads.lanes, LoopKind::Parallel);
  if (!kernel.terms.empty() || kernel.results.size() != 1 || !lane || isBanned[result.tensor] ||
      uses.writers[result.tensor].size() != 1)
    return std::nullopt;
  Step step{Way::Brings, 0, *lane, {}, {}};
  const auto isOfHeads = [&](const AffineIndex &index) {
    if (index.offset != 0 || index.terms.size() != 2)
      return false;
    const bool firstIsShared = index.terms[0].second > index.terms[1].second;
    const auto &[shared, times] = index.terms[firstIsShared ? 0 : 1];
    const auto &[head, one] = index.terms[firstIsShared ? 1 : 0];
    step.shared = shared;
    step.head = head;
    return one == 1 && times > 1 && kernel.loops[head].extent == times &&
           kernel.loops[shared].extent * times == heads.count &&
           (heads.group % times == 0 || times % heads.group == 0);
  };
  const auto dim = std::ranges::find_if(result.index, isOfHeads);
  if (dim == result.index.end())
    return std::nullopt;
  unsigned read = 0;
  for (unsigned o = 0; o < kernel.operands.size(); ++o) {
    const Access &access = kernel.operands[o];
    if (!usesLoop(access, step.shared) && !usesLoop(access, *lane) && !usesLoop(access, step.head))
      continue;
    const Tensor &from = graph.tensors[access.tensor];
    const std::optional<unsigned> rows = dimOf(graph, kernel, access, step.shared);
    if (access.lookup || access.pad != 0 || from.unbounded || !machine.mxm.format(from.type) ||
        byteWidth(from.type) != 2 || isUsed(access, step.head) || !rows || *rows == from.laneDim ||
        dimOf(graph, kernel, access, *lane) != from.laneDim || ++read > 1)
      return std::nullopt;
    step.operand = o;
  }
  const AluOp widen =
      read ? widenToF32(graph.tensors[kernel.operands[step.operand].tensor].type) : AluOp{};
  // What is summed is the widened value.
  const bool isWidened = read && std::ranges::all_of(kernel.nodes, [&](const Node &node) {
                           return std::ranges::none_of(node.args, [&](unsigned a) {
                             return kernel.nodes[a].kind == Node::Kind::Operand &&
                                    kernel.nodes[a].index == step.operand &&
                                    !(node.kind == Node::Kind::Op && node.op == widen);
                           });
                         });
  const bool isStored = std::ranges::any_of(kernel.results, [&](const Result &r) {
    return kernel.nodes[r.node].kind == Node::Kind::Operand;
  });
  return isWidened && !isStored ? std::optional(step) : std::nullopt;
}

/// In order: a kernel that can go on side by side does.
void Plan::grow() {
  dims.clear();
  steps.clear();
  for (const auto &[isHost, number] : graph.order) {
    if (isHost)
      continue;
    const Kernel &kernel = graph.kernels[number];
    std::optional<Step> step = stepOf(kernel);
    if (!step)
      continue;
    if (step->way == Way::Brings) {
      const Access &result = kernel.results.front().access;
      for (unsigned d = 0; d < result.index.size(); ++d)
        if (isUsed(result, step->shared) && coefficient(result.index[d], step->shared))
          dims[result.tensor] = d;
      step->tensors.push_back(result.tensor);
    }
    if (step->way == Way::Joins)
      for (const Result &result : kernel.results)
        if (const std::optional<unsigned> dim =
                headDim(kernel, result.access, step->head, step->lane)) {
          dims[result.access.tensor] = *dim;
          step->tensors.push_back(result.access.tensor);
        }
    if (!step->tensors.empty())
      steps[number] = std::move(*step);
  }
}

/// What cannot be had apart as well stays as it is. Returns whether that is something new.
bool Plan::ban() {
  bool isNew = false;
  for (const auto &[number, dim] : dims) {
    const Tensor &tensor = graph.tensors[number];
    if (isAlsoApart(number) && (tensor.unbounded || (tensor.type != ElementType::Fp16 &&
                                                     tensor.type != ElementType::Bf16)))
      isBanned[number] = isNew = true;
  }
  return isNew;
}

int64_t Plan::passes(ElementType type, int64_t from, int64_t lanes) const {
  const MxmFormatSpec *format = machine.mxm.format(type);
  const int64_t step = format ? format->lanesPerPass : machine.lanes();
  return (from + lanes + step - 1) / step - from / step;
}

/// Vectors that the kernel sweeps and stores the less, and installs the more.
double Plan::saved(unsigned number, const Step &step) const {
  const Kernel &kernel = graph.kernels[number];
  const Access &result = kernel.results.front().access;
  const std::optional<unsigned> lane =
      onlyLoop(kernel, result.index[graph.tensors[result.tensor].laneDim]);
  int64_t rows = 1;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind != LoopKind::Contracted && l != step.head && l != lane)
      rows *= kernel.loops[l].extent;
  const int64_t wide = heads.group * heads.lanes, groups = heads.count / heads.group;
  const ElementType type =
      graph
          .tensors[(kernel.terms.empty() ? kernel.operands[step.operand] : kernel.terms[0].a)
                       .tensor]
          .type;
  double saved = 0;
  if (step.way == Way::Brings) {
    const int64_t times = kernel.loops[step.head].extent,
                  together = std::max<int64_t>(1, heads.group / times);
    rows /= kernel.loops[step.shared].extent;
    return double(rows * heads.count) -
           double(rows * groups * (together * passes(type, 0, heads.lanes) + 1)) -
           double(together * wide) / double(machine.mxm.columnsPerInstall);
  }
  if (step.way == Way::Within) {
    for (int64_t h = 0; h < heads.group; ++h)
      saved += double(rows * groups) *
               double(passes(type, 0, heads.lanes) - passes(type, h * heads.lanes, heads.lanes));
    return saved;
  }
  if (step.way == Way::Across)
    return double(rows) *
           double(heads.count * passes(type, 0, heads.lanes) - groups * passes(type, 0, wide));
  saved += double(rows * (heads.count - groups));
  for (const Term &term : kernel.terms) {
    const Tensor &a = graph.tensors[term.a.tensor];
    const std::optional<unsigned> sum =
        unitLoop(kernel, term.a.index[a.laneDim], LoopKind::Contracted);
    if (!sum || !step.summed.contains(*sum)) {
      saved += double(rows * (heads.count - groups));
      continue;
    }
    saved += double(rows) *
             double(heads.count * passes(type, 0, heads.lanes) - groups * passes(type, 0, wide));
    saved -= double(wide - heads.lanes) / double(machine.mxm.columnsPerInstall);
  }
  return saved;
}

/// Vectors that having the heads apart, too, takes, and those that could pass meanwhile: it is a
/// step more.
double Plan::costApart(unsigned number) const {
  constexpr double kStep = 256;
  const Tensor &tensor = graph.tensors[number];
  return isAlsoApart(number) ? 2.0 * double(elementCount(tensor) / heads.lanes) + kStep : 0;
}

/// Of what hangs together all stays side by side, or nothing.
void Plan::keepWhatPays() {
  std::map<unsigned, unsigned> parents; // per tensor
  const auto find = [&](unsigned t) {
    while (parents.at(t) != t)
      t = parents.at(t);
    return t;
  };
  for (const auto &[tensor, dim] : dims)
    parents[tensor] = tensor;
  for (const auto &[number, step] : steps)
    for (const unsigned t : step.tensors)
      parents[find(t)] = find(step.tensors.front());
  std::map<unsigned, double> sums;
  for (const auto &[number, step] : steps)
    sums[find(step.tensors.front())] += saved(number, step);
  for (const auto &[tensor, dim] : dims)
    sums[find(tensor)] -= costApart(tensor);
  for (const auto &[tensor, sum] : sums)
    saves += std::max(sum, 0.0);
  std::set<unsigned> left;
  for (const auto &[tensor, dim] : dims)
    if (sums[find(tensor)] <= 0)
      left.insert(tensor);
  std::erase_if(steps, [&](const auto &its) { return left.contains(its.second.tensors.front()); });
  std::erase_if(dims, [&](const auto &its) { return left.contains(its.first); });
}

/// Changes the graph as a plan says.
class Keeper {
public:
  Keeper(KernelGraph &graph, const Plan &plan) : graph(graph), heads(plan.heads), plan(plan) {}

  void apply() {
    for (const auto &[number, step] : plan.steps)
      if (step.way == Way::Within)
        splitScores(number, step);
    std::vector<std::pair<unsigned, unsigned>> apart; ///< tensors: side by side, with heads apart
    for (const auto &[tensor, dim] : plan.dims) {
      if (plan.isAlsoApart(tensor)) {
        Tensor copy = graph.tensors[tensor];
        copy.name += ".heads";
        copy.role = TensorRole::Intermediate;
        copy.value.clear();
        graph.tensors.push_back(addTo(std::move(copy)));
        joined[tensor] = unsigned(graph.tensors.size() - 1);
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
  const Plan &plan;
  std::map<unsigned, unsigned> cutInto; ///< per kernel whose loop is cut already: heads of a group
  std::map<unsigned, unsigned> joined;  ///< per tensor: the one with heads side by side
  Repeats repeats;
  std::map<std::pair<unsigned, bool>, unsigned>
      blocks; ///< by constant, and if its lanes are summed

  /// As the host's tensors are not.
  static Tensor addTo(Tensor tensor) {
    tensor.hostName.clear();
    tensor.hostType.clear();
    tensor.hostShape.clear();
    tensor.hostLoops.clear();
    tensor.hostStart.clear();
    return tensor;
  }

  void widen(Tensor &tensor, unsigned dim) const {
    tensor.shape[tensor.laneDim] *= heads.group;
    tensor.shape[dim] /= heads.group;
  }

  /// Of what sums over each head make, groups and the heads of one are dimensions of their own, so
  /// that these may lie side by side as well (packHeads).
  void splitScores(unsigned number, const Step &step) {
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

  /// A loop of groups, and one of the heads of a group, which is returned; of one group the same.
  unsigned splitLoop(Kernel &kernel, unsigned head) const {
    if (heads.group == heads.count)
      return head;
    const auto inner = unsigned(kernel.loops.size());
    kernel.loops.push_back({heads.group, kernel.loops[head].kind});
    kernel.loops[head].extent /= heads.group;
    const auto split = [&](std::vector<AffineIndex> &index) {
      for (AffineIndex &i : index)
        if (const int64_t step = coefficient(i, head)) {
          for (auto &[loop, c] : i.terms)
            c *= loop == head ? heads.group : 1;
          i.terms.push_back({inner, step});
        }
    };
    forEachAccess(kernel, [&](Access &access) {
      split(access.index);
      if (access.lookup)
        split(access.lookup->index);
    });
    return inner;
  }

  /// A product with a constant that has each head that lies apart where it is to lie, as often as
  /// it has to.
  void bring(unsigned number, const Step &step) {
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

  void change(unsigned number, const Step &step) {
    if (step.way == Way::Brings)
      return bring(number, step);
    Kernel kernel = graph.kernels[number];
    const auto cut = cutInto.find(number);
    const unsigned inner = cut == cutInto.end() ? splitLoop(kernel, step.head) : cut->second;
    if (step.way == Way::Joins)
      for (Term &term : kernel.terms)
        if (isUsed(term.a, inner))
          term.w = blockOf(kernel, term, step);
    for (Access &operand : kernel.operands)
      if (step.way == Way::Joins && !plan.dims.contains(operand.tensor) &&
          !isInOneLoop(operand, inner, step.lane, heads.lanes))
        operand =
            Repeater(graph, heads.group, repeats).repeat(kernel, std::move(operand), step.lane);
    forEachAccess(kernel, [&](Access &access) {
      const auto its = plan.dims.find(access.tensor);
      if (its == plan.dims.end())
        return;
      access.index[its->second] = inner == step.head ? fixed(0) : at(step.head);
      AffineIndex &lane = access.index[graph.tensors[access.tensor].laneDim];
      if (step.way == Way::Within)
        lane.terms.push_back({inner, heads.lanes});
      access.tensor = joined.at(access.tensor);
    });
    if (step.way != Way::Within)
      join(kernel, step, inner);
    graph.kernels[number] = step.way == Way::Joins && staysInPlace(kernel, step.lane)
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
  void join(Kernel &kernel, const Step &step, unsigned inner) const {
    kernel.loops[step.lane].extent *= heads.group;
    for (const unsigned sum : step.summed)
      kernel.loops[sum].extent *= heads.group;
    eraseLoop(kernel, inner);
  }

  /// The constant of a term once for each head of a group, along a diagonal.
  Access blockOf(const Kernel &kernel, const Term &term, const Step &step) {
    const Tensor from = graph.tensors[term.w.tensor];
    const unsigned lane = *dimOf(graph, kernel, term.w, step.lane);
    unsigned sum = 0;
    for (const unsigned l : step.summed)
      sum = isUsed(term.w, l) ? l : sum;
    const auto [known, isNew] =
        blocks.try_emplace({term.w.tensor, lane != from.laneDim}, unsigned(graph.tensors.size()));
    if (isNew) {
      const int64_t wide = heads.group * heads.lanes;
      const unsigned width = byteWidth(from.type);
      std::vector<uint8_t> data(size_t(wide * wide) * width, 0);
      forEachPoint(kernel, {step.lane, sum}, [&](const std::vector<int64_t> &point) {
        const int64_t element = from.splat ? 0 : linearOffset(from, term.w, point);
        for (int64_t h = 0; h < heads.group; ++h)
          std::copy_n(from.data.begin() + element * width, width,
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
    std::optional<Plan> best;
    for (int64_t group = 2; group <= count && group * lanes <= vector; ++group)
      if (count % group == 0)
        if (Plan plan(graph, machine, {count, lanes, group}); plan.saves > (best ? best->saves : 0))
          best.emplace(std::move(plan));
    if (!best)
      continue;
    Keeper(graph, *best).apply();
    kept += unsigned(best->dims.size());
  }
  return kept;
}

} // namespace millrace::forms
