// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From an image to outputs, cycles and a report.
#pragma once

#include "compiler/Tools/Commands.h"
#include "compiler/Tools/Distance.h"
#include "compiler/Tools/HostSteps.h"
#include "compiler/Tools/Losses.h"
#include "compiler/Tools/Watch.h"
#include "simulator/system/Simulate.h"

#include <functional>
#include <variant>

namespace millrace::driver {

/// What became of --gpu cuda and --gpu auto on this computer.
struct GpuUse {
  std::string asked, used; ///< cuda or auto; cuda or cpu
  std::string why;         ///< no GPU is used; empty: one is
  std::string name, chip;  ///< of the GPU, as its driver says, and what PTX was made for
};

struct ExecuteOptions {
  std::vector<std::string> inputs; ///< name=file.npy
  uint64_t seed = 0;
  bool cyclesOnly = false, ignoreMachineHash = false;
  bool truth = false; ///< in the slow simulator
  int64_t window = 0;
  std::string outputDirectory, json;
  /// Where steps run as generated GPU kernels: cpu, emulate, cuda, auto or off. Empty: cpu for
  /// those of the GPU, off for others.
  std::string gpu;
  std::optional<GpuUse> gpuUse; ///< with cuda and auto
  WatchOptions watch;
  const CLI::App *command = nullptr; ///< whose options they are; outlives them
  std::string modelSha256;           ///< of the model's file; empty if an image is executed
  void addTo(CLI::App &command);
  /// A program reads the standard output: what people read goes to the standard error.
  bool isTaken() const;
};

/// Options that name files to write; no two of them may be one. Those that are not given are empty.
Status checkDistinct(const std::vector<std::pair<const char *, std::string>> &files);

/// What can be said of the options before the program is there, so that nobody waits for it in
/// vain: files of inputs that are missing, outputs that could not be written. Leaves nothing
/// behind.
std::optional<Failure> check(const ExecuteOptions &options);

/// Compares the outputs of a program with what its judges compute of its inputs, by name. Failures:
/// a host call that fails, an input that does not convert, a judge that cannot run the model.
using Judge =
    std::function<std::variant<Verdict, Failure>(const std::map<std::string, HostTensor> &inputs,
                                                 const std::map<std::string, HostTensor> &outputs)>;

/// What a run found out.
struct Execution {
  sim::SimulationResult result;
  std::map<std::string, HostTensor> outputs; ///< by name; empty in a cycles-only run
  std::map<std::string, std::string> files;  ///< output name to the .npy written
  Verdict verdict;                           ///< with --check
  std::vector<Loss> losses;                  ///< of a run with values, in the order of the program
  std::vector<HostStepDevice> hostDevices;   ///< of host steps that were to run as kernels
  double simulateSeconds = 0, hostStepSeconds = 0, checkSeconds = 0;
};

bool hasHostSteps(const Image &image);

/// Simulates, writes what the options ask for, prints the table. With a judge the values are
/// checked by it. Returns the exit code.
int execute(const Image &image, const Machine &machine, const ExecuteOptions &options,
            const MakeHostSteps &makeHost, const Judge &judge = nullptr);

/// 1,234,567: what people compare is easier to read so.
std::string grouped(uint64_t number);

/// The table that people read, and the object that programs read.
std::string tableOf(const Image &image, const Machine &machine, const ExecuteOptions &options,
                    const Execution &execution);
std::string jsonOf(const Image &image, const Machine &machine, const ExecuteOptions &options,
                   const Execution &execution);

} // namespace millrace::driver
