// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Execute.h"

#include "arch/files/NewFile.h"
#include "arch/program/HostData.h"
#include "compiler/Support/Npy.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/HostSteps.h"
#include "compiler/Tools/Inputs.h"
#include "simulator/truth/Truth.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

namespace millrace::driver {

namespace fs = std::filesystem;

/// A minus sign would wrap around to a large number. Empty where there is none.
static std::string notNegative(const std::string &text) {
  return text.starts_with('-') ? "'" + text + "' is negative; give 0 or more" : std::string();
}

void ExecuteOptions::addTo(CLI::App &command) {
  this->command = &command;
  command
      .add_option("--input,-i", inputs,
                  "value of an input, name=file.npy; inputs not given are drawn at random")
      ->type_name("NAME=FILE")
      ->group(heading::Data);
  command.add_option("--seed", seed, "seed of inputs that are drawn")
      ->check(notNegative)
      ->type_name("NUMBER")
      ->capture_default_str()
      ->group(heading::Data);
  command
      .add_option("--output-dir,-o", outputDirectory,
                  "folder for one .npy per output, named after it")
      ->type_name("FOLDER")
      ->group(heading::Data);
  command.add_option("--json", json, "write the result as JSON")
      ->type_name("FILE")
      ->group(heading::Data);
  command
      .add_flag("--cycles-only", cyclesOnly,
                "time the program without data: same cycles, no outputs")
      ->group(heading::Simulation);
  command
      .add_option("--window", window,
                  "cycles that a PE simulates at a time (0: as many as its links allow); results "
                  "are the same")
      ->check(notNegative)
      ->type_name("CYCLES")
      ->capture_default_str()
      ->group(heading::Simulation);
  watch.addTo(command);
}

namespace {

/// The output's name as a file name that none of `taken` has.
std::string fileNameOf(std::string name, std::set<std::string> &taken) {
  for (char &ch : name)
    if (!std::isalnum(static_cast<unsigned char>(ch)) && ch != '.' && ch != '-' && ch != '_')
      ch = '_';
  name.resize(std::min<size_t>(name.size(), 200)); // file systems end at 255 bytes
  std::string file = name + ".npy";
  for (unsigned k = 2; !taken.insert(file).second; ++k)
    file = name + "." + std::to_string(k) + ".npy";
  return file;
}

/// A folder that may be made later: the nearest one above it that exists can be written to.
Status checkFolder(const std::string &path) {
  fs::path folder = path;
  std::error_code ignored;
  while (!folder.empty() && !fs::exists(folder, ignored) && folder != folder.parent_path())
    folder = folder.parent_path();
  if (folder.empty())
    folder = ".";
  if (!fs::is_directory(folder, ignored))
    return Error{"cannot write into '" + path + "': '" + folder.string() +
                 "' is not a folder; choose another --output-dir"};
  if (Status s = checkWritable((folder / "any").string()); !s)
    return Error{"cannot write into '" + path + "': the folder '" + folder.string() +
                 "' lets nothing be written; choose another --output-dir"};
  return Success{};
}

Status writeOutputs(const std::string &folder, Execution &execution) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Error{"cannot make the folder '" + folder + "': " + error.message() +
                 "; choose another --output-dir"};
  std::set<std::string> taken;
  for (const auto &[name, tensor] : execution.outputs) {
    const std::string path = (fs::path(folder) / fileNameOf(name, taken)).string();
    if (Status s = writeNpy(path, tensor); !s)
      return s;
    execution.files[name] = path;
  }
  return Success{};
}

Status writeInputs(const Image &image, const std::map<std::string, HostTensor> &inputs,
                   RowAccess &memory) {
  for (const Binding &b : image.bindings)
    if (b.role == Binding::Role::Input && !b.placements.empty())
      if (Status s = writeTensor(b, inputs.at(b.name).data.data(), memory); !s)
        return s;
  return Success{};
}

Status readOutputs(const Image &image, RowAccess &memory,
                   std::map<std::string, HostTensor> &outputs) {
  for (const Binding &b : image.bindings) {
    if (b.role != Binding::Role::Output || b.placements.empty())
      continue;
    Expected<HostTensor> tensor = tensorFor(b);
    if (!tensor)
      return tensor.takeError();
    if (Status s = readTensor(b, tensor->data.data(), memory); !s)
      return s;
    outputs[b.name] = std::move(*tensor);
  }
  return Success{};
}

/// Simulates and records what is to be watched.
std::optional<Failure> simulate(const Image &image, const Machine &machine,
                                const ExecuteOptions &options, const MakeHostSteps &makeHost,
                                const std::map<std::string, HostTensor> &inputs,
                                Execution &execution) {
  if (Status s = options.watch.checkSize(image); !s)
    return Failure{Usage, s.error()};
  std::unique_ptr<HostSteps> host;
  if (!options.cyclesOnly && hasHostSteps(image))
    host = makeHost(inputs, execution.outputs);
  Expected<std::unique_ptr<Watch>> watch = Watch::create(options.watch, image, machine);
  if (!watch)
    return Failure{BadOutput, watch.error()};
  sim::SimulationOptions simulation;
  simulation.values = !options.cyclesOnly;
  simulation.ignoreMachineHash = options.ignoreMachineHash;
  simulation.window = options.window;
  simulation.observer = (*watch)->observer();
  simulation.writeInputs = [&](RowAccess &memory) { return writeInputs(image, inputs, memory); };
  simulation.readOutputs = [&](RowAccess &memory) {
    return readOutputs(image, memory, execution.outputs);
  };
  const auto start = std::chrono::steady_clock::now();
  const auto simulator = options.truth ? sim::simulateSlowly : sim::simulate;
  Expected<sim::SimulationResult> result = simulator(image, machine, simulation, host.get());
  execution.simulateSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  execution.hostStepSeconds = host ? host->seconds() : 0;
  if (host)
    execution.hostDevices = host->devices();
  if (!result)
    return Failure{BadInput, result.error()};
  execution.result = std::move(*result);
  if (Status s = (*watch)->checkCount(); !s)
    return Failure{Usage, s.error()};
  if (Status s = (*watch)->finish(); !s)
    return Failure{BadOutput, s.error()};
  return std::nullopt;
}

/// What is wrong with the values, in a sentence; empty if nothing is.
std::string complaintOf(const Verdict &verdict, const Image &image) {
  const auto text = [](double number) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.2g", number);
    return std::string(buffer);
  };
  for (const auto &[name, d] : verdict.kernels)
    if (!(d.relativeL2 <= kMostRelativeL2))
      return "output '" + name + "' is " + text(d.relativeL2) +
             " (relative L2) from its evaluation, more than 1e-5; please report it with the model "
             "and the machine";
  const std::string place =
      verdict.departure
          ? "; the first value that departs is '" + verdict.departure->value + "' (" +
                text(verdict.departure->relativeL2) + ", what it is computed of " +
                text(verdict.departure->before) + ")"
          : std::string("; no single value departs from what it is computed of, so that "
                        "roundings may have added up");
  const auto isFp16 = [&](const std::string &name) {
    return std::any_of(image.bindings.begin(), image.bindings.end(), [&](const Binding &b) {
      return b.role == Binding::Role::Output && b.name == name && b.gridType == ElementType::Fp16;
    });
  };
  for (const auto &[name, d] : verdict.outputs)
    if (!(d.relativeL2 <= kMostFromJudge) && !(isFp16(name) && d.rootMeanSquare <= kLeastTold))
      return "output '" + name + "' is " + text(d.relativeL2) + " (relative L2) from that of " +
             verdict.judge + ", more than " + text(kMostFromJudge) + place +
             "; try another --precision or --keep-fp32 VALUE, or report it with the model";
  return "";
}

