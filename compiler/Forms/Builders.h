// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole small kernel graphs with seeded constants, for tests of everything behind the kernel graph.
#pragma once

#include "compiler/Forms/KernelBuilder.h"

#include <map>

namespace millrace::forms {

struct MatmulSpec {
  int64_t m = 4, k = 32, n = 32;
  ElementType type = ElementType::Fp16; ///< Int8: an int8 result, requantised per column
  bool bias = true, relu = false;
  unsigned seed = 1;
};
/// y[m, n] = x[m, k] w[n, k]^T (+ bias) (max 0).
KernelGraph buildMatmul(const MatmulSpec &spec);

struct ConvSpec {
  int64_t channels = 16, height = 8, width = 8, filters = 16, kernel = 3, stride = 1, pad = 1,
          groups = 1;
  ElementType type = ElementType::Fp16;
  bool bias = true, relu = true, residual = false;
  unsigned seed = 1;
};
/// y[1, f, h, w] from x[1, c, h, w]; lanes are channels.
KernelGraph buildConv(const ConvSpec &spec);

/// Maximum over windows of `kernel` x `kernel`, lanes are channels; one map with kernel^2 operands.
KernelGraph buildMaxPool(int64_t channels, int64_t height, int64_t width, int64_t kernel,
                         int64_t stride, int64_t pad, ElementType type);

/// Layer normalisation of x[rows, width] over its lanes: mean, centred squares in two terms,
/// scaling.
KernelGraph buildLayerNorm(int64_t rows, int64_t width, float epsilon = 1e-5f, unsigned seed = 1);

/// One attention head on x[tokens, width]: projections, softmax by running maximum, weighted sum;
/// `causal` masks.
KernelGraph buildAttention(int64_t tokens, int64_t width, int64_t head, bool causal,
                           unsigned seed = 1);

struct EmbeddingSpec {
  int64_t tokens = 7, rows = 50, width = 40; ///< rows of the first table
  int64_t segments = 0;                      ///< rows of a second table, if not 0
  bool positions = false;                    ///< adds a constant row per token
  unsigned seed = 1;
};
/// y[t] = words[ids[t]] (+ segments[kinds[t]]) (+ positions[t]); the indices are inputs of int64
/// and int32.
KernelGraph buildEmbedding(const EmbeddingSpec &spec);

/// A chain of matmul graphs' worth of kernels: `layers` times width x width with ReLU on `rows`
/// rows.
KernelGraph buildPerceptron(int64_t rows, int64_t width, int64_t layers, ElementType type,
                            unsigned seed = 1);

/// `count` values in [-1, 1) times `scale`, the same for a seed on every computer.
std::vector<float> randomValues(size_t count, unsigned seed, float scale = 1);

/// Random bytes for every Input: fp types in [-1, 1), integers over their range, indices over all
/// rows of their table, some of them counted from its end.
std::map<unsigned, std::vector<uint8_t>> randomInputs(const KernelGraph &graph, unsigned seed = 7);

} // namespace millrace::forms
