// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One predicted timeline of a program whose steps run on several devices: exact cycles of the grid,
// transfers by the host link's model, and estimates of GPU kernels. The three are never one number
// without saying so.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Machine.h"
#include "compiler/Codegen/Gpu/Tuning/Cost.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace millrace::driver {

using gpu::GpuLaunch;

struct TimelineEntry {
  enum class Kind : uint8_t { Transfer, Grid, Kernels, Host };
  Kind kind = Kind::Grid;
  size_t step = 0;
  std::string from, to; ///< of a transfer: grid or a device, and "host" of inputs and outputs
  std::string device;   ///< of kernels and of what the host computes
  std::string function; ///< of these
  uint64_t bytes = 0;   ///< of a transfer
  uint64_t cycles = 0;  ///< of the grid, exact; of a transfer by the link's model
  std::vector<GpuLaunch> launches;
  std::optional<double> seconds; ///< none: nobody predicts it
};

struct Timeline {
  std::vector<TimelineEntry> entries; ///< one after the other
  uint64_t gridCycles = 0, transferCycles = 0;
  double kernelSeconds = 0; ///< an estimate
  bool hasUnknown = false;  ///< what a CPU computes, or a link without a rate
};

/// Of an image that has a step with a chosen device; nothing of others.
std::optional<Timeline> timelineOf(const Image &image, const Machine &machine);

/// Rows of a table: name, value.
std::vector<std::pair<std::string, std::string>> rowsOf(const Timeline &timeline,
                                                        const Machine &machine);
nlohmann::json jsonOf(const Timeline &timeline, const Machine &machine);

} // namespace millrace::driver
