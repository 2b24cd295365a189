// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/CopyInputs.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>

namespace millrace::layouts {

namespace {

/// The kernels that sum over windows of the tensor, those first whose windows begin first; none
/// where something else reads it.
std::vector<unsigned> windowReaders(const KernelGraph &graph, const forms::Uses &uses,
                                    unsigned tensor) {
  if (uses.onHost[tensor])
    return {};
  struct Reader {
    std::vector<int64_t> first; ///< per dimension: the first index that it reaches
    unsigned kernel;
  };
  std::vector<Reader> readers;
  for (unsigned k : uses.readers[tensor]) {
    const Kernel &kernel = graph.kernels[k];
    std::vector<int64_t> first;
    for (const Term &term : kernel.terms) {
      if (term.w.tensor == tensor)
        return {};
      if (term.a.tensor == tensor && first.empty())
        for (const AffineIndex &index : term.a.index)
          first.push_back(rangeOf(kernel, index).first);
    }
    for (const Access &operand : kernel.operands)
      if (operand.tensor == tensor || (operand.lookup && operand.lookup->tensor == tensor))
        return {};
    readers.push_back({std::move(first), k});
  }
  std::stable_sort(readers.begin(), readers.end(),
                   [](const Reader &x, const Reader &y) { return x.first < y.first; });
  std::vector<unsigned> kernels;
  for (const Reader &reader : readers)
    kernels.push_back(reader.kernel);
  return kernels;
}

/// The graph in which these kernels read a copy of the input.
KernelGraph withCopy(const KernelGraph &graph, unsigned tensor, std::vector<unsigned> kernels) {
  KernelGraph copied = graph;
  const auto copy = unsigned(graph.tensors.size());
  copied.tensors.push_back(graph.tensors[tensor]);
  copied.tensors.back().name += ".again";
  for (unsigned k : kernels)
    for (Term &term : copied.kernels[k].terms)
      if (term.a.tensor == tensor)
        term.a.tensor = copy;
  return copied;
}

} // namespace

std::vector<std::string> copyInputs(KernelGraph &graph, const Machine &machine,
                                    const std::shared_ptr<CostCache> &cache) {
  constexpr unsigned kMostCopies = 3; // each holds every element that is read once, at least
  std::vector<std::string> lines;
  forms::Uses uses(graph);
  for (unsigned t = 0, tensors = unsigned(graph.tensors.size()); t < tensors; ++t) {
    if (graph.tensors[t].role != TensorRole::Input || windowReaders(graph, uses, t).size() < 2)
      continue;
    const auto isPacked = [&](const LayoutProblem &problem) {
      return std::any_of(problem.variables.begin(), problem.variables.end(),
                         [t](const Variable &v) { return v.tensors.front() == t; });
    };
    std::optional<double> least;
    unsigned copies = 1;
    for (; copies < kMostCopies; ++copies) {
      if (!least) {
        const LayoutProblem problem(graph, machine, cache);
        if (!isPacked(problem))
          break;
        least = solvedCost(problem);
      }
      const std::vector<unsigned> readers = windowReaders(graph, uses, t);
      std::optional<KernelGraph> best;
      for (size_t cut = 1; cut < readers.size(); ++cut) {
        KernelGraph copied = withCopy(graph, t, {readers.begin() + ptrdiff_t(cut), readers.end()});
        const double cost = solvedCost(LayoutProblem(copied, machine, cache));
        if (cost >= *least)
          continue;
        least = cost;
        best = std::move(copied);
      }
      if (!best)
        break;
      graph = std::move(*best);
      uses = forms::Uses(graph);
    }
    if (copies > 1)
      lines.push_back(graph.tensors[t].name + ": written " + std::to_string(copies) +
                      " times, for different readers");
  }
  return lines;
}

} // namespace millrace::layouts
