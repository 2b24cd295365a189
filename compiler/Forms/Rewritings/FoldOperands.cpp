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
class Folder {
public:
  Folder(KernelGraph &graph, Kernel &kernel) : graph(graph), kernel(kernel) {}

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
      if (outermost[n] && kernel.nodes[n].op != AluOp::Pass)
        folded += replace(n);
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

  void addLoops(unsigned n, std::set<unsigned> &loops) const {
    const Node &node = kernel.nodes[n];
    if (node.kind == Node::Kind::Operand)
      for (unsigned l = 0; l < kernel.loops.size(); ++l)
        if (kernel.loops[l].extent > 1 && usesLoop(kernel.operands[node.index], l))
          loops.insert(l);
    for (unsigned a : node.args)
      addLoops(a, loops);
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
    addLoops(n, moving);
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
    for (unsigned l : moving)
      if (coefficient(lanes, l) == 1)
        laneLoops.push_back(l);
      else if (kernel.loops[l].kind == LoopKind::Running)
        loops.push_back(l);
      else
        return false;
    if (laneLoops.size() != 1)
      return false;
    loops.push_back(laneLoops.front());
    Access access;
    std::vector<int64_t> shape;
    for (unsigned l : loops) {
      shape.push_back(kernel.loops[l].extent);
      access.index.push_back(at(l));
    }
    std::vector<uint8_t> data;
    forEachPoint(kernel, loops, [&](const Point &point) {
      const uint32_t bits = valueAt(n, point);
      for (unsigned b = 0; b < 4; ++b)
        data.push_back(uint8_t(bits >> 8 * b));
      return true;
    });
    const bool isInteger = aluOpInfo(kernel.nodes[n].op).result == LaneType::I32;
    access.tensor = addTensor(graph, kernel.name + ".constant" + std::to_string(n), shape,
                              isInteger ? ElementType::Int32 : ElementType::Fp32,
                              unsigned(shape.size()) - 1, TensorRole::Constant);
    graph.tensors[access.tensor].data = std::move(data);
    kernel.nodes[n] = {Node::Kind::Operand, unsigned(kernel.operands.size()), 0, {}, {}};
    kernel.operands.push_back(std::move(access));
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
    folded += Folder(graph, kernel).fold();
  return folded;
}

} // namespace millrace::forms
