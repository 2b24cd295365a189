// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a matrix product runs on a Hopper multiprocessor, and whether it fits there.
#pragma once

#include "arch/spec/Expected.h"

#include <cstdint>
#include <vector>

namespace millrace::gpu {

/// Of bf16 and fp16.
inline constexpr unsigned kGemmElementBytes = 2;

/// The free choices of a matrix product C[M, N] = A[M, K] B[N, K]^T. One CTA makes a tile of C: one
/// warpgroup loads, the others multiply, each tileM / consumers rows.
struct GemmSchedule {
  unsigned tileM = 128, tileN = 128; ///< elements of C
  unsigned tileK = 64;               ///< elements of K that one stage holds
  unsigned stages = 4;               ///< of the ring in shared memory
  unsigned consumers = 2;            ///< warpgroups that multiply
  unsigned cluster = 1;              ///< CTAs along M that share each tile of B
  unsigned producerRegisters = 40;   ///< per thread, while it loads
  unsigned consumerRegisters = 232;  ///< per thread, while it multiplies

  /// A schedule whose consumers have what registers the launch leaves them.
  static GemmSchedule make(unsigned tileM, unsigned tileN, unsigned tileK, unsigned stages,
                           unsigned consumers, unsigned cluster = 1);

  unsigned threads() const { return 128 * (1 + consumers); }
  /// Per thread at launch: what 65,536 allow, in steps of 8, at most 240.
  unsigned launchRegisters() const;
  /// Accumulators of 64 rows that one consumer has.
  unsigned blocks() const { return tileM / (64 * consumers); }
  /// Boxes of 64 elements along K in one stage.
  unsigned panels() const { return tileK / 64; }
};

/// Where everything lies in shared memory, in bytes.
struct GemmLayout {
  unsigned bytesA = 0, bytesB = 0; ///< of one stage
  unsigned c = 0;                  ///< address of the tile of C, after all stages
  unsigned barriers = 0;           ///< address: stages "full", then stages "empty"
  unsigned total = 0;
  unsigned stageBytes() const { return bytesA + bytesB; }
};

/// Checks a schedule for operands of two bytes. The error names the number that does not fit and
/// what to change.
Expected<GemmLayout> planGemm(const GemmSchedule &schedule);

} // namespace millrace::gpu
