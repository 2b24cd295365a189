// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a kernel graph, simulates the image, and holds the outputs against the graph's own
// evaluation.
#pragma once

#include "arch/program/ImageCheck.h"
#include "arch/program/ImageFile.h"
#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "simulator/system/Simulate.h"
#include "tests/arch/program/Placements.h"
#include "tests/contract/Distance.h"

#include <functional>
#include <map>

namespace millrace::test {

/// The addresses of indices that docs/spec/image.md asks for, in the first lanes of each superlane.
inline void writeMaps(const Binding &b, const forms::TensorBytes &indices, RowAccess &memory) {
  for (const Placement &p : b.placements)
    forEachElement(b, p, [&](int64_t element, uint32_t row, size_t lane) {
      int32_t index = 0;
      std::memcpy(&index, &indices[size_t(element) * 4], 4);
      index += index < 0 ? int32_t(b.extent) : 0;
      const uint32_t within = uint32_t(index) - p.first;
      const uint32_t address = within < p.rows ? within : p.rows;
      for (unsigned k = 0; k < 4; ++k)
        memory.write(p.pe, p.hemisphere, p.slices[0], row)[lane + k] = uint8_t(address >> 8 * k);
    });
}

struct GridRun {
  std::string error;
  grid::CompileReport report;
  sim::SimulationResult simulated;
  std::map<std::string, std::vector<uint8_t>>
      outputs; ///< by binding name, raw bytes of the grid type
};

/// Puts inputs of the graph, in grid types, where the image's bindings say. The arguments must live
/// as long as the function returned.
inline std::function<Status(RowAccess &)>
inputWriter(const Image &image, const forms::KernelGraph &graph,
            const std::map<unsigned, forms::TensorBytes> &inputs) {
  return [&](RowAccess &memory) -> Status {
    auto tensorNamed = [&](const std::string &name) {
      for (unsigned t = 0; t < graph.tensors.size(); ++t)
        if ((graph.tensors[t].hostName.empty() ? graph.tensors[t].name
                                               : graph.tensors[t].hostName) == name)
          return t;
      return 0u;
    };
    for (const Binding &b : image.bindings) {
      if (b.role != Binding::Role::Input)
        continue;
      const forms::TensorBytes &bytes = inputs.at(tensorNamed(b.name));
      const unsigned width = byteWidth(b.gridType);
      if (b.extent) {
        writeMaps(b, bytes, memory);
        continue;
      }
      for (const Placement &p : b.placements)
        forEachElement(b, p, [&](int64_t element, uint32_t row, size_t lane) {
          for (size_t k = 0; k < p.slices.size(); ++k)
            memory.write(p.pe, p.hemisphere, p.slices[k], row)[lane] =
                element < 0 ? uint8_t(p.fill >> 8 * (p.firstByte + k))
                            : bytes[size_t(element) * width + p.firstByte + k];
        });
    }
    return Success{};
  };
}

/// Simulates an image of the graph; `ignoreMachine`: although it was compiled for another machine;
/// `batch`: of SimulationOptions.
inline GridRun simulateImage(const Image &program, const forms::KernelGraph &graph,
                             const Machine &machine,
                             const std::map<unsigned, forms::TensorBytes> &inputs,
                             bool values = true, bool ignoreMachine = false,
                             size_t batch = sim::SimulationOptions().batch) {
  GridRun run;
  const Image *image = &program;
  sim::SimulationOptions options;
  options.values = values;
  options.ignoreMachineHash = ignoreMachine;
  options.batch = batch;
  options.writeInputs = inputWriter(program, graph, inputs);
  options.readOutputs = [&](RowAccess &memory) -> Status {
    std::vector<uint8_t> vector(machine.lanes());
    for (const Binding &b : image->bindings) {
      if (b.role != Binding::Role::Output)
        continue;
      const unsigned width = byteWidth(b.gridType);
      int64_t count = 1;
      for (int64_t d : b.shape)
        count *= d;
      auto &bytes = run.outputs[b.name];
      bytes.assign(size_t(count) * width, 0xcd);
      for (const Placement &p : b.placements)
        forEachElement(b, p, [&](int64_t element, uint32_t row, size_t lane) {
          for (size_t k = 0; k < p.slices.size(); ++k) {
            memory.read(p.pe, p.hemisphere, p.slices[k], row, vector);
            bytes[size_t(element) * width + p.firstByte + k] = vector[lane];
          }
        });
    }
    return Success{};
  };
  Expected<sim::SimulationResult> result = sim::simulate(*image, machine, options);
  if (!result)
    run.error = result.error();
  else
    run.simulated = *result;
  return run;
}

/// Compiles, verifies, and simulates what the image's file holds.
inline GridRun runOnGrid(const forms::KernelGraph &graph, const Machine &machine,
                         const std::map<unsigned, forms::TensorBytes> &inputs, bool values = true,
                         const grid::CompileOptions &options = {}) {
  grid::CompileReport report;
  Expected<Image> image = grid::compile(graph, machine, options, report);
  if (!image) {
    GridRun run;
    run.error = image.error();
    return run;
  }
  Expected<Image> read = decodeImage(encodeImage(*image), "compiled");
  const Status verified = read ? verifyImage(*read, machine) : Status(Error{read.error()});
  if (!verified) {
    GridRun run;
    run.error = verified.error();
    return run;
  }
  GridRun run = simulateImage(*read, graph, machine, inputs, values);
  run.report = report;
  return run;
}

/// Largest distance of an output from the graph's evaluation; -1 if an output is missing.
inline double distanceFromReference(const forms::KernelGraph &graph, const GridRun &run,
                                    const std::map<unsigned, forms::TensorBytes> &inputs) {
  forms::EvaluateOptions options;
  options.passes = [&](unsigned kernel) {
    for (const grid::KernelReport &k : run.report.kernels)
      if (k.kernel == kernel)
        return k.passes;
    return std::vector<forms::Pass>();
  };
  Expected<std::vector<forms::TensorBytes>> reference = forms::evaluate(graph, inputs, options);
  if (!reference)
    return -1;
  double worst = 0;
  for (unsigned t = 0; t < graph.tensors.size(); ++t) {
    const forms::Tensor &tensor = graph.tensors[t];
    if (tensor.role != forms::TensorRole::Output)
      continue;
    auto it = run.outputs.find(tensor.hostName.empty() ? tensor.name : tensor.hostName);
    if (it == run.outputs.end())
      return -1;
    const unsigned width = byteWidth(tensor.type);
    Distance distance;
    for (size_t e = 0; e * width < it->second.size(); ++e) {
      auto value = [&](const std::vector<uint8_t> &bytes) {
        uint32_t bits = 0;
        for (unsigned b = 0; b < width; ++b)
          bits |= uint32_t(bytes[e * width + b]) << 8 * b;
        return tensor.type == ElementType::Int8 ? double(int8_t(bits))
                                                : double(forms::decode(tensor.type, bits));
      };
      distance.add(value(it->second), value((*reference)[t]));
    }
    worst = std::max(worst, distance.relative());
  }
  return worst;
}

} // namespace millrace::test
