// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Compare.h"

#include "arch/program/HostData.h"
#include "arch/program/HostNumbers.h"
#include "compiler/Codegen/Grid/Bindings.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Tools/HostRunner.h"

#include <cstring>

namespace millrace::driver {
namespace {

using forms::TensorBytes;

/// Evaluates one graph; keeps what host calls hand to each other outside of the grid's memory as it
/// is.
class Evaluation {
public:
  Evaluation(const Reckoning &reckoning, const Image &image,
             const std::map<std::string, HostTensor> &inputs, const KernelDevices &devices)
      : reckoning(reckoning), graph(reckoning.graph), image(image), inputs(inputs),
        functions(devices) {
    const std::vector<unsigned> bound = grid::boundTensors(graph);
    for (size_t b = 0; b < bound.size(); ++b)
      bindings[bound[b]] = &image.bindings[b];
  }

  Expected<Evaluated> run() {
    std::map<unsigned, TensorBytes> given;
    for (unsigned t = 0; t < graph.tensors.size(); ++t) {
      if (graph.tensors[t].role != forms::TensorRole::Input)
        continue;
      const Binding &binding = *bindings.at(t);
      const HostTensor &value = inputs.at(binding.name);
      byHost[t] = value;
      if (binding.placements.empty()) { // only host calls read it
        given[t].resize(size_t(value.elementCount()) * byteWidth(graph.tensors[t].type));
        continue;
      }
      Expected<std::vector<uint8_t>> bytes = gridElements(binding, value.data.data());
      if (!bytes)
        return bytes.takeError();
      given[t] = std::move(*bytes);
    }
    forms::EvaluateOptions options;
    options.passes = [&](unsigned kernel) {
      for (const grid::KernelReport &k : reckoning.kernels)
        if (k.kernel == kernel)
          return k.passes;
      return std::vector<forms::Pass>();
    };
    options.host = [&](const forms::HostCall &call, std::vector<TensorBytes> &tensors) {
      return callHost(call, tensors);
    };
    Expected<std::vector<TensorBytes>> tensors = forms::evaluate(graph, given, options);
    if (!tensors)
      return tensors.takeError();
    Evaluated result;
    std::vector<bool> isWritten(graph.tensors.size()); // a rewriting may have left a tensor alone
    for (const forms::Kernel &kernel : graph.kernels)
      for (const forms::Result &to : kernel.results)
        isWritten[to.access.tensor] = true;
    for (unsigned t = 0; t < graph.tensors.size(); ++t) {
      if (std::optional<HostTensor> value = modelValue(graph.tensors[t], (*tensors)[t]);
          value && isWritten[t])
        result.values.emplace(graph.tensors[t].value, std::move(*value));
      if (graph.tensors[t].role != forms::TensorRole::Output)
        continue;
      Expected<HostTensor> value = hostValue(t, *tensors);
      if (!value)
        return value.takeError();
      result.outputs[bindings.at(t)->name] = std::move(*value);
    }
    return result;
  }

private:
  const Reckoning &reckoning;
  const forms::KernelGraph &graph;
  const Image &image;
  const std::map<std::string, HostTensor> &inputs;
  std::map<unsigned, const Binding *> bindings;
  std::map<unsigned, HostTensor> byHost; ///< tensors that the host made
  HostFunctions functions;

  /// The ONNX value that the tensor holds, as fp32; nothing where it holds none, or none of floats.
  static std::optional<HostTensor> modelValue(const forms::Tensor &tensor,
                                              const TensorBytes &bytes) {
    const bool isFloat = tensor.type == ElementType::Fp16 || tensor.type == ElementType::Bf16 ||
                         tensor.type == ElementType::Fp32;
    if (tensor.value.empty() || !isFloat || !tensor.hostLoops.empty())
      return std::nullopt;
    HostTensor value = HostTensor::zeros(HostType::Float32, tensor.shape);
    const unsigned width = byteWidth(tensor.type);
    for (size_t k = 0; k < size_t(value.elementCount()); ++k) {
      uint32_t bits = 0;
      std::memcpy(&bits, &bytes[k * width], width);
      value.as<float>()[k] = forms::decode(tensor.type, bits);
    }
    return value;
  }

  Expected<HostTensor> hostValue(unsigned t, const std::vector<TensorBytes> &tensors) const {
    if (auto it = byHost.find(t); it != byHost.end())
      return it->second;
    return valueInMemory(t, tensors);
  }
  Expected<HostTensor> valueInMemory(unsigned t, const std::vector<TensorBytes> &tensors) const {
    Expected<HostTensor> value = tensorFor(*bindings.at(t));
    if (!value)
      return value;
    if (Status s = fromGrid(bindings.at(t)->gridType, tensors[t].data(),
                            *hostElementNamed(bindings.at(t)->hostType), value->data.data(),
                            size_t(value->elementCount()));
        !s)
      return s.takeError();
    return value;
  }

  static Step stepOf(const forms::HostCall &call) {
    Step step;
    step.kind = Step::Kind::Host;
    step.device = call.device;
    step.function = call.function;
    return step;
  }

  Status callHost(const forms::HostCall &call, std::vector<TensorBytes> &tensors) {
    std::vector<HostTensor> arguments;
    for (unsigned t : call.inputs) {
      // What another step left in the grid's memory is read from there.
      const bool isInMemory =
          graph.tensors[t].role != forms::TensorRole::Input && !bindings.at(t)->placements.empty();
      Expected<HostTensor> value = isInMemory ? valueInMemory(t, tensors) : hostValue(t, tensors);
      if (!value)
        return value.takeError();
      arguments.push_back(std::move(*value));
    }
    Expected<std::vector<HostTensor>> results =
        functions.call(image, stepOf(call), {arguments.begin(), arguments.end()});
    if (!results)
      return results.takeError();
    for (size_t r = 0; r < call.outputs.size(); ++r) {
      const unsigned t = call.outputs[r];
      if (!bindings.at(t)->placements.empty()) {
        Expected<std::vector<uint8_t>> bytes =
            gridElements(*bindings.at(t), (*results)[r].data.data());
        if (!bytes)
          return bytes.takeError();
        tensors[t] = std::move(*bytes); // as the host has it; evaluate() lays it out
      }
      if (const auto type = hostTypeOf(*bindings.at(t));
          type && // integers of MLIR have no sign
          byteSize(*type) == byteSize((*results)[r].type))
        (*results)[r].type = *type;
      byHost[t] = std::move((*results)[r]);
    }
    return Success{};
  }
};

} // namespace

Expected<Evaluated> evaluateKernels(const Reckoning &reckoning, const Image &image,
                                    const std::map<std::string, HostTensor> &inputs,
                                    const KernelDevices &devices) {
  return Evaluation(reckoning, image, inputs, devices).run();
}

Expected<std::map<std::string, Distance>>
distances(const std::map<std::string, HostTensor> &outputs,
          const std::map<std::string, HostTensor> &others) {
  std::map<std::string, Distance> all;
  for (const auto &[name, value] : others) {
    auto output = outputs.find(name);
    if (output == outputs.end())
      return Error{"the run left no output '" + name + "' to check"};
    if (output->second.elementCount() != value.elementCount())
      return Error{"output '" + name + "' has " + std::to_string(output->second.elementCount()) +
                   " elements, its judge computed " + std::to_string(value.elementCount())};
    all[name] = distance(output->second, value);
  }
  return all;
}

} // namespace millrace::driver
