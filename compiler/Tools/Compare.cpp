// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Compare.h"

#include "arch/program/HostData.h"
#include "arch/program/HostNumbers.h"
#include "compiler/Codegen/Grid/Bindings.h"
#include "compiler/Tools/HostRunner.h"

#include <cmath>
#include <cstring>

namespace millrace::driver {
namespace {

using forms::TensorBytes;

/// Evaluates one graph; keeps what host calls hand to each other as it is.
class Evaluation {
public:
  Evaluation(const Reckoning &reckoning, const Image &image,
             const std::map<std::string, HostTensor> &inputs)
      : reckoning(reckoning), graph(reckoning.graph), image(image), inputs(inputs) {
    const std::vector<unsigned> bound = grid::boundTensors(graph);
    for (size_t b = 0; b < bound.size(); ++b)
      bindings[bound[b]] = &image.bindings[b];
  }

  Expected<std::map<std::string, HostTensor>> run() {
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
    std::map<std::string, HostTensor> outputs;
    for (unsigned t = 0; t < graph.tensors.size(); ++t) {
      if (graph.tensors[t].role != forms::TensorRole::Output)
        continue;
      Expected<HostTensor> value = hostValue(t, *tensors);
      if (!value)
        return value.takeError();
      outputs[bindings.at(t)->name] = std::move(*value);
    }
    return outputs;
  }

private:
  const Reckoning &reckoning;
  const forms::KernelGraph &graph;
  const Image &image;
  const std::map<std::string, HostTensor> &inputs;
  std::map<unsigned, const Binding *> bindings;
  std::map<unsigned, HostTensor> byHost; ///< tensors that the host made
  HostFunctions functions;

  Expected<HostTensor> hostValue(unsigned t, const std::vector<TensorBytes> &tensors) const {
    if (auto it = byHost.find(t); it != byHost.end())
      return it->second;
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

  Status callHost(const forms::HostCall &call, std::vector<TensorBytes> &tensors) {
    std::vector<HostTensor> arguments;
    for (unsigned t : call.inputs) {
      Expected<HostTensor> value = hostValue(t, tensors);
      if (!value)
        return value.takeError();
      arguments.push_back(std::move(*value));
    }
    Expected<std::vector<HostTensor>> results =
        functions.call(image.hostModule, call.function, {arguments.begin(), arguments.end()});
    if (!results)
      return results.takeError();
    for (size_t r = 0; r < call.outputs.size(); ++r) {
      const unsigned t = call.outputs[r];
      if (!bindings.at(t)->placements.empty()) {
        Expected<std::vector<uint8_t>> bytes =
            gridElements(*bindings.at(t), (*results)[r].data.data());
        if (!bytes)
          return bytes.takeError();
        tensors[t] = forms::layOut(graph.tensors[t], *bytes);
      }
      byHost[t] = std::move((*results)[r]);
    }
    return Success{};
  }
};

double valueOf(const HostTensor &tensor, size_t k) {
  switch (tensor.type) {
  case HostType::Float32:
    return double(tensor.as<float>()[k]);
  case HostType::Float64:
    return tensor.as<double>()[k];
  default: { // integers: their difference in units
    int64_t value = 0;
    const unsigned width = byteSize(tensor.type);
    std::memcpy(&value, tensor.data.data() + k * width, width);
    const bool isSigned = tensor.type == HostType::Int8 || tensor.type == HostType::Int16 ||
                          tensor.type == HostType::Int32;
    const unsigned shift = 64 - 8 * width;
    return double(isSigned ? int64_t(uint64_t(value) << shift) >> shift : value);
  }
  }
}

Distance distance(const HostTensor &output, const HostTensor &reference) {
  Distance d;
  double difference = 0, norm = 0;
  const unsigned width = byteSize(output.type);
  d.elements = uint64_t(output.elementCount());
  for (size_t k = 0; k < d.elements; ++k) {
    if (!std::memcmp(&output.data[k * width], &reference.data[k * width], width)) {
      norm += valueOf(reference, k) * valueOf(reference, k);
      continue;
    }
    ++d.differing;
    const double x = valueOf(output, k), y = valueOf(reference, k);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  d.relativeL2 = difference == 0 ? 0 : std::sqrt(difference / norm);
  return d;
}

} // namespace

Expected<std::map<std::string, Distance>>
distances(const Reckoning &reckoning, const Image &image,
          const std::map<std::string, HostTensor> &inputs,
          const std::map<std::string, HostTensor> &outputs) {
  Expected<std::map<std::string, HostTensor>> reference =
      Evaluation(reckoning, image, inputs).run();
  if (!reference)
    return reference.takeError();
  std::map<std::string, Distance> all;
  for (const auto &[name, value] : *reference) {
    auto output = outputs.find(name);
    if (output == outputs.end())
      return Error{"the run left no output '" + name + "' to check"};
    all[name] = distance(output->second, value);
  }
  return all;
}

} // namespace millrace::driver
