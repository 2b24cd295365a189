// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A dense tensor in host memory: what goes into and comes out of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Element types of tensors at the edges of a model (the ONNX ones that Millrace stores).
enum class HostType : uint8_t {
  Bool,
  Int8,
  UInt8,
  Int16,
  UInt16,
  Int32,
  UInt32,
  Int64,
  UInt64,
  Float16,
  BFloat16,
  Float32,
  Float64,
};

/// Bytes of one element; a bool takes one.
unsigned byteSize(HostType type);
/// The ONNX spelling: "float", "int64", "uint8", "bool", ... This is also the value of the
/// attribute `onnx.type`.
std::string_view onnxName(HostType type);
std::optional<HostType> hostTypeFromOnnxName(std::string_view name);

/// Row-major elements without padding, little endian. `data.size() == elementCount() *
/// byteSize(type)`.
struct HostTensor {
  HostType type = HostType::Float32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  /// A zero-filled tensor.
  static HostTensor zeros(HostType type, std::vector<int64_t> shape);
  int64_t elementCount() const;
  template <class T> T *as() { return reinterpret_cast<T *>(data.data()); }
  template <class T> const T *as() const { return reinterpret_cast<const T *>(data.data()); }
};

/// The elements of somebody else's tensor, to be read.
struct HostView {
  HostType type = HostType::Float32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;

  HostView(HostType type, std::vector<int64_t> shape, std::span<const std::byte> data)
      : type(type), shape(std::move(shape)), data(data) {}
  HostView(const HostTensor &tensor) : HostView(tensor.type, tensor.shape, tensor.data) {}
  int64_t elementCount() const { return int64_t(data.size() / byteSize(type)); }
};

/// "1x3x224x224", or "scalar".
std::string shapeText(const std::vector<int64_t> &shape);

} // namespace millrace
