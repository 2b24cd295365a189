// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"
#include "arch/program/ImageFile.h"
#include "compiler/Tools/Build.h"
#include "compiler/Tools/Execute.h"
#include "compiler/Tools/ExplainCycles.h"
#include "compiler/Tools/ExplainLayouts.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/WhatWouldHelp.h"

#include <unistd.h>

namespace millrace::driver {

namespace {

struct CompileOptions {
  ModelOptions model;
  std::string output; ///< empty: --explain alone
  std::string json;   ///< of --explain
  Level to = Level::Image;

  /// A program reads the standard output: what people read goes to the standard error.
  bool isTaken() const { return output == kStandardOutput || json == kStandardOutput; }
};

/// Prints an explanation, if there is one, and writes it as JSON.
Status explain(const CompileOptions &options, const Machine &machine,
               const std::optional<LayoutReport> &layouts,
               const std::optional<CycleReport> &cycles) {
  const bool ofCycles = options.model.explain == "cycles" && cycles;
  std::optional<HelpReport> help;
  if (options.model.explain == "what-would-help" && cycles)
    help = whatWouldHelp(options.model, machine, *cycles);
  if (!layouts && !ofCycles && !help)
    return Success{};
  if (options.model.verbosity != Verbosity::Quiet)
    std::fputs((layouts ? textOf(*layouts, options.model.layoutsTitle(machine, *layouts))
                : help  ? textOf(*help)
                        : textOf(*cycles))
                   .c_str(),
               options.isTaken() ? stderr : stdout);
  if (options.json.empty())
    return Success{};
  nlohmann::json out = {{"model", options.model.model},
                        {"machine", machine.name},
                        {"precision", layouts ? layouts->precision : cycles->precision}};
  if (layouts) {
    out["solver"] = options.model.layouts;
    out["layouts"] = jsonOf(*layouts);
  } else {
    if (help)
      out["what_would_help"] = jsonOf(*help);
    else
      out["cycle_account"] = jsonOf(*cycles);
  }
  return writeFile(options.json, jsonText(out, 2) + "\n");
}

int writeProgram(const CompileOptions &options) {
  std::variant<Built, Failure> built = build(options.model);
  if (auto *failure = std::get_if<Failure>(&built))
    return fail(failure->code, failure->message);
  const Built &b = std::get<Built>(built);
  if (Status s = explain(options, b.machine, b.layouts, b.cycles); !s)
    return fail(BadOutput, s.error());
  if (Status s = writeImage(b.image, options.output); !s)
    return fail(BadOutput, s.error());
  uint64_t cycles = 0;
  for (const Step &step : b.image.steps)
    cycles += step.predictedCycles;
  if (options.model.verbosity != Verbosity::Quiet)
    std::fprintf(options.isTaken() ? stderr : stdout, "%s: %llu cycles on %s, compiled in %.2f s\n",
                 options.output.c_str(), static_cast<unsigned long long>(cycles),
                 b.machine.name.c_str(), b.seconds);
  return Ok;
}

int writeLevel(const CompileOptions &options) {
  std::variant<BuiltText, Failure> built = options.output.empty()
                                               ? buildExplanation(options.model)
                                               : buildText(options.model, options.to);
  if (auto *failure = std::get_if<Failure>(&built))
    return fail(failure->code, failure->message);
  const BuiltText &b = std::get<BuiltText>(built);
  if (Status s = explain(options, b.machine, b.layouts, b.cycles); !s)
    return fail(BadOutput, s.error());
  if (options.output.empty())
    return Ok;
  if (Status s = writeFile(options.output, b.text); !s)
    return fail(BadOutput, s.error());
  return Ok;
}

/// What can be said of the options alone.
std::optional<Failure> check(const CompileOptions &options) {
  if (options.output.empty() && options.model.explain.empty())
    return Failure{Usage, "--output is required; see `millrace compile --help`"};
  if (options.to < options.model.from)
    return Failure{Usage, "--to names a level before that of --from; the order is onnx, tensor, "
                          "spatial, sched, schedule-problem, image"};
  if ((options.model.explain == "cycles" || options.model.explain == "what-would-help") &&
      options.to < Level::Sched)
    return Failure{Usage, "--explain " + options.model.explain +
                              " is about the schedule, and --to stops before it; name a later "
                              "level, or leave it out"};
  if (!options.model.schedule.empty() && options.to < Level::Sched)
    return Failure{Usage, "--schedule says when work starts, and --to stops before there is any; "
                          "name a later level, or leave it out"};
  if (!options.model.explain.empty() && options.to < Level::Spatial)
    return Failure{Usage, "--to tensor stops before the decision that --explain is about; name a "
                          "later level, or leave it out"};
  if (Status s = checkDistinct({{"--output", options.output}, {"--json", options.json}}); !s)
    return Failure{Usage, s.error()};
  if (options.to == Level::Image && options.output == kStandardOutput && ::isatty(STDOUT_FILENO))
    return Failure{Usage, "an image is no text for a terminal; redirect the standard output, or "
                          "name a file"};
  for (const std::string &file : {options.output, options.json})
    if (!file.empty())
      if (Status s = checkWritable(file); !s)
        return Failure{BadOutput, s.error()};
  return std::nullopt;
}

} // namespace

void addCompile(CLI::App &app, Action &action) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App *command =
      app.add_subcommand("compile",
                         "Compiles a model to a program image, or to the text of a level")
          ->group(heading::Models);
  command->footer("Examples:\n"
                  "  millrace compile model.onnx --machine tsp-v1 -o model.mrp\n"
                  "  millrace compile model.onnx --to spatial -o - | less\n"
                  "  millrace compile model.mlir --from spatial -o model.mrp\n"
                  "  millrace compile model.onnx --to schedule-problem -o problem.json\n"
                  "  millrace compile model.onnx --schedule schedule.json -o model.mrp\n"
                  "  millrace compile model.onnx --explain layouts | less\n"
                  "  millrace compile model.onnx --explain cycles | less\n"
                  "  millrace compile model.onnx --explain what-would-help");
  command
      ->add_option("--output,-o", options->output,
                   "file to write; with --explain it may be left out")
      ->type_name("FILE")
      ->group(heading::Data);
  addVerbosity(*command, options->model.verbosity);
  options->model.addTo(*command);
  command->add_option("--json", options->json, "write what --explain says as JSON")
      ->type_name("FILE")
      ->needs("--explain")
      ->group(heading::Data);
  addLevel(
      *command, "--to", options->to, "tensor", "image",
      "level to stop at: tensor, spatial, sched or schedule-problem, written as text, or image");
  command->callback([=, &action] {
    action = [=]() -> int {
      if (std::optional<Failure> failure = check(*options))
        return fail(failure->code, failure->message);
      return options->to == Level::Image && !options->output.empty() ? writeProgram(*options)
                                                                     : writeLevel(*options);
    };
  });
}

} // namespace millrace::driver
