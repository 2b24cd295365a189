// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/KernelBuilder.h"

#include "arch/isa/semantics/Alu.h"

#include <algorithm>
#include <cassert>

namespace millrace::forms {

AluOp widenToF32(ElementType type) {
  switch (type) {
  case ElementType::Int8:
    return AluOp::CvtI8F32;
  case ElementType::UInt8:
    return AluOp::CvtU8F32;
  case ElementType::Int32:
    return AluOp::CvtI32F32;
  case ElementType::Fp16:
    return AluOp::CvtF16F32;
  case ElementType::Bf16:
    return AluOp::CvtBf16F32;
  case ElementType::E4M3:
    return AluOp::CvtE4m3F32;
  case ElementType::E5M2:
    return AluOp::CvtE5m2F32;
  case ElementType::Fp32:
    return AluOp::Pass;
  }
  return AluOp::Pass;
}

AluOp narrowFromF32(ElementType type) {
  switch (type) {
  case ElementType::Int8:
    return AluOp::CvtF32I8;
  case ElementType::UInt8:
    return AluOp::CvtF32U8;
  case ElementType::Int32:
    return AluOp::CvtF32I32;
  case ElementType::Fp16:
    return AluOp::CvtF32F16Fin;
  case ElementType::Bf16:
    return AluOp::CvtF32Bf16Fin;
  case ElementType::E4M3:
    return AluOp::CvtF32E4m3Sat;
  case ElementType::E5M2:
    return AluOp::CvtF32E5m2Sat;
  case ElementType::Fp32:
    return AluOp::Pass;
  }
  return AluOp::Pass;
}

uint32_t encode(ElementType type, float value) {
  return semantics::applyAlu(narrowFromF32(type), bitsOf(value));
}

float decode(ElementType type, uint32_t bits) {
  uint32_t wide = semantics::applyAlu(widenToF32(type), bits);
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

std::vector<uint8_t> encodeAll(ElementType type, const std::vector<float> &values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), 4 * values.size());
  semantics::applyAlu(narrowFromF32(type), bits.data(), nullptr, nullptr, bits.data(), bits.size());
  unsigned width = byteWidth(type);
  std::vector<uint8_t> data(values.size() * width);
  for (size_t i = 0; i < bits.size(); ++i)
    std::memcpy(&data[i * width], &bits[i], width);
  return data;
}

unsigned KernelBuilder::loop(int64_t extent, LoopKind kind) {
  building.loops.push_back({extent, kind});
  return unsigned(building.loops.size() - 1);
}

void KernelBuilder::term(Access a, Access w, int64_t macs) {
  building.terms.push_back({std::move(a), std::move(w), macs});
}

unsigned KernelBuilder::add(Node node) {
  for (unsigned i = 0; i < building.nodes.size(); ++i)
    if (building.nodes[i] == node)
      return i;
  building.nodes.push_back(std::move(node));
  return unsigned(building.nodes.size() - 1);
}

unsigned KernelBuilder::accumulator() { return add({Node::Kind::Accumulator, 0, 0, {}, {}}); }

unsigned KernelBuilder::operand(Access access) {
  for (unsigned i = 0; i < building.operands.size(); ++i)
    if (building.operands[i] == access)
      return add({Node::Kind::Operand, i, 0, {}, {}});
  building.operands.push_back(std::move(access));
  return add({Node::Kind::Operand, unsigned(building.operands.size() - 1), 0, {}, {}});
}

unsigned KernelBuilder::load(Access access) {
  AluOp widen = widenToF32(graph.tensors[access.tensor].type);
  unsigned raw = operand(std::move(access));
  return widen == AluOp::Pass ? raw : op(widen, {raw});
}

unsigned KernelBuilder::immediate(uint32_t bits) {
  return add({Node::Kind::Immediate, 0, bits, {}, {}});
}

unsigned KernelBuilder::op(AluOp op, std::vector<unsigned> args) {
  auto isImmediate = [&](unsigned arg) {
    return building.nodes[arg].kind == Node::Kind::Immediate;
  };
  if (op != AluOp::Pass && std::all_of(args.begin(), args.end(), isImmediate)) {
    uint32_t values[3] = {};
    for (size_t i = 0; i < args.size(); ++i)
      values[i] = building.nodes[args[i]].bits;
    return immediate(semantics::applyAlu(op, values[0], values[1], values[2]));
  }
  // x - c is x + (-c), exactly: one form, so that equal sums are found to be.
  if (op == AluOp::SubF32 && isImmediate(args[1])) {
    op = AluOp::AddF32;
    args[1] = immediate(building.nodes[args[1]].bits ^ 0x80000000u);
  }
  std::optional<uint32_t> held; // an instruction holds one immediate
  for (unsigned &arg : args) {
    if (!isImmediate(arg))
      continue;
    const uint32_t bits = building.nodes[arg].bits;
    if (held.value_or(bits) != bits)
      arg = add({Node::Kind::Op, 0, 0, AluOp::Pass, {arg}});
    held = held.value_or(bits);
  }
  return add({Node::Kind::Op, 0, 0, op, std::move(args)});
}

