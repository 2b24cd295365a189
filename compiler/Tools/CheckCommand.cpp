// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"
#include "compiler/Import/Onnx/Inspect.h"
#include "compiler/Tools/Build.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/Notes.h"

namespace millrace::driver {
namespace {

using nlohmann::json;

struct CheckOptions {
  ModelOptions model; ///< of which only the file and the dimensions matter
  std::string json;
  bool quiet = false;
};

json jsonOf(const std::string &file, const Inspection &inspection) {
  const ModelSummary &summary = inspection.summary;
  json out = {{"model", file},
              {"opset", summary.opset},
              {"producer", summary.producer},
              {"nodes", summary.nodes},
              {"operators", summary.operators},
              {"parameters", summary.parameters},
              {"inputs", summary.inputs},
              {"outputs", summary.outputs},
              {"complete", inspection.isComplete},
              {"findings", json::array()}};
  for (const ModelFinding &finding : inspection.findings)
    out["findings"].push_back({{"severity", finding.isError ? "error" : "note"},
                               {"kind", finding.kind},
                               {"node", finding.node},
                               {"text", finding.text}});
  return out;
}

std::string textOf(const std::string &file, const Inspection &inspection) {
  const ModelSummary &summary = inspection.summary;
  std::string text = file + "\n";
  const auto row = [&text](const std::string &name, const std::string &value) {
    text += "  " + name + std::string(12 - std::min<size_t>(name.size(), 11), ' ') + value + "\n";
  };
  if (summary.nodes) {
    row("opset", std::to_string(summary.opset) +
                     (summary.producer.empty() ? "" : ", made by " + summary.producer));
    std::string operators;
    for (const auto &[name, count] : summary.operators)
      operators += (operators.empty() ? "" : ", ") + std::to_string(count) + " " + name;
    row("nodes", std::to_string(summary.nodes) + ": " + operators);
    row("parameters", std::to_string(summary.parameters));
    for (const std::string &input : summary.inputs)
      row("input", input);
    for (const std::string &output : summary.outputs)
      row("output", output);
  }
  size_t errors = 0;
  for (const ModelFinding &finding : inspection.findings)
    errors += finding.isError;
  if (errors)
    row("errors", std::to_string(errors) + (inspection.isComplete
                                                ? ""
                                                : "; correct them and check again: they kept "
                                                  "nodes from being imported"));
  else
    row("errors", "none");
  return text;
}

int check(const CheckOptions &options) {
  std::map<std::string, int64_t> dims;
  if (std::optional<Failure> failure = parseDims(options.model.dims, dims))
    return fail(failure->code, failure->message);
  if (std::optional<Failure> failure = options.model.checkKind())
    return fail(failure->code, failure->message);
  const std::string &file = options.model.model;
  mlir::MLIRContext context;
  context.getDiagEngine().registerHandler([](mlir::Diagnostic &) { return mlir::success(); });
  const Inspection inspection = inspectOnnx(file, {.dims = dims}, context);
  if (!options.quiet)
    std::fputs(textOf(file, inspection).c_str(), options.json == kStandardOutput ? stderr : stdout);
  std::fflush(stdout);
  for (const ModelFinding &finding : inspection.findings)
    if (finding.isError)
      fail(BadInput, file + ": " + finding.text);
    else if (!options.quiet)
      std::fprintf(stderr, "millrace: note: %s: %s\n", file.c_str(), finding.text.c_str());
  if (!options.json.empty())
    if (Status s = writeFile(options.json, jsonText(jsonOf(file, inspection), 2) + "\n"); !s)
      return fail(BadOutput, s.error());
  return inspection.hasErrors() ? BadInput : Ok;
}

} // namespace

void addCheck(CLI::App &app, Action &action) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App *command =
      app.add_subcommand("check", "Lists everything that keeps a model from being compiled")
          ->group(heading::Models);
  command->footer("Unknown operations, missing files of constants, dimensions without a value, "
                  "wrong types and\nattributes, nodes out of order: each with its place and the "
                  "remedy. Exit code 3 if any of\nthem is an error, 0 if there are notes only.\n\n"
                  "Examples:\n"
                  "  millrace check model.onnx --dim batch=1\n"
                  "  millrace check model.onnx -q --json - | jq '.findings[].text'");
  command->add_option("model", options->model.model, "ONNX file, - for the standard input")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--dim", options->model.dims,
                   "value of a symbolic dimension, name=n, or of one by its place, input.0=n; "
                   "repeat for more")
      ->type_name("NAME=N")
      ->group(heading::Model);
  command->add_option("--json", options->json, "write summary and findings as JSON")
      ->type_name("FILE")
      ->group(heading::Data);
  command->add_flag("-q,--quiet", options->quiet, "print errors only")->group(heading::Messages);
  command->callback([=, &action] { action = [=] { return check(*options); }; });
}

} // namespace millrace::driver