/// The exit code of a simulation that came to its end.
int judge(const sim::SimulationResult &result) {
  if (result.violation)
    return fail(Wrong, result.violation->describe());
  for (size_t s = 0; s < result.steps.size(); ++s)
    if (const sim::StepResult &step = result.steps[s]; step.predictedCycles != step.measuredCycles)
      return fail(Wrong, "step " + std::to_string(s) + " was predicted to take " +
                             std::to_string(step.predictedCycles) + " cycles and took " +
                             std::to_string(step.measuredCycles));
  return Ok;
}

} // namespace

bool hasHostSteps(const Image &image) {
  return std::any_of(image.steps.begin(), image.steps.end(),
                     [](const Step &step) { return step.kind == Step::Kind::Host; });
}

Status checkDistinct(const std::vector<std::pair<const char *, std::string>> &files) {
  for (size_t a = 0; a < files.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (!files[a].second.empty() && files[a].second == files[b].second)
        return Error{std::string(files[b].first) + " and " + files[a].first +
                     (files[a].second == kStandardOutput ? " are both the standard output"
                                                         : " both name '" + files[a].second + "'") +
                     "; choose two files"};
  return Success{};
}

bool ExecuteOptions::isTaken() const {
  return json == kStandardOutput || watch.trace == kStandardOutput || watch.vcd == kStandardOutput;
}

std::optional<Failure> check(const ExecuteOptions &options) {
  const WatchOptions &watch = options.watch;
  if (options.truth && (!watch.trace.empty() || !watch.vcd.empty() || options.window))
    return Failure{Usage, "--truth steps every cycle and records nothing: leave out --trace, --vcd "
                          "and --window"};
  if (options.cyclesOnly && !options.outputDirectory.empty())
    return Failure{Usage, "--cycles-only computes no outputs for --output-dir; leave one of them"};
  if (Status s = watch.check(); !s)
    return Failure{Usage, s.error()};
  if (Status s =
          checkDistinct({{"--json", options.json}, {"--trace", watch.trace}, {"--vcd", watch.vcd}});
      !s)
    return Failure{Usage, s.error()};
  if (std::optional<Failure> failure = checkInputFiles(options.inputs))
    return failure;
  for (const std::string &file : {options.json, watch.trace, watch.vcd})
    if (!file.empty())
      if (Status s = checkWritable(file); !s)
        return Failure{BadOutput, s.error()};
  if (!options.outputDirectory.empty())
    if (Status s = checkFolder(options.outputDirectory); !s)
      return Failure{BadOutput, s.error()};
  return std::nullopt;
}

int execute(const Image &image, const Machine &machine, const ExecuteOptions &options,
            const MakeHostSteps &makeHost, const Judge &judgeOf) {
  Expected<std::map<std::string, HostTensor>> inputs = makeInputs(
      image, options.inputs, options.cyclesOnly ? std::nullopt : std::optional(options.seed));
  if (!inputs)
    return fail(BadInput, inputs.error());
  Execution execution;
  if (auto failure = simulate(image, machine, options, makeHost, *inputs, execution))
    return fail(failure->code, failure->message);
  if (!options.cyclesOnly)
    execution.losses = lossesOf(image, execution.result, *inputs);
  if (judgeOf && !execution.result.violation) {
    const auto start = std::chrono::steady_clock::now();
    std::variant<Verdict, Failure> found = judgeOf(*inputs, execution.outputs);
    if (auto *failure = std::get_if<Failure>(&found))
      return fail(failure->code, failure->message);
    execution.verdict = std::move(std::get<Verdict>(found));
    execution.checkSeconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (!options.outputDirectory.empty() && !execution.result.violation)
    if (Status s = writeOutputs(options.outputDirectory, execution); !s)
      return fail(BadOutput, s.error());
  if (options.watch.verbosity != Verbosity::Quiet) {
    if (!execution.losses.empty())
      warn(warningOf(execution.losses, image));
    std::fputs(tableOf(image, machine, options, execution).c_str(),
               options.isTaken() ? stderr : stdout);
  }
  if (!options.json.empty())
    if (Status s = writeFile(options.json, jsonOf(image, machine, options, execution) + "\n"); !s)
      return fail(BadOutput, s.error());
  if (const std::string wrong = complaintOf(execution.verdict, image); !wrong.empty())
    return fail(Wrong, wrong);
  return judge(execution.result);
}

} // namespace millrace::driver
