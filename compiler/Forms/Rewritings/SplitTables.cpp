// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitTables.h"

#include "compiler/Forms/KernelBuilder.h"

#include <map>

namespace millrace::forms {
namespace {

/// Parts of tables, made once for all kernels that look into them.
class Parts {
public:
  Parts(KernelGraph &graph, int64_t most) : graph(graph), most(most) {}

  /// Nothing to cut: all rows fit, and every index lies inside.
  bool isWhole(const Access &access) const {
    const int64_t rows = graph.tensors[access.tensor].shape[access.lookup->dim];
    const bool inside = access.index[access.lookup->dim].offset == 0 &&
                        graph.tensors[access.lookup->tensor].hostExtent == rows;
    return rows + (inside ? 0 : 1) <= most;
  }
  const std::vector<unsigned> &of(unsigned table, unsigned dim);

private:
  KernelGraph &graph;
  int64_t most;
  std::map<std::pair<unsigned, unsigned>, std::vector<unsigned>> parts;
};

const std::vector<unsigned> &Parts::of(unsigned table, unsigned dim) {
  auto [entry, isNew] = parts.try_emplace({table, dim});
  const int64_t rows = graph.tensors[table].shape[dim];
  for (int64_t from = 0; isNew && from < rows; from += most - 1) { // behind each a row of zeros
    Tensor part = graph.tensors[table];
    part.name += "." + std::to_string(entry->second.size());
    part.shape[dim] = std::min(most - 1, rows - from);
    if (!part.splat) {
      const size_t row = size_t(elementCount(graph.tensors[table]) / rows) * byteWidth(part.type);
      part.data.assign(graph.tensors[table].data.begin() + ptrdiff_t(size_t(from) * row),
                       graph.tensors[table].data.begin() +
                           ptrdiff_t(size_t(from + part.shape[dim]) * row));
    }
    entry->second.push_back(unsigned(graph.tensors.size()));
    graph.tensors.push_back(std::move(part));
  }
  return entry->second;
}

/// Rows of the table lie one after the other, and what is outside reads zeros.
bool isCuttable(const KernelGraph &graph, const Access &access) {
  const Tensor &table = graph.tensors[access.tensor];
  for (unsigned d = 0; d < access.lookup->dim; ++d)
    if (table.shape[d] != 1)
      return false;
  return access.pad == 0 && table.role == TensorRole::Constant;
}

unsigned splitTables(KernelGraph &graph, Kernel &kernel, Parts &parts) {
  unsigned split = 0;
  const std::vector<Access> operands = kernel.operands;
  std::vector<Node> nodes;
  std::vector<unsigned> number;
  std::map<unsigned, unsigned> joinedOf; ///< by operand that was cut
  for (Node node : kernel.nodes) {
    for (unsigned &arg : node.args)
      arg = number[arg];
    const bool cuts = node.kind == Node::Kind::Operand && operands[node.index].lookup &&
                      !parts.isWhole(operands[node.index]) &&
                      isCuttable(graph, operands[node.index]);
    if (!cuts) {
      nodes.push_back(node);
      number.push_back(unsigned(nodes.size() - 1));
      continue;
    }
    if (auto known = joinedOf.find(node.index); known != joinedOf.end()) {
      number.push_back(known->second);
      continue;
    }
    const Access &whole = operands[node.index];
    const unsigned dim = whole.lookup->dim;
    int64_t first = 0;
    std::optional<unsigned> joined;
    for (unsigned table : parts.of(whole.tensor, dim)) {
      Access part = whole;
      part.tensor = table;
      part.index[dim].offset -= first;
      first += graph.tensors[table].shape[dim];
      if (joined)
        kernel.operands.push_back(part);
      else
        kernel.operands[node.index] = part;
      Node read = node;
      read.index = joined ? unsigned(kernel.operands.size() - 1) : node.index;
      nodes.push_back(read);
      if (joined)
        nodes.push_back({Node::Kind::Op, 0, 0, AluOp::Or, {*joined, unsigned(nodes.size() - 1)}});
      joined = unsigned(nodes.size() - 1);
    }
    number.push_back(*joined);
    joinedOf[node.index] = *joined;
    ++split;
  }
  for (Result &result : kernel.results)
    result.node = number[result.node];
  kernel.nodes = std::move(nodes);
  return split;
}

} // namespace

unsigned splitTables(KernelGraph &graph, int64_t most) {
  Parts parts(graph, most);
  unsigned split = 0;
  for (Kernel &kernel : graph.kernels)
    if (looksUp(kernel))
      split += splitTables(graph, kernel, parts);
  return split;
}

} // namespace millrace::forms
