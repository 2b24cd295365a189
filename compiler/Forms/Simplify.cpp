// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Simplify.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <optional>
#include <set>

namespace millrace::forms {

namespace {

bool isConstant(const KernelGraph &graph, unsigned tensor) {
  return graph.tensors[tensor].role == TensorRole::Constant;
}

void forEachRead(const Kernel &kernel, const std::function<void(unsigned)> &visit) {
  for (const Term &term : kernel.terms) {
    visit(term.a.tensor);
    visit(term.w.tensor);
  }
  for (const Access &access : kernel.operands) {
    visit(access.tensor);
    if (access.lookup)
      visit(access.lookup->tensor);
  }
}

/// And is each result an intermediate value of its own?
bool readsConstantsAlone(const KernelGraph &graph, const Kernel &kernel,
                         const std::vector<unsigned> &writers) {
  bool alone = true;
  forEachRead(kernel, [&](unsigned tensor) { alone &= isConstant(graph, tensor); });
  for (const Result &result : kernel.results)
    alone &= graph.tensors[result.access.tensor].role == TensorRole::Intermediate &&
             writers[result.access.tensor] == 1;
  return alone;
}

/// Evaluates kernels that read constants only.
void foldConstants(KernelGraph &graph) {
  std::vector<unsigned> writers(graph.tensors.size(), 0);
  for (const Kernel &kernel : graph.kernels)
    for (const Result &result : kernel.results)
      ++writers[result.access.tensor];
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [isHost, index] : graph.order) {
    if (isHost || !readsConstantsAlone(graph, graph.kernels[index], writers)) {
      order.push_back({isHost, index});
      continue;
    }
    const Kernel &kernel = graph.kernels[index];
    std::vector<TensorBytes> tensors(graph.tensors.size());
    forEachRead(kernel, [&](unsigned tensor) { tensors[tensor] = graph.tensors[tensor].data; });
    for (const Result &result : kernel.results) {
      const Tensor &tensor = graph.tensors[result.access.tensor];
      tensors[result.access.tensor].resize(size_t(elementCount(tensor)) * byteWidth(tensor.type));
    }
    evaluateKernel(graph, index, tensors);
    for (const Result &result : kernel.results) {
      Tensor &tensor = graph.tensors[result.access.tensor];
      tensor.role = TensorRole::Constant;
      tensor.data = std::move(tensors[result.access.tensor]);
    }
  }
  graph.order = std::move(order);
}

/// Drops kernels and host calls whose results nobody reads.
void dropDead(KernelGraph &graph) {
  std::vector<bool> live(graph.tensors.size());
  for (unsigned i = 0; i < graph.tensors.size(); ++i)
    live[i] = graph.tensors[i].role == TensorRole::Output;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto step = graph.order.rbegin(); step != graph.order.rend(); ++step) {
    auto [isHost, index] = *step;
    if (isHost) {
      HostCall &call = graph.hostCalls[index];
      if (std::none_of(call.outputs.begin(), call.outputs.end(),
                       [&](unsigned tensor) { return live[tensor]; }))
        continue;
      for (unsigned tensor : call.inputs)
        live[tensor] = true;
    } else {
      Kernel &kernel = graph.kernels[index];
      std::erase_if(kernel.results,
                    [&](const Result &result) { return !live[result.access.tensor]; });
      if (kernel.results.empty())
        continue;
      forEachRead(kernel, [&](unsigned tensor) { live[tensor] = true; });
    }
    order.push_back(*step);
  }
  std::reverse(order.begin(), order.end());
  graph.order = std::move(order);
}

} // namespace

void dropDeadNodes(Kernel &kernel) {
  std::vector<bool> live(kernel.nodes.size());
  for (const Result &result : kernel.results)
    live[result.node] = true;
  for (size_t i = kernel.nodes.size(); i-- > 0;)
    if (live[i])
      for (unsigned arg : kernel.nodes[i].args)
        live[arg] = true;
  std::vector<unsigned> number(kernel.nodes.size()), operandNumber(kernel.operands.size(), ~0u);
  std::vector<Node> nodes;
  std::vector<Access> operands;
  for (size_t i = 0; i < kernel.nodes.size(); ++i) {
    if (!live[i])
      continue;
    Node node = kernel.nodes[i];
    for (unsigned &arg : node.args)
      arg = number[arg];
    if (node.kind == Node::Kind::Operand) {
      if (operandNumber[node.index] == ~0u) {
        operandNumber[node.index] = unsigned(operands.size());
        operands.push_back(kernel.operands[node.index]);
      }
      node.index = operandNumber[node.index];
    }
    number[i] = unsigned(nodes.size());
    nodes.push_back(std::move(node));
  }
  for (Result &result : kernel.results)
    result.node = number[result.node];
  kernel.nodes = std::move(nodes);
  kernel.operands = std::move(operands);
}

