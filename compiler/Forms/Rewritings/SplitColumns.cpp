// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitColumns.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>

namespace millrace::forms {
namespace {

/// The dimension of the installed tensor whose neighbours are columns: that along which the lanes
/// of the result move. Nothing for a result of one lane.
std::optional<unsigned> columnDim(const KernelGraph &graph, const Kernel &kernel, const Access &w) {
  const Access &result = kernel.results.front().access;
  const std::optional<unsigned> along =
      unitLoop(kernel, result.index[graph.tensors[result.tensor].laneDim], LoopKind::Parallel);
  for (unsigned d = 0; along && d < w.index.size(); ++d)
    if (d != graph.tensors[w.tensor].laneDim && coefficient(w.index[d], *along) != 0)
      return d;
  return std::nullopt;
}

/// A copy of `tensor`, written before whatever is at `place` in the order.
unsigned copyBefore(KernelGraph &graph, size_t place, unsigned tensor) {
  const Tensor source = graph.tensors[tensor];
  const unsigned copy =
      addTensor(graph, source.name + ".columns", source.shape, source.type, source.laneDim);
  KernelBuilder build(graph);
  std::vector<AffineIndex> index;
  for (int64_t extent : source.shape)
    index.push_back(at(build.loop(extent)));
  build.storeBits(build.operand({tensor, index, 0}), {copy, index, 0});
  build.finish(source.name + ".columns");
  std::rotate(graph.order.begin() + ptrdiff_t(place), graph.order.end() - 1, graph.order.end());
  return copy;
}

} // namespace

unsigned splitColumns(KernelGraph &graph) {
  std::map<unsigned, std::map<unsigned, unsigned>> copies; ///< by tensor and dimension
  unsigned made = 0;
  for (size_t place = 0; place < graph.order.size(); ++place) {
    const auto [isHost, number] = graph.order[place];
    for (size_t t = 0; !isHost && t < graph.kernels[number].terms.size(); ++t) {
      const Kernel &kernel = graph.kernels[number];
      const Access &w = kernel.terms[t].w;
      const std::optional<unsigned> dim = columnDim(graph, kernel, w);
      if (!dim || graph.tensors[w.tensor].role == TensorRole::Constant)
        continue;
      std::map<unsigned, unsigned> &known = copies[w.tensor];
      if (known.empty())
        known[*dim] = w.tensor; // the first reader takes the tensor itself
      if (!known.count(*dim)) {
        known[*dim] = copyBefore(graph, place++, w.tensor);
        ++made;
      }
      graph.kernels[number].terms[t].w.tensor = known[*dim];
    }
  }
  return made;
}

} // namespace millrace::forms
