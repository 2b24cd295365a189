// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/NarrowConstants.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace millrace::forms {
namespace {

float valueAt(const Tensor &tensor, size_t element) {
  uint32_t bits;
  std::memcpy(&bits, &tensor.data[4 * element], 4);
  return decode(ElementType::Fp32, bits);
}

/// Finite, of several rows, and no number that the type could not hold: a mask of the lowest number
/// stays what it is, and so do whole numbers that would be others (positions).
bool canBeNarrow(const Tensor &tensor, ElementType type) {
  if (tensor.role != TensorRole::Constant || tensor.type != ElementType::Fp32 || tensor.splat ||
      elementCount(tensor) == tensor.shape[tensor.laneDim])
    return false;
  const float most = decode(type, type == ElementType::Fp16 ? 0x7bff : 0x7f7f);
  for (size_t i = 0; i < tensor.data.size() / 4; ++i) {
    const float value = valueAt(tensor, i);
    if (!(std::fabs(value) <= most) ||
        (value == std::nearbyint(value) && decode(type, encode(type, value)) != value))
      return false;
  }
  return true;
}

/// Is it added to something, and no more? What it is multiplied with could make more of an error.
bool isAdded(const Kernel &kernel, unsigned tensor) {
  return std::all_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const Node &user) {
    return std::none_of(user.args.begin(), user.args.end(), [&](unsigned a) {
      const Node &node = kernel.nodes[a];
      return node.kind == Node::Kind::Operand && kernel.operands[node.index].tensor == tensor &&
             user.op != AluOp::AddF32 && user.op != AluOp::SubF32;
    });
  });
}

/// Every access is an operand at an index that is no data, beside padding that the type can hold.
bool isOperandAlone(const KernelGraph &graph, const Uses &uses, unsigned tensor, ElementType type) {
  if (uses.onHost[tensor])
    return false;
  for (unsigned k : uses.readers[tensor]) {
    const Kernel &kernel = graph.kernels[k];
    for (const Term &term : kernel.terms)
      if (term.a.tensor == tensor || term.w.tensor == tensor)
        return false;
    if (!isAdded(kernel, tensor))
      return false;
    for (const Access &operand : kernel.operands)
      if ((operand.lookup && (operand.tensor == tensor || operand.lookup->tensor == tensor)) ||
          (operand.tensor == tensor &&
           bitsOf(decode(type, encode(type, decode(ElementType::Fp32, operand.pad)))) !=
               operand.pad))
        return false;
  }
  return true;
}

} // namespace

std::vector<std::string> narrowConstants(KernelGraph &graph, ElementType type) {
  const Uses uses(graph);
  std::vector<std::string> names;
  for (unsigned t = 0; t < graph.tensors.size(); ++t) {
    Tensor &tensor = graph.tensors[t];
    if (!canBeNarrow(tensor, type) || !isOperandAlone(graph, uses, t, type))
      continue;
    std::vector<float> values;
    for (size_t i = 0; i < tensor.data.size() / 4; ++i)
      values.push_back(valueAt(tensor, i));
    tensor.data = encodeAll(type, values);
    tensor.type = type;
    names.push_back(tensor.name);
    for (unsigned k : uses.readers[t]) {
      Kernel &kernel = graph.kernels[k];
      for (Access &operand : kernel.operands)
        if (operand.tensor == t)
          operand.pad = encode(type, decode(ElementType::Fp32, operand.pad));
      for (unsigned n = 0; n < kernel.nodes.size(); ++n)
        if (kernel.nodes[n].kind == Node::Kind::Operand &&
            kernel.operands[kernel.nodes[n].index].tensor == t)
          applyTo(kernel, n++, widenToF32(type));
    }
  }
  return names;
}

} // namespace millrace::forms
