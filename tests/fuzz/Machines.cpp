// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/fuzz/Machines.h"

#include "arch/spec/MachineFile.h"

#include <map>

namespace millrace::fuzz {

/// A program may fill its machine's memory; a fuzzer's process has 2 GB.
static constexpr uint64_t mostBytes = uint64_t(1) << 28;

static uint64_t bytesOf(const Machine &m) {
  return uint64_t(m.pes()) * kHemispheres * m.memory.slices * m.rowsPerSlice() * m.lanes();
}

const Machine *installedMachine(const std::string &name) {
  static const std::map<std::string, Machine> all = [] {
    std::map<std::string, Machine> machines;
    for (const std::string &each : machineNames())
      if (Expected<Machine> machine = loadMachine(each)) {
        while (bytesOf(*machine) > mostBytes)
          machine->memory.rowsPerBank /= 2;
        machines.emplace(each, std::move(*machine));
      }
    return machines;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

const Machine *machineOf(const std::string &yaml) {
  static std::map<std::string, std::optional<Machine>> known;
  constexpr size_t most = 64;
  if (const auto found = known.find(yaml); found != known.end())
    return found->second ? &*found->second : nullptr;
  if (known.size() >= most)
    known.clear();
  std::optional<Machine> &machine = known[yaml];
  if (Expected<Machine> parsed = parseMachine(yaml, "fuzz.mrp (machine)"))
    machine = std::move(*parsed);
  return machine ? &*machine : nullptr;
}

} // namespace millrace::fuzz
