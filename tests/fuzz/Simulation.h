// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Simulates images that nobody meant.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Machine.h"

namespace millrace::fuzz {

/// Whether image and machine are small enough to be simulated in a moment. Says nothing about
/// whether they are legal.
bool isSmall(const Image &image, const Machine &machine);

/// Simulates an image that checkImage accepts, if it is small: cycles alone, with values, and with
/// values but without annotations, in both simulators. Inputs are a fixed pattern; host steps read
/// and write their operands. Ends the process if the two disagree.
void checkSimulation(const Image &image, const Machine &machine);

} // namespace millrace::fuzz
