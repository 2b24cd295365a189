// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/StreamBias.h"

#include "compiler/Forms/KernelBuilder.h"

#include "arch/spec/Facts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

namespace millrace::forms {
double constantShare(const KernelGraph &graph, const Machine &machine) {
  int64_t vectors = 0;
  for (const Tensor &t : graph.tensors) {
    const int64_t lanes = t.shape[t.laneDim];
    if (t.role == TensorRole::Constant && !t.splat && lanes > 0)
      vectors += elementCount(t) / lanes * ((lanes + machine.lanes() - 1) / machine.lanes()) *
                 int64_t(byteWidth(t.type));
  }
  const int64_t present = int64_t(factsOf(machine).capacityBytes) * machine.pes() / machine.lanes();
  return double(vectors) / double(present);
}

namespace {

constexpr int64_t kParts = 3; ///< 33 bits of fp16, 24 of bf16

bool isTight(const KernelGraph &graph, const Machine &machine) {
  return constantShare(graph, machine) > 0.75;
}

/// A node that adds the operand to the sum, and nothing else uses either.
struct Addition {
  unsigned sum = 0, operand = 0, result = 0; ///< nodes
};
std::optional<Addition> additionOf(const Kernel &kernel, unsigned operand) {
  std::optional<Addition> found;
  const std::vector<unsigned> uses = usesOfNodes(kernel);
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    if (node.kind != Node::Kind::Op || node.op != AluOp::AddF32)
      continue;
    for (unsigned side : {0u, 1u}) {
      const unsigned sum = node.args[side], value = node.args[1 - side];
      if (kernel.nodes[sum].kind == Node::Kind::Accumulator &&
          kernel.nodes[value].kind == Node::Kind::Operand && kernel.nodes[value].index == operand &&
          uses[sum] == 1 && uses[value] == 1)
        found = Addition{sum, value, n};
    }
  }
  const auto reads = std::count_if(kernel.nodes.begin(), kernel.nodes.end(), [&](const Node &n) {
    return n.kind == Node::Kind::Operand && n.index == operand;
  });
  const auto sums = std::count_if(kernel.nodes.begin(), kernel.nodes.end(),
                                  [](const Node &n) { return n.kind == Node::Kind::Accumulator; });
  return reads == 1 && sums == 1 ? found : std::nullopt;
}

/// One value per row, if all lanes of each row are equal and finite in fp16's range.
std::optional<std::vector<float>> rowsOf(const Tensor &t) {
  if (t.role != TensorRole::Constant || t.splat || t.type != ElementType::Fp32 ||
      t.laneDim + 1 != t.shape.size())
    return std::nullopt;
  const auto lanes = size_t(t.shape[t.laneDim]), rows = size_t(elementCount(t)) / lanes;
  std::vector<float> values(rows);
  for (size_t r = 0; r < rows; ++r) {
    const uint8_t *row = &t.data[r * lanes * 4];
    std::memcpy(&values[r], row, 4);
    for (size_t l = 1; l < lanes; ++l)
      if (std::memcmp(row, row + 4 * l, 4) != 0)
        return std::nullopt;
    if (!(std::fabs(values[r]) < 32768))
      return std::nullopt;
  }
  return values;
}

class Streamer {
public:
  explicit Streamer(KernelGraph &graph) : graph(graph) {}

  bool stream(Kernel &kernel, unsigned operand) {
    const Access access = kernel.operands[operand];
    if (access.lookup || kernel.terms.empty())
      return false;
    const ElementType type = graph.tensors[kernel.terms.front().a.tensor].type;
    const Tensor bias = graph.tensors[access.tensor]; // a copy: tensors are added
    const std::optional<Addition> addition = additionOf(kernel, operand);
    const Access &result = kernel.results.front().access;
    const AffineIndex &lanes = result.index[graph.tensors[result.tensor].laneDim];
    if (!addition || (type != ElementType::Fp16 && type != ElementType::Bf16) ||
        lanes.offset != 0 || lanes.terms.size() != 1 || lanes.terms[0].second != 1)
      return false;
    const unsigned lane = lanes.terms[0].first;
    const int64_t columns = kernel.loops[lane].extent;
    if (!bias.uniform &&
        (!(lanes == access.index[bias.laneDim]) || columns != bias.shape[bias.laneDim]))
      return false;
    const std::optional<std::vector<float>> rows = rowsOf(bias);
    if (!rows)
      return false;
    const auto part = unsigned(kernel.loops.size());
    kernel.loops.push_back({kParts, LoopKind::Contracted});
    Term term;
    term.a = access;
    term.a.tensor = partsOf(bias, *rows, type);
    term.a.index[bias.laneDim] = at(part);
    term.w = {onesOf(columns, type), {at(lane), at(part)}, 0};
    kernel.terms.push_back(std::move(term));
    drop(kernel, operand, *addition);
    return true;
  }

private:
  /// Parts that add up to the value of each row, along the lanes.
  unsigned partsOf(const Tensor &bias, const std::vector<float> &rows, ElementType type) {
    std::vector<float> parts;
    for (float rest : rows)
      for (int64_t p = 0; p < kParts; ++p) {
        parts.push_back(decode(type, encode(type, rest)));
        rest -= parts.back();
      }
    std::vector<int64_t> shape = bias.shape;
    shape[bias.laneDim] = kParts;
    return addConstant(graph, bias.name + ".parts", std::move(shape), type, bias.laneDim, parts);
  }

  unsigned onesOf(int64_t columns, ElementType type) {
    return addSplat(graph, "ones", {columns, kParts}, type, 1, 1.0f);
  }

  /// What was the sum with the operand is the sum.
  static void drop(Kernel &kernel, unsigned operand, const Addition &addition) {
    std::vector<Node> nodes;
    std::vector<unsigned> number(kernel.nodes.size(), 0);
    for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
      Node node = kernel.nodes[n];
      if (n == addition.operand)
        continue;
      if (n == addition.result) {
        number[n] = number[addition.sum];
        continue;
      }
      for (unsigned &arg : node.args)
        arg = number[arg];
      node.index -= node.kind == Node::Kind::Operand && node.index > operand ? 1 : 0;
      number[n] = unsigned(nodes.size());
      nodes.push_back(std::move(node));
    }
    for (Result &result : kernel.results)
      result.node = number[result.node];
    kernel.nodes = std::move(nodes);
    kernel.operands.erase(kernel.operands.begin() + operand);
  }

  KernelGraph &graph;
};

} // namespace

unsigned streamBias(KernelGraph &graph, const Machine &machine) {
  if (!isTight(graph, machine))
    return 0;
  Streamer streamer(graph);
  unsigned streamed = 0;
  for (Kernel &kernel : graph.kernels)
    for (unsigned o = 0; o < kernel.operands.size();)
      if (streamer.stream(kernel, o))
        ++streamed;
      else
        ++o;
  return streamed;
}

} // namespace millrace::forms
