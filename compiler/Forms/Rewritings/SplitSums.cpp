// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitSums.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>

namespace millrace::forms {
namespace {

constexpr int64_t kNeighbours = 4; ///< that a map adds: each read needs a copy of the tensor
constexpr int64_t kMostTaps = 32;  ///< that the contraction adds: it waits for its sum at each
constexpr int64_t kLeastRows = 256;

/// A sum over all rows of some dimensions of a tensor.
struct Sum {
  unsigned reduction = 0, operand = 0;
  std::vector<unsigned> dims; ///< of the operand's tensor
};

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
  const Node &widened = kernel.nodes[kernel.nodes[sum.reduction].args[0]];
  if (widened.kind != Node::Kind::Op || widened.args.size() != 1 ||
      kernel.nodes[widened.args[0]].kind != Node::Kind::Operand)
    return std::nullopt;
  sum.operand = kernel.nodes[widened.args[0]].index;
  const Access &access = kernel.operands[sum.operand];
  const Tensor &tensor = graph.tensors[access.tensor];
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  if (tensor.role != TensorRole::Intermediate || access.lookup ||
      (tensor.type != ElementType::Fp16 && tensor.type != ElementType::Bf16) ||
      widened.op != widenToF32(tensor.type) || !machine.mxm.format(tensor.type) ||
      2 * tensor.shape[tensor.laneDim] > vector)
    return std::nullopt;
  int64_t rows = 1;
  for (unsigned d = 0; d < tensor.shape.size(); ++d) {
    const std::optional<unsigned> loop = onlyLoop(kernel, access.index[d]);
    if (!loop) {
      if (tensor.shape[d] != 1 || access.index[d].offset)
        return std::nullopt;
      continue;
    }
    if (wholeLoop(kernel, access.index[d], tensor.shape[d], kernel.loops[*loop].kind) != loop)
      return std::nullopt;
    if (kernel.loops[*loop].kind != LoopKind::Running)
      continue;
    if (d == tensor.laneDim)
      return std::nullopt;
    sum.dims.push_back(d);
    rows *= tensor.shape[d];
  }
  for (unsigned l = 0; l < kernel.loops.size(); ++l) // none beside
    if (kernel.loops[l].kind == LoopKind::Running && kernel.loops[l].extent > 1 &&
        (!usesLoop(access, l) ||
         std::any_of(kernel.operands.begin(), kernel.operands.end(),
                     [&](const Access &a) { return &a != &access && usesLoop(a, l); })))
      return std::nullopt;
  return rows >= kLeastRows ? std::optional(sum) : std::nullopt;
}

/// A tensor whose elements are sums of `count` neighbours of `from` along a dimension, divided by
/// `divisor`.
unsigned addNeighbours(KernelGraph &graph, const Kernel &like, unsigned from, unsigned dim,
                       int64_t count, ElementType type, double divisor) {
  const Tensor source = graph.tensors[from];
  std::vector<int64_t> shape = source.shape;
  shape[dim] = (shape[dim] + count - 1) / count;
  const std::string name = source.name + ".sums";
  const unsigned to = addTensor(graph, name, shape, type, source.laneDim);
  KernelBuilder build(graph);
  std::vector<AffineIndex> index;
  for (int64_t extent : shape)
    index.push_back(at(build.loop(extent)));
  std::optional<unsigned> value;
  for (int64_t k = 0; k < count; ++k) {
    Access tap{from, index, 0};
    tap.index[dim] = at(dim, count, k);
    const unsigned each = build.load(tap);
    value = value ? build.op(AluOp::AddF32, {*value, each}) : each;
  }
  if (divisor != 1)
    value = build.op(AluOp::MulF32, {*value, build.constant(float(1 / divisor))});
  build.store(*value, {to, index});
  build.finish(name, like.provenance);
  return to;
}

/// The kernel with a contraction with ones in the place of its reduction.
Kernel contracted(KernelGraph &graph, const Kernel &kernel, const Sum &sum, unsigned tensor,
                  double factor) {
  const Tensor source = graph.tensors[tensor];
  const Access &access = kernel.operands[sum.operand];
  KernelBuilder build(graph, kernel);
  for (Loop &loop : build.kernel().loops)
    if (loop.kind == LoopKind::Running)
      loop = {1, LoopKind::Parallel};
  const int64_t lanes = source.shape[source.laneDim];
  const unsigned c = build.loop(lanes, LoopKind::Contracted);
  Access a{tensor, access.index, 0}, ones{0, {access.index[source.laneDim], at(c)}, 0};
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
  build.term(a, ones, 0);
  unsigned value = build.accumulator();
  if (factor != 1)
    value = build.op(AluOp::MulF32, {value, build.constant(float(factor))});
  build.continueFrom(kernel, sum.reduction, value);
  return std::move(build.kernel());
}

/// Replaces the kernel; those that come before it are the graph's last.
void split(KernelGraph &graph, unsigned index, const Sum &sum) {
  const Kernel kernel = graph.kernels[index];
  unsigned tensor = kernel.operands[sum.operand].tensor;
  const ElementType narrow = graph.tensors[tensor].type;
  struct Step {
    unsigned dim;
    int64_t count;
  };
  std::vector<Step> steps;
  for (auto dim = sum.dims.rbegin(); dim != sum.dims.rend(); ++dim) {
    int64_t left = graph.tensors[tensor].shape[*dim];
    const bool isLast = *dim == sum.dims.front(); // its rest is the contraction's
    while (left > (isLast ? kMostTaps : 1)) {
      steps.push_back({*dim, std::min(left, kNeighbours)});
      left = (left + steps.back().count - 1) / steps.back().count;
    }
  }
  double factor = 1;
  for (const Step &step : steps)
    factor *= double(step.count);
  for (size_t s = 0; s < steps.size(); ++s) {
    const bool isLast = s + 1 == steps.size();
    tensor = addNeighbours(graph, kernel, tensor, steps[s].dim, steps[s].count,
                           isLast ? narrow : ElementType::Fp32, isLast ? factor : 1);
  }
  graph.kernels[index] = contracted(graph, kernel, sum, tensor, factor);
}

} // namespace

unsigned splitSums(KernelGraph &graph, const Machine &machine) {
  unsigned splits = 0;
  const std::vector<std::pair<bool, unsigned>> order = std::move(graph.order);
  graph.order.clear();
  for (auto [isHost, index] : order) {
    if (!isHost)
      if (const std::optional<Sum> sum = sumOf(graph, graph.kernels[index], machine)) {
        split(graph, index, *sum); // its steps go before it
        ++splits;
      }
    graph.order.push_back({isHost, index});
  }
  return splits;
}

} // namespace millrace::forms
