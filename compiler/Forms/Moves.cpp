// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Moves.h"

#include "compiler/Forms/KernelBuilder.h"

namespace millrace::forms {

namespace {

/// The loops of an identity: w[n, k] is 1 where n = k and 0 elsewhere, a is read along k.
struct Move {
  unsigned n = 0, k = 0;
};

std::optional<Move> moveOf(const KernelGraph &graph, const Kernel &kernel, const Term &term) {
  const Tensor &a = graph.tensors[term.a.tensor], &w = graph.tensors[term.w.tensor];
  if (w.role != TensorRole::Constant || w.splat || a.unbounded ||
      (w.type != ElementType::Fp16 && w.type != ElementType::Bf16))
    return std::nullopt;
  const std::optional<unsigned> k = onlyLoop(kernel, term.a.index[a.laneDim]);
  if (!k || kernel.loops[*k].kind != LoopKind::Contracted ||
      coefficient(term.a.index[a.laneDim], *k) != 1)
    return std::nullopt;
  std::optional<unsigned> n;
  for (unsigned l = 0; l < kernel.loops.size(); ++l) {
    if (l == *k || kernel.loops[l].extent == 1)
      continue;
    if (kernel.loops[l].kind == LoopKind::Contracted || (n && usesLoop(term.w, l)))
      return std::nullopt;
    if (usesLoop(term.w, l))
      n = l;
  }
  if (!n || kernel.loops[*k].extent != kernel.loops[*n].extent || usesLoop(term.a, *n))
    return std::nullopt;
  bool isIdentity = true;
  forEachPoint(kernel, {*n, *k}, [&](const std::vector<int64_t> &point) {
    const int64_t element = linearOffset(w, term.w, point);
    const uint32_t wanted = encode(w.type, point[*n] == point[*k] ? 1.0f : 0.0f);
    isIdentity = element >= 0 && w.data[size_t(element) * 2] == (wanted & 0xff) &&
                 w.data[size_t(element) * 2 + 1] == wanted >> 8;
    return isIdentity;
  });
  return isIdentity ? std::optional(Move{*n, *k}) : std::nullopt;
}

} // namespace

Kernel asMap(const KernelGraph &graph, const Kernel &kernel) {
  if (kernel.terms.size() != 1)
    return kernel;
  const Term &term = kernel.terms.front();
  const std::optional<Move> move = moveOf(graph, kernel, term);
  if (!move)
    return kernel;
  const Tensor &a = graph.tensors[term.a.tensor];
  Kernel map = kernel;
  map.terms.clear();
  map.loops[move->k] = {1, LoopKind::Parallel};
  map.operands.insert(map.operands.begin(), term.a);
  AffineIndex &lanes = map.operands.front().index[a.laneDim];
  lanes = at(move->n, 1, lanes.offset);
  map.nodes = {{Node::Kind::Operand, 0, 0, {}, {}},
               {Node::Kind::Op, 0, 0, widenToF32(a.type), {0}}};
  std::vector<unsigned> numbers; // of the nodes, as they are now
  for (Node node : kernel.nodes) {
    if (node.kind == Node::Kind::Accumulator) {
      numbers.push_back(1);
      continue;
    }
    node.index += node.kind == Node::Kind::Operand;
    for (unsigned &arg : node.args)
      arg = numbers[arg];
    numbers.push_back(unsigned(map.nodes.size()));
    map.nodes.push_back(std::move(node));
  }
  for (Result &r : map.results)
    r.node = numbers[r.node];
  if (move->k + 1 == map.loops.size())
    map.loops.pop_back();
  return map;
}

} // namespace millrace::forms
