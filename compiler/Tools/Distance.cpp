// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Distance.h"

#include "arch/isa/semantics/Convert.h"

#include <cmath>
#include <cstring>

namespace millrace::driver {

/// Integers as they count.
static double valueOf(const HostTensor &tensor, size_t k) {
  switch (tensor.type) {
  case HostType::Float32:
    return double(tensor.as<float>()[k]);
  case HostType::Float64:
    return tensor.as<double>()[k];
  case HostType::Float16:
    return double(semantics::fp16ToFp32(tensor.as<uint16_t>()[k]));
  case HostType::BFloat16:
    return double(semantics::bf16ToFp32(tensor.as<uint16_t>()[k]));
  case HostType::UInt64:
    return double(tensor.as<uint64_t>()[k]);
  default: {
    uint64_t bits = 0;
    const unsigned width = byteSize(tensor.type);
    std::memcpy(&bits, tensor.data.data() + k * width, width);
    const bool isSigned = tensor.type == HostType::Int8 || tensor.type == HostType::Int16 ||
                          tensor.type == HostType::Int32 || tensor.type == HostType::Int64;
    const unsigned shift = 64 - 8 * width;
    return isSigned ? double(int64_t(bits << shift) >> shift) : double(bits);
  }
  }
}

Distance distance(const HostTensor &tensor, const HostTensor &other) {
  Distance d;
  double difference = 0, norm = 0;
  d.elements = uint64_t(tensor.elementCount());
  const unsigned width = byteSize(tensor.type);
  for (size_t k = 0; k < d.elements; ++k) {
    const double x = valueOf(tensor, k), y = valueOf(other, k);
    if (std::isfinite(y)) {
      norm += y * y;
      d.infinite += std::isinf(x);
      d.nan += std::isnan(x);
    }
    if (std::isnan(x) && std::isnan(y))
      continue;
    const bool hasSameBits = tensor.type == other.type &&
                             !std::memcmp(&tensor.data[k * width], &other.data[k * width], width);
    d.differing += tensor.type == other.type ? !hasSameBits : x != y;
    difference += x == y ? 0 : (x - y) * (x - y);
  }
  d.relativeL2 = difference == 0 ? 0 : std::sqrt(difference / norm);
  d.rootMeanSquare = difference == 0 ? 0 : std::sqrt(difference / double(d.elements));
  return d;
}

} // namespace millrace::driver
