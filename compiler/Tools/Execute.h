// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From an image to outputs, cycles and a report.
#pragma once

#include "compiler/Tools/Commands.h"
#include "compiler/Tools/Distance.h"
#include "compiler/Tools/Watch.h"
#include "simulator/system/Simulate.h"

namespace millrace::driver {

struct ExecuteOptions {
  std::vector<std::string> inputs; ///< name=file.npy
  uint64_t seed = 0;
  bool cyclesOnly = false, ignoreMachineHash = false;
  bool truth = false; ///< in the slow simulator
  int64_t window = 0;
  std::string outputDirectory, json;
  WatchOptions watch;
  const CLI::App *command = nullptr; ///< whose options they are; outlives them
  std::string modelSha256;           ///< of the model's file; empty if an image is executed
  void addTo(CLI::App &command);
};

/// What can be said of the options before the program is there, so that nobody waits for it in
/// vain: files of inputs that are missing, outputs that could not be written. Leaves nothing
/// behind.
std::optional<Failure> check(const ExecuteOptions &options);

/// What a run found out.
struct Execution {
  sim::SimulationResult result;
  std::map<std::string, HostTensor> outputs; ///< by name; empty in a cycles-only run
  std::map<std::string, std::string> files;  ///< output name to the .npy written
  std::map<std::string, Distance> distances; ///< from the evaluation, by output; with --check
  double simulateSeconds = 0, hostStepSeconds = 0, checkSeconds = 0;
};

bool hasHostSteps(const Image &image);

/// Simulates, writes what the options ask for, prints the table. With a judge the values are
/// checked by it. Returns the exit code.
int execute(const Image &image, const Machine &machine, const ExecuteOptions &options,
            const MakeHostSteps &makeHost, const Judge &judge = nullptr);

/// The table that people read, and the object that programs read.
std::string tableOf(const Image &image, const Machine &machine, const Execution &execution);
std::string jsonOf(const Image &image, const Machine &machine, const ExecuteOptions &options,
                   const Execution &execution);

} // namespace millrace::driver
