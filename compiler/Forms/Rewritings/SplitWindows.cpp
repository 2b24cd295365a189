// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitWindows.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

bool isAssociative(AluOp op) {
  return op == AluOp::MaxF32 || op == AluOp::MinF32 || op == AluOp::AddF32 || op == AluOp::MaxI32 ||
         op == AluOp::MinI32;
}

/// A tree of one operation over widened taps of one tensor.
struct Window {
  unsigned root = 0; ///< the tree's last node
  AluOp op{};
  std::vector<unsigned> taps; ///< operand numbers
  std::optional<AluOp>
      widen; ///< operation between an operand and the tree; none if taps enter as they are
  unsigned outer = 0, inner = 0; ///< dimensions of the tensor along which taps differ
  std::vector<int64_t> outerOffsets, innerOffsets;
};

/// Collects the leaves below `node` that are reached through `op` alone.
bool collect(const Kernel &kernel, unsigned node, Window &w) {
  const Node &n = kernel.nodes[node];
  if (n.kind == Node::Kind::Op && n.op == w.op)
    return std::all_of(n.args.begin(), n.args.end(),
                       [&](unsigned a) { return collect(kernel, a, w); });
  std::optional<AluOp> widen;
  const Node *leaf = &n;
  if (n.kind == Node::Kind::Op && n.args.size() == 1) {
    widen = n.op;
    leaf = &kernel.nodes[n.args[0]];
  }
  if (leaf->kind != Node::Kind::Operand || (!w.taps.empty() && widen != w.widen))
    return false;
  w.widen = widen;
  w.taps.push_back(leaf->index);
  return true;
}

bool sameTerms(const AffineIndex &x, const AffineIndex &y) { return x.terms == y.terms; }

/// Do the taps' offsets form a grid along exactly two row dimensions?
bool isGrid(const KernelGraph &graph, const Kernel &kernel, Window &w) {
  const Access &first = kernel.operands[w.taps[0]];
  std::vector<std::set<int64_t>> offsets(first.index.size());
  for (unsigned t : w.taps) {
    const Access &a = kernel.operands[t];
    if (a.tensor != first.tensor || a.pad != first.pad || a.lookup)
      return false;
    for (size_t d = 0; d < a.index.size(); ++d) {
      if (!sameTerms(a.index[d], first.index[d]))
        return false;
      offsets[d].insert(a.index[d].offset);
    }
  }
  std::vector<unsigned> dims;
  for (unsigned d = 0; d < offsets.size(); ++d)
    if (offsets[d].size() > 1)
      dims.push_back(d);
  if (dims.size() != 2 || dims[0] == graph.tensors[first.tensor].laneDim ||
      dims[1] == graph.tensors[first.tensor].laneDim ||
      offsets[dims[0]].size() * offsets[dims[1]].size() != w.taps.size())
    return false;
  w.outer = dims[0];
  w.inner = dims[1];
  w.outerOffsets.assign(offsets[dims[0]].begin(), offsets[dims[0]].end());
  w.innerOffsets.assign(offsets[dims[1]].begin(), offsets[dims[1]].end());
  std::set<std::pair<int64_t, int64_t>> points;
  for (unsigned t : w.taps)
    points.insert(
        {kernel.operands[t].index[w.outer].offset, kernel.operands[t].index[w.inner].offset});
  return points.size() == w.taps.size() && first.index[w.inner].terms.size() == 1 &&
         first.index[w.outer].terms.size() == 1 &&
         first.index[w.inner].terms[0].first != first.index[w.outer].terms[0].first;
}

std::optional<Window> findWindow(const KernelGraph &graph, const Kernel &kernel) {
  if (!kernel.terms.empty() ||
      std::any_of(kernel.loops.begin(), kernel.loops.end(),
                  [](const Loop &l) { return l.kind != LoopKind::Parallel; }))
    return std::nullopt;
  std::optional<Window> best;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    if (node.kind != Node::Kind::Op || !isAssociative(node.op))
      continue;
    Window w;
    w.root = n;
    w.op = node.op;
    if (collect(kernel, n, w) && w.taps.size() >= 4 &&
        (!best || w.taps.size() > best->taps.size()) && isGrid(graph, kernel, w))
      best = w;
  }
  return best;
}

