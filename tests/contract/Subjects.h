// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The programs whose images are damaged.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Expected.h"
#include "compiler/Forms/Kernel.h"

#include <string>
#include <vector>

namespace millrace::test {

/// A graph and the machine that it is compiled for.
struct Subject {
  std::string machine;
  forms::KernelGraph graph;
};
/// Every form of contraction, map and reduction, one and many PEs.
std::vector<Subject> mutationSubjects();

struct Program {
  std::string name;
  Machine machine;
  Image image;
};
Expected<Program> compiled(const Subject &subject);

/// The machine that an image was made for, from its own text. Errors: text that is no machine, or
/// one of another hash.
Expected<Machine> machineOf(const Image &image);

} // namespace millrace::test
