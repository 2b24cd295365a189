// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Execute.h"

#include "arch/program/HostData.h"
#include "compiler/Support/Npy.h"
#include "compiler/Tools/HostRunner.h"
#include "compiler/Tools/Inputs.h"
#include "simulator/observe/TraceWriter.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace millrace::driver {

void ExecuteOptions::addTo(CLI::App &command) {
  command.add_option("--input,-i", inputs,
                     "value of an input, name=file.npy; inputs not given are drawn at random");
  command.add_option("--seed", seed, "seed of inputs that are drawn")->capture_default_str();
  command.add_flag("--cycles-only", cyclesOnly,
                   "time the program without data: same cycles, no outputs");
  command
      .add_option("--window", window,
                  "cycles that a PE simulates at a time (0: as many as its links allow); results "
                  "are the same")
      ->capture_default_str();
  command.add_option("--output-dir,-o", outputDirectory,
                     "folder for one .npy per output, named after it");
  command.add_option("--json", json, "file for the result as JSON");
  command.add_option("--trace", trace, "file for a trace that ui.perfetto.dev opens");
}

int fail(Exit code, const std::string &text) {
  std::fprintf(stderr, "millrace: error: %s\n", text.c_str());
  return code;
}

Status writeText(const std::string &path, const std::string &text) {
  const std::string fresh = path + "." + std::to_string(getpid()) + ".new";
  std::ofstream out(fresh, std::ios::binary);
  out << text;
  out.close();
  std::error_code renamed;
  if (out)
    std::filesystem::rename(fresh, path, renamed);
  if (!out || renamed) {
    std::error_code ignored;
    std::filesystem::remove(fresh, ignored);
    return Error{"cannot write '" + path +
                 "': " + (renamed ? renamed.message() : std::strerror(errno))};
  }
  return Success{};
}

namespace {

std::string fileNameOf(std::string name) {
  for (char &ch : name)
    if (!std::isalnum(static_cast<unsigned char>(ch)) && ch != '.' && ch != '-' && ch != '_')
      ch = '_';
  return name + ".npy";
}

/// Folders are made and files are tried before minutes of work.
Status checkOutputs(const ExecuteOptions &options) {
  if (!options.outputDirectory.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.outputDirectory, error);
    if (error || access(options.outputDirectory.c_str(), W_OK) != 0)
      return Error{"cannot write into '" + options.outputDirectory +
                   "': " + (error ? error.message() : std::strerror(errno))};
  }
  for (const std::string &file : {options.json, options.trace}) {
    if (file.empty())
      continue;
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0)
      return Error{"cannot write '" + file + "': " + std::strerror(errno)};
  }
  return Success{};
}

} // namespace

int execute(const Image &image, const Machine &machine, const ExecuteOptions &options) {
  if (Status s = checkOutputs(options); !s)
    return fail(BadOutput, s.error());
  Expected<std::map<std::string, HostTensor>> inputs =
      makeInputs(image, options.inputs, options.seed);
  if (!inputs)
    return fail(BadInput, inputs.error());
  Execution execution;
  HostRunner host(*inputs, execution.outputs);
  std::ofstream traceFile;
  std::unique_ptr<sim::TraceWriter> trace;
  sim::SimulationOptions simulation;
  simulation.values = !options.cyclesOnly;
  simulation.ignoreMachineHash = options.ignoreMachineHash;
  simulation.window = options.window;
  if (!options.trace.empty()) {
    traceFile.open(options.trace + ".new");
    trace = std::make_unique<sim::TraceWriter>(traceFile, image, machine);
    simulation.observer = trace.get();
  }
  simulation.writeInputs = [&](RowAccess &memory) -> Status {
    for (const Binding &b : image.bindings)
      if (b.role == Binding::Role::Input && !b.placements.empty())
        if (Status s = writeTensor(b, inputs->at(b.name).data.data(), memory); !s)
          return s;
    return Success{};
  };
  simulation.readOutputs = [&](RowAccess &memory) -> Status {
    for (const Binding &b : image.bindings) {
      if (b.role != Binding::Role::Output || b.placements.empty())
        continue;
      Expected<HostTensor> tensor = tensorFor(b);
      if (!tensor)
        return tensor.takeError();
      if (Status s = readTensor(b, tensor->data.data(), memory); !s)
        return s;
      execution.outputs[b.name] = std::move(*tensor);
    }
    return Success{};
  };
  const auto start = std::chrono::steady_clock::now();
  Expected<sim::SimulationResult> result = sim::simulate(image, machine, simulation, &host);
  execution.simulateSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  execution.hostStepSeconds = host.seconds();
  if (trace) {
    trace.reset();
    traceFile.close();
    std::error_code error;
    std::filesystem::rename(options.trace + ".new", options.trace, error);
    if (error || !traceFile)
      return fail(BadOutput, "cannot write '" + options.trace + "'");
  }
  if (!result)
    return fail(BadInput, result.error());
  execution.result = std::move(*result);
  if (!options.outputDirectory.empty() && !execution.result.violation)
    for (const auto &[name, tensor] : execution.outputs) {
      const std::string path =
          (std::filesystem::path(options.outputDirectory) / fileNameOf(name)).string();
      if (Status s = writeNpy(path, tensor); !s)
        return fail(BadOutput, s.error());
      execution.files[name] = path;
    }
  std::fputs(tableOf(image, machine, execution).c_str(), stdout);
  if (!options.json.empty())
    if (Status s = writeText(options.json, jsonOf(image, machine, execution) + "\n"); !s)
      return fail(BadOutput, s.error());
  if (execution.result.violation)
    return fail(Wrong, execution.result.violation->describe());
  for (size_t s = 0; s < execution.result.steps.size(); ++s)
    if (execution.result.steps[s].predictedCycles != execution.result.steps[s].measuredCycles)
      return fail(Wrong, "step " + std::to_string(s) + " was predicted to take " +
                             std::to_string(execution.result.steps[s].predictedCycles) +
                             " cycles and took " +
                             std::to_string(execution.result.steps[s].measuredCycles));
  return Ok;
}

} // namespace millrace::driver
