// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Holds the fast simulator to the slow one: cycles, counters, memory and the first violation.
#pragma once

#include "simulator/truth/Truth.h"

#include <string>
#include <vector>

namespace millrace::sim::test {

/// Contents of every tensor's rows, in the order of the table.
inline std::vector<std::vector<uint8_t>> rowsOf(const Image &image, const Machine &machine,
                                                RowAccess &memory) {
  std::vector<std::vector<uint8_t>> rows;
  for (const Region &r : image.tensors)
    for (uint32_t k = 0; k < r.rows; ++k) {
      rows.emplace_back(machine.lanes());
      memory.read(r.pe, r.hemisphere, r.slice, r.row + k, rows.back());
    }
  return rows;
}

inline std::string wordsOf(const SimulationResult &r) {
  return r.violation ? r.violation->describe() : "no violation";
}

/// What differs, or nothing. After a violation only the violation counts.
inline std::string difference(const SimulationResult &fast, const SimulationResult &slow) {
  const bool same = fast.violation.has_value() == slow.violation.has_value() &&
                    (!fast.violation || fast.violation->order() == slow.violation->order());
  if (!same)
    return "fast: " + wordsOf(fast) + "\nslow: " + wordsOf(slow);
  if (fast.violation)
    return "";
  std::string text;
  const auto compare = [&](const std::string &what, uint64_t f, uint64_t s) {
    if (f != s)
      text += what + ": fast " + std::to_string(f) + ", slow " + std::to_string(s) + "\n";
  };
  compare("cycles", fast.measuredCycles, slow.measuredCycles);
  compare("steps", fast.steps.size(), slow.steps.size());
  for (size_t k = 0; k < std::min(fast.steps.size(), slow.steps.size()); ++k)
    compare("cycles of step " + std::to_string(k), fast.steps[k].measuredCycles,
            slow.steps[k].measuredCycles);
  compare("pes", fast.pes.size(), slow.pes.size());
  for (size_t k = 0; k < std::min(fast.pes.size(), slow.pes.size()); ++k) {
    const Counters &f = fast.pes[k], &s = slow.pes[k];
    const std::string pe = " of pe " + std::to_string(k);
    compare("instructions" + pe, f.instructions, s.instructions);
    compare("stream vectors" + pe, f.streamVectors, s.streamVectors);
    compare("stream hops" + pe, f.streamHops, s.streamHops);
    compare("reads" + pe, f.sramReads, s.sramReads);
    compare("writes" + pe, f.sramWrites, s.sramWrites);
    compare("int8 macs" + pe, f.macsInt8, s.macsInt8);
    compare("float macs" + pe, f.macsFloat, s.macsFloat);
    compare("ALU lanes" + pe, f.aluLanes, s.aluLanes);
    if (f.lost != s.lost)
      text += "lost lanes" + pe + "\n";
    compare("partner activations" + pe, f.partnerActivations, s.partnerActivations);
    compare("partner accumulations" + pe, f.partnerAccumulations, s.partnerAccumulations);
    compare("link vectors" + pe, f.linkVectors, s.linkVectors);
    for (size_t q = 0; q < std::max(f.busy.size(), s.busy.size()); ++q)
      compare("elements of queue " + std::to_string(q) + pe, f.busy.at(q), s.busy.at(q));
  }
  return text;
}

/// Short enough to be stepped: a damaged loop may run for millions of cycles.
inline bool isShort(const SimulationResult &fast) {
  return fast.measuredCycles < 100000 && (!fast.violation || fast.violation->cycle < 100000);
}

/// Simulates with both; what differs, or nothing.
inline std::string differenceOn(const Image &image, const Machine &machine,
                                SimulationOptions options) {
  std::vector<std::vector<uint8_t>> fastRows, slowRows;
  options.readOutputs = [&](RowAccess &memory) -> Status {
    fastRows = rowsOf(image, machine, memory);
    return Success{};
  };
  const Expected<SimulationResult> fast = simulate(image, machine, options);
  options.readOutputs = [&](RowAccess &memory) -> Status {
    slowRows = rowsOf(image, machine, memory);
    return Success{};
  };
  const Expected<SimulationResult> slow = simulateSlowly(image, machine, options);
  if (!fast || !slow)
    return bool(fast) == bool(slow) ? "" : "only one of the two simulates it";
  std::string text = difference(*fast, *slow);
  if (text.empty() && fastRows != slowRows)
    text = "memory differs";
  return text;
}

} // namespace millrace::sim::test
