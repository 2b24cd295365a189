// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/WidenWindows.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Simplify.h"
#include "compiler/Forms/Uses.h"

#include "arch/isa/semantics/Alu.h"

#include <algorithm>
#include <map>
#include <optional>

namespace millrace::forms {
namespace {

/// The node that a writer would store unrounded, which may be added to the kernel; nothing if what
/// it stores is no rounded fp32.
std::optional<unsigned> unrounded(Kernel &kernel, unsigned stored, ElementType type) {
  const Node node = kernel.nodes[stored];
  if (node.kind != Node::Kind::Op)
    return std::nullopt;
  if (node.op == narrowFromF32(type))
    return node.args[0];
  if (node.op != AluOp::SelectF32) // what lies beside the tensor is masked
    return std::nullopt;
  const Node value = kernel.nodes[node.args[1]], pad = kernel.nodes[node.args[2]];
  if (value.kind != Node::Kind::Op || value.op != narrowFromF32(type) ||
      pad.kind != Node::Kind::Immediate)
    return std::nullopt;
  kernel.nodes.push_back(
      {Node::Kind::Immediate, 0, semantics::applyAlu(widenToF32(type), pad.bits), {}, {}});
  kernel.nodes.push_back({Node::Kind::Op,
                          0,
                          0,
                          AluOp::SelectF32,
                          {node.args[0], value.args[0], unsigned(kernel.nodes.size() - 1)}});
  return unsigned(kernel.nodes.size() - 1);
}

/// The kernel where it writes or reads the tensor in fp32; nothing if it does more with it.
std::optional<Kernel> widened(const Kernel &kernel, unsigned tensor, ElementType type) {
  Kernel wide = kernel;
  for (const Term &term : kernel.terms)
    if (term.a.tensor == tensor || term.w.tensor == tensor)
      return std::nullopt;
  const auto isNarrow = [&](unsigned n) {
    return n < kernel.nodes.size() && kernel.nodes[n].kind == Node::Kind::Operand &&
           kernel.operands[kernel.nodes[n].index].tensor == tensor;
  };
  for (Result &result : wide.results) {
    if (isNarrow(result.node))
      return std::nullopt;
    if (result.access.tensor == tensor) {
      const std::optional<unsigned> node = unrounded(wide, result.node, type);
      if (!node)
        return std::nullopt;
      result.node = *node;
    }
  }
  std::vector<unsigned> place(wide.nodes.size());
  for (unsigned n = 0; n < wide.nodes.size(); ++n) {
    place[n] = n;
    Node &node = wide.nodes[n];
    const bool widens =
        node.kind == Node::Kind::Op && node.op == widenToF32(type) && isNarrow(node.args[0]);
    if (!widens && std::any_of(node.args.begin(), node.args.end(), isNarrow))
      return std::nullopt;
    if (widens)
      place[n] = node.args[0];
    for (unsigned &arg : node.args)
      arg = place[arg];
  }
  for (Result &result : wide.results)
    result.node = place[result.node];
  for (Access &operand : wide.operands)
    if (operand.tensor == tensor) {
      if (operand.lookup)
        return std::nullopt;
      operand.pad = semantics::applyAlu(widenToF32(type), operand.pad);
    }
  dropDeadNodes(wide);
  return wide;
}

} // namespace

unsigned widenWindows(KernelGraph &graph, unsigned most, const Machine &machine, Room room) {
  constexpr unsigned kFewest = 3; // taps of a window
  if (room >= Room::Spare)
    return 0;
  const Uses uses(graph);
  unsigned count = 0;
  for (unsigned t = 0; t < graph.tensors.size(); ++t) {
    const ElementType type = graph.tensors[t].type;
    const auto reads = [&](unsigned k) {
      return std::count_if(graph.kernels[k].operands.begin(), graph.kernels[k].operands.end(),
                           [t](const Access &a) { return a.tensor == t; });
    };
    if (graph.tensors[t].role != TensorRole::Intermediate || uses.onHost[t] ||
        (type != ElementType::Fp16 && type != ElementType::Bf16) ||
        std::none_of(uses.readers[t].begin(), uses.readers[t].end(),
                     [&](unsigned k) { return reads(k) >= kFewest; }))
      continue;
    std::map<unsigned, Kernel> wide; ///< by number
    bool fits = true;
    double before = 0, after = 0;
    for (const auto *list : {&uses.writers[t], &uses.readers[t]})
      for (const unsigned k : *list) {
        if (!fits || wide.count(k))
          continue;
        std::optional<Kernel> its = widened(graph.kernels[k], t, type);
        fits = its.has_value();
        if (!fits)
          continue;
        before += cyclesOfMap(graph, graph.kernels[k], most, machine, room);
        graph.tensors[t].type = ElementType::Fp32;
        after += cyclesOfMap(graph, *its, most, machine, room);
        graph.tensors[t].type = type;
        wide.emplace(k, std::move(*its));
      }
    if (!fits || after >= before)
      continue;
    graph.tensors[t].type = ElementType::Fp32;
    for (auto &[k, kernel] : wide)
      graph.kernels[k] = std::move(kernel);
    ++count;
  }
  return count;
}

} // namespace millrace::forms
