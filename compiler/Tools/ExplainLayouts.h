// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What --explain layouts says, for people and for programs.
#pragma once

#include "compiler/Layouts/Explanation.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace millrace::driver {

/// A tensor that has more than one row copy in each hemisphere, or a column copy, since a kernel
/// needs it so.
struct ForcedCopies {
  std::string tensor;
  unsigned rowsWest = 0, rowsEast = 0;   ///< row copies
  bool columns = false;                  ///< laid out for Install
  std::string rowsReader, columnsReader; ///< kernels; empty: none
  int64_t copyBytes = 0;                 ///< of one copy, in whole vectors
};

/// Of the kernels as they are scheduled, in the order of tensors. Constants are left out: their
/// copies are the compiler's to load.
std::vector<ForcedCopies> forcedCopies(const forms::KernelGraph &graph, const Machine &machine);

struct LayoutReport {
  std::string precision; ///< of the kernels
  layouts::Explanation choice;
  std::vector<ForcedCopies> copies;
};

/// Lines for each tensor, in the order of the model. `title`: of the first line.
std::string textOf(const LayoutReport &report, const std::string &title);

/// The key `layouts` of a report (docs/running.md).
nlohmann::json jsonOf(const LayoutReport &report);

} // namespace millrace::driver
