// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Outputs of a simulation against the evaluation of its kernel graph at the same rounding points:
// the sums of a contraction are rounded pass by pass, in the order that the compiler chose, and
// nothing else of the schedule is known to the evaluation.
#pragma once

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Tools/Distance.h"

#include <map>
#include <string>
#include <vector>

namespace millrace::driver {

/// What the evaluation needs to know of a program.
struct Reckoning {
  forms::KernelGraph graph; ///< as it was compiled, all rewritings done
  std::vector<grid::KernelReport> kernels;
};

/// Evaluates the graph for the inputs and compares the outputs, by name. Errors: a host call that
/// fails, an input that does not convert.
Expected<std::map<std::string, Distance>>
distances(const Reckoning &reckoning, const Image &image,
          const std::map<std::string, HostTensor> &inputs,
          const std::map<std::string, HostTensor> &outputs);

} // namespace millrace::driver
