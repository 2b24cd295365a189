// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Annotate.h"

namespace millrace::schedule {
namespace {

/// A run of elements of one row of the consumer that step evenly through one producer.
struct Run {
  Origin first;
  unsigned from = 0, count = 0;
  int64_t step = 0;
};

bool continues(const Run &run, const Origin &next) {
  if (next.instruction != run.first.instruction || next.block != run.first.block)
    return false;
  int64_t step = int64_t(next.element) - int64_t(run.first.element);
  return run.count == 1 || step == run.step * run.count;
}

std::vector<Run> runsOf(const Origin *row, unsigned n0) {
  std::vector<Run> runs;
  for (unsigned i = 0; i < n0; ++i) {
    if (row[i].instruction == kNoOrigin)
      continue;
    if (!runs.empty() && runs.back().from + runs.back().count == i &&
        continues(runs.back(), row[i])) {
      Run &run = runs.back();
      if (run.count == 1)
        run.step = int64_t(row[i].element) - int64_t(run.first.element);
      ++run.count;
    } else {
      runs.push_back({row[i], i, 1, 0});
    }
  }
  return runs;
}

/// Can `run` be the next row of `entry`?
bool extends(const Producer &entry, const Run &run, unsigned row) {
  if (entry.from1 + entry.count1 != row || entry.from0 != run.from || entry.count0 != run.count ||
      entry.instruction != run.first.instruction || entry.block != run.first.block ||
      (run.count > 1 && entry.step0 != run.step))
    return false;
  int64_t step = int64_t(run.first.element) - int64_t(entry.first);
  return entry.count1 == 1 || step == int64_t(entry.step1) * entry.count1;
}

} // namespace

void annotate(std::vector<Producer> &out, ProducerOf of, uint8_t byte, unsigned pe, unsigned n0,
              unsigned n1, const std::vector<Origin> &origins) {
  const size_t begin = out.size();
  for (unsigned i1 = 0; i1 < n1; ++i1) {
    for (const Run &run : runsOf(origins.data() + size_t(i1) * n0, n0)) {
      bool extended = false;
      for (size_t e = out.size(); e-- > begin && !extended;) {
        if (!extends(out[e], run, i1))
          continue;
        if (out[e].count1 == 1)
          out[e].step1 = int32_t(int64_t(run.first.element) - int64_t(out[e].first));
        ++out[e].count1;
        extended = true;
      }
      if (extended)
        continue;
      Producer p;
      p.of = of;
      p.byte = byte;
      p.pe = uint16_t(pe);
      p.instruction = run.first.instruction;
      p.block = run.first.block;
      p.first = run.first.element;
      p.from0 = uint16_t(run.from);
      p.count0 = uint16_t(run.count);
      p.from1 = uint16_t(i1);
      p.count1 = 1;
      p.step0 = int32_t(run.step);
      out.push_back(p);
    }
  }
}

} // namespace millrace::schedule
