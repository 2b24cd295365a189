// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Build.h"
#include "compiler/Tools/Execute.h"
#include "compiler/Tools/HostRunner.h"

namespace millrace::driver {

void addRun(CLI::App &app, Action &action) {
  auto model = std::make_shared<ModelOptions>();
  auto execution = std::make_shared<ExecuteOptions>();
  CLI::App *command = app.add_subcommand(
      "run",
      "Compiles a model, executes it on the simulated machine, writes outputs and a report.\n\n"
      "Example: millrace run model.onnx --machine mesh-4x4 --dim batch=1 --input x=x.npy "
      "--output-dir out --json r.json");
  model->addTo(*command);
  execution->addTo(*command);
  command->add_flag(
      "--check", model->forChecking,
      "evaluate the model's kernels at the same rounding points too, and compare: more "
      "than 1e-5 (relative L2) apart is an error");
  command->callback([=, &action] {
    action = [=]() -> int {
      if (model->forChecking && execution->cyclesOnly)
        return fail(Usage, "--cycles-only computes no outputs to --check; leave one of them");
      if (auto failure = check(*execution))
        return fail(failure->code, failure->message);
      std::variant<Built, Failure> built = build(*model);
      if (auto *failure = std::get_if<Failure>(&built))
        return fail(failure->code, failure->message);
      Built &b = std::get<Built>(built);
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
