// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel's epilogue in time: at which cycle each of its operations is dispatched, and what that
// keeps busy. Code generation follows the plan; passes ask what it would need.
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

#include <functional>
#include <optional>

namespace millrace::forms {

/// Cycles count from where the accumulator, or the first operand, arrives at the VXM.
struct EpiloguePlan {
  using Cycles = int64_t;
  std::vector<bool> needed;        ///< per node: by the results
  std::vector<bool> onAccumulator; ///< per node: hangs on the contraction's sum
  std::vector<bool> late;          ///< per node: taken once, after the reduction, not per element
  std::vector<Cycles> dispatch;    ///< per Op and Reduce node; 0 for others
  Cycles earliestUse(const Kernel &kernel, unsigned node) const; ///< 0 if no operation takes it
};

/// Operations as early as the accumulator allows; what does not hang on it as late as its users
/// allow, before the accumulator arrives if need be, and once if they all come after the reduction.
/// `chained`: cycles from an operation's dispatch to that of one chained to it; `lastElement`: from
/// a burst's first element to its last.
EpiloguePlan planEpilogue(const Kernel &kernel, const std::function<int64_t(AluOp)> &chained,
                          int64_t lastElement);

/// What an epilogue holds at once.
struct EpilogueNeeds {
  unsigned alus = 0;
  unsigned streams = 0; ///< inward ones, if all of its operands come from one hemisphere
  bool fit(const Machine &machine) const {
    return alus <= machine.vxm.alus && streams <= machine.streams;
  }
};
/// Counts operations, values that wait in ALUs for a later operation, and results that are no
/// operation's value. Operands that change along the rows count as streams, constants among them.
/// For rows of any number, as many as can be under way at once.
EpilogueNeeds epilogueNeeds(const Kernel &kernel, const KernelGraph &graph, const Machine &machine);
/// The same for the kernel's own rows, one a cycle: of a few, the first are done before the last
/// come, and what those held is free again.
EpilogueNeeds epilogueNeedsOfRows(const Kernel &kernel, const KernelGraph &graph,
                                  const Machine &machine);
/// Do a row of each hemisphere find ALUs at once, and what they read of one tensor slices
/// (mostBytesApart)?
bool twoRowsFit(const Kernel &kernel, const KernelGraph &graph, const Machine &machine);
/// Rows of a burst, a multiple of `step`, with which rows pass `alus` ALUs at `wanted` rows a
/// cycle, or as fast as any length lets them: a burst begins as soon as the one before leaves ALUs
/// to each of its operations in turn, so that long bursts of 9 of 16 ALUs pass one row a cycle, and
/// short ones nearly 16 rows in 9 cycles. None where no length is faster than long bursts by an
/// eighth; among lengths that differ by less than a sixteenth, the greatest.
std::optional<int64_t> rowsOfBurst(const Kernel &kernel, const KernelGraph &graph,
                                   const Machine &machine, unsigned alus, int64_t step,
                                   double wanted);
/// Operands that are the access's tensor, of the same lanes.
unsigned readsOfTile(const Kernel &kernel, const KernelGraph &graph, const Access &access);
/// Bytes of an element in all copies of a tensor that a hemisphere reads at once, where it reads
/// its own alone: with rows that the other one writes they take at most three quarters of its
/// slices.
unsigned mostBytesApart(const Machine &machine);

} // namespace millrace::forms
