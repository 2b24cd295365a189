// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What becomes of a mutant: rejected, different, or harmless.
#pragma once

#include "arch/program/Image.h"
#include "simulator/system/Simulate.h"

#include <string>
#include <vector>

namespace millrace::test {

struct Verdict {
  /// Harmless: outputs bit-equal on three random inputs, cycles equal, nothing violated.
  enum class Kind { Rejected, Malformed, Different, Harmless, Hung, Crashed };
  Kind kind = Kind::Crashed;
  unsigned invariant = 0; ///< of Rejected: 1 to 11
  bool killed() const {
    return kind == Kind::Rejected || kind == Kind::Malformed || kind == Kind::Different;
  }
};

/// What the slow simulator says beside the fast one: the same first violation, or the same cycles,
/// counters and memory.
enum class Truth { NotCompared, Agrees, Differs };

/// Runs a mutant in a child process with a time limit against what the right image does. Inputs are
/// drawn by the image's bindings, so that an image is all it takes.
class Judge {
public:
  /// Simulates the right image on three random inputs; `error` says what is wrong with it.
  Judge(const Image &image, const Machine &machine);
  std::string error;
  Verdict judge(const Image &mutant) const;
  /// Steps the mutant through every cycle and register too; not compared: malformed, or too long.
  Truth inTruth(const Image &mutant) const;
  /// Whether one of `count` further inputs, wide and narrow ones, tells a mutant that runs to its
  /// end from the right image.
  bool showsOnMoreInputs(const Image &mutant, unsigned count) const;
  /// Whether an image, its annotations unread, gives the right outputs on the three inputs.
  bool givesTheSame(const Image &other) const;

private:
  struct Run {
    std::string error;
    unsigned invariant = 0;
    uint64_t cycles = 0;
    std::vector<uint8_t> outputs;
  };
  sim::SimulationOptions optionsFor(const Image &image, unsigned seed, bool values) const;
  Run run(const Image &image, unsigned seed, bool values,
          sim::Annotations annotations = sim::Annotations::Checked) const;
  Verdict inChild(const Image &mutant) const;

  const Image &image;
  const Machine &machine;
  std::vector<Run> right;
};

} // namespace millrace::test
