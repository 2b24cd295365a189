// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A random graph on a random machine: what became of it, and as text.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Machine.h"
#include "compiler/Forms/Kernel.h"
#include "tests/contract/Recipe.h"

namespace millrace::test {

struct Case {
  std::vector<std::string> machine; ///< overrides of kBaseMachine
  Recipe recipe;
  uint64_t layouts = 0;  ///< seed of layouts that are drawn; 0: those that cost least
  uint64_t schedule = 0; ///< seed of a tactic that is drawn; 0: the usual one
  bool operator==(const Case &) const = default;
};

/// How far outputs may lie from those of the graph before rewriting, whose sums are rounded
/// elsewhere (relative L2).
constexpr double kMostDistance = 0.05;

/// The machine is drawn from one seed and the graph for it from another.
Case randomCase(unsigned machineSeed, unsigned graphSeed);

/// "set key=value" lines, "layouts N" and "schedule N" where they are drawn, then the recipe's.
std::string print(const Case &c);
/// Reads that; lines that begin with # are for people. Errors: a line that is neither.
Expected<Case> parseCase(const std::string &text);

enum class Verdict : uint8_t {
  Agrees,  ///< legal, cycles as predicted, every output bit for bit what the evaluation gives
  Refused, ///< an error that names kernel and parameter; with that parameter larger it agrees
  Failed,  ///< anything else
  Invalid, ///< no machine or no graph: of reductions alone
};

struct Outcome {
  Verdict verdict = Verdict::Failed;
  /// Of a failure or refusal: a word that stays the same when the case is made smaller, and the
  /// whole text.
  std::string kind, text;
  uint64_t cycles = 0;
  double distance = 0;  ///< largest relative distance from the graph before rewriting
  bool stepped = false; ///< the slow simulator ran it too
};

struct TrialOptions {
  unsigned seed = 1; ///< of inputs
  /// Most cycles times PEs that are stepped in the slow simulator; 0: none.
  uint64_t mostSteps = 0;
};

/// Rewrites, compiles, encodes, verifies, simulates, compares.
Outcome tryCase(const Case &c, const TrialOptions &options);

/// The same in a process of its own: a crash, an abort and more than `seconds` of
/// computing are failures.
Outcome tryCaseApart(const Case &c, const TrialOptions &options, unsigned seconds = 60);

/// A case that its machine takes.
struct CompiledCase {
  Machine machine;
  forms::KernelGraph graph; ///< rewritten
  Image image;
  int64_t bound = 0; ///< schedule::Bounds::cycles
};
/// Errors: of the machine, of the graph, of the compiler. `effort` is that of the search over
/// schedules (grid::CompileOptions).
Expected<CompiledCase> compileCase(const Case &c, unsigned effort = 0);

/// The bytes of the image.
Expected<std::vector<uint8_t>> imageOf(const Case &c);

} // namespace millrace::test
