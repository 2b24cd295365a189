// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How far the outputs of a run are from what others compute of the same model.
#pragma once

#include "compiler/Support/HostTensor.h"

#include <map>
#include <optional>
#include <string>

namespace millrace::driver {

/// How far a tensor is from another of as many elements.
struct Distance {
  double relativeL2 = 0; ///< |tensor - other| / |other|, 0 if both are 0; NaN or infinite if not
                         ///< finite where the other is, or the other way round
  double rootMeanSquare = 0; ///< of the differences
  uint64_t differing = 0, elements = 0;
  /// Elements that are infinite or NaN where the other is finite.
  uint64_t infinite = 0, nan = 0;
};
/// Two NaN are equal, whatever their bits. Elements may be of different types.
Distance distance(const HostTensor &tensor, const HostTensor &other);

/// Above this a run with --check fails.
constexpr double kMostRelativeL2 = 1e-5;
/// Above this a run with another judge fails. Roundings to 16 bits come near it in deep networks
/// whose signal is small beside its average, as random weights make them.
constexpr double kMostFromJudge = 0.05;
/// Unless an output in fp16 differs by no more than this on average, its least number: of one that
/// is all but 0 (a sigmoid where a detector sees nothing) it stores nothing better.
constexpr double kLeastTold = 0x1p-24;

/// A value of the model that is further from the judge's than the values that it is computed of.
struct Departure {
  std::string value;                 ///< ONNX name
  double relativeL2 = 0, before = 0; ///< its own, and the largest of those
};

/// What judges found.
struct Verdict {
  std::map<std::string, Distance> kernels; ///< by output: from the evaluation of the kernels
  std::string judge;                       ///< who else judged; empty: nobody
  std::map<std::string, Distance> outputs; ///< by output: from what that judge computes
  uint64_t compared = 0;                   ///< values between inputs and outputs that both know
  std::optional<Departure> departure;      ///< the first of them, in the order of the model
};

} // namespace millrace::driver