namespace {

/// Removes what the order no longer names, and tensors that nothing names (inputs and outputs
/// stay).
void compact(KernelGraph &graph) {
  std::vector<Kernel> kernels;
  std::vector<HostCall> hostCalls;
  std::vector<bool> named(graph.tensors.size());
  for (auto &[isHost, index] : graph.order) {
    if (isHost) {
      hostCalls.push_back(graph.hostCalls[index]);
      index = unsigned(hostCalls.size() - 1);
      for (const auto *list : {&hostCalls.back().inputs, &hostCalls.back().outputs})
        for (unsigned tensor : *list)
          named[tensor] = true;
      continue;
    }
    kernels.push_back(std::move(graph.kernels[index]));
    index = unsigned(kernels.size() - 1);
    dropDeadNodes(kernels.back());
    forEachRead(kernels.back(), [&](unsigned tensor) { named[tensor] = true; });
    for (const Result &result : kernels.back().results)
      named[result.access.tensor] = true;
  }
  std::vector<unsigned> number(graph.tensors.size());
  std::vector<Tensor> tensors;
  for (unsigned i = 0; i < graph.tensors.size(); ++i) {
    TensorRole role = graph.tensors[i].role;
    if (!named[i] && role != TensorRole::Input && role != TensorRole::Output)
      continue;
    number[i] = unsigned(tensors.size());
    tensors.push_back(std::move(graph.tensors[i]));
  }
  for (Kernel &kernel : kernels) {
    for (Term &term : kernel.terms) {
      term.a.tensor = number[term.a.tensor];
      term.w.tensor = number[term.w.tensor];
    }
    for (Access &access : kernel.operands) {
      access.tensor = number[access.tensor];
      if (access.lookup)
        access.lookup->tensor = number[access.lookup->tensor];
    }
    for (Result &result : kernel.results)
      result.access.tensor = number[result.access.tensor];
  }
  for (HostCall &call : hostCalls)
    for (auto *list : {&call.inputs, &call.outputs})
      for (unsigned &tensor : *list)
        tensor = number[tensor];
  graph.kernels = std::move(kernels);
  graph.hostCalls = std::move(hostCalls);
  graph.tensors = std::move(tensors);
}

} // namespace

void dropUnneeded(KernelGraph &graph) {
  dropDead(graph);
  compact(graph);
}

namespace {

/// Merges maps into the kernel that writes what they read, result by result. `alone`: where that is
/// all that it writes, and nothing else reads it.
class Merger {
public:
  Merger(KernelGraph &graph, unsigned chain, bool alone)
      : graph(graph), chain(chain), alone(alone), uses(graph) {}
  void run();

private:
  bool merge(size_t at);
  bool isReadyBefore(unsigned tensor, size_t position) const;
  bool goesWithItsReader(unsigned tensor) const {
    return graph.tensors[tensor].role == TensorRole::Intermediate && !uses.onHost[tensor] &&
           uses.readers[tensor].size() == 1;
  }

