// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Build.h"
#include "compiler/Tools/Execute.h"
#include "compiler/Tools/ExplainCycles.h"
#include "compiler/Tools/ExplainLayouts.h"
#include "compiler/Tools/FileHash.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/HostRunner.h"

namespace millrace::driver {

static JudgeKind judgeNamed(const std::string &name) {
  return name == "kernels"       ? JudgeKind::Kernels
         : name == "reference"   ? JudgeKind::Reference
         : name == "onnxruntime" ? JudgeKind::OnnxRuntime
                                 : JudgeKind::None;
}

/// An error that storing values in 8 or 16 bits explains, with what cancels out in them.
static double leastDeparture(const std::string &precision) {
  return precision == "fp16" ? 8 * 0x1p-11 : 8 * 0x1p-8;
}

static std::variant<Verdict, Failure> verdictOf(const Built &built, const ModelOptions &model,
                                                const KernelDevices &devices, const Values &inputs,
                                                const Values &outputs) {
  Expected<Evaluated> evaluated = evaluateKernels(*built.reckoning, built.image, inputs, devices);
  if (!evaluated)
    return Failure{Wrong, evaluated.error()};
  Verdict verdict;
  Expected<std::map<std::string, Distance>> found = distances(outputs, evaluated->outputs);
  if (!found)
    return Failure{Wrong, found.error()};
  verdict.kernels = std::move(*found);
  if (model.judge == JudgeKind::Kernels)
    return verdict;
  std::vector<std::string> wanted;
  for (const auto &[name, value] : evaluated->values)
    wanted.push_back(name);
  const bool byReference = model.judge == JudgeKind::Reference;
  Expected<Values> judged = byReference ? referenceValues(*built.tensors.module, inputs, wanted)
                                        : onnxRuntimeValues(model.model, inputs, wanted);
  if (!judged)
    return Failure{BadInput, judged.error()};
  Values judgedOutputs;
  for (const auto &[name, value] : outputs)
    if (const auto other = judged->find(name); other != judged->end())
      judgedOutputs[name] = other->second;
  found = distances(outputs, judgedOutputs);
  if (!found)
    return Failure{Wrong, found.error()};
  verdict.judge = byReference ? "reference" : "onnxruntime";
  verdict.outputs = std::move(*found);
  evaluated->values.merge(evaluated->outputs);
  verdict.departure = firstDeparture(
      *built.tensors.module, evaluated->values, *judged,
      leastDeparture(jsonNote(built.image, "precision").get<std::string>()), verdict.compared);
  return verdict;
}

void addRun(CLI::App &app, Action &action) {
  auto model = std::make_shared<ModelOptions>();
  auto execution = std::make_shared<ExecuteOptions>();
  auto judgeName = std::make_shared<std::string>();
  CLI::App *command =
      app.add_subcommand("run", "Compiles a model, executes it, writes outputs and a report")
          ->group(heading::Models);
  command->footer("Examples:\n"
                  "  millrace run model.onnx --machine mesh-4x4 --dim batch=1\n"
                  "  millrace run model.onnx --input x=x.npy --output-dir out --json r.json\n"
                  "  millrace run model.onnx -q --json - | jq .measured_cycles\n"
                  "  millrace run model.onnx --machine lp30 --set mxm.planes=4 --cycles-only");
  model->addTo(*command);
  execution->addTo(*command);
  addVerbosity(*command, model->verbosity);
  command
      ->add_flag("--check{kernels}", *judgeName,
                 "compare the outputs with the evaluated kernels; =reference: also with the model "
                 "in its own types on this CPU; =onnxruntime: with ONNX Runtime (docs/running.md)")
      ->check(CLI::IsMember({"kernels", "reference", "onnxruntime"}))
      ->type_name("JUDGE")
      ->group(heading::Simulation);
  command
      ->add_option(
          "--gpu", execution->gpu,
          "host steps as generated GPU kernels: cpu (compiled for this CPU), emulate (thread by "
          "thread), cuda (on a GPU), auto (cuda, else cpu) or off; steps that "
          "--device-map sends there: cpu")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "emulate", "off"}))
      ->type_name("DEVICE")
      ->default_str("off")
      ->group(heading::Simulation);
  command->callback([=, &action] {
    action = [=]() -> int {
      const auto devices = devicesNamed(execution->gpu, execution->gpuUse);
      if (const auto *failure = std::get_if<Failure>(&devices))
        return fail(failure->code, failure->message);
      if (model->explain == "what-would-help")
        return fail(Usage,
                    "--explain what-would-help compiles for other machines and runs nothing; "
                    "give it to `millrace compile`");
      execution->watch.verbosity = model->verbosity;
      model->judge = judgeNamed(*judgeName);
      if (model->judge != JudgeKind::None && execution->cyclesOnly)
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
      if (b.layouts) {
        b.image.notes.push_back({"layouts", jsonText(jsonOf(*b.layouts))});
        if (model->verbosity != Verbosity::Quiet)
          std::fprintf(execution->isTaken() ? stderr : stdout, "%s\n",
                       textOf(*b.layouts, model->layoutsTitle(b.machine, *b.layouts)).c_str());
      }
      if (b.cycles) {
        b.image.notes.push_back({"cycle_account", jsonText(jsonOf(*b.cycles))});
        if (model->explain == "cycles" && !execution->watch.trace.empty())
          execution->watch.idle = idleSlices(*b.cycles, b.image, b.machine);
        if (model->explain == "cycles" && model->verbosity != Verbosity::Quiet)
          std::fprintf(execution->isTaken() ? stderr : stdout, "%s\n", textOf(*b.cycles).c_str());
      }
      Judge judge;
      if (b.reckoning)
        judge = [&b, &model, &devices](const auto &inputs, const auto &outputs) {
          return verdictOf(b, *model, std::get<KernelDevices>(devices), inputs, outputs);
        };
      return execute(b.image, b.machine, *execution,
                     makeHostRunner(std::get<KernelDevices>(devices)), judge);
    };
  });
}

} // namespace millrace::driver
