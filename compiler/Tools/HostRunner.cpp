// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/HostRunner.h"

#include "arch/program/HostData.h"
#include "arch/program/PlacementWalk.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"

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
  std::optional<gpu::Device> device;
  mlir::MLIRContext context;
  std::string diagnostic; ///< the first error that MLIR reported
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::map<std::string, HostFunction> functions;
};

HostFunctions::HostFunctions(std::optional<gpu::Device> device) : device(device) {}
HostFunctions::~HostFunctions() = default;

Expected<HostFunction> HostFunctions::compile(Compiler &compiler, const std::string &name) {
  HostFunction function;
  if (compiler.device) {
    auto kernels = gpu::HostKernels::create(*compiler.module, name, *compiler.device);
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

HostStepDevice HostFunctions::deviceOf(const std::string &name) const {
  const HostFunction &function = compiler->functions.at(name);
  HostStepDevice device;
  if (!function.kernels) {
    device.left.push_back(function.whyNoKernels);
    return device;
  }
  device.kernels = function.kernels->summary().launches;
  device.left = function.kernels->summary().left;
  return device;
}

Expected<HostFunction *> HostFunctions::find(Compiler &compiler, const std::string &module,
                                             const std::string &name) {
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
  auto function = compiler.functions.find(name);
  if (function == compiler.functions.end()) {
    Expected<HostFunction> compiled = compile(compiler, name);
    if (!compiled)
      return compiled.takeError();
    function = compiler.functions.emplace(name, std::move(*compiled)).first;
  }
  return &function->second;
}

void HostFunctions::compileAhead(const Image &image) {
  std::vector<std::string> names;
  for (const Step &step : image.steps)
    if (step.kind == Step::Kind::Host)
      names.push_back(step.function);
  compiler = std::make_unique<Compiler>(device);
  ahead = std::async(std::launch::async,
                     [own = compiler.get(), module = image.hostModule, names = std::move(names)] {
                       for (const std::string &name : names)
                         if (!find(*own, module, name))
                           return;
                     });
}

Expected<std::vector<HostTensor>> HostFunctions::call(const std::string &module,
                                                      const std::string &name,
                                                      const std::vector<HostView> &arguments) {
  if (ahead.valid())
    ahead.get();
  if (!compiler)
    compiler = std::make_unique<Compiler>(device);
  Expected<HostFunction *> function = find(*compiler, module, name);
  if (!function)
    return function.takeError();
  Expected<std::vector<HostTensor>> results = (*function)->run(arguments);
  if (!results)
    return Error{"host function '" + name + "': " + results.error()};
  return results;
}

MakeHostSteps makeHostRunner(std::optional<gpu::Device> device) {
  return [device](const auto &inputs, auto &outputs) {
    return std::make_unique<HostRunner>(inputs, outputs, std::make_shared<HostFunctions>(device));
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
  Expected<std::vector<HostTensor>> results =
      functions->call(image.hostModule, step.function, arguments);
  if (!results)
    return results.takeError();
  if (functions->device) {
    report.push_back(functions->deviceOf(step.function));
    report.back().function = step.function;
  }
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
    if (binding.role == Binding::Role::Output)
      outputs[binding.name] = std::move((*results)[r]);
  }
  elapsed += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return Success{};
}

} // namespace millrace::driver
