// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a simulation says to people and to programs.
#pragma once

#include "simulator/base/Result.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace millrace::sim {

/// Share of the cycles in which the units of one kind worked, over all PEs. Of the MXM, planes
/// count and not queues: an element of a 16-bit format works in both planes of a pair, and only the
/// first one's queue dispatches it. So 1 is what the formats in use can reach, whichever they are.
struct Utilisation {
  std::string unit; ///< "mem", "mxm install", "mxm activate", "mxm accumulate", "vxm", "sxm",
                    ///< "send", "receive"
  uint64_t busyCycles = 0;
  double share = 0; ///< of units x measured cycles
};
std::vector<Utilisation> utilisations(const SimulationResult &result, const Machine &machine);

/// Picojoules by the machine's costs per event. A part is nothing where events happened whose cost
/// the machine does not state, and so is the total.
struct Energy {
  std::optional<double> macs, alus, sram, streams, links;
  std::optional<double> total() const;
};
Energy energyOf(const Counters &counters, const Machine &machine);

/// What crossed one directed link.
struct LinkUse {
  Link link;
  uint64_t vectors = 0;
  double share = 0; ///< of the measured cycles in which a vector occupied it
};
/// Links that carried anything, the busiest first.
std::vector<LinkUse> linkUses(const SimulationResult &result, const Machine &machine);

/// Seconds to move the model's inputs in and its outputs out, by the host link's model: latency
/// each way, and bytes at its rate. Not part of the measured cycles.
double hostSeconds(const Image &image, const Machine &machine);

/// JSON keys: predicted_cycles, measured_cycles, seconds_at_clock, steps, utilisation (shares of
/// 1), macs_executed, sram_reads, sram_writes, stream_vectors, stream_hops, link_vectors, links
/// (those used: from_pe, port, to_pe, vectors, share), energy_picojoules, host_transfer_seconds,
/// violation (null when there is none).
nlohmann::json toJson(const SimulationResult &result, const Image &image, const Machine &machine);

} // namespace millrace::sim
