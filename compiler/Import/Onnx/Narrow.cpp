// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Narrow.h"

#include "compiler/Import/Onnx/NodeImporter.h"

#include <optional>
#include <set>

namespace millrace::onnx_import {

namespace {

struct Narrow {
  unsigned bits;
  bool isSigned;
};

std::optional<Narrow> narrowOf(int type) {
  switch (type) {
  case onnx::TensorProto::INT4:
    return Narrow{4, true};
  case onnx::TensorProto::UINT4:
    return Narrow{4, false};
  case onnx::TensorProto::INT2:
    return Narrow{2, true};
  case onnx::TensorProto::UINT2:
    return Narrow{2, false};
  default:
    return std::nullopt;
  }
}

onnx::TensorProto::DataType wideOf(Narrow narrow) {
  return narrow.isSigned ? onnx::TensorProto::INT8 : onnx::TensorProto::UINT8;
}

/// False where it does not hold what its shape needs.
bool widen(onnx::TensorProto &tensor, Narrow narrow) {
  std::string packed = tensor.raw_data();
  if (!tensor.has_raw_data())
    for (const int32_t byte : tensor.int32_data())
      packed += static_cast<char>(byte);
  size_t count = 1;
  for (const int64_t extent : tensor.dims())
    count = extent < 0 || (extent && count > SIZE_MAX / size_t(extent)) ? SIZE_MAX
                                                                        : count * size_t(extent);
  const size_t perByte = 8 / narrow.bits;
  if (count > packed.size() * perByte || packed.size() != (count + perByte - 1) / perByte)
    return false;
  tensor.set_raw_data(unpackBits(packed, narrow.bits, narrow.isSigned, count));
  tensor.clear_int32_data();
  tensor.set_data_type(wideOf(narrow));
  return true;
}

} // namespace

std::string unpackBits(const std::string &packed, unsigned bits, bool isSigned, size_t count) {
  const unsigned perByte = 8 / bits, mask = (1u << bits) - 1,
                 sign = isSigned ? 1u << (bits - 1) : 0;
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) {
    const unsigned value =
        (static_cast<unsigned char>(packed[i / perByte]) >> (i % perByte * bits)) & mask;
    bytes[i] = static_cast<char>(int(value ^ sign) - int(sign));
  }
  return bytes;
}

std::vector<std::string> widenConstants(onnx::GraphProto &graph) {
  std::vector<std::string> wrong;
  std::set<std::string> widened;
  const auto widenOne = [&](onnx::TensorProto &tensor, const std::string &name) {
    const std::optional<Narrow> narrow = narrowOf(tensor.data_type());
    if (!narrow)
      return;
    if (widen(tensor, *narrow))
      widened.insert(name);
    else
      wrong.push_back("constant '" + name + "' does not hold the numbers of " +
                      std::to_string(narrow->bits) +
                      " bits that its shape needs; export the model again");
  };
  for (onnx::TensorProto &tensor : *graph.mutable_initializer())
    widenOne(tensor, tensor.name());
  for (onnx::NodeProto &node : *graph.mutable_node())
    if (node.op_type() == "Constant" && node.output_size() == 1)
      for (onnx::AttributeProto &attribute : *node.mutable_attribute())
        if (attribute.name() == "value")
          widenOne(*attribute.mutable_t(), node.output(0));
  if (widened.empty())
    return wrong;
  for (auto *list : {graph.mutable_value_info(), graph.mutable_input()})
    for (onnx::ValueInfoProto &value : *list)
      if (value.type().has_tensor_type() &&
          (widened.contains(value.name()) || list == graph.mutable_value_info()))
        if (const auto narrow = narrowOf(value.type().tensor_type().elem_type()))
          value.mutable_type()->mutable_tensor_type()->set_elem_type(wideOf(*narrow));
  size_t index = 0;
  for (const onnx::NodeProto &node : graph.node()) {
    const std::string name = nodeName(node, index++);
    if (node.op_type() == "QuantizeLinear" && node.input_size() > 2 &&
        widened.contains(node.input(2)))
      wrong.push_back("QuantizeLinear '" + name +
                      "' quantises to fewer than 8 bits; int8, uint8, int16, uint16 are supported");
  }
  return wrong;
}

} // namespace millrace::onnx_import
