// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first schedule invariant that a program breaks. A violation is a result of the simulation,
// never an assert.
#pragma once

#include "arch/spec/Types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

namespace millrace::sim {

/// S1 to S11 of docs/spec/machine.md.
enum class Invariant : uint8_t { S1 = 1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11 };
inline std::string nameOf(Invariant i) { return "S" + std::to_string(unsigned(i)); }

struct Violation {
  Invariant invariant = Invariant::S1;
  unsigned step = 0; ///< index into Image::steps
  Cycle cycle = 0;   ///< within the step
  unsigned pe = 0, queue = 0;
  std::string unit;              ///< module path of the unit: "pe0.mem.e.12"
  std::optional<uint32_t> index; ///< of the instruction, in the PE's list
  std::string instruction;       ///< its text
  std::string provenance;        ///< the ONNX node it came from
  std::string message;           ///< one line, lower case: what happened, with the numbers

  /// What "first" means: by step, cycle, PE, queue, invariant.
  auto order() const { return std::tuple(step, cycle, pe, queue, invariant); }
  std::string describe() const;
};

/// Collects violations and keeps the first. Units that noticed one later may still name an earlier
/// cycle, so every PE runs on until `horizon` cycles after the first one known; what is first then
/// does not depend on the order of work.
class ViolationLog {
public:
  explicit ViolationLog(Cycle horizon) : horizon(horizon) {}

  /// True when a violation at this place would come before the one held; callers build the text
  /// only then.
  bool wouldBeFirst(unsigned step, Cycle cycle, unsigned pe, unsigned queue, Invariant i) const {
    return !held || std::tuple(step, cycle, pe, queue, i) < held->order();
  }
  void add(Violation violation);
  /// No PE needs to simulate this cycle any more.
  bool isPast(unsigned step, Cycle cycle) const {
    return held && std::pair(step, cycle) > std::pair(held->step, held->cycle + horizon);
  }
  /// The first violation is known: it lies in this step or before.
  bool decided(unsigned step) const { return held && held->step <= step; }
  const std::optional<Violation> &first() const { return held; }

private:
  Cycle horizon;
  std::optional<Violation> held;
};

} // namespace millrace::sim
