// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace millrace::sim {

/// What one PE did. Cycles-only and value runs count the same, but for `lost`.
struct Counters {
  std::vector<uint64_t>
      busy; ///< [queue] elements executed: cycles in which the queue's port worked
  /// Elements of formats of several planes, once for every plane beyond the first: those have no
  /// dispatch of their own and work all the same.
  uint64_t partnerActivations = 0, partnerAccumulations = 0;
  uint64_t instructions = 0;  ///< dispatched
  uint64_t streamVectors = 0; ///< put on a stream
  uint64_t streamHops = 0;    ///< registers that vectors moved through, up to their last sampler
  uint64_t sramReads = 0, sramWrites = 0; ///< rows
  uint64_t macsInt8 = 0, macsFloat = 0;   ///< multiplier positions used, padding included
  uint64_t aluLanes = 0;                  ///< ALU operations times lanes
  uint64_t linkVectors = 0;               ///< sent
  /// Lanes in which a finite number was beyond the range of the format that it was converted to
  /// (arch/isa/semantics/Losses.h), by provenance of the instruction and AluOp. Of runs with values.
  std::map<std::pair<uint32_t, uint8_t>, uint64_t> lost;

  void add(const Counters &other);
};

} // namespace millrace::sim
