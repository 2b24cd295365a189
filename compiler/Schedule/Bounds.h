// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cycles that no schedule of the same pieces undercuts: what stays fixed is which vectors go
// through which unit, which rows they lie in, and the distances within a piece; what is free is
// when pieces start, and which ALUs and streams they take.
#pragma once

#include "compiler/Schedule/Program.h"

#include <array>
#include <vector>

namespace millrace::schedule {

/// What bounds the cycles.
enum class BoundKind : uint8_t {
  CriticalPath, ///< the longest chain of rows, weights and partial sums that pieces pass on
  Mxm,          ///< the activate port with most to do
  Install,
  Vxm, ///< the ALUs of a PE
  ReadPort,
  WritePort,
  Bank,
  Link,
};
constexpr unsigned kBoundKinds = unsigned(BoundKind::Link) + 1;
/// "critical_path": a key of JSON.
std::string_view nameOf(BoundKind kind);

/// Cycles of a bound: of work of one unit after another, or of a chain of pieces between.
struct BoundPart {
  BoundKind kind = BoundKind::CriticalPath;
  uint32_t pe = 0, queue = 0; ///< whose unit it is; not of the critical path
  /// Of a unit: the kernels that were scheduled first and last of those whose work it is.
  uint32_t firstKernel = kNobody, lastKernel = kNobody;
  int64_t cycles = 0;
};

/// A bound of one grid step.
struct StepBound {
  uint32_t step = 0;
  int64_t cycles = 0;
  std::vector<BoundPart> parts; ///< in order of time; they add up to its cycles
};

/// Sums over grid steps, as host steps keep them apart.
struct Bounds {
  int64_t cycles = 0;
  /// The most of one kind: for each unit, over all sets of its bursts, the earliest start along
  /// chains of pieces, the work, and the shortest chain from its end to the end of the step.
  std::array<int64_t, kBoundKinds> byKind{};
  std::vector<StepBound> steps;
};

/// Of a pruned image; `numbers` as account() takes them. The cycles are the most of the kinds or
/// more: units that wait for each other's work are bounded one behind the other.
Bounds boundsOf(const Image &image, const Program &program,
                const std::vector<std::vector<uint32_t>> &numbers);

} // namespace millrace::schedule
