// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/Counters.h"

#include <algorithm>

namespace millrace::sim {

void Counters::add(const Counters &other) {
  busy.resize(std::max(busy.size(), other.busy.size()));
  for (size_t q = 0; q < other.busy.size(); ++q)
    busy[q] += other.busy[q];
  instructions += other.instructions;
  streamVectors += other.streamVectors;
  streamHops += other.streamHops;
  sramReads += other.sramReads;
  sramWrites += other.sramWrites;
  partnerActivations += other.partnerActivations;
  partnerAccumulations += other.partnerAccumulations;
  macsInt8 += other.macsInt8;
  macsFloat += other.macsFloat;
  aluLanes += other.aluLanes;
  linkVectors += other.linkVectors;
  for (const auto &[key, lanes] : other.lost)
    lost[key] += lanes;
}

} // namespace millrace::sim
