// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Support/HostTensor.h"

#include <array>

namespace millrace {
namespace {

struct TypeRow {
  std::string_view name;
  unsigned bytes;
};

// In the order of HostType.
constexpr std::array<TypeRow, 13> typeRows = {{{"bool", 1},
                                               {"int8", 1},
                                               {"uint8", 1},
                                               {"int16", 2},
                                               {"uint16", 2},
                                               {"int32", 4},
                                               {"uint32", 4},
                                               {"int64", 8},
                                               {"uint64", 8},
                                               {"float16", 2},
                                               {"bfloat16", 2},
                                               {"float", 4},
                                               {"double", 8}}};

} // namespace

unsigned byteSize(HostType type) { return typeRows[static_cast<size_t>(type)].bytes; }

std::string_view onnxName(HostType type) { return typeRows[static_cast<size_t>(type)].name; }

std::optional<HostType> hostTypeFromOnnxName(std::string_view name) {
  for (size_t i = 0; i < typeRows.size(); ++i)
    if (typeRows[i].name == name)
      return static_cast<HostType>(i);
  return std::nullopt;
}

HostTensor HostTensor::zeros(HostType type, std::vector<int64_t> shape) {
  HostTensor tensor{type, std::move(shape), {}};
  tensor.data.resize(static_cast<size_t>(tensor.elementCount()) * byteSize(type));
  return tensor;
}

int64_t HostTensor::elementCount() const {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

std::string shapeText(const std::vector<int64_t> &shape) {
  if (shape.empty())
    return "scalar";
  std::string text;
  for (int64_t extent : shape)
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

} // namespace millrace
