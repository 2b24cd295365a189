// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/FoldOperands.h"

#include "arch/isa/semantics/Alu.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Simplify.h"

#include <algorithm>
#include <set>

namespace millrace::forms {
namespace {

using Point = std::vector<int64_t>;

/// Folds one kernel.
class OperandFolder {
public:
  OperandFolder(KernelGraph &graph, Kernel &kernel) : graph(graph), kernel(kernel) {}

  unsigned fold() {
    constants.assign(kernel.nodes.size(), false);
    std::vector<bool> outermost(kernel.nodes.size(), false);
    for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
      constants[n] = isConstant(kernel.nodes[n]);
      outermost[n] = constants[n] && kernel.nodes[n].kind == Node::Kind::Op;
      for (unsigned a : kernel.nodes[n].args)
        if (constants[n])
          outermost[a] = false;
    }
    unsigned folded = 0;
    for (unsigned n = 0, nodes = unsigned(kernel.nodes.size()); n < nodes; ++n)
      // An immediate beside another goes through an ALU on purpose.
      if (outermost[n] && kernel.nodes[n].op != AluOp::Pass && replace(n)) {
        ++folded;
        if (kernel.nodes.size() > nodes) { // widened behind it
          outermost.insert(outermost.begin() + n + 1, false);
          constants.insert(constants.begin() + n + 1, true);
          ++nodes;
        }
      }
    if (folded)
      dropDeadNodes(kernel);
    return folded;
  }

private:
  KernelGraph &graph;
  Kernel &kernel;
  std::vector<bool> constants;

  bool isConstant(const Node &node) const {
    switch (node.kind) {
    case Node::Kind::Immediate:
      return true;
    case Node::Kind::Operand:
      return graph.tensors[kernel.operands[node.index].tensor].role == TensorRole::Constant &&
             !kernel.operands[node.index].lookup;
    case Node::Kind::Op:
      return std::all_of(node.args.begin(), node.args.end(),
                         [&](unsigned a) { return constants[a]; });
    default:
      return false;
    }
  }

  /// Loops that move what the node is computed of; the bytes of the largest of it, and by how many
  /// operations it is computed.
  void addLoops(unsigned n, std::set<unsigned> &loops, int64_t &bytes, unsigned &operations) const {
    const Node &node = kernel.nodes[n];
    if (node.kind == Node::Kind::Operand) {
      const Access &access = kernel.operands[node.index];
      const Tensor &tensor = graph.tensors[access.tensor];
      bytes = std::max(bytes, elementCount(tensor) * byteWidth(tensor.type));
      for (unsigned l = 0; l < kernel.loops.size(); ++l)
        if (kernel.loops[l].extent > 1 && usesLoop(access, l))
          loops.insert(l);
    }
    operations += node.kind == Node::Kind::Op;
    for (unsigned a : node.args)
      addLoops(a, loops, bytes, operations);
  }

  uint32_t valueAt(unsigned n, const Point &point) const {
    const Node &node = kernel.nodes[n];
    if (node.kind == Node::Kind::Immediate)
      return node.bits;
    if (node.kind == Node::Kind::Operand) {
      const Access &access = kernel.operands[node.index];
      const Tensor &tensor = graph.tensors[access.tensor];
      const int64_t element = linearOffset(tensor, access, point);
      if (element < 0)
        return access.pad;
      const unsigned bytes = byteWidth(tensor.type);
      uint32_t bits = 0;
      std::memcpy(&bits, &tensor.data[tensor.splat ? 0 : size_t(element) * bytes], bytes);
      return bits;
    }
    uint32_t values[3] = {};
    for (size_t i = 0; i < node.args.size(); ++i)
      values[i] = valueAt(node.args[i], point);
    return semantics::applyAlu(node.op, values[0], values[1], values[2]);
  }

  bool replace(unsigned n) {
    std::set<unsigned> moving;
    int64_t bytes = 0;
    unsigned operations = 0;
    addLoops(n, moving, bytes, operations);
    if (moving.empty()) {
      if (meetsImmediate(n))
        return false;
      const uint32_t bits = valueAt(n, Point(kernel.loops.size(), 0));
      kernel.nodes[n] = {Node::Kind::Immediate, 0, bits, {}, {}};
      return true;
    }
    const Access &result = kernel.results.front().access;
    const AffineIndex &lanes = result.index[graph.tensors[result.tensor].laneDim];
    std::vector<unsigned> loops, laneLoops;
    bool hasRows = false; // that differ from row to row of the results
    int64_t points = 1;
    for (unsigned l : moving) {
      points *= kernel.loops[l].extent;
      if (coefficient(lanes, l) == 1) {
        laneLoops.push_back(l);
      } else {
        hasRows |= kernel.loops[l].kind == LoopKind::Parallel;
        loops.push_back(l);
      }
    }
    if (laneLoops.size() != 1)
      return false;
    loops.push_back(laneLoops.front());
    Access access;
    std::vector<int64_t> shape;
    for (unsigned l : loops) {
      shape.push_back(kernel.loops[l].extent);
      access.index.push_back(at(l));
    }
    const bool isInteger = aluOpInfo(kernel.nodes[n].op).result == LaneType::I32;
    std::vector<uint32_t> values;
    bool isHalf = hasRows && !isInteger; // exactly: half the rows
    forEachPoint(kernel, loops, [&](const Point &point) {
      values.push_back(valueAt(n, point));
      const float value = decode(ElementType::Fp32, values.back());
      isHalf = isHalf &&
               bitsOf(decode(ElementType::Fp16, encode(ElementType::Fp16, value))) == values.back();
      return true;
    });
    const ElementType type = isInteger ? ElementType::Int32
                             : isHalf  ? ElementType::Fp16
                                       : ElementType::Fp32;
    if (hasRows && (points * byteWidth(type) > bytes || operations <= isHalf))
      return false; // no fewer bytes, or no fewer operations
    std::vector<uint8_t> data;
    for (uint32_t value : values) {
      const uint32_t bits = isHalf ? encode(type, decode(ElementType::Fp32, value)) : value;
      for (unsigned b = 0; b < byteWidth(type); ++b)
        data.push_back(uint8_t(bits >> 8 * b));
    }
    access.tensor = addTensor(graph, kernel.name + ".constant" + std::to_string(n), shape, type,
                              unsigned(shape.size()) - 1, TensorRole::Constant);
    graph.tensors[access.tensor].data = std::move(data);
    kernel.nodes[n] = {Node::Kind::Operand, unsigned(kernel.operands.size()), 0, {}, {}};
    kernel.operands.push_back(std::move(access));
    if (isHalf)
      applyTo(kernel, n, widenToF32(type));
    return true;
  }

  /// An instruction holds one immediate, and a result is none.
  bool meetsImmediate(unsigned n) const {
    return std::any_of(kernel.nodes.begin(), kernel.nodes.end(),
                       [&](const Node &user) {
                         return std::count(user.args.begin(), user.args.end(), n) &&
                                std::any_of(user.args.begin(), user.args.end(), [&](unsigned a) {
                                  return kernel.nodes[a].kind == Node::Kind::Immediate;
                                });
                       }) ||
           std::any_of(kernel.results.begin(), kernel.results.end(),
                       [&](const Result &r) { return r.node == n; });
  }
};

} // namespace

unsigned foldOperands(KernelGraph &graph) {
  unsigned folded = 0;
  for (Kernel &kernel : graph.kernels)
    folded += OperandFolder(graph, kernel).fold();
  return folded;
}

} // namespace millrace::forms
