// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Machines as files: YAML in, Machine out, and back. docs/spec/machine.md, "Machine files".
#pragma once

#include "arch/spec/Machine.h"

#include <string>
#include <vector>

namespace millrace {

/// A machine by its name (NAME.yaml among the installed machines) or by the path of its file
/// (anything with a slash or ending in .yaml), with its bases under it and `overrides`
/// ("memory.slices=16") on top. The result is complete, its links are derived and Machine::verify
/// holds. Errors: no such machine or file; everything that readSettings finds; values out of range
/// or of a wrong unit; missing keys; bases that form a cycle; numbers that contradict each other.
/// All of a kind, a line each: it begins with file:line, or with the --set that is to blame.
Expected<Machine> loadMachine(const std::string &nameOrPath,
                              const std::vector<std::string> &overrides = {});

/// The same from text; `file` names places in errors and is where relative bases are looked for
/// first.
Expected<Machine> parseMachine(const std::string &yaml, const std::string &file = "machine.yaml",
                               const std::vector<std::string> &overrides = {});

/// Names of the installed machines, sorted.
std::vector<std::string> machineNames();

/// The resolved configuration: every key with value, source and trust; loads again as a machine of
/// the same hash.
std::string toYaml(const Machine &machine);

} // namespace millrace
