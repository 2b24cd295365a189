// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ONNX element types and TensorProto.
#include "compiler/Import/Onnx/NodeImporter.h"

#include "mlir/IR/BuiltinTypes.h"

#include <cstring>

using namespace mlir;

namespace millrace::onnx_import {

std::optional<HostType> hostTypeOf(int onnxType) {
  switch (onnxType) {
  case onnx::TensorProto::BOOL:
    return HostType::Bool;
  case onnx::TensorProto::INT8:
    return HostType::Int8;
  case onnx::TensorProto::UINT8:
    return HostType::UInt8;
  case onnx::TensorProto::INT16:
    return HostType::Int16;
  case onnx::TensorProto::UINT16:
    return HostType::UInt16;
  case onnx::TensorProto::INT32:
    return HostType::Int32;
  case onnx::TensorProto::UINT32:
    return HostType::UInt32;
  case onnx::TensorProto::INT64:
    return HostType::Int64;
  case onnx::TensorProto::UINT64:
    return HostType::UInt64;
  case onnx::TensorProto::FLOAT16:
    return HostType::Float16;
  case onnx::TensorProto::BFLOAT16:
    return HostType::BFloat16;
  case onnx::TensorProto::FLOAT:
    return HostType::Float32;
  case onnx::TensorProto::DOUBLE:
    return HostType::Float64;
  default:
    return std::nullopt;
  }
}

bool isUnsigned(HostType type) {
  return type == HostType::Bool || type == HostType::UInt8 || type == HostType::UInt16 ||
         type == HostType::UInt32 || type == HostType::UInt64;
}

bool isFloat(HostType type) {
  return type == HostType::Float16 || type == HostType::BFloat16 || type == HostType::Float32 ||
         type == HostType::Float64;
}

Type storageType(HostType type, MLIRContext *context) {
  switch (type) {
  case HostType::Float16:
    return Float16Type::get(context);
  case HostType::BFloat16:
    return BFloat16Type::get(context);
  case HostType::Float32:
    return Float32Type::get(context);
  case HostType::Float64:
    return Float64Type::get(context);
  case HostType::Bool:
    return IntegerType::get(context, 1);
  default:
    return IntegerType::get(context, 8 * byteSize(type));
  }
}

Type computeType(HostType type, MLIRContext *context) {
  bool isHalf = type == HostType::Float16 || type == HostType::BFloat16;
  return isHalf ? Float32Type::get(context) : storageType(type, context);
}

namespace {

template <class To, class Field> std::string narrow(const Field &field) {
  std::string bytes;
  bytes.reserve(static_cast<size_t>(field.size()) * sizeof(To));
  for (auto element : field) {
    auto value = static_cast<To>(element);
    bytes.append(reinterpret_cast<const char *>(&value), sizeof(To));
  }
  return bytes;
}

/// The elements where ONNX does not use raw_data: narrow types share the int32 field (onnx.proto,
/// TensorProto).
std::string typedBytes(const onnx::TensorProto &tensor, HostType type) {
  switch (type) {
  case HostType::Float32:
    return narrow<float>(tensor.float_data());
  case HostType::Float64:
    return narrow<double>(tensor.double_data());
  case HostType::Int64:
    return narrow<int64_t>(tensor.int64_data());
  case HostType::UInt64:
    return narrow<uint64_t>(tensor.uint64_data());
  case HostType::UInt32:
    return narrow<uint32_t>(tensor.uint64_data());
  case HostType::Int32:
    return narrow<int32_t>(tensor.int32_data());
  default:
    return byteSize(type) == 1 ? narrow<uint8_t>(tensor.int32_data())
                               : narrow<uint16_t>(tensor.int32_data());
  }
}

std::string widenHalf(const std::string &bytes, const llvm::fltSemantics &semantics) {
  std::string wide;
  wide.reserve(2 * bytes.size());
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i, 2);
    llvm::APFloat value(semantics, llvm::APInt(16, bits));
    float element = value.convertToFloat();
    wide.append(reinterpret_cast<const char *>(&element), 4);
  }
  return wide;
}

} // namespace

Expected<ElementsAttr> importTensor(const onnx::TensorProto &tensor, MLIRContext *context) {
  std::optional<HostType> type = hostTypeOf(tensor.data_type());
  if (!type)
    return Error{"constant '" + tensor.name() + "' has ONNX element type " +
                 std::to_string(tensor.data_type()) + ", which is not supported"};
  Shape shape(tensor.dims().begin(), tensor.dims().end());
  std::string typed;
  const std::string *bytes = &tensor.raw_data();
  if (!tensor.has_raw_data()) {
    typed = typedBytes(tensor, *type);
    bytes = &typed;
  }
  size_t wanted = static_cast<size_t>(productOf(shape)) * byteSize(*type);
  if (bytes->size() != wanted)
    return Error{"constant '" + tensor.name() + "' holds " + std::to_string(bytes->size()) +
                 " bytes, its shape needs " + std::to_string(wanted)};
  if (*type == HostType::Float16 || *type == HostType::BFloat16) {
    typed = widenHalf(*bytes, *type == HostType::Float16 ? llvm::APFloat::IEEEhalf()
                                                         : llvm::APFloat::BFloat());
    bytes = &typed;
  }
  auto tensorType = RankedTensorType::get(shape, computeType(*type, context));
  return makeConstant(tensorType, llvm::ArrayRef<char>(bytes->data(), bytes->size()),
                      tensor.name());
}

} // namespace millrace::onnx_import
