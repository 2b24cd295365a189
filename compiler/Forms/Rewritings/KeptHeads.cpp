// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/KeptHeads.h"

#include "compiler/Forms/KernelBuilder.h"

#include "arch/spec/Types.h"

#include <algorithm>

namespace millrace::forms {

KeptHeads::KeptHeads(const KernelGraph &graph, const Machine &machine, const Heads &heads)
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

bool KeptHeads::isAlsoApart(unsigned tensor) const {
  return uses.onHost[tensor] || graph.tensors[tensor].role != TensorRole::Intermediate ||
         std::ranges::any_of(uses.readers[tensor],
                             [&](unsigned reader) { return !steps.contains(reader); });
}

/// The dimension of heads of an access that `head` and `lane` step through, lane by lane.
std::optional<unsigned> KeptHeads::headDim(const Kernel &kernel, const Access &access,
                                           unsigned head, unsigned lane) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  const std::optional<unsigned> dim = dimOf(graph, kernel, access, head);
  return !access.lookup && dim && *dim != tensor.laneDim && tensor.shape[*dim] == heads.count &&
                 tensor.shape[tensor.laneDim] == heads.lanes &&
                 dimOf(graph, kernel, access, lane) == tensor.laneDim
             ? dim
             : std::nullopt;
}

/// The access meets a tensor that lies side by side by these loops.
bool KeptHeads::meets(const Kernel &kernel, const Access &access, unsigned head,
                      unsigned lane) const {
  const auto its = dims.find(access.tensor);
  return its != dims.end() && headDim(kernel, access, head, lane) == its->second;
}

/// A constant has the lanes of each head somewhere: between others, say.
bool KeptHeads::canLayOut(const Kernel &kernel, const Access &access, const HeadStep &step,
                          bool isFactor) const {
  return isUsed(access, step.head) && isUsed(access, step.lane) &&
         planner.canLayOut(kernel, access, isFactor);
}

/// A sum within each head of what lies side by side, with a constant; or one over lanes that are
/// not of heads, in columns for each head.
bool KeptHeads::joinsTerm(const Kernel &kernel, const Term &term, HeadStep &step) const {
  const Tensor &a = graph.tensors[term.a.tensor], &w = graph.tensors[term.w.tensor];
  if (w.role != TensorRole::Constant || term.a.lookup || term.w.lookup || term.w.pad != 0 ||
      isUsed(term.a, step.lane))
    return false;
  if (!isUsed(term.a, step.head))
    return isUsed(term.w, step.head) && (isInOneLoop(term.w, step.head, step.lane, heads.lanes) ||
                                         canLayOut(kernel, term.w, step, /*isFactor=*/true));
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
bool KeptHeads::isMadeOfOthers(unsigned tensor, unsigned depth) const {
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

bool KeptHeads::joinsOperand(const Kernel &kernel, const Access &access, HeadStep &step) const {
  if (meets(kernel, access, step.head, step.lane)) {
    step.tensors.push_back(access.tensor);
    return true;
  }
  return !dims.contains(access.tensor) && !access.lookup &&
         (isInOneLoop(access, step.head, step.lane, heads.lanes) ||
          canLayOut(kernel, access, step, /*isFactor=*/false) ||
          (planner.canRepeat(kernel, access, {step.head, step.lane, true}) &&
           isMadeOfOthers(access.tensor, HeadPlanner::kMostRepeated)));
}

std::optional<HeadStep> KeptHeads::joins(const Kernel &kernel, unsigned head, unsigned lane) const {
  HeadStep step{HeadWay::Joins, head, lane, {}, {}};
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
                   return isUsed(operand, head) && isInOneLoop(operand, head, lane, heads.lanes);
                 })))
    return std::nullopt;
  return step;
}

/// Both factors lie side by side, and nothing else does.
std::optional<HeadStep> KeptHeads::sumsWithin(const Kernel &kernel) const {
  std::optional<HeadStep> step;
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
      step = HeadStep{HeadWay::Within, *head, *sum, {}, {}};
    step->tensors.insert(step->tensors.end(), {term.a.tensor, term.w.tensor});
  }
  const bool readsOthers = std::ranges::any_of(
      kernel.operands, [&](const Access &operand) { return dims.contains(operand.tensor); });
  return readsOthers ? std::nullopt : step;
}

