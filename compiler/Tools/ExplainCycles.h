// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What --explain cycles says, for people and for programs.
#pragma once

#include "compiler/Schedule/Ledger.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace millrace::driver {

struct CycleReport {
  schedule::Ledger ledger;
  std::vector<std::string> kernels; ///< names, by the numbers that the ledger has
};

/// A table of the causes, and the kernels before whose work the MXM idles most. `title`: of the
/// first line.
std::string textOf(const CycleReport &report, const std::string &title);

/// The key `cycle_account` of a report (docs/running.md).
nlohmann::json jsonOf(const CycleReport &report);

} // namespace millrace::driver
