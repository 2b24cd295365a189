// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who runs the host steps of a program, as executing it sees them: what compiles their functions
// needs MLIR, which a program without host steps need not load.
#pragma once

#include "arch/program/HostStep.h"
#include "arch/program/Image.h"
#include "arch/spec/Expected.h"
#include "compiler/Support/HostTensor.h"

namespace millrace::driver {

struct HostSteps : HostStepRunner {
  /// Time spent in host steps so far, with what they waited for their compilation.
  virtual double seconds() const = 0;
};

std::optional<HostType> hostTypeOf(const Binding &binding);

/// A zero tensor of a binding's host type and shape.
Expected<HostTensor> tensorFor(const Binding &binding);

} // namespace millrace::driver
