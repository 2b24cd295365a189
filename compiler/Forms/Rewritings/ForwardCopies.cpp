// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/ForwardCopies.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Moves.h"
#include "compiler/Forms/Rewritings/KeepWhole.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace millrace::forms {

namespace {

/// Does the kernel store what it reads, bit by bit?
bool keepsBits(const KernelGraph &graph, const Kernel &kernel) {
  const ElementType from = graph.tensors[kernel.operands[0].tensor].type,
                    to = graph.tensors[kernel.results[0].access.tensor].type;
  auto isRead = [&](unsigned n) { return kernel.nodes[n].kind == Node::Kind::Operand; };
  auto isOp = [&](unsigned n, AluOp op) {
    return kernel.nodes[n].kind == Node::Kind::Op && kernel.nodes[n].op == op &&
           kernel.nodes[n].args.size() == 1;
  };
  const unsigned stored = kernel.results[0].node;
  if (from != to)
    return false;
  if (isRead(stored))
    return true;
  if (from != ElementType::Fp16 && from != ElementType::Bf16)
    return false;
  if (!isOp(stored, narrowFromF32(to)))
    return false;
  const unsigned widened = kernel.nodes[stored].args[0];
  return isOp(widened, widenToF32(from)) && isRead(kernel.nodes[widened].args[0]);
}

/// All rows of a run of lanes of one tensor, as they are.
struct Copied {
  int64_t lane = 0; ///< the first
  std::vector<std::optional<unsigned>>
      dims; ///< per dimension of the source: the copy's; none: of one index
};

std::optional<Copied> copiedFrom(const KernelGraph &graph, const Kernel &kernel) {
  if (!kernel.terms.empty() || kernel.results.size() != 1 || kernel.operands.size() != 1 ||
      kernel.operands[0].lookup || !keepsBits(graph, kernel))
    return std::nullopt;
  const Access &read = kernel.operands[0], &write = kernel.results[0].access;
  const Tensor &source = graph.tensors[read.tensor], &copy = graph.tensors[write.tensor];
  if (source.role != TensorRole::Intermediate || copy.role != TensorRole::Intermediate)
    return std::nullopt;
  std::map<unsigned, unsigned> dims; ///< per loop: the copy's
  for (unsigned d = 0; d < copy.shape.size(); ++d) {
    const std::optional<unsigned> loop =
        wholeLoop(kernel, write.index[d], copy.shape[d], LoopKind::Parallel);
    if (copy.shape[d] > 1 ? !loop || !dims.insert({*loop, d}).second : write.index[d].offset != 0)
      return std::nullopt;
  }
  Copied copied{read.index[source.laneDim].offset, {}};
  for (unsigned d = 0; d < source.shape.size(); ++d) {
    const AffineIndex &from = read.index[d];
    const std::optional<unsigned> loop = onlyLoop(kernel, from);
    const auto its = loop ? dims.find(*loop) : dims.end();
    if (loop ? its == dims.end() || coefficient(from, *loop) != 1
             : rangeOf(kernel, from).second > 0)
      return std::nullopt;
    const std::optional<unsigned> to = loop ? std::optional(its->second) : std::nullopt;
    if ((d == source.laneDim) != (to == copy.laneDim))
      return std::nullopt;
    if (d == source.laneDim ? from.offset < 0 || from.offset + copy.shape[*to] > source.shape[d]
                            : from.offset != 0 || source.shape[d] != (to ? copy.shape[*to] : 1))
      return std::nullopt;
    copied.dims.push_back(to);
    if (loop)
      dims.erase(its);
  }
  return dims.empty() ? std::optional(copied) : std::nullopt;
}

/// Can all accesses of the kernel to the copy go to the tensor with other lanes beside it?
bool canFollow(const KernelGraph &graph, const Kernel &kernel, unsigned copy, bool isWider) {
  const Tensor &tensor = graph.tensors[copy];
  auto inside = [&](const Access &access) {
    for (unsigned d = 0; d < tensor.shape.size(); ++d)
      if (d == tensor.laneDim || tensor.shape[d] == 1)
        if (const auto [low, high] = rangeOf(kernel, access.index[d]);
            low < 0 || high >= tensor.shape[d])
          return false;
    return true;
  };
  for (const Term &term : kernel.terms)
    if ((term.w.tensor == copy && (isWider || !inside(term.w))) ||
        (term.a.tensor == copy && !inside(term.a)))
      return false;
  return std::all_of(kernel.operands.begin(), kernel.operands.end(), [&](const Access &operand) {
    return !(operand.lookup && (operand.tensor == copy || operand.lookup->tensor == copy)) &&
           (operand.tensor != copy || inside(operand));
  });
}

} // namespace

unsigned forwardCopies(KernelGraph &graph, const Machine *machine) {
  std::set<unsigned> removed; ///< kernels
  for (auto [host, index] : graph.order) {
    if (host || graph.kernels[index].terms.size() > 1)
      continue;
    const Kernel kernel = asMap(graph, graph.kernels[index]);
    const std::optional<Copied> from = copiedFrom(graph, kernel);
    if (!from)
      continue;
    const Uses uses(graph);
    const unsigned source = kernel.operands[0].tensor, copy = kernel.results[0].access.tensor;
    const Tensor &its = graph.tensors[source], &copied = graph.tensors[copy];
    const bool isWider = its.shape[its.laneDim] != copied.shape[copied.laneDim];
    if (uses.onHost[copy] || uses.writers[copy].size() != 1 || uses.readers[copy].empty() ||
        !std::all_of(uses.readers[copy].begin(), uses.readers[copy].end(),
                     [&](unsigned k) { return canFollow(graph, graph.kernels[k], copy, isWider); }))
      continue;
    const bool mayTear = machine && isWider && !graph.kernels[index].terms.empty();
    const double before = mayTear ? tornCycles(graph, *machine) : 0;
    std::vector<Kernel> readers;
    for (unsigned k : uses.readers[copy]) {
      readers.push_back(graph.kernels[k]);
      forEachAccess(graph.kernels[k], [&](Access &access) {
        if (access.tensor != copy)
          return;
        std::vector<AffineIndex> index;
        for (const std::optional<unsigned> &d : from->dims)
          index.push_back(d ? access.index[*d] : fixed(0));
        access.tensor = source;
        access.index = std::move(index);
        access.index[its.laneDim].offset += from->lane;
      });
    }
    if (mayTear && tornCycles(graph, *machine) - before >
                       moveCycles(graph, *machine, source, copied.shape[copied.laneDim])) {
      for (size_t i = 0; i < readers.size(); ++i)
        graph.kernels[uses.readers[copy][i]] = std::move(readers[i]);
      continue;
    }
    removed.insert(index);
  }
  std::vector<Kernel> kernels;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : graph.order) {
    if (!host && removed.contains(index))
      continue;
    order.push_back({host, host ? index : unsigned(kernels.size())});
    if (!host)
      kernels.push_back(std::move(graph.kernels[index]));
  }
  graph.kernels = std::move(kernels);
  graph.order = std::move(order);
  return unsigned(removed.size());
}

} // namespace millrace::forms
