// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A function of the tensor level as generated kernels: executed with random inputs, compared with
// the execution of the same kernels on this CPU, and timed on a GPU.
#include "arch/files/NewFile.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Kernels/KernelPlan.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"
#include "compiler/Tools/Commands.h"
#include "compiler/Tools/Distance.h"
#include "compiler/Tools/ErrorLine.h"
#include "compiler/Tools/Execute.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/HostRunner.h"
#include "compiler/Tools/Inputs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace millrace::driver {
namespace {

using nlohmann::json;

struct KernelsOptions {
  std::string file, gpu = "emulate", type, tuning, json;
  uint64_t seed = 0;
  int64_t integersBelow = 2;
  unsigned repeat = 0;
  bool noCheck = false;
  std::optional<double> mostError;
};

std::variant<std::vector<HostTensor>, Failure> drawInputs(mlir::func::FuncOp function,
                                                          const KernelsOptions &options) {
  std::vector<HostTensor> inputs;
  std::mt19937_64 random(options.seed);
  for (mlir::Type type : function.getArgumentTypes()) {
    auto tensor = mlir::dyn_cast<mlir::RankedTensorType>(type);
    const std::optional<HostType> element = tensor && tensor.hasStaticShape()
                                                ? hostTypeOfElement(tensor.getElementType())
                                                : std::nullopt;
    if (!element)
      return Failure{BadInput, options.file + ": argument " + std::to_string(inputs.size()) +
                                   " of @main is no static tensor of a type that the host knows"};
    inputs.push_back(randomTensor(*element, {tensor.getShape().begin(), tensor.getShape().end()},
                                  random, options.integersBelow));
  }
  return inputs;
}

double quantile(std::vector<double> sorted, double share) {
  std::sort(sorted.begin(), sorted.end());
  return sorted[size_t(share * double(sorted.size() - 1) + 0.5)];
}

json launchesJson(const gpu::KernelPlan &plan, const std::vector<gpu::LaunchTime> &times,
                  const gpu::TuningTable &table) {
  json rows = json::array();
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const gpu::LaunchWork &work = plan.launches[i];
    const gpu::LaunchEstimate estimate = gpu::estimate(work, table);
    json kind = work.kind.sizes;
    kind.update({{"op", work.kind.op}, {"type", work.kind.type}});
    json row = {{"kernel", work.kernel},
                {"kind", kind},
                {"programs", work.programs},
                {"bytes", work.bytes},
                {"matrix_flops", work.matrixFlops},
                {"other_flops", work.otherFlops},
                {"is_whole", work.isWhole},
                {"roofline_seconds", gpu::rooflineSeconds(work, table.estimatedChip())},
                {"estimated_seconds", estimate.seconds},
                {"is_by_measurement", estimate.isMeasured}};
    const bool isTimed = i < times.size() && times[i].kernel == work.kernel;
    row["runs"] = isTimed ? times[i].seconds.size() : 0;
    for (const auto &[key, share] :
         {std::pair("median_seconds", 0.5), {"p10_seconds", 0.1}, {"p90_seconds", 0.9}})
      row[key] = isTimed ? json(quantile(times[i].seconds, share)) : json();
    rows.push_back(std::move(row));
  }
  return rows;
}

void print(const json &result, FILE *out) {
  for (const json &launch : result["launches"])
    fmt::print(out, "{:<16} {:>8} programs, {} estimated, {}\n",
               launch["kernel"].get<std::string>(), int64_t(launch["programs"].get<double>()),
               fmt::format("{:.2f} us", launch["estimated_seconds"].get<double>() * 1e6),
               launch["median_seconds"].is_null()
                   ? std::string("not timed")
                   : fmt::format("{:.2f} us in {} runs",
                                 launch["median_seconds"].get<double>() * 1e6,
                                 launch["runs"].get<size_t>()));
  for (const char *key : {"left", "notes"})
    for (const json &line : result[key])
      fmt::print(out, "{}: {}\n", std::string_view(key) == "left" ? "without a kernel" : "note",
                 line.get<std::string>());
  for (const json &own : result["results"])
    fmt::print(out, "result: {} elements, relative L2 {} from the same kernels on this CPU\n",
               own["elements"].get<uint64_t>(),
               own["relative_l2"].is_null()
                   ? "infinite"
                   : fmt::format("{:.2e}", own["relative_l2"].get<double>()));
}

