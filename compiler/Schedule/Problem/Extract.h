// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From an image to the problem of its schedule, and back with other starts.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Machine.h"
#include "compiler/Schedule/Bounds.h"
#include "compiler/Schedule/Ledger.h"
#include "compiler/Schedule/Problem/Problem.h"
#include "compiler/Schedule/Relief.h"

namespace millrace::schedule {

/// The problem of an image that passes verifyImage and the simulator. Errors name an instruction
/// that no problem can hold (one whose effect depends on what its queue did before) or an operand
/// whose annotation is missing or does not meet its producer.
Expected<ScheduleProblem> problemOf(const Image &image, const Machine &machine);

/// The image of `problem` with its bundles at `starts`, which verify: instructions and annotations
/// in their order, the lives of regions, the predicted cycles. Returns, per PE and instruction of
/// the new image, its number in the old one.
std::vector<std::vector<uint32_t>> reschedule(Image &image, const Machine &machine,
                                              const ScheduleProblem &problem, const Starts &starts);

struct CycleAccount {
  Ledger ledger;
  Bounds bounds;
  std::vector<int64_t> relieved; ///< cycles, of each relief that was asked for
};

/// The account of an image that reschedule() made. A bundle starts when it does since the last of
/// what it waits for lets it start no sooner, then since others hold what it needs, and for the
/// rest as the schedule says so. `numbers` is what reschedule() returned, `kernelOf` the kernel of
/// each instruction of the image before. Errors are faults of the compiler, as account() has them.
Expected<CycleAccount> accountOf(const Image &image, const Machine &machine,
                                 const ScheduleProblem &problem, const Starts &starts,
                                 const std::vector<std::vector<uint32_t>> &numbers,
                                 const std::vector<std::vector<uint32_t>> &kernelOf, bool withGaps,
                                 const std::vector<Relief> &reliefs = {});

} // namespace millrace::schedule
