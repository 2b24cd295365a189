// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/RowMoves.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>

namespace millrace::layouts {

using forms::KernelBuilder;
using forms::Node;

bool canMove(const KernelGraph &graph, const Machine &machine, unsigned tensor) {
  const Tensor &t = graph.tensors[tensor];
  return !t.unbounded && machine.mxm.format(t.type);
}

void maskOutside(KernelGraph &graph, Kernel &kernel, const Moved &moved, int64_t extent,
                 uint32_t pad) {
  const Access &result = kernel.results[0].access;
  const Tensor tensor = graph.tensors[result.tensor];
  std::vector<uint8_t> inside;
  for (int64_t i = 0; i < tensor.shape[moved.dim]; ++i) {
    const int64_t element = moved.step * i + moved.offset;
    inside.push_back(element >= 0 && element < extent);
  }
  if (!std::count(inside.begin(), inside.end(), 0))
    return;
  const int64_t lanes = tensor.shape[tensor.laneDim];
  const unsigned mask = addTensor(graph, tensor.name + ".inside", {int64_t(inside.size()), lanes},
                                  ElementType::UInt8, 1, TensorRole::Constant);
  for (uint8_t is : inside)
    graph.tensors[mask].data.insert(graph.tensors[mask].data.end(), size_t(lanes), is);
  const unsigned at = unsigned(kernel.nodes.size());
  kernel.nodes.push_back({Node::Kind::Operand, unsigned(kernel.operands.size()), 0, {}, {}});
  kernel.operands.push_back({mask, {result.index[moved.dim], result.index[tensor.laneDim]}, 0});
  kernel.nodes.push_back({Node::Kind::Immediate, 0, pad, {}, {}});
  kernel.nodes.push_back(
      {Node::Kind::Op, 0, 0, AluOp::SelectF32, {at, kernel.results[0].node, at + 1}});
  kernel.results[0].node = at + 2;
}

Kernel moveOf(KernelGraph &graph, unsigned from, unsigned to, const Moved &moved, uint32_t pad) {
  const Tensor source = graph.tensors[from], target = graph.tensors[to];
  const int64_t lanes = source.shape[source.laneDim];
  std::vector<float> ones(size_t(lanes * lanes), 0.0f);
  for (int64_t l = 0; l < lanes; ++l)
    ones[size_t(l * (lanes + 1))] = 1;
  const unsigned w =
      addConstant(graph, target.name + ".ones", {lanes, lanes}, source.type, 1, ones);
  KernelBuilder build(graph);
  Access result{to, {}, 0};
  for (int64_t extent : target.shape)
    result.index.push_back(forms::at(build.loop(extent)));
  const unsigned k = build.loop(lanes, LoopKind::Contracted);
  Access read{from, result.index, 0};
  read.index[source.laneDim] = forms::at(k);
  read.index[moved.dim] =
      forms::at(result.index[moved.dim].terms[0].first, moved.step, moved.offset);
  build.term(read, {w, {result.index[target.laneDim], forms::at(k)}, 0}, 0);
  build.storeMoved(result);
  Kernel kernel = std::move(build.kernel());
  kernel.name = target.name;
  maskOutside(graph, kernel, moved, source.shape[moved.dim], pad);
  return kernel;
}

} // namespace millrace::layouts