/// No number is further than all that are.
bool isFurther(double error, double other) {
  return std::isnan(error) ? !std::isnan(other) : error > other;
}

/// Compares with the same kernels on this CPU; what they all ran as is in `result`.
std::optional<Failure> compare(mlir::ModuleOp module, const KernelsOptions &options,
                               const KernelDevices &devices, const gpu::TuningTable &table,
                               const std::vector<HostTensor> &inputs, json &result) {
  const auto failed = [&](const std::string &error) {
    return Failure{BadInput, options.file + ": " + error};
  };
  const std::vector<HostView> views(inputs.begin(), inputs.end());
  std::vector<HostTensor> expected;
  if (!options.noCheck) {
    auto onCpu = gpu::HostKernels::create(module, "main",
                                          gpu::KernelOptions{.device = gpu::Device::Cpu,
                                                             .multiplied = options.type,
                                                             .tuning = &table});
    if (!onCpu)
      return failed(onCpu.error());
    auto values = onCpu->run(views);
    if (!values)
      return failed(values.error());
    expected = std::move(*values);
  }
  auto kernels = gpu::HostKernels::create(module, "main",
                                          gpu::KernelOptions{.device = *devices.gpu,
                                                             .multiplied = options.type,
                                                             .cuda = devices.cuda,
                                                             .timedRuns = options.repeat,
                                                             .tuning = &table});
  if (!kernels)
    return failed(kernels.error());
  Expected<gpu::KernelPlan> plan = gpu::planKernels(module, "main", options.type, table);
  if (!plan)
    return failed(plan.error());
  const bool isEmulated = *devices.gpu == gpu::Device::Emulated;
  std::vector<Distance> worst;
  for (const gpu::Adversary &adversary :
       isEmulated ? gpu::Adversary::all() : std::vector<gpu::Adversary>(1)) {
    auto got = kernels->run(views, adversary);
    if (!got)
      return failed(got.error());
    worst.resize(expected.size());
    for (size_t r = 0; r < expected.size(); ++r) {
      const Distance own = distance(got->at(r), expected[r]);
      if (!worst[r].elements || isFurther(own.relativeL2, worst[r].relativeL2))
        worst[r] = own;
    }
  }
  result["launches"] = launchesJson(*plan, kernels->times(), table);
  result["left"] = kernels->summary().left;
  result["notes"] = kernels->summary().notes;
  result["results"] = json::array();
  for (const Distance &own : worst) {
    const bool isFinite = std::isfinite(own.relativeL2);
    result["results"].push_back({{"elements", own.elements},
                                 {"differing_elements", own.differing},
                                 {"relative_l2", isFinite ? json(own.relativeL2) : json()}});
    if (options.mostError && !(own.relativeL2 <= *options.mostError))
      return Failure{Wrong, fmt::format("{}: a result differs from that of the same kernels on "
                                        "this CPU by {:.3g} (relative L2), and at most {:.3g} was "
                                        "asked for",
                                        options.file, own.relativeL2, *options.mostError)};
  }
  return std::nullopt;
}

/// That of the file, or of this program.
Expected<gpu::TuningTable> tableIn(const std::string &file) {
  if (file.empty())
    return gpu::TuningTable::builtIn();
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> text = mlir::openInputFile(file, &error);
  if (!text)
    return Error{error + "; check the path"};
  Expected<gpu::TuningTable> table = gpu::TuningTable::parse(text->getBuffer());
  return table ? std::move(table) : Expected<gpu::TuningTable>(Error{file + ": " + table.error()});
}

