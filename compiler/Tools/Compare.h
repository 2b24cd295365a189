// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Outputs of a simulation against the evaluation of its kernel graph at the same rounding points:
// the sums of a contraction are rounded pass by pass, in the order that the compiler chose, and
// nothing else of the schedule is known to the evaluation.
#pragma once

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Tools/Distance.h"
#include "compiler/Tools/HostRunner.h"

#include <map>
#include <string>
#include <vector>

namespace millrace::driver {

/// What the evaluation needs to know of a program.
struct Reckoning {
  forms::KernelGraph graph; ///< as it was compiled, all rewritings done
  std::vector<grid::KernelReport> kernels;
};

struct Evaluated {
  std::map<std::string, HostTensor> outputs;
  /// What tensors of floats hold of the model's values, as fp32, by ONNX name. In the shape of the
  /// tensor: a rewriting may have given it another one.
  std::map<std::string, HostTensor> values;
};

/// Evaluates the graph for the inputs, host steps as `devices` says. Errors: a host call that
/// fails, an input that does not convert.
Expected<Evaluated> evaluateKernels(const Reckoning &reckoning, const Image &image,
                                    const std::map<std::string, HostTensor> &inputs,
                                    const KernelDevices &devices);

/// By name, of all that are in `others`. Errors: an output that is missing or of another size.
Expected<std::map<std::string, Distance>>
distances(const std::map<std::string, HostTensor> &outputs,
          const std::map<std::string, HostTensor> &others);

} // namespace millrace::driver
