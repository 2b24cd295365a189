// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "simulator/kernels/Gemm.h"
#include "arch/isa/semantics/Alu.h"
#include "simulator/kernels/PackedWeights.h"
#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

namespace millrace {

namespace {

/// Rows that are decoded or copied at a time: a multiple of every kernel's tile.
constexpr size_t rowsPerStep = 48;

void multiplyInt8(const PackedWeights &weights, const ByteRow *rows, size_t rowCount,
                  const ProductRange &range, uint32_t *out, size_t outStride) {
  const Int8Kernel &kernel = weights.int8();
  size_t depth = range.k1 - range.k0;
  size_t padded = (depth + 3) / 4 * 4;
  AlignedBuffer scratch(std::max<size_t>(kernel.scratchBytes(depth), 1));
  // The kernels read whole groups of four lanes: where the range ends inside one, use copies.
  AlignedBuffer copies;
  if (padded != depth)
    copies = AlignedBuffer(rowsPerStep * padded);
  ByteRow step[rowsPerStep];
  for (size_t i = 0; i < rowCount; i += rowsPerStep) {
    size_t count = std::min(rowsPerStep, rowCount - i);
    for (size_t r = 0; r < count; ++r) {
      step[r] = rows[i + r] + range.k0;
      if (padded == depth)
        continue;
      uint8_t *copy = copies.at<uint8_t>(r * padded);
      std::memset(copy + depth, 0, padded - depth);
      step[r] = static_cast<ByteRow>(std::memcpy(copy, step[r], depth));
    }
    kernel.multiply(step, count, depth, weights.int8Weights(), range.columnCount,
                    out + i * outStride, outStride, scratch.data());
  }
}

void multiplyFloats(const PackedWeights &weights, ElementType format, const ByteRow *lowRows,
                    const ByteRow *highRows, size_t rowCount, const ProductRange &range,
                    uint32_t *out, size_t outStride, ProofCounters &counters) {
  size_t depth = range.k1 - range.k0;
  AlignedBuffer scratch(6 * depth * sizeof(double));
  std::vector<uint32_t> lanes(depth);
  std::vector<float> values(std::min(rowsPerStep, rowCount) * depth);
  bool wide = byteWidth(format) == 2;
  for (size_t i = 0; i < rowCount; i += rowsPerStep) {
    size_t count = std::min(rowsPerStep, rowCount - i);
    for (size_t r = 0; r < count; ++r)
      widenLanes(weights.floats(), format, lowRows[i + r] + range.k0,
                 wide ? highRows[i + r] + range.k0 : nullptr, depth, lanes.data(),
                 values.data() + r * depth);
    weights.floats().multiply(values.data(), count, weights.floatWeights(), out + i * outStride,
                              outStride, scratch.at<double>(), counters);
  }
}

void clearOutside(const ProductRange &range, size_t rowCount, size_t columns, uint32_t *out) {
  size_t end = range.firstColumn + range.columnCount;
  for (size_t i = 0; i < rowCount; ++i, out += columns) {
    std::fill(out, out + range.firstColumn, 0);
    std::fill(out + end, out + columns, 0);
  }
}

} // namespace

bool isProductFormat(ElementType format) {
  switch (format) {
  case ElementType::Int8:
  case ElementType::Fp16:
  case ElementType::Bf16:
  case ElementType::E4M3:
  case ElementType::E5M2:
    return true;
  default:
    return false;
  }
}

void gemm(const PlaneWeights &low, const PlaneWeights *high, ElementType format,
          const ByteRow *lowRows, const ByteRow *highRows, size_t rowCount,
          const ProductRange &range, uint32_t *out, semantics::CpuLevel level,
          ProofCounters *counters) {
  assert(isProductFormat(format) && "a format without a matrix product");
  assert(range.k0 <= range.k1 && range.k1 <= low.lanes() && "lanes beyond the vector");
  assert(range.firstColumn % PlaneWeights::columnsPerGroup == 0 &&
         range.columnCount % PlaneWeights::columnsPerGroup == 0 &&
         range.firstColumn + range.columnCount <= low.columns() && "columns beyond the plane");
  size_t columns = low.columns();
  if (range.k0 == range.k1 || range.columnCount == 0) {
    std::fill(out, out + rowCount * columns, 0); // an empty sum is +0
    return;
  }
  if (byteWidth(format) == 1)
    high = nullptr;
  assert((byteWidth(format) == 1 ||
          (high && high->lanes() == low.lanes() && high->columns() == low.columns())) &&
         "a 16-bit format needs the plane of high bytes");
  auto weights = low.packed(high, format, range, level);
  clearOutside(range, rowCount, columns, out);
  uint32_t *first = out + range.firstColumn;
  if (format == ElementType::Int8)
    return multiplyInt8(*weights, lowRows, rowCount, range, first, columns);
  ProofCounters unused;
  multiplyFloats(*weights, format, lowRows, highRows, rowCount, range, first, columns,
                 counters ? *counters : unused);
}

void gemm(const PlaneWeights &low, const PlaneWeights *high, ElementType format,
          const ByteRow *lowRows, const ByteRow *highRows, size_t rowCount, unsigned k0,
          unsigned k1, uint32_t *out) {
  gemm(low, high, format, lowRows, highRows, rowCount, {k0, k1, 0, low.columns()}, out);
}

void accumulateRows(ElementType format, const uint32_t *products, uint32_t *accumulators,
                    size_t count) {
  AluOp add = format == ElementType::Int8 ? AluOp::AddI32 : AluOp::AddF32;
  semantics::applyAlu(add, accumulators, products, nullptr, accumulators, count);
}

} // namespace millrace