  KernelGraph &graph;
  const unsigned chain;
  const bool alone;
  const Uses uses; ///< before anything was merged, which adds no readers
};

unsigned opCount(const Kernel &kernel) {
  return unsigned(std::count_if(kernel.nodes.begin(), kernel.nodes.end(),
                                [](const Node &node) { return node.kind == Node::Kind::Op; }));
}

/// Terms of loops that move, the smallest steps first.
std::vector<std::pair<unsigned, int64_t>> movingTerms(const Kernel &kernel,
                                                      const AffineIndex &index) {
  auto terms = index.terms;
  std::erase_if(terms, [&](const auto &term) { return kernel.loops[term.first].extent == 1; });
  std::sort(terms.begin(), terms.end(),
            [](const auto &a, const auto &b) { return a.second < b.second; });
  return terms;
}

/// For every loop of a map, what it is in loops of who writes what it reads: one of them, or
/// several of which it counts the steps. Empty for loops of one step.
using Counts = std::vector<AffineIndex>;

/// What makes `read` of the map the index that the writer writes, point by point; nothing if the
/// accesses differ.
std::optional<Counts> alike(const Kernel &map, const Access &read, const Kernel &writer,
                            const Access &written) {
  if (read.lookup)
    return std::nullopt;
  Counts counts(map.loops.size());
  std::vector<bool> taken(writer.loops.size());
  for (size_t dim = 0; dim < read.index.size(); ++dim) {
    const auto x = movingTerms(map, read.index[dim]), y = movingTerms(writer, written.index[dim]);
    if (read.index[dim].offset != written.index[dim].offset)
      return std::nullopt;
    auto next = y.begin();
    for (auto [loop, step] : x) {
      AffineIndex count;
      int64_t steps = 1;
      for (; steps < map.loops[loop].extent && next != y.end() && next->second == step * steps;
           ++next) {
        count.terms.push_back({next->first, steps});
        steps *= writer.loops[next->first].extent;
      }
      const bool isNew = counts[loop].terms.empty();
      if (steps != map.loops[loop].extent || (!isNew && counts[loop] != count))
        return std::nullopt;
      for (auto [its, unused] : count.terms) {
        if (isNew && taken[its])
          return std::nullopt;
        taken[its] = true;
      }
      counts[loop] = std::move(count);
    }
    if (next != y.end())
      return std::nullopt;
  }
  for (unsigned i = 0; i < map.loops.size(); ++i)
    if (counts[i].terms.empty() && map.loops[i].extent != 1)
      return std::nullopt;
  for (unsigned i = 0; i < writer.loops.size(); ++i)
    if (!taken[i] && writer.loops[i].kind == LoopKind::Parallel && writer.loops[i].extent != 1)
      return std::nullopt;
  return counts;
}

bool Merger::isReadyBefore(unsigned tensor, size_t position) const {
  if (graph.tensors[tensor].role == TensorRole::Constant ||
      graph.tensors[tensor].role == TensorRole::Input)
    return true;
  for (size_t i = position; i < graph.order.size(); ++i) {
    auto [isHost, index] = graph.order[i];
    if (isHost) {
      const auto &outputs = graph.hostCalls[index].outputs;
      if (std::find(outputs.begin(), outputs.end(), tensor) != outputs.end())
        return false;
      continue;
    }
    for (const Result &result : graph.kernels[index].results)
      if (result.access.tensor == tensor)
        return false;
  }
  return true;
}

/// The access in loops of the writer.
Access counted(Access access, const Counts &counts) {
  const auto count = [&](std::vector<AffineIndex> &indices) {
    for (AffineIndex &index : indices) {
      AffineIndex its{index.offset, {}};
      for (auto [loop, step] : index.terms)
        for (auto [counting, steps] : counts[loop].terms)
          its.terms.push_back({counting, step * steps});
      index = std::move(its);
    }
  };
  count(access.index);
  if (access.lookup)
    count(access.lookup->index);
  return access;
}

/// Two parts of one tensor, which one kernel would write through one port.
bool writeOneTensor(const Kernel &a, const Kernel &b) {
  for (const Result &x : a.results)
    for (const Result &y : b.results)
      if (x.access.tensor == y.access.tensor)
        return true;
  return false;
}

/// Do the same loops of the writer run along the lanes of what the map writes?
bool keepsLanes(const KernelGraph &graph, const Kernel &map, const Counts &counts,
                const Kernel &writer) {
  auto lanesOf = [&](const Access &access) {
    std::set<unsigned> lanes;
    for (auto [loop, step] : access.index[graph.tensors[access.tensor].laneDim].terms)
      if (writer.loops[loop].extent > 1)
        lanes.insert(loop);
    return lanes;
  };
  const std::set<unsigned> wanted = lanesOf(writer.results.front().access);
  return std::all_of(map.results.begin(), map.results.end(), [&](const Result &result) {
    return lanesOf(counted(result.access, counts)) == wanted;
  });
}

/// The fp32 that `widening`, of one argument, has back from its 16 bits, but for their rounding.
std::optional<unsigned> beforeRounding(const Kernel &kernel, const Node &widening) {
  const Node &narrow = kernel.nodes[widening.args[0]];
  for (const ElementType type : {ElementType::Fp16, ElementType::Bf16})
    if (widening.op == widenToF32(type) && narrow.kind == Node::Kind::Op &&
        narrow.op == narrowFromF32(type))
      return narrow.args[0];
  return std::nullopt;
}

bool Merger::merge(size_t at) {
  auto [isHost, index] = graph.order[at];
  if (isHost)
    return false;
  const Kernel map = graph.kernels[index];
  if (!map.terms.empty())
    return false;
  for (const Loop &loop : map.loops)
    if (loop.kind != LoopKind::Parallel)
      return false;
  for (const Node &node : map.nodes) // over no loop here, but over those of the writer there
    if (node.kind == Node::Kind::Reduce)
      return false;
  for (const Access &read : map.operands) {
    if (isConstant(graph, read.tensor) || (alone && !goesWithItsReader(read.tensor)))
      continue;
    for (size_t position = at; position-- > 0;) {
      auto [hostWrites, number] = graph.order[position];
      if (hostWrites)
        continue;
      Kernel &writer = graph.kernels[number];
      if (alone && writer.results.size() > 1)
        continue;
      for (const Result &result : writer.results) {
        if (result.access.tensor != read.tensor || opCount(writer) + opCount(map) > chain ||
            writeOneTensor(map, writer))
          continue;
        const auto counts = alike(map, read, writer, result.access);
        if (!counts || !keepsLanes(graph, map, *counts, writer))
          continue;
        // Everything else that the map reads exists before the writer runs, or is one of its
        // results, read alike.
        std::vector<unsigned> replacement(map.operands.size(), ~0u);
        bool fits = true;
        for (size_t i = 0; i < map.operands.size() && fits; ++i) {
          for (const Result &other : writer.results)
            if (other.access.tensor == map.operands[i].tensor)
              if (auto same = alike(map, map.operands[i], writer, other.access);
                  same && *same == *counts)
                replacement[i] = other.node;
          fits =
              replacement[i] != ~0u || (isReadyBefore(map.operands[i].tensor, position) &&
                                        (!map.operands[i].lookup ||
                                         isReadyBefore(map.operands[i].lookup->tensor, position)));
        }
        if (!fits)
          continue;
        std::vector<unsigned> nodes;
        for (Node node : map.nodes) {
          const Node *read = node.args.size() == 1 ? &map.nodes[node.args[0]] : nullptr;
          for (unsigned &arg : node.args)
            arg = nodes[arg];
          if (read && read->kind == Node::Kind::Operand && replacement[read->index] != ~0u &&
              goesWithItsReader(map.operands[read->index].tensor))
            if (const std::optional<unsigned> value = beforeRounding(writer, node)) {
              nodes.push_back(*value);
              continue;
            }
          if (node.kind == Node::Kind::Operand) {
            if (replacement[node.index] != ~0u) {
              nodes.push_back(replacement[node.index]);
              continue;
            }
            writer.operands.push_back(counted(map.operands[node.index], *counts));
            node.index = unsigned(writer.operands.size() - 1);
          }
          writer.nodes.push_back(node);
          nodes.push_back(unsigned(writer.nodes.size() - 1));
        }
        std::vector<Result> added;
        for (Result mine : map.results)
          added.push_back({nodes[mine.node], counted(mine.access, *counts)});
        writer.results.insert(writer.results.end(), added.begin(), added.end());
        if (writer.provenance.find(map.provenance) == std::string::npos)
          writer.provenance += " " + map.provenance;
        graph.order.erase(graph.order.begin() + ptrdiff_t(at));
        return true;
      }
    }
  }
  return false;
}

void Merger::run() {
  for (size_t at = 0; at < graph.order.size();)
    if (!merge(at))
      ++at;
}

/// Visits every index of every access.
template <class F> void forEachIndex(Kernel &kernel, F f) {
  const auto visit = [&](Access &access) {
    for (AffineIndex &index : access.index)
      f(index);
    if (access.lookup)
      for (AffineIndex &index : access.lookup->index)
        f(index);
  };
  forEachAccess(kernel, visit);
}

} // namespace

