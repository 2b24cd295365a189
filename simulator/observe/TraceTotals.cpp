// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/observe/TraceTotals.h"

#include <cmath>

namespace millrace::sim {

const char *TraceTotals::nameOf(Counter counter) {
  constexpr const char *names[kCounters] = {"streams in use", "MEM ports", "MACs"};
  return names[counter];
}

double TraceTotals::rounded(double value) {
  constexpr double kUnit = 1024; // far finer than a chart shows, far coarser than errors of sums
  return std::round(value * kUnit) / kUnit + 0.0; // no minus zero
}

/// Streams that an instruction puts its results on.
static unsigned streamsOf(const Instruction &i) {
  switch (i.opcode) {
  case Opcode::Accumulate:
    return i.function & AccumulateMode::Emit ? 4 : 0;
  case Opcode::Alu:
    return i.outWidth * (unsigned(i.out[0] != kNoStream) + unsigned(i.out[1] != kNoStream));
  case Opcode::Transpose:
    return 16;
  default:
    return info(i.opcode).fields.has(Field::OutStream);
  }
}

void TraceTotals::add(const Burst &burst, const Machine &machine, uint64_t from, uint64_t to) {
  const Instruction &i = *burst.instruction;
  const double macs = double(i.k1 - i.k0) * double(i.g1 - i.g0) * machine.mxm.columnsPerInstall;
  const double cycles = double(burst.lastCycle() - burst.start + 1);
  Values values{};
  values[Streams] = streamsOf(i);
  values[MemoryPorts] = machine.unit(i.queue).kind == UnitKind::Mem;
  values[Macs] = i.opcode == Opcode::Activate ? macs * burst.elements() / cycles : 0;
  Values &begin = deltas[from], &end = deltas[to]; // references into a map stay valid
  for (unsigned c = 0; c < kCounters; ++c) {
    begin[c] += values[c];
    end[c] -= values[c];
  }
}

} // namespace millrace::sim
