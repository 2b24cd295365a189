// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Damages an image's meaning in every way that the instruction table offers, and judges what the
// simulator says about it.
#pragma once

#include "tests/contract/GridRun.h"

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace millrace::test {

struct Mutant {
  std::string kind;  ///< "read.address": opcode and field, or "image.header" and the like
  std::string where; ///< PE, instruction and what changed, for people
  Image image;
};

/// `each` random mutants of every kind that applies to the image; the same for a seed.
void forEachMutant(const Image &image, const Machine &machine, unsigned each, unsigned seed,
                   const std::function<void(const Mutant &)> &visit);

struct Verdict {
  /// Harmless: outputs bit-equal on all inputs, cycles equal, nothing violated.
  enum class Kind { Rejected, Malformed, Different, Harmless, Hung, Crashed };
  Kind kind = Kind::Crashed;
  unsigned invariant = 0; ///< of Rejected: 1 to 11
  bool killed() const {
    return kind == Kind::Rejected || kind == Kind::Malformed || kind == Kind::Different;
  }
};

/// Runs a mutant in a child process with a time limit against what the right image does.
class Judge {
public:
  /// Simulates the right image on three random inputs; `error` says what is wrong with it.
  Judge(const Image &image, const forms::KernelGraph &graph, const Machine &machine);
  std::string error;
  Verdict judge(const Image &mutant) const;

private:
  Verdict inChild(const Image &mutant) const;

  const forms::KernelGraph &graph;
  const Machine &machine;
  std::vector<std::map<unsigned, forms::TensorBytes>> inputs;
  std::vector<GridRun> right;
};

/// Verdicts of a campaign.
struct Tally {
  unsigned mutants = 0, malformed = 0, different = 0, hung = 0, crashed = 0;
  unsigned rejected[12] = {}; ///< by invariant, from 1
  std::vector<std::string> survivors;
  void add(const Mutant &mutant, const Verdict &verdict, const std::string &image);
  unsigned killed() const;
  std::string table() const; ///< for people
  std::string json() const;
};

/// The images of the campaigns: every form of contraction, map and reduction, one and many PEs.
struct Subject {
  std::string machine;
  forms::KernelGraph graph;
};
std::vector<Subject> mutationSubjects();

} // namespace millrace::test