std::optional<HeadStep> KeptHeads::sumsAcross(const Kernel &kernel) const {
  std::optional<HeadStep> step;
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
      step = HeadStep{HeadWay::Across, *head, *sum, {}, {}};
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

std::optional<HeadStep> KeptHeads::stepOf(const Kernel &kernel) const {
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
        if (std::optional<HeadStep> step = joins(kernel, *head, *lane))
          return step;
  if (std::optional<HeadStep> step = sumsWithin(kernel))
    return step;
  if (std::optional<HeadStep> step = sumsAcross(kernel))
    return step;
  return brings(kernel);
}

/// Keys that several heads of queries share: [.., heads / n, .., d] is mapped to [.., heads, ..,
/// d].
std::optional<HeadStep> KeptHeads::brings(const Kernel &kernel) const {
  const Access &result = kernel.results.front().access;
  const Tensor &to = graph.tensors[result.tensor];
  const std::optional<unsigned> lane =
      wholeLoop(kernel, result.index[to.laneDim], heads.lanes, LoopKind::Parallel);
  if (!kernel.terms.empty() || kernel.results.size() != 1 || !lane || isBanned[result.tensor] ||
      uses.writers[result.tensor].size() != 1)
    return std::nullopt;
  HeadStep step{HeadWay::Brings, 0, *lane, {}, {}};
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
void KeptHeads::grow() {
  dims.clear();
  steps.clear();
  for (const auto &[isHost, number] : graph.order) {
    if (isHost)
      continue;
    const Kernel &kernel = graph.kernels[number];
    std::optional<HeadStep> step = stepOf(kernel);
    if (!step)
      continue;
    if (step->way == HeadWay::Brings) {
      const Access &result = kernel.results.front().access;
      for (unsigned d = 0; d < result.index.size(); ++d)
        if (coefficient(result.index[d], step->shared))
          dims[result.tensor] = d;
      step->tensors.push_back(result.tensor);
    }
    if (step->way == HeadWay::Joins)
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
bool KeptHeads::ban() {
  bool isNew = false;
  for (const auto &[number, dim] : dims) {
    const Tensor &tensor = graph.tensors[number];
    if (isAlsoApart(number) && (tensor.unbounded || (tensor.type != ElementType::Fp16 &&
                                                     tensor.type != ElementType::Bf16)))
      isBanned[number] = isNew = true;
  }
  return isNew;
}

int64_t KeptHeads::passes(ElementType type, int64_t from, int64_t lanes) const {
  const MxmFormatSpec *format = machine.mxm.format(type);
  const int64_t step = format ? format->lanesPerPass : machine.lanes();
  return (from + lanes + step - 1) / step - from / step;
}

/// Vectors that the kernel sweeps and stores the less, and installs the more.
double KeptHeads::saved(unsigned number, const HeadStep &step) const {
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
  if (step.way == HeadWay::Brings) {
    const int64_t times = kernel.loops[step.head].extent,
                  together = std::max<int64_t>(1, heads.group / times);
    rows /= kernel.loops[step.shared].extent;
    return double(rows * heads.count) -
           double(rows * groups * (together * passes(type, 0, heads.lanes) + 1)) -
           double(together * wide) / double(machine.mxm.columnsPerInstall);
  }
  if (step.way == HeadWay::Within) {
    for (int64_t h = 0; h < heads.group; ++h)
      saved += double(rows * groups) *
               double(passes(type, 0, heads.lanes) - passes(type, h * heads.lanes, heads.lanes));
    return saved;
  }
  if (step.way == HeadWay::Across)
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
double KeptHeads::costApart(unsigned number) const {
  constexpr double kStep = 256;
  const Tensor &tensor = graph.tensors[number];
  return isAlsoApart(number) ? 2.0 * double(elementCount(tensor) / heads.lanes) + kStep : 0;
}

/// Of what hangs together all stays side by side, or nothing.
void KeptHeads::keepWhatPays() {
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

} // namespace millrace::forms
