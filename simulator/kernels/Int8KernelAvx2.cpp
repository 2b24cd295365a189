// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// AVX2 without VNNI: PMADDWD on int8 widened to int16. (PMADDUBSW on bytes would saturate.)

#include "simulator/kernels/Int8Kernel.h"
#include <cstring>
#include <immintrin.h>

#define MILLRACE_UNROLL _Pragma("GCC unroll 8")

namespace millrace {

/// A tile is 4 rows by 16 columns: 8 accumulators, 2 weight registers, 1 broadcast pair.
static constexpr size_t tileColumns = 16, tileRows = 4;

static size_t pairs(size_t depth) { return (depth + 1) / 2; }
static size_t packedBytes(size_t depth, size_t columns) { return pairs(depth) * columns * 4; }
static size_t scratchBytes(size_t depth) { return pairs(depth) * 4 * tileRows + 64; }

/// packed[block][pair][column][2]: two consecutive lanes of each of 16 columns, as int16.
static void pack(const uint8_t *weights, size_t stride, size_t depth, size_t columns,
                 void *packed) {
  int16_t *out = static_cast<int16_t *>(packed);
  for (size_t block = 0; block < columns; block += tileColumns)
    for (size_t k = 0; k < pairs(depth); ++k)
      for (size_t n = 0; n < tileColumns; ++n) {
        const uint8_t *column = weights + (block + n) * stride;
        *out++ = int8_t(column[2 * k]);
        *out++ = 2 * k + 1 < depth ? int8_t(column[2 * k + 1]) : 0;
      }
}

/// Writes whole vectors of 16: the scratch has room for the last one.
static void widen(const uint8_t *row, size_t depth, int16_t *out) {
  size_t k = 0;
  for (; k + 16 <= depth; k += 16)
    _mm256_storeu_si256(
        reinterpret_cast<__m256i *>(out + k),
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(row + k))));
  for (; k < depth; ++k)
    out[k] = int8_t(row[k]);
  if (depth % 2)
    out[depth] = 0;
}

template <size_t R>
static inline void tile(const int16_t *rows, size_t rowPairs, const int16_t *weights, uint32_t *out,
                        size_t outStride) {
  __m256i sums[R][2];
  MILLRACE_UNROLL for (size_t r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
  for (size_t k = 0; k < rowPairs; ++k, weights += 2 * tileColumns) {
    __m256i left = _mm256_load_si256(reinterpret_cast<const __m256i *>(weights));
    __m256i right = _mm256_load_si256(reinterpret_cast<const __m256i *>(weights + tileColumns));
    MILLRACE_UNROLL for (size_t r = 0; r < R; ++r) {
      int pair;
      std::memcpy(&pair, rows + 2 * (r * rowPairs + k), 4);
      __m256i both = _mm256_set1_epi32(pair);
      sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(both, left));
      sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(both, right));
    }
  }
  MILLRACE_UNROLL for (size_t r = 0; r < R; ++r) MILLRACE_UNROLL for (size_t j = 0; j < 2; ++j)
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + r * outStride + 8 * j), sums[r][j]);
}

template <size_t R>
static void multiplyRows(const uint8_t *const *rows, size_t depth, const void *packed,
                         size_t columns, uint32_t *out, size_t outStride, int16_t *scratch) {
  size_t rowPairs = pairs(depth);
  for (size_t r = 0; r < R; ++r)
    widen(rows[r], depth, scratch + 2 * r * rowPairs);
  const int16_t *weights = static_cast<const int16_t *>(packed);
  for (size_t n = 0; n < columns; n += tileColumns, weights += 2 * rowPairs * tileColumns)
    tile<R>(scratch, rowPairs, weights, out + n, outStride);
}

static void multiply(const uint8_t *const *rows, size_t rowCount, size_t depth, const void *packed,
                     size_t columns, uint32_t *out, size_t outStride, void *scratch) {
  int16_t *wide = static_cast<int16_t *>(scratch);
  size_t i = 0;
  for (; i + tileRows <= rowCount; i += tileRows)
    multiplyRows<tileRows>(rows + i, depth, packed, columns, out + i * outStride, outStride, wide);
  for (; i < rowCount; ++i)
    multiplyRows<1>(rows + i, depth, packed, columns, out + i * outStride, outStride, wide);
}

extern const Int8Kernel int8KernelAvx2;
const Int8Kernel int8KernelAvx2 = {packedBytes, pack, multiply, scratchBytes};

} // namespace millrace
