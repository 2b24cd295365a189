// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For any CPU: dot products of int8 widened to int16, a form that compilers turn into
// multiply-add instructions of the baseline (PMADDWD on x86-64).

#include "simulator/kernels/Int8Kernel.h"

namespace millrace {

static size_t packedBytes(size_t depth, size_t columns) { return depth * columns * 2; }
static size_t scratchBytes(size_t depth) { return depth * 2; }

static void widen(const uint8_t *__restrict in, size_t count, int16_t *__restrict out) {
  for (size_t i = 0; i < count; ++i)
    out[i] = int8_t(in[i]);
}

static void pack(const uint8_t *weights, size_t stride, size_t depth, size_t columns,
                 void *packed) {
  for (size_t n = 0; n < columns; ++n)
    widen(weights + n * stride, depth, static_cast<int16_t *>(packed) + n * depth);
}

static void multiply(const uint8_t *const *rows, size_t rowCount, size_t depth, const void *packed,
                     size_t columns, uint32_t *out, size_t outStride, void *scratch) {
  int16_t *__restrict row = static_cast<int16_t *>(scratch);
  for (size_t i = 0; i < rowCount; ++i) {
    widen(rows[i], depth, row);
    for (size_t n = 0; n < columns; ++n) {
      const int16_t *__restrict column = static_cast<const int16_t *>(packed) + n * depth;
      // At most 2^14 a product: no overflow below 2^17 lanes, far beyond any machine.
      int32_t sum = 0;
      for (size_t k = 0; k < depth; ++k)
        sum += row[k] * column[k];
      out[i * outStride + n] = uint32_t(sum);
    }
  }
}

extern const Int8Kernel int8KernelPortable;
const Int8Kernel int8KernelPortable = {packedBytes, pack, multiply, scratchBytes};

} // namespace millrace
