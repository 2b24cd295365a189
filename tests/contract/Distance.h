// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How far values are from those that they should be.
#pragma once

#include <algorithm>
#include <cmath>

namespace millrace::test {

/// Relative L2 distance. Equal infinities, and what is no number in both, count nothing; what is no
/// number, or infinite, in one alone is infinitely far.
class Distance {
public:
  void add(double is, double must) {
    norm += std::isfinite(must) ? must * must : 0;
    if (is == must || (std::isnan(is) && std::isnan(must)))
      return;
    const double apart = (is - must) * (is - must);
    difference += std::isnan(apart) ? INFINITY : apart;
  }
  double relative(double leastNorm = 1e-30) const {
    return std::sqrt(difference / std::max(norm, leastNorm));
  }

private:
  double difference = 0, norm = 0;
};

} // namespace millrace::test
