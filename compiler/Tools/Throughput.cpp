// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Throughput.h"

#include "compiler/Tools/Notes.h"

#include <algorithm>
#include <map>
#include <optional>

namespace millrace::driver {

using Role = Binding::Role;

/// By how much `after` is longer than `before` along the dimension before the last, all others
/// being equal; 0 if it is not.
static int64_t growth(const std::vector<int64_t> &before, const std::vector<int64_t> &after) {
  constexpr size_t kLeastRank = 4; // batch, heads, sequence, channels
  if (before.size() != after.size() || before.size() < kLeastRank)
    return 0;
  const size_t sequence = before.size() - 2;
  for (size_t d = 0; d < before.size(); ++d)
    if (d != sequence && before[d] != after[d])
      return 0;
  return std::max<int64_t>(after[sequence] - before[sequence], 0);
}

/// The batch of a cache: [batch, heads, sequence, channels], or with both halves in front.
static int64_t batchOf(const std::vector<int64_t> &cache) {
  constexpr size_t kJointRank = 5;
  return cache.size() == kJointRank ? cache[1] : cache[0];
}

/// Tokens that a run adds to a cache of keys and values.
static std::optional<int64_t> cachedTokens(const Image &image) {
  for (const Binding &past : image.bindings)
    for (const Binding &present : image.bindings)
      if (past.role == Role::Input && present.role == Role::Output &&
          past.hostType == present.hostType)
        if (const int64_t steps = growth(past.shape, present.shape))
          return steps * batchOf(past.shape);
  return std::nullopt;
}

Work workOf(const Image &image) {
  const nlohmann::json bounds = jsonNote(image, "integer_input_bounds");
  std::map<std::string, const Binding *> large; ///< by name: an input may have several bindings
  for (const Binding &b : image.bindings) {
    if (b.role != Role::Input)
      continue;
    if (bounds.is_object() && bounds.contains(b.name) && b.shape.size() == 2)
      return {"tokens", b.shape[0] * b.shape[1]};
    if (b.shape.size() >= 2)
      large[b.name] = &b;
  }
  if (const std::optional<int64_t> tokens = cachedTokens(image))
    return {"tokens", *tokens};
  constexpr size_t kImageRank = 4;
  if (large.size() == 1 && large.begin()->second->shape.size() == kImageRank)
    return {"images", large.begin()->second->shape[0]};
  return {};
}

} // namespace millrace::driver
