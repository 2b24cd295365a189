// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SubtractInSums.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Simplify.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace millrace::forms {

namespace {

bool isFloat(ElementType type) { return type == ElementType::Fp16 || type == ElementType::Bf16; }

/// Node `node` less the operand: the sum times a power of two. Nothing else uses either.
struct Subtraction {
  unsigned node = 0, minuend = 0;
  float scale = 1;
};

std::optional<Subtraction> subtractionOf(const KernelGraph &graph, const Kernel &kernel,
                                         unsigned operand) {
  const std::vector<unsigned> uses = usesOfNodes(kernel);
  std::vector<unsigned> sums, reads;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (kernel.nodes[n].kind == Node::Kind::Accumulator)
      sums.push_back(n);
    else if (kernel.nodes[n].kind == Node::Kind::Operand && kernel.nodes[n].index == operand)
      reads.push_back(n);
  if (sums.size() != 1 || reads.size() != 1 || uses[sums[0]] != 1 || uses[reads[0]] != 1)
    return std::nullopt;
  const auto userOf = [&](unsigned n) { // its only one
    return unsigned(std::find_if(kernel.nodes.begin(), kernel.nodes.end(),
                                 [&](const Node &node) {
                                   return std::find(node.args.begin(), node.args.end(), n) !=
                                          node.args.end();
                                 }) -
                    kernel.nodes.begin());
  };
  const auto isOp = [&](unsigned n, AluOp op) {
    return n < kernel.nodes.size() && kernel.nodes[n].kind == Node::Kind::Op &&
           kernel.nodes[n].op == op;
  };
  unsigned value = reads[0];
  const ElementType type = graph.tensors[kernel.operands[operand].tensor].type;
  if (const unsigned user = userOf(value);
      type != ElementType::Fp32 && isOp(user, widenToF32(type)) && uses[user] == 1)
    value = user;
  else if (type != ElementType::Fp32)
    return std::nullopt;
  Subtraction found;
  found.node = userOf(sums[0]);
  if (isOp(found.node, AluOp::MulF32) && uses[found.node] == 1) {
    const std::vector<unsigned> &args = kernel.nodes[found.node].args;
    const Node &factor = kernel.nodes[args[args[0] == sums[0] ? 1 : 0]];
    if (factor.kind != Node::Kind::Immediate)
      return std::nullopt;
    found.scale = decode(ElementType::Fp32, factor.bits);
    found.node = userOf(found.node);
  }
  int exponent = 0;
  if (std::frexp(found.scale, &exponent) != 0.5f || std::abs(exponent) > 16)
    return std::nullopt;
  // Maps that add something else to the sum may come before it is subtracted from.
  while (found.scale == 1 && isOp(found.node, AluOp::AddF32) && uses[found.node] == 1)
    found.node = userOf(found.node);
  if (!isOp(found.node, AluOp::SubF32) || kernel.nodes[found.node].args[1] != value)
    return std::nullopt;
  found.minuend = kernel.nodes[found.node].args[0];
  return found;
}

/// Every access of the kernel's one result is a loop, each its own, over a whole dimension.
bool coversWhole(const KernelGraph &graph, const Kernel &kernel) {
  const Access &to = kernel.results[0].access;
  const Tensor &tensor = graph.tensors[to.tensor];
  std::set<unsigned> loops;
  for (unsigned d = 0; d < tensor.shape.size(); ++d) {
    const std::optional<unsigned> loop =
        wholeLoop(kernel, to.index[d], tensor.shape[d], LoopKind::Parallel);
    if (tensor.shape[d] > 1 ? !loop || !loops.insert(*loop).second : to.index[d] != fixed(0))
      return false;
  }
  return true;
}

/// Sums of products with constants that are the same everywhere, and nothing else.
bool isSpread(const KernelGraph &graph, const Kernel &kernel) {
  if (kernel.terms.empty() || !kernel.operands.empty() || kernel.results.size() != 1 ||
      !coversWhole(graph, kernel) ||
      std::any_of(kernel.loops.begin(), kernel.loops.end(),
                  [](const Loop &loop) { return loop.kind == LoopKind::Running; }))
    return false;
  for (const Term &term : kernel.terms) {
    const Tensor &w = graph.tensors[term.w.tensor];
    if (!w.splat || !isFloat(w.type))
      return false;
  }
  const ElementType type = graph.tensors[kernel.results[0].access.tensor].type;
  const Node &stored = kernel.nodes[kernel.results[0].node];
  const auto isSum = [](const Node &node) { return node.kind == Node::Kind::Accumulator; };
  return type == ElementType::Fp32
             ? isSum(stored)
             : stored.kind == Node::Kind::Op && stored.op == narrowFromF32(type) &&
                   isSum(kernel.nodes[stored.args[0]]);
}

/// The terms of `spread`, at the point that `at` reads of its result, times -1 / scale, as terms of
/// `kernel`.
void addTerms(KernelGraph &graph, Kernel &kernel, const Kernel &spread, const Access &at,
              float scale) {
  std::vector<AffineIndex> loops; // of the spread in terms of the kernel's
  for (const Loop &loop : spread.loops) {
    loops.emplace_back();
    if (loop.kind == LoopKind::Contracted) {
      loops.back() = millrace::forms::at(unsigned(kernel.loops.size()));
      kernel.loops.push_back(loop);
    }
  }
  const Access &to = spread.results[0].access;
  for (unsigned d = 0; d < to.index.size(); ++d)
    for (auto [loop, unused] : to.index[d].terms)
      loops[loop] = at.index[d];
  const auto moved = [&](Access access) {
    for (AffineIndex &index : access.index) {
      AffineIndex sum = fixed(index.offset);
      for (auto [loop, step] : index.terms) {
        sum.offset += loops[loop].offset * step;
        for (auto [outer, coefficient] : loops[loop].terms)
          sum.terms.emplace_back(outer, coefficient * step);
      }
      index = sum;
    }
    return access;
  };
  std::map<unsigned, unsigned> negated; // weights: what is installed once stays so
  for (const Term &term : spread.terms) {
    const auto [known, isNew] = negated.try_emplace(term.w.tensor, 0);
    if (isNew) {
      const Tensor w = graph.tensors[term.w.tensor]; // a copy: tensors are added
      uint32_t bits = 0;
      std::memcpy(&bits, w.data.data(), byteWidth(w.type));
      known->second =
          addSplat(graph, w.name, w.shape, w.type, w.laneDim, -decode(w.type, bits) / scale);
    }
    Access weights = moved(term.w);
    weights.tensor = known->second;
    kernel.terms.push_back({moved(term.a), weights, 0});
  }
}

} // namespace