unsigned KernelBuilder::reduce(AluOp op, unsigned node) {
  return add({Node::Kind::Reduce, 0, 0, op, {node}});
}

unsigned KernelBuilder::computeAt(const Kernel &kernel, unsigned node,
                                  const std::function<Access(const Access &)> &place) {
  std::vector<unsigned> number(node + 1, 0);
  for (unsigned n : nodesOf(kernel, node)) {
    const Node &from = kernel.nodes[n];
    if (from.kind == Node::Kind::Immediate) {
      number[n] = immediate(from.bits);
    } else if (from.kind == Node::Kind::Operand) {
      number[n] = operand(place(kernel.operands[from.index]));
    } else {
      assert(from.kind == Node::Kind::Op);
      std::vector<unsigned> args;
      for (unsigned arg : from.args)
        args.push_back(number[arg]);
      number[n] = op(from.op, std::move(args));
    }
  }
  return number[node];
}

void KernelBuilder::continueFrom(const Kernel &kernel, unsigned given, unsigned value) {
  const std::vector<bool> needed = neededNodes(kernel, given);
  std::vector<unsigned> number(kernel.nodes.size(), 0);
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    if (n == given) {
      number[n] = value;
    } else if (needed[n] && kernel.nodes[n].kind == Node::Kind::Operand) {
      number[n] = operand(kernel.operands[kernel.nodes[n].index]);
    } else if (needed[n]) {
      Node node = kernel.nodes[n];
      for (unsigned &arg : node.args)
        arg = number[arg];
      number[n] = add(std::move(node));
    }
  }
  for (const Result &result : kernel.results)
    storeBits(number[result.node], result.access);
}

void KernelBuilder::store(unsigned node, Access access) {
  AluOp narrow = narrowFromF32(graph.tensors[access.tensor].type);
  storeBits(narrow == AluOp::Pass ? node : op(narrow, {node}), std::move(access));
}

void KernelBuilder::storeBits(unsigned node, Access access) {
  building.results.push_back({node, std::move(access)});
}

void KernelBuilder::storeMoved(Access access) {
  if (graph.tensors[access.tensor].type == ElementType::Int8)
    storeBits(accumulator(), std::move(access));
  else
    store(accumulator(), std::move(access));
}

unsigned KernelBuilder::finish(std::string name, std::string provenance) {
  building.provenance = provenance.empty() ? name : std::move(provenance);
  building.name = std::move(name);
  graph.kernels.push_back(std::move(building));
  building = {};
  unsigned index = unsigned(graph.kernels.size() - 1);
  graph.order.push_back({false, index});
  return index;
}

unsigned addTensor(KernelGraph &graph, std::string name, std::vector<int64_t> shape,
                   ElementType type, unsigned laneDim, TensorRole role) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  tensor.type = type;
  tensor.laneDim = laneDim;
  tensor.role = role;
  if (role == TensorRole::Input || role == TensorRole::Output) {
    tensor.hostName = tensor.name;
    tensor.hostType = "float";
    tensor.hostShape = tensor.shape;
  }
  graph.tensors.push_back(std::move(tensor));
  return unsigned(graph.tensors.size() - 1);
}

unsigned addConstant(KernelGraph &graph, std::string name, std::vector<int64_t> shape,
                     ElementType type, unsigned laneDim, const std::vector<float> &values) {
  unsigned index =
      addTensor(graph, std::move(name), std::move(shape), type, laneDim, TensorRole::Constant);
  graph.tensors[index].data = encodeAll(type, values);
  return index;
}

unsigned addSplat(KernelGraph &graph, std::string name, std::vector<int64_t> shape,
                  ElementType type, unsigned laneDim, float value) {
  unsigned index = addConstant(graph, std::move(name), std::move(shape), type, laneDim, {value});
  graph.tensors[index].splat = true;
  return index;
}

} // namespace millrace::forms
