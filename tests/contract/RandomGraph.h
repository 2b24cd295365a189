// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs within graphRanges() for a machine: sizes meet its boundaries, and the tensors take
// at most half of its memory.
#pragma once

#include "arch/spec/Machine.h"
#include "tests/contract/Ranges.h"
#include "tests/contract/Recipe.h"

namespace millrace::test {

Recipe randomGraph(Draw &draw, const Machine &machine);

/// Rows that the graph's tensors take, each byte of an element in a row of its own and lanes
/// rounded up to whole vectors.
int64_t memoryRows(const forms::KernelGraph &graph, const Machine &machine);
/// Rows that the machine has.
int64_t memoryRows(const Machine &machine);

} // namespace millrace::test
