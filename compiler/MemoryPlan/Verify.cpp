// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/MemoryPlan/Verify.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace millrace::memory {
namespace {

/// Rows [row, end) that the latest region there holds.
struct Held {
  uint32_t end;
  const Region *region;
};

std::string describe(const Region &r, const std::vector<std::string> &strings) {
  return "'" + (r.name < strings.size() ? strings[r.name] : std::to_string(r.name)) + "' (rows " +
         std::to_string(r.row) + " to " + std::to_string(r.row + r.rows - 1) + ", step " +
         std::to_string(r.step0) + " cycle " + std::to_string(r.from) + " to step " +
         std::to_string(r.step1) + " cycle " + std::to_string(r.to) + ")";
}

} // namespace

Status verify(const Machine &machine, const std::vector<Region> &regions,
              const std::vector<std::string> &strings) {
  std::vector<const Region *> byStart;
  for (const Region &r : regions)
    if (r.rows)
      byStart.push_back(&r);
  std::sort(byStart.begin(), byStart.end(), [](const Region *x, const Region *y) {
    return std::tie(x->step0, x->from, x->step1, x->to) <
           std::tie(y->step0, y->from, y->step1, y->to);
  });
  std::map<std::tuple<unsigned, unsigned, unsigned>, std::map<uint32_t, Held>> slices;
  for (const Region *r : byStart) {
    auto &held = slices[{r->pe, unsigned(r->hemisphere), r->slice}];
    const uint32_t end = r->row + r->rows;
    auto at = held.upper_bound(r->row);
    if (at != held.begin())
      --at;
    while (at != held.end() && at->first < end) {
      const auto [from, old] = *at;
      if (old.end <= r->row) {
        ++at;
        continue;
      }
      if (std::tie(old.region->step1, old.region->to) >= std::tie(r->step0, r->from))
        return Error{"memory plan: " + describe(*old.region, strings) + " and " +
                     describe(*r, strings) + " live at one time in slice " +
                     std::to_string(r->slice) + " of the " +
                     (r->hemisphere == Hemisphere::West ? "west" : "east") + " of PE " +
                     std::to_string(r->pe) + " of '" + machine.name + "'"};
      at = held.erase(at);
      if (from < r->row) // what is left of it on both sides
        held[from] = {r->row, old.region};
      if (old.end > end)
        held[end] = old;
    }
    held[r->row] = {end, r};
  }
  return Success{};
}

} // namespace millrace::memory
