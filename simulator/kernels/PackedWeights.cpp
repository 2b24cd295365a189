// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "simulator/kernels/PackedWeights.h"
#include "arch/isa/semantics/Alu.h"
#include "arch/isa/semantics/Convert.h"
#include <algorithm>
#include <vector>

namespace millrace {

namespace {

struct FormatFacts {
  FloatFormat proof;
  AluOp widening;
};

/// Digits and least normal exponent (2^-14, 2^-126, 2^-6, 2^-14, as fp32 exponent fields).
FormatFacts factsOf(ElementType format) {
  switch (format) {
  case ElementType::Fp16:
    return {{11, 127 - 14}, AluOp::CvtF16F32};
  case ElementType::Bf16:
    return {{8, 127 - 126}, AluOp::CvtBf16F32};
  case ElementType::E4M3:
    return {{4, 127 - 6}, AluOp::CvtE4m3F32};
  default:
    return {{3, 127 - 14}, AluOp::CvtE5m2F32};
  }
}

} // namespace

void widenLanes(const FloatKernel &kernel, ElementType format, const uint8_t *low,
                const uint8_t *high, size_t count, uint32_t *lanes, float *values) {
  if (format == ElementType::Fp16 && kernel.fp16ToFp32)
    return kernel.fp16ToFp32(low, high, count, values);
  const uint8_t *bytes[] = {low, high};
  semantics::joinBytes(bytes, byteWidth(format), lanes, count);
  semantics::applyAlu(factsOf(format).widening, lanes, nullptr, nullptr, lanes, count);
  static_assert(sizeof(float) == sizeof(uint32_t));
  __builtin_memcpy(values, lanes, count * sizeof(float));
}

PackedWeights::PackedWeights(const PlaneWeights &low, const PlaneWeights *high, ElementType format,
                             const ProductRange &range, semantics::CpuLevel level,
                             AlignedBuffer spare) {
  if (format != ElementType::Int8) {
    floatTable = &floatKernel(level);
    packFloats(low, high, format, range, std::move(spare));
    return;
  }
  int8Table = &int8Kernel(level);
  size_t depth = range.k1 - range.k0;
  memory = AlignedBuffer(int8Table->packedBytes(depth, range.columnCount), std::move(spare));
  int8Table->pack(low.column(range.firstColumn) + range.k0, low.stride(), depth, range.columnCount,
                  memory.data());
}

void PackedWeights::packFloats(const PlaneWeights &low, const PlaneWeights *high,
                               ElementType format, const ProductRange &range, AlignedBuffer spare) {
  size_t depth = range.k1 - range.k0, columns = range.columnCount;
  size_t packedBytes = AlignedBuffer::roundUp(depth * columns * sizeof(double));
  size_t boundBytes = AlignedBuffer::roundUp(columns * sizeof(double));
  memory = AlignedBuffer(packedBytes + 3 * boundBytes, std::move(spare));
  weights = {factsOf(format).proof,
             depth,
             columns,
             memory.at<double>(),
             memory.at<double>(packedBytes),
             memory.at<double>(packedBytes + boundBytes),
             memory.at<double>(packedBytes + 2 * boundBytes)};
  std::vector<uint32_t> lanes(depth);
  constexpr size_t together = FloatWeights::columnsTogether;
  std::vector<float> values(depth * std::min(columns, together));
  for (size_t first = 0; first < columns; first += together) {
    const size_t count = std::min(columns - first, together);
    for (size_t n = 0; n < count; ++n) {
      const unsigned column = unsigned(range.firstColumn + first + n);
      widenLanes(*floatTable, format, low.column(column) + range.k0,
                 high ? high->column(column) + range.k0 : nullptr, depth, lanes.data(),
                 values.data() + n * depth);
    }
    floatTable->pack(values.data(), first, count, weights);
  }
}

} // namespace millrace
