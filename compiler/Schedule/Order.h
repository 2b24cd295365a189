// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In which order tasks are given to the scheduler, which finds each the earliest place that is
// left: the one decision of the schedule that is a search. A problem, exchangeable solvers, and a
// check.
#pragma once

#include "arch/spec/Expected.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace millrace::schedule {

struct OrderProblem {
  std::vector<int64_t> costs;                   ///< per task, in vectors
  std::vector<std::pair<size_t, size_t>> edges; ///< (before, after)
  std::vector<bool> barriers; ///< per task, in the given order: nothing moves past it (a host step)
  uint64_t seed =
      0; ///< not 0: `critical` draws each way up to a half, or a tenth, longer or shorter
};

struct OrderSolver {
  std::string name, text; ///< for --help
  std::vector<size_t> (*solve)(const OrderProblem &problem);
};
/// `graph`: as given. `critical`: of the tasks that are ready, the one with the longest way to the
/// end.
const std::vector<OrderSolver> &orderSolvers();

/// Errors name an unknown solver, or a cycle.
Expected<std::vector<size_t>> solve(const OrderProblem &problem, const std::string &solver);
/// Every task once, none before what it needs, none moved past a barrier.
Status verify(const OrderProblem &problem, const std::vector<size_t> &order);

} // namespace millrace::schedule
