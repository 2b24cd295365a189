// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Why each tensor has the layout that it has: the runner-up, what it would cost, and which kernels
// decide. For every variable its layout is forbidden and all others are chosen again. The result is
// text and numbers, which outlive the graph.
#pragma once

#include "compiler/Layouts/LayoutProblem.h"

namespace millrace::layouts {

/// A layout in words.
struct LayoutText {
  std::string layout; ///< "plain", or Layout::text()
  bool isPlain = true;
  int64_t rows = 0, lanes = 0;
};

/// A kernel that costs something else in the alternative.
struct KernelChange {
  std::string kernel, nodes;          ///< its name, and the ONNX nodes
  double cycles = 0, otherCycles = 0; ///< now, and in the alternative
  Cost cost, otherCost;               ///< what that is made of
};

/// The best choice in which the variable has one of some other layouts.
struct Alternative {
  LayoutText layout;
  double extraCycles = 0;       ///< of all kernels; less than 0: it would take fewer
  int64_t extraWeightBytes = 0; ///< of all kernels
  bool fits = true;             ///< the weights leave enough room
  /// It is the best one; else the best one that was found, and there may be a better.
  bool isExact = true;
  std::vector<std::string> others;   ///< tensors of other variables whose layouts change, too
  std::vector<KernelChange> kernels; ///< the largest changes first; at most kMostChanges
  double otherCycles = 0;            ///< what those beyond add to extraCycles
};
constexpr size_t kMostChanges = 8;

/// Some elements lie in several rows.
struct Replica {
  double elements = 1; ///< stored for each element of the tensor
  /// Readers that cannot work without, as all other layouts are.
  std::vector<std::string> forcedBy;
  std::optional<Alternative> once; ///< the best choice in which each element lies once
};

/// Tensors of one layout.
struct TensorExplanation {
  std::vector<std::string> tensors; ///< names; of several the one with the most rows first
  std::vector<int64_t> shape;       ///< of the first
  LayoutText chosen;
  unsigned candidates = 0;
  double cycles = 0; ///< of the kernels that read or write them
  std::optional<Alternative> runnerUp;
  std::vector<std::string> blockers;  ///< without a runner-up: kernels that no other layout suits
  std::optional<Alternative> ifPlain; ///< where neither is plain
  std::optional<Replica> replica;
};

/// A tensor without a choice.
struct PlainTensor {
  std::string name, why;
  std::vector<int64_t> shape;
};

/// Cycles are those of the cost model: what the kernels keep the busiest unit busy, one after the
/// other.
struct Explanation {
  double cycles = 0, plainCycles = 0, leastCycles = 0; ///< chosen; all plain; the least found
  int64_t weightBytes = 0, mostWeightBytes = 0;
  double cyclesPerWeightByte = 0; ///< the price at which the weights leave enough room
  std::vector<TensorExplanation> tensors;
  std::vector<PlainTensor> plain; ///< neither constants nor outputs
};

/// Explains a choice that the check accepts. `progress` is told how many variables are done.
/// Solves the problem once more, with costs that are known by then, eliminates, and goes back over
/// the tables; then looks up, for each variable, every kernel once for each alternative, and at
/// most kLargestTable entries (LeastCost.h) of each of its own kernels if it has no runner-up.
Explanation explain(const LayoutProblem &problem, const Choice &choice,
                    const std::function<void(size_t done, size_t of)> &progress = nullptr);

} // namespace millrace::layouts
