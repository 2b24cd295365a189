// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What follows from a machine's numbers: peak rates, bandwidths, capacity, queues. `millrace
// describe` prints them.
#pragma once

#include "arch/spec/Machine.h"

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace millrace {

struct FormatRate {
  ElementType type;
  uint64_t macsPerCycle = 0;      ///< multiply-accumulates of all planes of one PE
  double operationsPerSecond = 0; ///< two per multiply-accumulate
};

/// Of one PE, unless it says otherwise.
struct Facts {
  std::string name, description;
  double clockHz = 0;
  unsigned pes = 0;
  unsigned vectorBytes = 0;
  std::vector<FormatRate> formats;
  uint64_t streamBytesPerCycle = 0; ///< streams of both directions past one position
  uint64_t sramBytesPerCycle = 0;   ///< every slice reads one bank and writes another
  uint64_t capacityBytes = 0;
  uint64_t weightBytes = 0;   ///< what the planes hold, one buffer
  unsigned queues = 0;        ///< without C2C, as published counts have it
  unsigned queuesWithC2c = 0; ///< with a Send and a Receive queue per port
  std::string topology;
  unsigned links = 0;            ///< directed, in the whole machine
  double linkBytesPerSecond = 0; ///< payload of one link in one direction
  double linkLatencySeconds = 0;
  double hostBytesPerSecond = 0, hostLatencySeconds = 0;
  std::array<unsigned, 5> numbersByTrust{}; ///< how many of the machine's numbers have each Trust
};

Facts factsOf(const Machine &machine);
std::string toText(const Facts &facts);
nlohmann::json toJson(const Facts &facts);

} // namespace millrace
