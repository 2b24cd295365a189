// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of an attention's heads begin with.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::forms {

struct HeadShape {
  int64_t heads, tokens, lanes;
};

/// Multiples of a sixteenth, which sums of few keep.
inline std::vector<float> sixteenths(int64_t count, int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float((i * 7 + seed) % 23 - 11) / 16);
  return values;
}

} // namespace millrace::forms
