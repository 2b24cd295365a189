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

/// What became of a host step that was to run as GPU kernels, or whose device was chosen.
struct HostStepDevice {
  std::string function; ///< of the step
  StepDevice device = StepDevice::Host;
  std::string ran;                  ///< where its kernels ran: cpu or emulate; empty: it has none
  std::vector<std::string> kernels; ///< in the order in which they ran; empty: none
  std::vector<std::string> left;    ///< what the host computed itself, and why
  std::vector<std::string> notes;   ///< attention that was several kernels, and why
};

struct HostSteps : HostStepRunner {
  /// Time spent in host steps so far, with what they waited for their compilation.
  virtual double seconds() const = 0;
  /// Of the steps that ran, in their order; empty if none was to run as kernels.
  virtual std::vector<HostStepDevice> devices() const { return {}; }
};

std::optional<HostType> hostTypeOf(const Binding &binding);

/// A zero tensor of a binding's host type and shape.
Expected<HostTensor> tensorFor(const Binding &binding);

} // namespace millrace::driver
