// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Subjects.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"

namespace millrace::test {

std::vector<Subject> mutationSubjects() {
  using namespace forms;
  return {
      {"tsp-small", buildMatmul({.m = 20, .k = 100, .n = 70})},
      {"tsp-small",
       buildConv({.channels = 40, .height = 9, .width = 9, .filters = 50, .residual = true})},
      {"tsp-small",
       buildConv(
           {.channels = 40, .height = 9, .width = 9, .filters = 64, .type = ElementType::Int8})},
      {"tsp-small", buildMaxPool(64, 12, 12, 2, 2, 0, ElementType::Fp16)},
      {"tsp-small", buildLayerNorm(20, 100)},
      {"tsp-small", buildAttention(20, 32, 16, true)},
      {"tsp-v1", buildPerceptron(30, 64, 4, ElementType::Fp16)},
      {"mesh-4x4", buildAttention(20, 32, 16, true)},
  };
}

Expected<Program> compiled(const Subject &subject) {
  std::string type;
  for (const forms::Tensor &t : subject.graph.tensors)
    if (t.role == forms::TensorRole::Input && type.empty())
      type = nameOf(t.type);
  Program program{subject.graph.name + " " + type + " on " + subject.machine, {}, {}};
  Expected<Machine> machine = loadMachine(subject.machine);
  if (!machine)
    return machine.takeError();
  grid::CompileReport report;
  Expected<Image> image = grid::compile(subject.graph, *machine, {}, report);
  if (!image)
    return Error{program.name + ": " + image.error()};
  program.machine = std::move(*machine), program.image = std::move(*image);
  return program;
}

Expected<Machine> machineOf(const Image &image) {
  Expected<Machine> machine = parseMachine(image.machineYaml, image.machineName);
  if (machine && machine->hash() != image.machineHash)
    return Error{"the image's text of machine '" + image.machineName +
                 "' has another hash than the image; compile it again"};
  return machine;
}

} // namespace millrace::test
