// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From an image to outputs, cycles and a report.
#pragma once

#include "compiler/Support/HostTensor.h"
#include "compiler/Tools/Build.h"
#include "simulator/system/Simulate.h"

namespace millrace::driver {

struct ExecuteOptions {
  std::vector<std::string> inputs; ///< name=file.npy
  uint64_t seed = 0;
  bool cyclesOnly = false, ignoreMachineHash = false;
  int64_t window = 0;
  std::string outputDirectory, json, trace;
  void addTo(CLI::App &command);
};

/// What a run found out.
struct Execution {
  sim::SimulationResult result;
  std::map<std::string, HostTensor> outputs; ///< by name; empty in a cycles-only run
  std::map<std::string, std::string> files;  ///< output name to the .npy written
  double simulateSeconds = 0, hostStepSeconds = 0;
};

/// Simulates, writes what the options ask for, prints the table. Returns the exit code.
int execute(const Image &image, const Machine &machine, const ExecuteOptions &options);

/// The table that people read, and the object that programs read.
std::string tableOf(const Image &image, const Machine &machine, const Execution &execution);
std::string jsonOf(const Image &image, const Machine &machine, const Execution &execution);

/// Writes text to `path` in one step; an error names the path.
Status writeText(const std::string &path, const std::string &text);

} // namespace millrace::driver
