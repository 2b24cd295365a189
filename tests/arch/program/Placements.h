// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of placements (docs/spec/image.md) word by word, for tests: slow, and nothing to share
// with the walk that it judges.
#pragma once

#include "arch/program/Image.h"

#include <vector>

namespace millrace::test {

/// f(element, row, lane) for every element of a placement, one at a time: its number in the host
/// tensor, or -1 outside.
template <class F> void forEachElement(const Binding &binding, const Placement &p, F f) {
  std::vector<uint32_t> counter(p.loops.size(), 0);
  for (bool more = true; more;) {
    std::vector<int64_t> index = p.start;
    int64_t row = p.row, lane = p.lane;
    for (size_t l = 0; l < p.loops.size(); ++l) {
      const BindingLoop &loop = p.loops[l];
      row += int64_t(counter[l]) * loop.rowStep;
      lane += int64_t(counter[l]) * loop.laneStep;
      if (loop.dim != kNoDim)
        index[loop.dim] += int64_t(counter[l]) * loop.step;
    }
    int64_t element = 0;
    bool inside = true;
    for (size_t d = 0; d < index.size(); ++d) {
      inside &= index[d] >= 0 && index[d] < binding.shape[d];
      element = element * binding.shape[d] + index[d];
    }
    f(inside ? element : -1, uint32_t(row), size_t(lane));
    more = false;
    for (size_t l = p.loops.size(); l-- > 0 && !more;)
      more = ++counter[l] < p.loops[l].count || (counter[l] = 0, false);
  }
}

} // namespace millrace::test
