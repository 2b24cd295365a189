// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What --explain what-would-help says: a model on machines with one more of each resource.
#pragma once

#include "compiler/Schedule/Relief.h"
#include "compiler/Tools/Build.h"

#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace millrace::driver {

/// The least more of a resource that a machine can have.
struct Raise {
  std::string resource; ///< "planes", "streams"
  /// Keys of the machine with their values now and then: "mxm.planes" from "2" to "4".
  std::map<std::string, std::pair<std::string, std::string>> keys;
  schedule::Relief relief;
};

/// One for each resource that the machine can have more of. Slices are more at each stream
/// register, so that no way becomes longer; links by a fabric that has more.
std::vector<Raise> raisesOf(const Machine &machine);

/// What one of them does.
struct Help {
  Raise raise;
  int64_t estimatedCycles = 0; ///< with waits for it as much shorter as there is more of it
  int64_t unlimitedCycles = 0; ///< with none of these waits
  std::optional<int64_t> compiledCycles;
  std::string refusal; ///< why the model is not compiled for that machine
};

struct HelpReport {
  std::string model, machine, precision;
  int64_t cycles = 0; ///< as the machine is
  std::vector<Help> helps;
};

/// Estimates of what is compiled, `cycles` (made with `explain` what-would-help), and a
/// compilation for each of the larger machines with the same options.
HelpReport whatWouldHelp(const ModelOptions &options, const Machine &machine,
                         const CycleReport &cycles);

/// A table, what helps most first.
std::string textOf(const HelpReport &report);

/// The key `what_would_help` (docs/running.md).
nlohmann::json jsonOf(const HelpReport &report);

} // namespace millrace::driver