bool joinLoops(Kernel &kernel, unsigned outer, unsigned inner) {
  Loop &a = kernel.loops[outer], &b = kernel.loops[inner];
  bool isOne = a.kind == LoopKind::Parallel && b.kind == LoopKind::Parallel && a.extent > 1;
  forEachIndex(kernel, [&](AffineIndex &index) {
    isOne &= coefficient(index, outer) == b.extent * coefficient(index, inner);
  });
  if (!isOne)
    return false;
  forEachIndex(kernel, [&](AffineIndex &index) {
    std::erase_if(index.terms, [&](const auto &term) { return term.first == outer; });
  });
  b.extent *= a.extent;
  a.extent = 1;
  return true;
}

namespace {

/// Joins loops along the lanes of a kernel's results.
void joinLaneLoops(KernelGraph &graph) {
  for (Kernel &kernel : graph.kernels)
    for (const Result &result : kernel.results) {
      const AffineIndex lanes = result.access.index[graph.tensors[result.access.tensor].laneDim];
      for (auto [inner, step] : lanes.terms)
        for (auto [outer, outerStep] : lanes.terms)
          if (step == 1 && outer != inner && outerStep == kernel.loops[inner].extent)
            joinLoops(kernel, outer, inner);
    }
}

} // namespace

void mergeMaps(KernelGraph &graph, unsigned chain) {
  Merger(graph, chain, /*alone=*/true).run();
  dropUnneeded(graph);
}

void simplify(KernelGraph &graph, unsigned chain) {
  foldConstants(graph);
  dropDead(graph);
  joinLaneLoops(graph);
  Merger(graph, chain, /*alone=*/false).run();
  dropUnneeded(graph);
}

} // namespace millrace::forms
