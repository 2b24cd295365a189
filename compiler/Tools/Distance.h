// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How far the outputs of a run are from their evaluation.
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Support/HostTensor.h"

#include <functional>
#include <map>
#include <string>

namespace millrace::driver {

/// How far an output is from its evaluation.
struct Distance {
  double relativeL2 = 0; ///< |output - evaluation| / |evaluation|, 0 if both are 0
  uint64_t differing = 0, elements = 0;
};
/// Above this a run with --check fails.
constexpr double kMostRelativeL2 = 1e-5;

/// Compares the outputs of a program with their evaluation for its inputs, by name. Errors: a host
/// call that fails, an input that does not convert.
using Judge = std::function<Expected<std::map<std::string, Distance>>(
    const std::map<std::string, HostTensor> &inputs,
    const std::map<std::string, HostTensor> &outputs)>;

} // namespace millrace::driver
