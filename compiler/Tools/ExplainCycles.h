// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What --explain cycles says, for people and for programs.
#pragma once

#include "compiler/Schedule/Bounds.h"
#include "compiler/Schedule/Ledger.h"
#include "simulator/observe/TraceWriter.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace millrace::driver {

struct CycleReport {
  schedule::Ledger ledger;
  schedule::Bounds bounds;
  std::string model, machine, precision;
  std::vector<std::string> kernels; ///< names, by the numbers that ledger and bounds have
  /// Of each step of the bounds and each of its parts: the unit's queue.
  std::vector<std::vector<std::string>> boundUnits;
  /// With --explain what-would-help: cycles with more of each resource (WhatWouldHelp.h), as much
  /// more as there would be and without end, in turn.
  std::vector<int64_t> relieved;
};

/// A table of the causes, the proven bounds, and the kernels before whose work MXM and VXM idle
/// most.
std::string textOf(const CycleReport &report);

/// The runs of idle cycles of the ledger, if it keeps them, as a trace shows them.
std::vector<sim::IdleSlice> idleSlices(const CycleReport &report, const Image &image,
                                       const Machine &machine);

/// The key `cycle_account` of a report (docs/running.md).
nlohmann::json jsonOf(const CycleReport &report);

} // namespace millrace::driver
