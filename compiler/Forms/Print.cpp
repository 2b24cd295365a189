// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// KernelGraph in words: `k12 conv1 [y:112 x:112 n:64 | c:3 ...]`, one line per access and node.
#include "compiler/Forms/KernelBuilder.h"

#include <sstream>

namespace millrace::forms {

static std::string loopName(const Kernel &kernel, unsigned loop) {
  char kind = "prc"[unsigned(kernel.loops[loop].kind)];
  return kind + std::to_string(loop);
}

static std::string text(const Kernel &kernel, const AffineIndex &index) {
  std::string out;
  for (auto [loop, coefficient] : index.terms) {
    out += out.empty() ? "" : "+";
    out += coefficient == 1 ? loopName(kernel, loop)
                            : std::to_string(coefficient) + loopName(kernel, loop);
  }
  if (index.offset != 0 || out.empty())
    out += (index.offset >= 0 && !out.empty() ? "+" : "") + std::to_string(index.offset);
  return out;
}

static std::string text(const KernelGraph &graph, const Kernel &kernel, const Access &access) {
  const Tensor &tensor = graph.tensors[access.tensor];
  std::string out = "%" + std::to_string(access.tensor) + ":" + tensor.name + "[";
  for (size_t i = 0; i < access.index.size(); ++i)
    out += (i ? ", " : "") + text(kernel, access.index[i]);
  out += "]";
  if (access.lookup)
    out += " + " + text(graph, kernel, Access{access.lookup->tensor, access.lookup->index, 0}) +
           " in dim " + std::to_string(access.lookup->dim);
  if (access.pad != 0)
    out += " pad " + std::to_string(access.pad);
  return out;
}

static void print(std::ostream &out, unsigned number, const Tensor &tensor) {
  static const char *const roles[] = {"input", "constant", "tensor", "output"};
  out << roles[unsigned(tensor.role)] << " %" << number << ":" << tensor.name << " "
      << nameOf(tensor.type) << "[";
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    out << (i ? "," : "") << tensor.shape[i] << (i == tensor.laneDim ? "*" : "");
  out << "]" << (tensor.splat ? " splat" : "") << (tensor.unbounded ? " unbounded" : "")
      << (tensor.uniform ? " uniform" : "");
  if (!tensor.hostName.empty())
    out << " host " << tensor.hostName << " " << tensor.hostType;
  if (tensor.hostExtent)
    out << " indices below " << tensor.hostExtent;
  out << "\n";
}

static void print(std::ostream &out, unsigned number, const Node &node) {
  out << "    n" << number << " = ";
  switch (node.kind) {
  case Node::Kind::Accumulator:
    out << "acc";
    break;
  case Node::Kind::Operand:
    out << "operand " << node.index;
    break;
  case Node::Kind::Immediate:
    out << "imm " << node.bits << " (" << decode(ElementType::Fp32, node.bits) << ")";
    break;
  case Node::Kind::Op:
    out << aluOpInfo(node.op).mnemonic;
    break;
  case Node::Kind::Reduce:
    out << "reduce " << aluOpInfo(node.op).mnemonic;
    break;
  }
  for (unsigned arg : node.args)
    out << " n" << arg;
  out << "\n";
}

static void print(std::ostream &out, const KernelGraph &graph, unsigned number,
                  const Kernel &kernel) {
  out << "kernel " << number << " " << kernel.name << " from " << kernel.provenance << " (";
  for (unsigned i = 0; i < kernel.loops.size(); ++i)
    out << (i ? " " : "") << loopName(kernel, i) << "<" << kernel.loops[i].extent;
  out << ")\n";
  for (const Term &term : kernel.terms)
    out << "    acc += " << text(graph, kernel, term.a) << " * " << text(graph, kernel, term.w)
        << "  macs " << term.macs << "\n";
  for (unsigned i = 0; i < kernel.operands.size(); ++i)
    out << "    operand " << i << " = " << text(graph, kernel, kernel.operands[i]) << "\n";
  for (unsigned i = 0; i < kernel.nodes.size(); ++i)
    print(out, i, kernel.nodes[i]);
  for (const Result &result : kernel.results)
    out << "    " << text(graph, kernel, result.access) << " = n" << result.node << "\n";
}

std::string print(const KernelGraph &graph) {
  std::ostringstream out;
  out << "graph " << graph.name << " macs " << graph.macs() << "\n";
  for (unsigned i = 0; i < graph.tensors.size(); ++i)
    print(out, i, graph.tensors[i]);
  for (auto [isHost, index] : graph.order) {
    if (!isHost) {
      print(out, graph, index, graph.kernels[index]);
      continue;
    }
    const HostCall &call = graph.hostCalls[index];
    out << "host " << index << " " << call.name << " @" << call.function << " (";
    for (unsigned tensor : call.inputs)
      out << " %" << tensor;
    out << " ) -> (";
    for (unsigned tensor : call.outputs)
      out << " %" << tensor;
    out << " )\n";
  }
  return out.str();
}

} // namespace millrace::forms
