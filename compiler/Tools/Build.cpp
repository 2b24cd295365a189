// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Build.h"

#include "compiler/Codegen/Grid/Partition.h"
#include "compiler/Codegen/Grid/Tactics.h"
#include "compiler/Layouts/LayoutProblem.h"
#include "compiler/Schedule/Order.h"
#include "compiler/Tools/FileKind.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/Stages.h"

#include <algorithm>
#include <chrono>

namespace millrace::driver {

using nlohmann::json;

static const std::vector<std::string> levelNames = {"onnx",  "tensor",           "spatial",
                                                    "sched", "schedule-problem", "image"};

void addLevel(CLI::App &command, const std::string &option, Level &level, const std::string &first,
              const std::string &last, const std::string &text) {
  const std::vector<std::string> &all = levelNames;
  const auto begin = std::find(all.begin(), all.end(), first);
  const auto end = std::find(all.begin(), all.end(), last) + 1;
  command
      .add_option_function<std::string>(
          option,
          [&level, &all](const std::string &name) {
            level = Level(std::find(all.begin(), all.end(), name) - all.begin());
          },
          text)
      ->check(CLI::IsMember(std::vector<std::string>(begin, end)))
      ->type_name("LEVEL")
      ->default_str(all[size_t(level)])
      ->group(heading::Model);
}

void ModelOptions::addTo(CLI::App &command) {
  command
      .add_option("model", model,
                  "ONNX file, opset 7 or newer, or text of the level that --from names")
      ->type_name("FILE")
      ->required();
  addLevel(command, "--from", from, "onnx", "sched",
           "level of the file: onnx, tensor or spatial (docs/dialects), or sched "
           "(docs/spec/assembly.md)");
  command
      .add_option("--machine,-m", machine,
                  "machine: a name that `millrace machines` lists, or a YAML file")
      ->type_name("MACHINE")
      ->capture_default_str()
      ->group(heading::Machine);
  auto only = [&](Level last, CLI::Option *option) { lastOf.emplace_back(option, last); };
  only(Level::Tensor,
       command
           .add_option(
               "--precision,-p", precision,
               "storage and multiplication type: fp16, bf16, int8 (for quantised models), or "
               "auto: int8 where the model quantises by constant scales, else fp16")
           ->check(CLI::IsMember({"auto", "fp16", "bf16", "int8"}))
           ->type_name("TYPE")
           ->capture_default_str()
           ->group(heading::Compiler));
  only(Level::Onnx, command
                        .add_option("--dim", dims,
                                    "value of a symbolic dimension, name=n, or of one by its "
                                    "place, input.0=n; repeat for more")
                        ->type_name("NAME=N")
                        ->group(heading::Model));
  command
      .add_option("--set", settings,
                  "change one key of the machine, path=value (memory.slices=16); repeat for more")
      ->type_name("KEY=VALUE")
      ->group(heading::Machine);
  // A decision whose solvers have a name and a text each.
  auto choice = [&](const char *option, std::string &value, std::string text,
                    std::vector<std::string> names, const auto &solvers) {
    for (const auto &solver : solvers) {
      names.push_back(solver.name);
      text += "; " + solver.name + ", " + solver.text;
    }
    return command.add_option(option, value, text)
        ->check(CLI::IsMember(names))
        ->type_name("NAME")
        ->capture_default_str()
        ->group(heading::Compiler);
  };
  only(Level::Spatial, choice("--partition", partition,
                              "who deals kernels to PEs: auto, the first whose weights fit",
                              {"auto"}, grid::partitionSolvers()));
  only(Level::Tensor, choice("--layouts", layouts, "who lays tensors out in rows and lanes", {},
                             layouts::layoutSolvers()));
  only(Level::Tensor, command.add_option("--layout-seed", layoutSeed, "seed of --layouts random")
                          ->type_name("NUMBER")
                          ->capture_default_str()
                          ->group(heading::Compiler));
  only(Level::Spatial,
       choice("--order", order,
              "in which order kernels are scheduled: auto, what --effort finds, graph at effort 0",
              {"auto"}, schedule::orderSolvers()));
  only(Level::Spatial,
       command
           .add_option(
               "--effort", effort,
               "how many schedules are tried for fewer cycles: 0, one; 1, 21 at most; 2, 70; 3, "
               "326; fewer of large programs; more of small ones, over fewer PEs. From 2 on "
               "bundles move once placed")
           ->check(CLI::Range(0u, grid::kMostEffort))
           ->type_name("0..3")
           ->capture_default_str()
           ->group(heading::Compiler));
  only(Level::Tensor,
       command
           .add_option("--keep-fp32", keepFp32,
                       "value of the model that is stored in fp32 whatever the precision; repeat "
                       "for more. The MXM multiplies no fp32: what multiplies it goes to the host")
           ->type_name("VALUE")
           ->group(heading::Compiler));
  only(Level::Tensor,
       command
           .add_option(
               "--device-map", deviceMap,
               "what leaves the grid, kind=device,... or default (docs/running.md); kinds are "
               "attention, ffn, embedding, sampling, norm and product, devices gpu, cpu "
               "and grid")
           ->type_name("KIND=DEVICE")
           ->group(heading::Compiler));
  only(
      Level::Tensor,
      command.add_flag("--exact-qdq", exactQdq, "int8: keep every rounding of the quantised graph")
          ->group(heading::Compiler));
  command
      .add_option(
          "--schedule", schedule,
          "start the bundles of the schedule problem when this file says; other options, --effort "
          "too, as when the problem was written (docs/spec/schedule-problem.md)")
      ->type_name("FILE")
      ->group(heading::Compiler);
  only(Level::Spatial,
       command
           .add_option("--explain", explain,
                       "why layouts (each tensor's layout, its runner-up and what decides), where "
                       "the cycles "
                       "go, or what-would-help: cycles with one more of each resource "
                       "(docs/running.md)")
           ->check(CLI::IsMember({"layouts", "cycles", "what-would-help"}))
           ->type_name("DECISION")
           ->group(heading::Compiler));
}

std::string ModelOptions::layoutsTitle(const Machine &on, const LayoutReport &chosen) const {
  return model + " on " + on.name + " in " + chosen.precision + ", chosen by " + layouts;
}

std::optional<Failure> ModelOptions::checkLevels() const {
  if (judge > JudgeKind::Kernels &&
      from > (judge == JudgeKind::Reference ? Level::Tensor : Level::Onnx))
    return Failure{
        Usage,
        "--check=" + std::string(judge == JudgeKind::Reference ? "reference" : "onnxruntime") +
            " computes the model itself, and " + model + " is of the level " +
            levelNames[size_t(from)] + "; check an ONNX file"};
  if (judge == JudgeKind::Kernels && from > Level::Spatial)
    return Failure{Usage, "--check evaluates kernels, and " + model + " is of the level " +
                              levelNames[size_t(from)] + "; leave it out"};
  for (const auto &[option, last] : lastOf)
    if (option->count() && from > last)
      return Failure{Usage, option->get_name() + " decides nothing behind the level " +
                                levelNames[size_t(last)] + ", and " + model + " is of the level " +
                                levelNames[size_t(from)] + "; leave it out, or enter with --from " +
                                levelNames[size_t(last)]};
  if (explain == "layouts" && from > Level::Tensor)
    return Failure{Usage, "--explain layouts is about a decision before the level " +
                              levelNames[size_t(from)] + ", of which " + model +
                              " is; leave it out, or enter with --from tensor"};
  if (explain == "what-would-help" && from > Level::Tensor)
    return Failure{Usage, "--explain what-would-help forms kernels for other machines, and " +
                              model + " is of the level " + levelNames[size_t(from)] +
                              "; leave it out, or enter with --from tensor"};
  return std::nullopt;
}

std::optional<Failure> parseDims(const std::vector<std::string> &texts,
                                 std::map<std::string, int64_t> &dims) {
  for (const std::string &dim : texts) {
    const size_t equals = dim.find('=');
    char *end = nullptr;
    const long value =
        equals == std::string::npos ? 0 : std::strtol(dim.c_str() + equals + 1, &end, 10);
    if (!end || *end || value < 0 || end == dim.c_str() + equals + 1 || !equals)
      return Failure{Usage, "--dim '" + dim + "' is not name=n with n >= 0"};
    if (!dims.emplace(dim.substr(0, equals), value).second)
      return Failure{Usage, "--dim gives '" + dim.substr(0, equals) + "' twice; keep one"};
  }
  return std::nullopt;
}

std::optional<Failure> ModelOptions::checkKind() const {
  const std::optional<FileKind> kind = kindOfFile(model);
  if (!kind)
    return std::nullopt;
  const auto text = [&](Level level) {
    return from == level
               ? std::nullopt
               : std::optional(Failure{
                     BadInput, model + ": is text of the level " + levelNames[size_t(level)] +
                                   "; enter with --from " + levelNames[size_t(level)]});
  };
  switch (*kind) {
  case FileKind::Image:
    return Failure{BadInput, model + ": is a program image, which is compiled already; execute it "
                                     "with `millrace simulate`"};
  case FileKind::Tensor:
    return text(Level::Tensor);
  case FileKind::Spatial:
    return text(Level::Spatial);
  case FileKind::Assembly:
    return text(Level::Sched);
  case FileKind::Onnx:
    if (from != Level::Onnx)
      return Failure{BadInput, model + ": is an ONNX model; leave out --from"};
    return std::nullopt;
  }
  return std::nullopt;
}

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A level: the stage that leads to it, and how it is entered from text and left as text.
struct Way {
  Level level;
  std::optional<Failure> (Stages::*make)();
  std::optional<Failure> (Stages::*read)();
  std::optional<Failure> (Stages::*write)(std::string &text);
};

/// The order of the compiler.
constexpr Way ways[] = {
    {Level::Tensor, &Stages::importModel, &Stages::readTensors, &Stages::writeTensors},
    {Level::Spatial, &Stages::formKernels, &Stages::readKernels, &Stages::writeKernels},
    {Level::Sched, &Stages::schedule, &Stages::readSchedule, &Stages::writeSchedule},
    {Level::Problem, nullptr, nullptr, &Stages::writeProblem},
};

/// From the level of the model's file to `to`.
std::optional<Failure> runStages(Stages &stages, const ModelOptions &options, Level to) {
  if (auto failure = options.checkLevels())
    return failure;
  if (auto failure = options.checkKind())
    return failure;
  if (auto failure = stages.loadTarget())
    return failure;
  for (const Way &way : ways)
    if (way.make && way.level >= options.from && way.level <= to)
      if (auto failure = (stages.*(way.level == options.from ? way.read : way.make))())
        return failure;
  return std::nullopt;
}

} // namespace

std::variant<Built, Failure> build(const ModelOptions &options) {
  const double start = seconds();
  Stages stages(options);
  if (auto failure = runStages(stages, options, Level::Image))
    return *failure;
  return stages.take(seconds() - start);
}

std::variant<BuiltText, Failure> buildText(const ModelOptions &options, Level to) {
  Stages stages(options);
  if (auto failure = runStages(stages, options, to))
    return *failure;
  std::string text;
  for (const Way &way : ways)
    if (way.level == to && way.write)
      if (auto failure = (stages.*way.write)(text))
        return *failure;
  return stages.takeText(std::move(text));
}

std::variant<BuiltText, Failure> buildExplanation(const ModelOptions &options) {
  Stages stages(options);
  const bool isScheduled = options.explain != "layouts";
  if (auto failure = runStages(stages, options, isScheduled ? Level::Sched : Level::Spatial))
    return *failure;
  return stages.takeText({});
}

} // namespace millrace::driver
