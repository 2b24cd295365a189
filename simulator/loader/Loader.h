// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is checked of an image before anything runs. Afterwards every index in it is in range for
// this machine.
#pragma once

#include "arch/program/Image.h"
#include "simulator/base/Violation.h"

namespace millrace::sim {

/// An image that cannot be executed at all: an error that names PE, instruction and field.
Status checkStructure(const Image &image, const Machine &machine);

/// S10 that needs no execution: tensors that own the same row at the same time, or rows that do not
/// exist.
void checkTensors(const Image &image, const Machine &machine, ViolationLog &log);

} // namespace millrace::sim
