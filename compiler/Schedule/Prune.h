// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Leaving out of a finished program what turned out not to be needed.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Machine.h"

#include <vector>

namespace millrace::schedule {

/// How many bursts were left out, and how many Latches of them that repeated a load; and per PE,
/// for each instruction that stayed, its number before.
struct Pruned {
  size_t bursts = 0, latches = 0;
  std::vector<std::vector<uint32_t>> kept;
};

/// Takes out of an image, whose annotations are whole and whose bindings are known,
/// - each Latch that loads what its ALU's latch holds already: which ALU a piece gets, and what was
///   on it before, is known only once it is placed;
/// - each burst from which nothing leads to a row that the host reads: copies are written before
///   their readers are placed, and which of several copies those take depends on the ports that
///   are free then;
/// - each side of the VXM from which nobody samples an operation's result.
/// What stays keeps its cycle, so that every rule that held holds; a grid step may end earlier, and
/// its predicted cycles and the lives of regions follow. A grid step without any write that is
/// needed stays as it is.
Pruned prune(Image &image, const Machine &machine);

} // namespace millrace::schedule
