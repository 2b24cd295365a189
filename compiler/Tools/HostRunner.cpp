// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/HostRunner.h"

#include "arch/program/HostData.h"
#include "arch/program/PlacementWalk.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"
#include "compiler/Tools/Notes.h"

#include <mlir/IR/MLIRContext.h>
#include <mlir/Parser/Parser.h>

#include <chrono>
#include <deque>

namespace millrace::driver {

/// A function in one of its executions.
struct HostFunction {
  std::optional<Reference> reference;
  std::optional<gpu::HostKernels> kernels;
  std::string whyNoKernels;

  Expected<std::vector<HostTensor>> run(const std::vector<HostView> &arguments) {
    return kernels ? kernels->run(arguments, kAdversary) : reference->run(arguments);
  }
  /// Threads in an order that is no order of theirs.
  static constexpr gpu::Adversary kAdversary = {gpu::Landing::Late, gpu::Landing::Late,
                                                gpu::Landing::Late, 2};
};

struct HostFunctions::Compiler {
  KernelDevices devices;
  std::string multiplied; ///< the type that tensor cores multiply
  nlohmann::json table;   ///< the image's launches, by function
  mlir::MLIRContext context;
  std::string diagnostic; ///< the first error that MLIR reported
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::map<std::string, HostFunction> functions;
};

static std::string precisionOf(const Image &image) {
  const nlohmann::json precision = jsonNote(image, "precision");
  return precision.is_string() ? precision.get<std::string>() : "";
}

std::string multipliedType(const std::string &precision) {
  return precision == "bf16" ? "bf16" : "f16";
}

/// Where the kernels of a step run; none: it has none.
static std::optional<gpu::Device> kernelsOf(const Step &step, const KernelDevices &devices) {
  return step.device == StepDevice::Gpu    ? devices.gpu
         : step.device == StepDevice::Host ? devices.host
                                           : std::nullopt;
}

HostFunctions::HostFunctions(KernelDevices devices) : devices(devices) {}
HostFunctions::~HostFunctions() = default;

Expected<HostFunction> HostFunctions::compile(Compiler &compiler, const Step &step) {
  const std::string &name = step.function;
  HostFunction function;
  if (const std::optional<gpu::Device> device = kernelsOf(step, compiler.devices)) {
    // Of what nobody sent to a GPU, no number is rounded more than the model says.
    const bool isOfGpu = step.device == StepDevice::Gpu;
    auto kernels = gpu::HostKernels::create(
        *compiler.module, name,
        gpu::KernelOptions{.device = *device,
                           .multiplied = isOfGpu ? compiler.multiplied : std::string(),
                           .cuda = compiler.devices.cuda});
    if (kernels)
      function.kernels = std::move(*kernels);
    else
      function.whyNoKernels = kernels.error();
  }
  if (!function.kernels) {
    Expected<Reference> compiled = Reference::create(*compiler.module, name);
    if (!compiled)
      return Error{"host function '" + name + "': " + compiled.error()};
    function.reference = std::move(*compiled);
  }
  return function;
}

/// Kernels of a function in the image's table of launches, of which the timeline is; nothing if it
/// has none.
static std::optional<std::vector<std::string>> launchesIn(const nlohmann::json &table,
                                                          const std::string &function) {
  if (!table.is_object() || !table.contains(function) || !table[function].is_object() ||
      !table[function].contains("launches"))
    return std::nullopt;
  std::vector<std::string> kernels;
  for (const nlohmann::json &launch : table[function]["launches"])
    if (launch.is_object() && launch.contains("kernel") && launch["kernel"].is_string())
      kernels.push_back(launch["kernel"].get<std::string>());
  return kernels;
}

HostStepDevice HostFunctions::deviceOf(const Step &step) const {
  const HostFunction &function = compiler->functions.at(step.function);
  HostStepDevice device;
  device.function = step.function;
  device.device = step.device;
  if (!kernelsOf(step, devices))
    return device;
  if (!function.kernels) {
    device.left.push_back(function.whyNoKernels);
    return device;
  }
  device.kernels = function.kernels->summary().launches;
  device.left = function.kernels->summary().left;
  device.notes = function.kernels->summary().notes;
  if (const auto planned = launchesIn(compiler->table, step.function);
      planned && *planned != device.kernels)
    device.notes.push_back("the image's table of launches, of which the timeline is, has others");
  device.ran = gpu::nameOf(*kernelsOf(step, devices));
  return device;
}

Expected<HostFunction *> HostFunctions::find(Compiler &compiler, const std::string &module,
                                             const Step &step) {
  if (!compiler.module) {
    compiler.context.getDiagEngine().registerHandler([own = &compiler](mlir::Diagnostic &d) {
      if (d.getSeverity() == mlir::DiagnosticSeverity::Error && own->diagnostic.empty())
        own->diagnostic = d.str();
      return mlir::success();
    });
    loadImportDialects(compiler.context);
    registerReferenceDialects(compiler.context);
    compiler.module = mlir::parseSourceString<mlir::ModuleOp>(module, &compiler.context);
    if (!compiler.module)
      return Error{"the image's host functions are not valid MLIR (" + compiler.diagnostic +
                   "); compile the model again"};
  }
  auto function = compiler.functions.find(step.function);
  if (function == compiler.functions.end()) {
    Expected<HostFunction> compiled = compile(compiler, step);
    if (!compiled)
      return compiled.takeError();
    function = compiler.functions.emplace(step.function, std::move(*compiled)).first;
  }
  return &function->second;
}

void HostFunctions::compileAhead(const Image &image) {
  std::vector<Step> steps;
  for (const Step &step : image.steps)
    if (step.kind == Step::Kind::Host)
      steps.push_back(step);
  compiler = makeCompiler(image);
  ahead = std::async(std::launch::async,
                     [own = compiler.get(), module = image.hostModule, steps = std::move(steps)] {
                       for (const Step &step : steps)
                         if (!find(*own, module, step))
                           return;
                     });
}

std::unique_ptr<HostFunctions::Compiler> HostFunctions::makeCompiler(const Image &image) const {
  auto made = std::make_unique<Compiler>();
  made->devices = devices;
  made->multiplied = multipliedType(precisionOf(image));
  made->table = jsonNote(image, "gpu_functions");
  return made;
}

Expected<std::vector<HostTensor>> HostFunctions::call(const Image &image, const Step &step,
                                                      const std::vector<HostView> &arguments) {
  if (ahead.valid())
    ahead.get();
  if (!compiler)
    compiler = makeCompiler(image);
  Expected<HostFunction *> function = find(*compiler, image.hostModule, step);
  if (!function)
    return function.takeError();
  Expected<std::vector<HostTensor>> results = (*function)->run(arguments);
  if (!results)
    return Error{"host function '" + step.function + "': " + results.error()};
  return results;
}

MakeHostSteps makeHostRunner(KernelDevices devices) {
  return [devices](const auto &inputs, auto &outputs) {
    return std::make_unique<HostRunner>(inputs, outputs, std::make_shared<HostFunctions>(devices));
  };
}

MakeHostSteps beginHostRunner(const Image &image) {
  auto functions = std::make_shared<HostFunctions>();
  functions->compileAhead(image);
  return [functions](const auto &inputs, auto &outputs) {
    return std::make_unique<HostRunner>(inputs, outputs, functions);
  };
}

HostRunner::HostRunner(const std::map<std::string, HostTensor> &inputs,
                       std::map<std::string, HostTensor> &outputs,
                       std::shared_ptr<HostFunctions> functions)
    : inputs(inputs), outputs(outputs), functions(std::move(functions)) {}
HostRunner::~HostRunner() = default;

/// Integers of MLIR have no sign: those of the model may.
static bool isSameInteger(HostType x, HostType y) {
  const auto isInteger = [](HostType t) { return t >= HostType::Int8 && t <= HostType::UInt64; };
  return isInteger(x) && isInteger(y) && byteSize(x) == byteSize(y);
}

/// Rows are filled by the binding's type and shape, whatever the function gives.
static Status checkResult(const Step &step, const Binding &binding, HostTensor &result) {
  const std::optional<HostType> wanted = hostTypeOf(binding);
  const Expected<uint64_t> elements = elementCount(binding);
  if (wanted && isSameInteger(result.type, *wanted))
    result.type = *wanted;
  if (!elements || result.type != wanted || uint64_t(result.elementCount()) != *elements)
    return Error{"host function '" + step.function + "' gives " +
                 std::to_string(result.elementCount()) + " elements of " +
                 std::string(onnxName(result.type)) + " for '" + binding.name + "', which has " +
                 (elements ? std::to_string(*elements) : "too many") + " of " + binding.hostType +
                 "; compile the model again"};
  result.shape = binding.shape;
  return Success{};
}

/// A constant whose elements lie in the image as the host wants them; a table may have a hundred
/// MB.
static std::optional<HostView> inPlace(const Binding &binding, const Image &image) {
  constexpr size_t kAlignment = 16; // as compiled code expects of what an allocator gives
  const std::optional<HostType> type = hostTypeOf(binding);
  const uint8_t *data = image.data.data() + binding.offset;
  if (!type || !hostHasGridBits(binding) || reinterpret_cast<uintptr_t>(data) % kAlignment)
    return std::nullopt;
  return HostView(*type, binding.shape, std::as_bytes(std::span(data, size_t(hostBytes(binding)))));
}

Status HostRunner::run(const Image &image, const Step &step, RowAccess &memory) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<HostView> arguments;
  std::deque<HostTensor> made; // what some of the arguments view
  for (uint32_t b : step.inputs) {
    const Binding &binding = image.bindings[b];
    if (auto given = inputs.find(binding.name);
        binding.role == Binding::Role::Input && given != inputs.end()) {
      arguments.push_back(given->second);
      continue;
    }
    if (const auto made = handedOn.find(b); made != handedOn.end()) {
      arguments.push_back(made->second);
      continue;
    }
    const bool constant = binding.role == Binding::Role::HostConstant;
    if (const std::optional<HostView> there = constant ? inPlace(binding, image) : std::nullopt) {
      arguments.push_back(*there);
      continue;
    }
    Expected<HostTensor> tensor = tensorFor(binding);
    if (!tensor)
      return tensor.takeError();
    Status read = constant ? readConstant(binding, image.data.data(), tensor->data.data())
                           : readTensor(binding, tensor->data.data(), memory);
    if (!read)
      return read;
    arguments.push_back(made.emplace_back(std::move(*tensor)));
  }
  Expected<std::vector<HostTensor>> results = functions->call(image, step, arguments);
  if (!results)
    return results.takeError();
  if (functions->devices.host || step.device != StepDevice::Host)
    report.push_back(functions->deviceOf(step));
  if (results->size() < step.outputs.size())
    return Error{"host function '" + step.function + "' gives " + std::to_string(results->size()) +
                 " results, its step wants " + std::to_string(step.outputs.size()) +
                 "; compile the model again"};
  for (size_t r = 0; r < step.outputs.size(); ++r) {
    const Binding &binding = image.bindings[step.outputs[r]];
    if (Status s = checkResult(step, binding, results->at(r)); !s)
      return s;
    if (!binding.placements.empty())
      if (Status s = writeTensor(binding, (*results)[r].data.data(), memory); !s)
        return s;
    if (binding.placements.empty())
      handedOn[step.outputs[r]] = (*results)[r];
    if (binding.role == Binding::Role::Output)
      outputs[binding.name] = std::move((*results)[r]);
  }
  elapsed += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return Success{};
}

} // namespace millrace::driver
