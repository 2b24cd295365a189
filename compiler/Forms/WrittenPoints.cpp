// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/WrittenPoints.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>

namespace millrace::forms {

/// Nothing if a loop writes points again, if an index is no progression, or if it leaves the
/// tensor.
std::optional<WrittenPoints::Box> WrittenPoints::boxOf(const Kernel &kernel, const Tensor &tensor,
                                                       const Access &access) {
  std::vector<unsigned> uses(kernel.loops.size(), 0);
  Box box;
  for (size_t d = 0; d < access.index.size(); ++d) {
    Progression along{access.index[d].offset, 1, 1};
    std::vector<std::pair<int64_t, int64_t>> digits; // step, extent
    for (auto [loop, c] : access.index[d].terms) {
      if (kernel.loops[loop].kind != LoopKind::Parallel)
        return std::nullopt;
      if (kernel.loops[loop].extent == 1)
        continue;
      ++uses[loop];
      digits.push_back({c, kernel.loops[loop].extent});
    }
    std::sort(digits.begin(), digits.end());
    for (auto [step, extent] : digits) {
      if (along.count == 1)
        along.step = step;
      else if (step != along.step * along.count) // mixed radix: each steps over all faster ones
        return std::nullopt;
      along.count *= extent;
    }
    if (along.step < 1 || along.start < 0 ||
        along.start + along.step * (along.count - 1) >= tensor.shape[d])
      return std::nullopt;
    box.push_back(along);
  }
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop)
    if (kernel.loops[loop].kind == LoopKind::Parallel && kernel.loops[loop].extent > 1 &&
        uses[loop] != 1)
      return std::nullopt;
  return box;
}

bool WrittenPoints::meet(const Progression &a, const Progression &b) {
  const Progression &few = a.count < b.count ? a : b, &many = a.count < b.count ? b : a;
  if (few.step == many.step) // phases, and neighbours
    return (few.start - many.start) % few.step == 0 &&
           few.start < many.start + many.step * many.count &&
           many.start < few.start + few.step * few.count;
  for (int64_t i = 0; i < few.count; ++i)
    if (many.contains(few.start + i * few.step))
      return true;
  return false;
}

bool WrittenPoints::meet(const Box &a, const Box &b) {
  for (size_t d = 0; d < a.size(); ++d)
    if (!meet(a[d], b[d]))
      return false;
  return true;
}

void WrittenPoints::mark(const Tensor &tensor, const Box &box, std::vector<bool> &bits) {
  std::vector<int64_t> at(box.size(), 0);
  while (true) {
    int64_t element = 0;
    for (size_t d = 0; d < box.size(); ++d)
      element = element * tensor.shape[d] + box[d].start + at[d] * box[d].step;
    bits[size_t(element)] = true;
    size_t d = box.size();
    while (d > 0 && ++at[d - 1] == box[d - 1].count)
      at[--d] = 0;
    if (d == 0)
      return;
  }
}

std::vector<bool> WrittenPoints::allBits(const Tensor &tensor) const {
  if (!bits.empty())
    return bits;
  std::vector<bool> all(size_t(elementCount(tensor)));
  for (const Box &box : boxes)
    mark(tensor, box, all);
  return all;
}

std::string WrittenPoints::add(const Kernel &kernel, const Tensor &tensor, const Access &access) {
  if (bits.empty())
    if (std::optional<Box> box = boxOf(kernel, tensor, access);
        box && std::none_of(boxes.begin(), boxes.end(),
                            [&](const Box &other) { return meet(other, *box); })) {
      boxes.push_back(std::move(*box));
      return {};
    }
  bits = allBits(tensor);
  std::vector<unsigned> loops;
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop)
    if (kernel.loops[loop].kind == LoopKind::Parallel)
      loops.push_back(loop);
  std::string error;
  forEachPoint(kernel, loops, [&](const std::vector<int64_t> &point) {
    const int64_t element = linearOffset(tensor, access, point);
    if (element < 0)
      error = "outside its shape";
    else if (bits[size_t(element)])
      error = "twice at element " + std::to_string(element);
    else
      bits[size_t(element)] = true;
    return error.empty();
  });
  return error;
}

std::optional<int64_t> WrittenPoints::firstMissing(const Tensor &tensor) const {
  if (bits.empty()) {
    int64_t points = 0;
    for (const Box &box : boxes) {
      int64_t own = 1;
      for (const Progression &along : box)
        own *= along.count;
      points += own;
    }
    if (points == 0 || points == elementCount(tensor))
      return std::nullopt;
  }
  const std::vector<bool> all = allBits(tensor);
  const auto missing = std::find(all.begin(), all.end(), false);
  return missing == all.end() ? std::nullopt : std::optional<int64_t>(missing - all.begin());
}

} // namespace millrace::forms
