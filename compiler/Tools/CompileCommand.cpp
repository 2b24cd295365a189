// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"
#include "arch/program/ImageFile.h"
#include "compiler/Tools/Build.h"

namespace millrace::driver {

void addCompile(CLI::App &app, Action &action) {
  auto model = std::make_shared<ModelOptions>();
  auto output = std::make_shared<std::string>();
  CLI::App *command = app.add_subcommand(
      "compile", "Compiles a model to a program image.\n\n"
                 "Example: millrace compile model.onnx --machine tsp-v1 -o model.mrp");
  model->addTo(*command);
  command->add_option("--output,-o", *output, "image file to write")->required();
  command->callback([=, &action] {
    action = [=]() -> int {
      if (Status s = checkWritable(*output); !s)
        return fail(BadOutput, s.error());
      std::variant<Built, Failure> built = build(*model);
      if (auto *failure = std::get_if<Failure>(&built))
        return fail(failure->code, failure->message);
      const Built &b = std::get<Built>(built);
      if (Status s = writeImage(b.image, *output); !s)
        return fail(BadOutput, s.error());
      uint64_t cycles = 0;
      for (const Step &step : b.image.steps)
        cycles += step.predictedCycles;
      std::printf("%s: %llu cycles on %s, compiled in %.2f s\n", output->c_str(),
                  static_cast<unsigned long long>(cycles), b.machine.name.c_str(),
                  jsonNote(b.image, "compile_seconds").get<double>());
      return Ok;
    };
  });
}

} // namespace millrace::driver
