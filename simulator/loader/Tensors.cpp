// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/loader/Loader.h"

#include <algorithm>
#include <numeric>

namespace millrace::sim {

namespace {
/// A moment of the program: step, then cycle.
using Moment = std::pair<unsigned, uint64_t>;
Moment birth(const Region &r) { return {r.step0, r.from}; }
Moment death(const Region &r) { return {r.step1, r.to}; }

bool lives(const Region &r) { return birth(r) <= death(r); }

auto place(const Region &r) { return std::tuple(r.pe, r.hemisphere, r.slice); }
} // namespace

static void report(const Image &image, const Machine &m, ViolationLog &log, const Region &r,
                   Moment at, std::string message) {
  Violation v;
  v.invariant = Invariant::S10;
  v.step = at.first;
  v.cycle = Cycle(std::min<uint64_t>(at.second, INT64_MAX));
  v.pe = r.pe;
  v.queue = m.queue({UnitKind::Mem, r.hemisphere, r.slice});
  v.unit = "pe" + std::to_string(r.pe) + "." + m.queueName(v.queue);
  if (r.name < image.strings.size())
    v.provenance = image.strings[r.name];
  v.message = std::move(message);
  log.add(std::move(v));
}

void checkTensors(const Image &image, const Machine &machine, ViolationLog &log) {
  const std::vector<Region> &t = image.tensors;
  std::vector<uint32_t> order(t.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(place(t[a]), t[a].row, a) < std::tuple(place(t[b]), t[b].row, b);
  });
  std::vector<uint32_t> open; // regions of this slice that reach the row being looked at
  for (size_t k = 0; k < order.size(); ++k) {
    const Region &r = t[order[k]];
    if (uint64_t(r.row) + r.rows > machine.rowsPerSlice())
      report(image, machine, log, r, birth(r),
             "tensor " + std::to_string(order[k]) + " ends at row " +
                 std::to_string(uint64_t(r.row) + r.rows) + "; the slice has " +
                 std::to_string(machine.rowsPerSlice()));
    if (k && place(t[order[k - 1]]) != place(r))
      open.clear();
    std::erase_if(open, [&](uint32_t o) { return uint64_t(t[o].row) + t[o].rows <= r.row; });
    for (uint32_t o : open)
      if (birth(t[o]) <= death(r) && birth(r) <= death(t[o]) && lives(r) && lives(t[o]) && r.rows)
        report(image, machine, log, r, std::max(birth(r), birth(t[o])),
               "row " + std::to_string(r.row) + " belongs to tensor " + std::to_string(o) +
                   " and tensor " + std::to_string(order[k]) + " at once");
    open.push_back(order[k]);
  }
}

} // namespace millrace::sim