unsigned tree(KernelBuilder &build, AluOp op, std::vector<unsigned> nodes) {
  while (nodes.size() > 1) {
    std::vector<unsigned> next;
    for (size_t i = 0; i + 1 < nodes.size(); i += 2)
      next.push_back(build.op(op, {nodes[i], nodes[i + 1]}));
    if (nodes.size() % 2)
      next.push_back(nodes.back());
    nodes = std::move(next);
  }
  return nodes.front();
}

/// The inner pass: for every row of the tensor, the taps along the inner dimension.
unsigned addInnerPass(KernelGraph &graph, const Kernel &kernel, const Window &w) {
  const Access tap = kernel.operands[w.taps[0]];
  const Tensor source = graph.tensors[tap.tensor];
  const unsigned column = tap.index[w.inner].terms[0].first;
  std::vector<int64_t> shape = source.shape;
  shape[w.inner] = kernel.loops[column].extent;
  const bool sums = w.op == AluOp::AddF32;
  const unsigned partial = addTensor(graph, kernel.name + ".columns", shape,
                                     sums ? ElementType::Fp32 : source.type, source.laneDim);
  KernelBuilder build(graph);
  Access from{tap.tensor, {}, tap.pad}, to{partial, {}, 0};
  for (size_t d = 0; d < shape.size(); ++d) {
    const unsigned loop = build.loop(shape[d]);
    from.index.push_back(at(loop));
    to.index.push_back(at(loop));
  }
  std::vector<unsigned> nodes;
  for (int64_t offset : w.innerOffsets) {
    from.index[w.inner] = at(unsigned(w.inner), tap.index[w.inner].terms[0].second, offset);
    const unsigned raw = build.operand(from);
    nodes.push_back(w.widen ? build.op(*w.widen, {raw}) : raw);
  }
  const unsigned root = tree(build, w.op, nodes);
  if (w.widen == AluOp::CvtI8I32) // integers stay integers
    build.storeBits(build.op(AluOp::CvtI32I8, {root}), to);
  else if (w.widen)
    build.store(root, to);
  else
    build.storeBits(root, to);
  build.finish(kernel.name + ".columns", kernel.provenance);
  return partial;
}

/// The kernel itself with the window's taps replaced by rows of the partial tensor.
Kernel outerPass(KernelGraph &graph, const Kernel &kernel, const Window &w, unsigned partial) {
  KernelBuilder build(graph, kernel);
  const Access tap = kernel.operands[w.taps[0]];
  const unsigned column = tap.index[w.inner].terms[0].first;
  const bool widens = w.widen && graph.tensors[partial].type != ElementType::Fp32;
  std::vector<unsigned> nodes;
  for (int64_t offset : w.outerOffsets) {
    Access access = tap;
    access.tensor = partial;
    access.index[w.inner] = at(column);
    access.index[w.outer].offset = offset;
    if (w.op == AluOp::AddF32)
      access.pad = 0;
    const unsigned raw = build.operand(access);
    nodes.push_back(widens ? build.op(*w.widen, {raw}) : raw);
  }
  build.continueFrom(kernel, w.root, tree(build, w.op, nodes));
  return std::move(build.kernel());
}

} // namespace

unsigned splitWindows(KernelGraph &graph) {
  unsigned split = 0;
  const std::vector<std::pair<bool, unsigned>> order = graph.order;
  std::vector<std::pair<bool, unsigned>> next;
  for (auto [host, index] : order) {
    std::optional<Window> w = host ? std::nullopt : findWindow(graph, graph.kernels[index]);
    if (w) {
      const Kernel kernel = graph.kernels[index];
      const unsigned partial = addInnerPass(graph, kernel, *w);
      next.push_back({false, unsigned(graph.kernels.size() - 1)});
      graph.kernels[index] = outerPass(graph, kernel, *w, partial);
      ++split;
    }
    next.push_back({host, index});
  }
  graph.order = std::move(next);
  return split;
}

} // namespace millrace::forms
