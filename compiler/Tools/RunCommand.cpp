// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Build.h"
#include "compiler/Tools/Execute.h"
#include "compiler/Tools/FileHash.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/HostRunner.h"

namespace millrace::driver {

void addRun(CLI::App &app, Action &action) {
  auto model = std::make_shared<ModelOptions>();
  auto execution = std::make_shared<ExecuteOptions>();
  CLI::App *command =
      app.add_subcommand("run", "Compiles a model, executes it, writes outputs and a report")
          ->group(heading::Models);
  command->footer(
      "Examples:\n"
      "  millrace run model.onnx --machine mesh-4x4 --dim batch=1\n"
      "  millrace run model.onnx --input x=x.npy --output-dir out --json r.json\n"
      "  millrace run model.onnx -q --json - | jq .measured_cycles\n"
      "  millrace run model.onnx --machine lp30 --set mxm.planes=4 --cycles-only");
  model->addTo(*command);
  execution->addTo(*command);
  addVerbosity(*command, model->verbosity);
  command
      ->add_flag("--check", model->forChecking,
                 "evaluate the model's kernels at the same rounding points too, and compare: more "
                 "than 1e-5 (relative L2) apart is an error")
      ->group(heading::Simulation);
  command->callback([=, &action] {
    action = [=]() -> int {
      execution->watch.verbosity = model->verbosity;
      if (model->forChecking && execution->cyclesOnly)
        return fail(Usage, "--cycles-only computes no outputs to --check; leave one of them");
      if (auto failure = check(*execution))
        return fail(failure->code, failure->message);
      std::variant<Built, Failure> built = build(*model);
      if (auto *failure = std::get_if<Failure>(&built))
        return fail(failure->code, failure->message);
      Built &b = std::get<Built>(built);
      if (!execution->json.empty())
        execution->modelSha256 = sha256Of(model->model);
      b.image.notes.push_back({"compile_seconds", nlohmann::json(b.seconds).dump()});
      Judge judge;
      if (b.reckoning)
        judge = [&b](const auto &inputs, const auto &outputs) {
          return distances(*b.reckoning, b.image, inputs, outputs);
        };
      return execute(b.image, b.machine, *execution, makeHostRunner, judge);
    };
  });
}

} // namespace millrace::driver