int runKernels(const KernelsOptions &options) {
  if (options.noCheck && options.mostError)
    return fail(Usage, "--no-check compares nothing that --most-error could bound; leave one");
  if (options.repeat && options.gpu != "cuda")
    return fail(Usage, "--repeat times kernels on a GPU; give --gpu cuda with it");
  std::optional<GpuUse> use;
  std::variant<KernelDevices, Failure> chosen = devicesNamed(options.gpu, use);
  if (const auto *failure = std::get_if<Failure>(&chosen))
    return fail(failure->code, failure->message);
  const auto &devices = std::get<KernelDevices>(chosen);
  Expected<gpu::TuningTable> table = tableIn(options.tuning);
  if (!table)
    return fail(BadInput, table.error());
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> file = mlir::openInputFile(options.file, &error);
  if (!file)
    return fail(BadInput, error + "; check the path");
  mlir::MLIRContext context;
  loadImportDialects(context);
  registerReferenceDialects(context);
  ErrorLine errors(context);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(file->getBuffer(), &context, options.file);
  if (!module)
    return fail(BadInput, errors.text());
  auto function = module->lookupSymbol<mlir::func::FuncOp>("main");
  if (!function)
    return fail(BadInput, options.file + " has no function @main; name it so");
  auto inputs = drawInputs(function, options);
  if (const auto *failure = std::get_if<Failure>(&inputs))
    return fail(failure->code, failure->message);
  json result = {{"schema_version", 1},
                 {"device", options.gpu},
                 {"gpu_name", use ? json(use->name) : json()},
                 {"gpu_chip", use ? json(use->chip) : json()},
                 {"seed", options.seed},
                 {"multiplied", options.type.empty() ? json() : json(options.type)}};
  if (auto failure = compare(*module, options, devices, *table,
                             std::get<std::vector<HostTensor>>(inputs), result))
    return fail(failure->code, failure->message);
  const bool isJsonOut = options.json == "-";
  print(result, isJsonOut ? stderr : stdout);
  const std::string text = result.dump(1) + "\n";
  if (isJsonOut)
    std::fputs(text.c_str(), stdout);
  else if (!options.json.empty())
    if (Status s = writeFile(options.json, text); !s)
      return fail(BadOutput, s.error());
  return Ok;
}

} // namespace

void addKernels(CLI::App &app, Action &action) {
  auto options = std::make_shared<KernelsOptions>();
  CLI::App *command =
      app.add_subcommand("kernels", "Runs a function of the tensor level as generated GPU kernels, "
                                    "compares their values with those on this CPU, times them")
          ->group(heading::Models);
  command->footer("Examples:\n"
                  "  millrace kernels softmax.mlir --gpu emulate\n"
                  "  millrace kernels softmax.mlir --gpu cuda --repeat 30 --json -\n"
                  "  millrace kernels product.mlir --type f16 --most-error 1e-3");
  command
      ->add_option("file", options->file,
                   "text with a function @main on static tensors, - for the standard input")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--gpu", options->gpu,
                   "where kernels run: cpu, emulate (under every order of events that the emulator "
                   "has) or cuda")
      ->check(CLI::IsMember({"cpu", "emulate", "cuda"}))
      ->type_name("DEVICE")
      ->capture_default_str()
      ->group(heading::Simulation);
  command
      ->add_option("--type", options->type,
                   "attention and products are kernels for tensor cores that multiply this type, "
                   "f16 or bf16, to which fp32 is rounded; without it nothing is rounded")
      ->check(CLI::IsMember({"f16", "bf16"}))
      ->type_name("TYPE")
      ->group(heading::Compiler);
  command
      ->add_option("--tuning", options->tuning,
                   "a tuning table that chooses schedules (docs/spec/gpu-tuning.schema.json); "
                   "without it that of this program")
      ->type_name("FILE")
      ->group(heading::Compiler);
  command
      ->add_option("--repeat", options->repeat,
                   "with --gpu cuda: how often each launch is done again to be timed, by the "
                   "driver's events, with a cold L2 cache")
      ->check(CLI::Range(0, 100000))
      ->type_name("N")
      ->group(heading::Simulation);
  command
      ->add_flag("--no-check", options->noCheck,
                 "compare nothing: what takes a GPU a moment may take this CPU minutes")
      ->group(heading::Simulation);
  command
      ->add_option("--most-error", options->mostError,
                   "exit with 1 if a result differs by more (relative L2) from that of the same "
                   "kernels on this CPU")
      ->check(CLI::NonNegativeNumber)
      ->type_name("E")
      ->group(heading::Simulation);
  command->add_option("--seed", options->seed, "of the inputs: floats are standard normal")
      ->type_name("N")
      ->capture_default_str()
      ->group(heading::Data);
  command
      ->add_option("--integers-below", options->integersBelow,
                   "integers of the inputs are drawn from 0 to this less one")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 31))
      ->type_name("N")
      ->capture_default_str()
      ->group(heading::Data);
  command->add_option("--json", options->json, "a file for the same as JSON, - the standard output")
      ->type_name("FILE")
      ->group(heading::Data);
  command->callback([=, &action] { action = [=] { return runKernels(*options); }; });
}

} // namespace millrace::driver
