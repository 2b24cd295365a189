// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who follows whom on what values live in.
#pragma once

#include "compiler/Schedule/Problem/Problem.h"

#include <utility>
#include <vector>

namespace millrace::schedule {

/// Pairs of spans, the second of which is the next on some part of the resource behind the first,
/// by the cycles in which they begin. Steps and resources in their order.
std::vector<std::pair<uint32_t, uint32_t>> successionsOf(const ScheduleProblem &problem,
                                                         const Starts &starts);

} // namespace millrace::schedule