unsigned subtractInSums(KernelGraph &graph) {
  unsigned gone = 0;
  const Uses uses(graph);
  for (Kernel &kernel : graph.kernels) {
    if (kernel.terms.empty() || !isFloat(graph.tensors[kernel.terms[0].a.tensor].type))
      continue;
    for (const Access &operand : kernel.operands) {
      const unsigned tensor = operand.tensor;
      if (operand.lookup || !staysInside(graph, kernel, operand) || uses.onHost[tensor] ||
          uses.writers[tensor].size() != 1 || uses.readers[tensor].size() != 1 ||
          graph.tensors[tensor].role != TensorRole::Intermediate)
        continue;
      const Kernel &spread = graph.kernels[uses.writers[tensor][0]];
      const std::optional<Subtraction> found =
          subtractionOf(graph, kernel, unsigned(&operand - kernel.operands.data()));
      if (!found || !isSpread(graph, spread))
        continue;
      const Access read = operand;
      addTerms(graph, kernel, spread, read, found->scale);
      Node &difference = kernel.nodes[found->node]; // which is what it was subtracted from
      for (Node &node : kernel.nodes)
        std::replace(node.args.begin(), node.args.end(), found->node, found->minuend);
      for (Result &result : kernel.results)
        if (result.node == found->node)
          result.node = found->minuend;
      difference = {};
      difference.kind = Node::Kind::Immediate;
      dropDeadNodes(kernel);
      ++gone;
      break; // operands have moved
    }
  }
  if (gone)
    dropUnneeded(graph);
  return gone;
}

} // namespace millrace::forms
