// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitSums.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <functional>

namespace millrace::forms {
namespace {

constexpr int64_t kNeighbours = 4; ///< that a map adds: each read needs a copy of the tensor
constexpr int64_t kMostTaps = 32;  ///< that the contraction adds: it waits for its sum at each
constexpr int64_t kLeastRows = 256;

/// A sum over all rows of some dimensions of a tensor, or of what a map makes of it.
struct Sum {
  unsigned reduction = 0;
  unsigned operand = 0;          ///< that reads the tensor; others that move are of its shape
  std::vector<unsigned> dims;    ///< of the operand's tensor
  unsigned operations = 0;       ///< of the map; none if the tensor itself is summed
  bool takesContraction = false; ///< for what is left; else maps go on to the end
  bool isMean =
      false; ///< maps divide by what they add up: within the type's range as the tensor is
  std::vector<std::optional<unsigned>> dimOf; ///< per loop: the dimension that it moves
};

/// Where every loop that moves the access is a dimension of its tensor, whole, or nothing.
std::optional<std::vector<std::optional<unsigned>>>
dimsOfLoops(const KernelGraph &graph, const Kernel &kernel, const Access &access) {
  const Tensor &tensor = graph.tensors[access.tensor];
  std::vector<std::optional<unsigned>> dimOf(kernel.loops.size());
  for (unsigned d = 0; d < tensor.shape.size(); ++d) {
    const std::optional<unsigned> loop = onlyLoop(kernel, access.index[d]);
    if (!loop) {
      if (tensor.shape[d] != 1 || access.index[d].offset)
        return std::nullopt;
      continue;
    }
    if (wholeLoop(kernel, access.index[d], tensor.shape[d], kernel.loops[*loop].kind) != loop ||
        dimOf[*loop])
      return std::nullopt;
    dimOf[*loop] = d;
  }
  return dimOf;
}

bool readsUnbounded(const KernelGraph &graph, const Kernel &kernel) {
  return std::any_of(kernel.operands.begin(), kernel.operands.end(),
                     [&](const Access &a) { return graph.tensors[a.tensor].unbounded; });
}

std::optional<Sum> sumOf(const KernelGraph &graph, const Kernel &kernel, const Machine &machine) {
  if (!kernel.terms.empty())
    return std::nullopt;
  Sum sum;
  unsigned reductions = 0;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (kernel.nodes[n].kind == Node::Kind::Reduce)
      sum.reduction = n, ++reductions;
  if (reductions != 1 || kernel.nodes[sum.reduction].op != AluOp::AddF32)
    return std::nullopt;
  const auto runs = [&](const Access &access) {
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (kernel.loops[l].kind == LoopKind::Running && kernel.loops[l].extent > 1 &&
          usesLoop(access, l))
        return true;
    return false;
  };
  std::optional<unsigned> moving;
  for (unsigned n : nodesOf(kernel, kernel.nodes[sum.reduction].args[0])) {
    const Node &node = kernel.nodes[n];
    sum.operations += node.kind == Node::Kind::Op;
    if (node.kind == Node::Kind::Operand && runs(kernel.operands[node.index]) && !moving)
      moving = node.index;
  }
  if (!moving)
    return std::nullopt;
  sum.operand = *moving;
  const Access &access = kernel.operands[sum.operand];
  const Tensor &tensor = graph.tensors[access.tensor];
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  const Node &widened = kernel.nodes[kernel.nodes[sum.reduction].args[0]];
  const bool isFloat = tensor.type == ElementType::Fp16 || tensor.type == ElementType::Bf16;
  if ((tensor.role != TensorRole::Intermediate && tensor.role != TensorRole::Input) ||
      (!isFloat && tensor.type != ElementType::Int8))
    return std::nullopt;
  if (widened.kind == Node::Kind::Op && widened.op == widenToF32(tensor.type))
    sum.operations = 0;
  sum.isMean = isFloat && !sum.operations;
  // Of the other lanes it takes nothing: their products with 0, which infinities and NaN have not.
  sum.takesContraction = 2 * tensor.shape[tensor.laneDim] <= vector &&
                         !readsUnbounded(graph, kernel) &&
                         machine.mxm.format(sum.isMean ? tensor.type : ElementType::Bf16);
  if (!sum.takesContraction && sum.isMean) // the MXM sums long rows as they are
    return std::nullopt;
  const auto dimOf = dimsOfLoops(graph, kernel, access);
  if (!dimOf)
    return std::nullopt;
  sum.dimOf = *dimOf;
  int64_t rows = 1;
  for (unsigned l = 0; l < kernel.loops.size(); ++l) {
    if (kernel.loops[l].kind != LoopKind::Running || kernel.loops[l].extent == 1)
      continue;
    if (!sum.dimOf[l] || *sum.dimOf[l] == tensor.laneDim)
      return std::nullopt;
    sum.dims.push_back(*sum.dimOf[l]);
    rows *= kernel.loops[l].extent;
  }
  std::sort(sum.dims.begin(), sum.dims.end());
  for (const Access &other : kernel.operands) {
    if (other.lookup)
      return std::nullopt;
    if (runs(other) && (dimsOfLoops(graph, kernel, other) != dimOf ||
                        graph.tensors[other.tensor].shape != tensor.shape ||
                        graph.tensors[other.tensor].laneDim != tensor.laneDim))
      return std::nullopt;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (kernel.loops[l].extent > 1 && usesLoop(other, l) && !sum.dimOf[l])
        return std::nullopt;
  }
  return rows >= kLeastRows ? std::optional(sum) : std::nullopt;
}

/// The value to add at an index of the tensor.
using Tap = std::function<unsigned(KernelBuilder &, const std::vector<AffineIndex> &)>;

/// What the map makes of the tensor; the loops of the kernel that is built are its dimensions.
Tap mapped(const KernelGraph &graph, const Kernel &kernel, const Sum &sum) {
  return [&](KernelBuilder &build, const std::vector<AffineIndex> &index) {
    return build.computeAt(kernel, kernel.nodes[sum.reduction].args[0], [&](Access access) {
      const Access &moving = kernel.operands[sum.operand];
      const bool moves = access.index == moving.index &&
                         graph.tensors[access.tensor].shape == graph.tensors[moving.tensor].shape;
      for (AffineIndex &its : access.index) {
        std::erase_if(its.terms, [&](auto term) { return !sum.dimOf[term.first]; });
        for (auto &[loop, step] : its.terms)
          loop = *sum.dimOf[loop];
      }
      if (moves) { // what lies outside adds nothing
        access.index = index;
        access.pad = 0;
      }
      return access;
    });
  };
}

Tap loaded(unsigned tensor) {
  return [tensor](KernelBuilder &build, const std::vector<AffineIndex> &index) {
    return build.load({tensor, index, 0});
  };
}

/// A tensor whose elements are sums of `count` neighbours along a dimension of `from`, divided by
/// `divisor`; with several parts, as so many numbers of the type that add up to it.
std::vector<unsigned> addNeighbours(KernelGraph &graph, const Kernel &like, unsigned from,
                                    const Tap &tap, unsigned dim, int64_t count, ElementType type,
                                    double divisor, unsigned parts, bool mayOverflow) {
  const Tensor source = graph.tensors[from];
  std::vector<int64_t> shape = source.shape;
  shape[dim] = (shape[dim] + count - 1) / count;
  const std::string name = source.name + ".sums";
  std::vector<unsigned> to;
  for (unsigned part = 0; part < parts; ++part) {
    to.push_back(addTensor(graph, name + (part ? ".low" : ""), shape, type, source.laneDim));
    graph.tensors[to.back()].unbounded = mayOverflow;
  }
  KernelBuilder build(graph);
  std::vector<AffineIndex> index;
  for (int64_t extent : shape)
    index.push_back(at(build.loop(extent)));
  std::optional<unsigned> value;
  for (int64_t k = 0; k < count; ++k) {
    std::vector<AffineIndex> where = index;
    where[dim] = at(dim, count, k);
    const unsigned each = tap(build, where);
    value = value ? build.op(AluOp::AddF32, {*value, each}) : each;
  }
  if (divisor != 1)
    value = build.op(AluOp::MulF32, {*value, build.constant(float(1 / divisor))});
  for (unsigned part = 0; part + 1 < parts; ++part) {
    const unsigned high = build.op(narrowFromF32(type), {*value}),
                   wide = build.op(widenToF32(type), {high});
    build.storeBits(high, {to[part], index});
    const unsigned rest = build.op(AluOp::SubF32, {*value, wide});
    value = mayOverflow // infinity less itself would be NaN
                ? build.op(AluOp::SelectF32,
                           {build.op(AluOp::NeF32, {*value, wide}), rest, build.constant(0)})
                : rest;
  }
  build.store(*value, {to.back(), index});
  build.finish(name, like.provenance);
  return to;
}

/// The kernel with a contraction with ones in the place of its reduction, or with the whole sum.
Kernel summed(KernelGraph &graph, const Kernel &kernel, const Sum &sum,
              const std::vector<unsigned> &parts, double factor) {
  const Tensor source = graph.tensors[parts.front()];
  const Access &access = kernel.operands[sum.operand];
  KernelBuilder build(graph, kernel);
  for (Loop &loop : build.kernel().loops)
    if (loop.kind == LoopKind::Running)
      loop = {1, LoopKind::Parallel};
  Access a{parts.front(), access.index, 0};
  if (!sum.takesContraction) {
    for (unsigned d : sum.dims)
      a.index[d] = fixed(0);
    build.continueFrom(kernel, sum.reduction, build.load(a));
    return std::move(build.kernel());
  }
  const int64_t lanes = source.shape[source.laneDim];
  const unsigned c = build.loop(lanes, LoopKind::Contracted);
  Access ones{0, {access.index[source.laneDim], at(c)}, 0};
  a.index[source.laneDim] = at(c);
  std::vector<int64_t> shape{lanes, lanes};
  int64_t taps = 1;
  for (unsigned d : sum.dims) {
    const unsigned tap = build.loop(source.shape[d], LoopKind::Contracted);
    a.index[d] = at(tap);
    ones.index.push_back(at(tap));
    shape.push_back(source.shape[d]);
    taps *= source.shape[d];
  }
  std::vector<float> values(size_t(lanes * lanes * taps), 0);
  for (int64_t lane = 0; lane < lanes; ++lane)
    std::fill_n(values.begin() + (lane * lanes + lane) * taps, taps, 1.0f);
  ones.tensor = addConstant(graph, source.name + ".ones", shape, source.type, 1, values);
  for (unsigned part : parts) {
    a.tensor = part;
    build.term(a, ones, 0);
  }
  unsigned value = build.accumulator();
  if (factor != 1)
    value = build.op(AluOp::MulF32, {value, build.constant(float(factor))});
  build.continueFrom(kernel, sum.reduction, value);
  return std::move(build.kernel());
}

/// Replaces the kernel; those that come before it are the graph's last.
void split(KernelGraph &graph, unsigned index, const Sum &sum, const Machine &machine) {
  const Kernel kernel = graph.kernels[index];
  const Tensor source = graph.tensors[kernel.operands[sum.operand].tensor];
  const int64_t innermost = source.shape[sum.dims.back()];
  // What a map adds: at first all ALUs of a PE make something of elements, of none outside.
  int64_t neighbours = kNeighbours;
  while (sum.operations && neighbours > 1 &&
         (neighbours * (sum.operations + 1) - 1 > machine.vxm.alus || innermost % neighbours))
    --neighbours;
  struct Step {
    unsigned dim;
    int64_t count;
  };
  std::vector<Step> steps;
  for (auto dim = sum.dims.rbegin(); dim != sum.dims.rend(); ++dim) {
    int64_t left = source.shape[*dim];
    const bool isRest = sum.takesContraction && *dim == sum.dims.front();
    while (left > (isRest ? kMostTaps : 1)) {
      steps.push_back({*dim, std::min(left, neighbours)});
      left = (left + steps.back().count - 1) / steps.back().count;
      neighbours = kNeighbours;
    }
  }
  double factor = 1;
  for (const Step &step : steps)
    factor *= double(step.count);
  // Two bf16 hold whole numbers up to 2^16, three what fp32 holds.
  const unsigned parts = sum.isMean                                                 ? 1
                         : source.type == ElementType::Int8 && 128 * factor > 65536 ? 3
                                                                                    : 2;
  if (!sum.isMean)
    factor = 1;
  const bool mayOverflow = readsUnbounded(graph, kernel);
  std::vector<unsigned> tensors{kernel.operands[sum.operand].tensor};
  for (size_t s = 0; s < steps.size(); ++s) {
    const bool isLast = s + 1 == steps.size() && sum.takesContraction;
    const ElementType type = !isLast      ? ElementType::Fp32
                             : sum.isMean ? source.type
                                          : ElementType::Bf16;
    tensors = addNeighbours(
        graph, kernel, tensors.front(), s ? loaded(tensors.front()) : mapped(graph, kernel, sum),
        steps[s].dim, steps[s].count, type, isLast ? factor : 1, isLast ? parts : 1, mayOverflow);
  }
  graph.kernels[index] = summed(graph, kernel, sum, tensors, factor);
}

} // namespace

unsigned splitSums(KernelGraph &graph, const Machine &machine) {
  unsigned splits = 0;
  const std::vector<std::pair<bool, unsigned>> order = std::move(graph.order);
  graph.order.clear();
  for (auto [isHost, index] : order) {
    if (!isHost)
      if (const std::optional<Sum> sum = sumOf(graph, graph.kernels[index], machine)) {
        split(graph, index, *sum, machine); // its steps go before it
        ++splits;
      }
    graph.order.push_back({isHost, index});
  }
  return splits;
}

} // namespace millrace::forms
