// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// AVX-512 VNNI. VPDPBUSD multiplies unsigned by signed bytes, so weights are packed as w + 128 and
// each row's sums begin at -128 times the sum of that row: exact, and nothing saturates. Rows are
// used where they lie.
//
// GCC 12 keeps the accumulators in registers only if the short loops are unrolled by pragma and the
// kernel is not cloned for a constant depth; hence its own file. scripts/bench watches the speed.

#include "simulator/kernels/Int8Kernel.h"
#include <cstring>
#include <immintrin.h>

// GCC 12's own AVX-512 headers leave operands undefined on purpose and warn about it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define MILLRACE_UNROLL _Pragma("GCC unroll 8")

namespace millrace {

/// A tile is 6 rows by up to 64 columns: 24 accumulators, 4 weight registers, 1 broadcast.
static constexpr size_t tileColumns = 64, tileRows = 6;

static size_t quads(size_t depth) { return (depth + 3) / 4; }
static size_t packedBytes(size_t depth, size_t columns) { return quads(depth) * 4 * columns; }
static size_t scratchBytes(size_t) { return 0; }

/// Transposes a 16 x 16 matrix of 32-bit elements: column n's quads become row n of each vector.
static inline void transpose(__m512i (&v)[16]) {
  __m512i t[16];
  MILLRACE_UNROLL for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  MILLRACE_UNROLL for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  MILLRACE_UNROLL for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
  MILLRACE_UNROLL for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/// packed[block][quad][column][4]: four consecutive lanes of each of up to 64 columns, plus 128.
/// Lanes past the depth hold weight 0.
static void pack(const uint8_t *weights, size_t stride, size_t depth, size_t columns,
                 void *packed) {
  const __m512i flip = _mm512_set1_epi8(char(0x80));
  uint8_t *out = static_cast<uint8_t *>(packed);
  for (size_t n = 0; n < columns; n += 16) {
    size_t block = n / tileColumns * tileColumns;
    size_t width = columns - block < tileColumns ? columns - block : tileColumns;
    uint8_t *base = out + quads(depth) * 4 * block + 4 * (n - block);
    for (size_t k = 0; k < depth; k += 64) {
      size_t left = depth - k;
      __mmask64 inside = left >= 64 ? ~uint64_t(0) : (uint64_t(1) << left) - 1;
      __m512i v[16];
      MILLRACE_UNROLL for (size_t i = 0; i < 16; ++i) v[i] =
          _mm512_xor_si512(_mm512_maskz_loadu_epi8(inside, weights + (n + i) * stride + k), flip);
      transpose(v);
      size_t count = left >= 64 ? 16 : quads(left);
      for (size_t q = 0; q < count; ++q)
        _mm512_store_si512(base + (k / 4 + q) * 4 * width, v[q]);
    }
  }
}

/// R rows by J vectors of 16 columns.
template <size_t R, size_t J>
static inline void tile(const uint8_t *const *rows, size_t depth, const uint8_t *weights,
                        const int *start, uint32_t *out, size_t outStride) {
  __m512i sums[R][J];
  MILLRACE_UNROLL for (size_t r = 0; r < R; ++r) MILLRACE_UNROLL for (size_t j = 0; j < J; ++j)
      sums[r][j] = _mm512_set1_epi32(start[r]);
  const uint8_t *row[R];
  MILLRACE_UNROLL for (size_t r = 0; r < R; ++r) row[r] = rows[r];
  for (size_t k = 0; k < depth; k += 4, weights += 64 * J) {
    __m512i w[J];
    MILLRACE_UNROLL for (size_t j = 0; j < J; ++j) w[j] = _mm512_load_si512(weights + 64 * j);
    MILLRACE_UNROLL for (size_t r = 0; r < R; ++r) {
      int quad;
      std::memcpy(&quad, row[r] + k, 4);
      __m512i a = _mm512_set1_epi32(quad);
      MILLRACE_UNROLL for (size_t j = 0; j < J; ++j) sums[r][j] =
          _mm512_dpbusd_epi32(sums[r][j], w[j], a);
    }
  }
  MILLRACE_UNROLL for (size_t r = 0; r < R; ++r) MILLRACE_UNROLL for (size_t j = 0; j < J; ++j)
      _mm512_storeu_si512(out + r * outStride + 16 * j, sums[r][j]);
}

template <size_t R>
static void multiplyRows(const uint8_t *const *rows, size_t depth, const uint8_t *packed,
                         size_t columns, uint32_t *out, size_t outStride) {
  size_t padded = quads(depth) * 4;
  int start[R];
  for (size_t r = 0; r < R; ++r) {
    // The sum takes in the lanes past the depth too: the tile multiplies them by 128.
    __m512i sum = _mm512_setzero_si512();
    for (size_t k = 0; k < padded; k += 64) {
      size_t left = padded - k;
      __mmask64 inside = left >= 64 ? ~uint64_t(0) : (uint64_t(1) << left) - 1;
      sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1),
                                _mm512_maskz_loadu_epi8(inside, rows[r] + k));
    }
    start[r] = -128 * _mm512_reduce_add_epi32(sum);
  }
  size_t n = 0;
  for (; n + 64 <= columns; n += 64, packed += padded * 64)
    tile<R, 4>(rows, depth, packed, start, out + n, outStride);
  switch ((columns - n) / 16) {
  case 3:
    return tile<R, 3>(rows, depth, packed, start, out + n, outStride);
  case 2:
    return tile<R, 2>(rows, depth, packed, start, out + n, outStride);
  case 1:
    return tile<R, 1>(rows, depth, packed, start, out + n, outStride);
  }
}

static void multiply(const uint8_t *const *rows, size_t rowCount, size_t depth, const void *packed,
                     size_t columns, uint32_t *out, size_t outStride, void *) {
  const uint8_t *weights = static_cast<const uint8_t *>(packed);
  size_t i = 0;
  for (; i + tileRows <= rowCount; i += tileRows)
    multiplyRows<tileRows>(rows + i, depth, weights, columns, out + i * outStride, outStride);
  rows += i;
  out += i * outStride;
  switch (rowCount - i) {
  case 5:
    return multiplyRows<5>(rows, depth, weights, columns, out, outStride);
  case 4:
    return multiplyRows<4>(rows, depth, weights, columns, out, outStride);
  case 3:
    return multiplyRows<3>(rows, depth, weights, columns, out, outStride);
  case 2:
    return multiplyRows<2>(rows, depth, weights, columns, out, outStride);
  case 1:
    return multiplyRows<1>(rows, depth, weights, columns, out, outStride);
  }
}

extern const Int8Kernel int8KernelVnni;
const Int8Kernel int8KernelVnni = {packedBytes, pack, multiply, scratchBytes};

} // namespace millrace
