// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small models in ONNX's text form, formed and held against the model's own run.
#pragma once

#include "compiler/Forms/Former/Build.h"
#include "compiler/Forms/Kernel.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace millrace::test {

struct Model {
  forms::KernelGraph graph;
  std::vector<std::string> remarks;
  std::map<std::string, forms::ContractionPoints> points;
  double error = INFINITY; ///< the greatest relative L2 distance of an output
};

/// Forms the model and holds it against its own run. Inputs that `given` does not name hold eighths
/// from -1 to 1, or whole numbers from 0.
Model formed(const std::string &graph, const forms::PrecisionOptions &options = {},
             const std::map<std::string, std::vector<double>> &given = {});

/// The same of a model that needs no host step: the distance.
double onGrid(const std::string &graph, const forms::PrecisionOptions &options = {});

constexpr double kFp16 = 1e-3; ///< a few roundings to 11 bits

/// `count` numbers as the text of a constant.
std::string numbers(int count, int modulo, double scale = 0.125);
std::string integers(int count, int modulo);

} // namespace millrace::test
