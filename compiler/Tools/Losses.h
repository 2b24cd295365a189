// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finite numbers that did not fit the format that they were stored in.
#pragma once

#include "arch/program/Image.h"
#include "compiler/Support/HostTensor.h"
#include "simulator/base/Result.h"

#include <map>
#include <string>
#include <vector>

namespace millrace::driver {

struct Loss {
  std::string input;   ///< the program's input that held them; empty: nodes did
  std::string nodes;   ///< ONNX nodes of the kernel that stored them, as the image names them
  std::string format;  ///< "fp16"
  std::string becomes; ///< "saturated", "infinite" or "nan"
  double largest = 0;  ///< finite value of the format
  /// Elements of an input. Of a kernel lanes: what is stored in several places counts each time.
  uint64_t count = 0;
};

/// Of a run with values: inputs first, then kernels in the order in which the program names them.
std::vector<Loss> lossesOf(const Image &image, const sim::SimulationResult &result,
                           const std::map<std::string, HostTensor> &inputs);

/// Names the first of them, how many there are, and what to try.
std::string warningOf(const std::vector<Loss> &losses, const Image &image);

} // namespace millrace::driver
