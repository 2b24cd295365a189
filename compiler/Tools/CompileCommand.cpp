// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"
#include "arch/program/ImageFile.h"
#include "compiler/Tools/Build.h"
#include "compiler/Tools/HelpText.h"

#include <unistd.h>

namespace millrace::driver {

namespace {

int writeProgram(const ModelOptions &model, const std::string &output) {
  std::variant<Built, Failure> built = build(model);
  if (auto *failure = std::get_if<Failure>(&built))
    return fail(failure->code, failure->message);
  const Built &b = std::get<Built>(built);
  if (Status s = writeImage(b.image, output); !s)
    return fail(BadOutput, s.error());
  uint64_t cycles = 0;
  for (const Step &step : b.image.steps)
    cycles += step.predictedCycles;
  if (model.verbosity != Verbosity::Quiet)
    std::fprintf(output == kStandardOutput ? stderr : stdout,
                 "%s: %llu cycles on %s, compiled in %.2f s\n", output.c_str(),
                 static_cast<unsigned long long>(cycles), b.machine.name.c_str(), b.seconds);
  return Ok;
}

int writeLevel(const ModelOptions &model, Level to, const std::string &output) {
  std::variant<std::string, Failure> text = buildText(model, to);
  if (auto *failure = std::get_if<Failure>(&text))
    return fail(failure->code, failure->message);
  if (Status s = writeFile(output, std::get<std::string>(text)); !s)
    return fail(BadOutput, s.error());
  return Ok;
}

} // namespace

void addCompile(CLI::App &app, Action &action) {
  auto model = std::make_shared<ModelOptions>();
  auto output = std::make_shared<std::string>();
  auto to = std::make_shared<Level>(Level::Image);
  CLI::App *command =
      app.add_subcommand("compile",
                         "Compiles a model to a program image, or to the text of a level")
          ->group(heading::Models);
  command->footer("Examples:\n"
                  "  millrace compile model.onnx --machine tsp-v1 -o model.mrp\n"
                  "  millrace compile model.onnx --to spatial -o - | less\n"
                  "  millrace compile model.mlir --from spatial -o model.mrp");
  command->add_option("--output,-o", *output, "file to write")
      ->type_name("FILE")
      ->required()
      ->group(heading::Data);
  addVerbosity(*command, model->verbosity);
  model->addTo(*command);
  addLevel(*command, "--to", *to, "tensor", "image",
           "level to stop at: tensor, spatial or sched, written as text, or image");
  command->callback([=, &action] {
    action = [=]() -> int {
      if (*to < model->from)
        return fail(Usage, "--to names a level before that of --from; the order is onnx, tensor, "
                           "spatial, sched, image");
      if (*to == Level::Image && *output == kStandardOutput && ::isatty(STDOUT_FILENO))
        return fail(Usage, "an image is no text for a terminal; redirect the standard output, or "
                           "name a file");
      if (Status s = checkWritable(*output); !s)
        return fail(BadOutput, s.error());
      return *to == Level::Image ? writeProgram(*model, *output) : writeLevel(*model, *to, *output);
    };
  });
}

} // namespace millrace::driver
