// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Facts.h"

#include "arch/spec/Quantity.h"
#include "arch/spec/Schema.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

/// A slice serves one read and one write in a cycle when they hit different banks (S5).
unsigned accessesPerSlice(const MemorySpec &memory) { return std::min(memory.banks, 2u); }

std::vector<FormatRate> formatRates(const Machine &m) {
  std::vector<FormatRate> rates;
  for (const MxmFormatSpec &format : m.mxm.formats) {
    const uint64_t units = kHemispheres * m.mxm.planes / format.planes;
    const uint64_t macs = units * format.lanesPerPass * m.mxm.columns;
    rates.push_back({format.type, macs, 2.0 * double(macs) * m.clockHz});
  }
  return rates;
}

std::string fixed(double number, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, number);
  return buffer;
}

/// "55 KiB", "2.5 MiB": at most three digits after the point, none that are zero.
std::string bytes(uint64_t count) {
  constexpr const char *units[] = {"B", "KiB", "MiB", "GiB"};
  double number = double(count);
  unsigned unit = 0;
  for (; number >= 1024 && unit < 3; ++unit)
    number /= 1024;
  std::string text = fixed(number, 3);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.')
    text.pop_back();
  return text + " " + units[unit];
}

std::string line(const std::string &label, const std::string &value) {
  return "  " + label + std::string(label.size() < 24 ? 24 - label.size() : 1, ' ') + value + "\n";
}

} // namespace

Facts factsOf(const Machine &m) {
  Facts facts;
  facts.name = m.name;
  facts.description = m.description;
  facts.clockHz = m.clockHz;
  facts.pes = m.pes();
  facts.vectorBytes = m.lanes();
  facts.formats = formatRates(m);
  facts.streamBytesPerCycle = uint64_t(2) * m.streams * m.lanes();
  facts.sramBytesPerCycle =
      uint64_t(kHemispheres) * m.memory.slices * accessesPerSlice(m.memory) * m.lanes();
  facts.capacityBytes = uint64_t(kHemispheres) * m.memory.slices * m.rowsPerSlice() * m.lanes();
  facts.weightBytes = uint64_t(kHemispheres) * m.mxm.planes * m.mxm.rows * m.mxm.columns;
  facts.queuesWithC2c = m.queues();
  facts.queues = m.queues() - 2 * m.c2c.ports;
  facts.topology = m.fabric.topology;
  facts.links = unsigned(m.links.size());
  facts.linkBytesPerSecond = double(m.lanes()) / m.fabric.link.slot * m.clockHz;
  facts.linkLatencySeconds = m.fabric.link.latency / m.clockHz;
  facts.hostBytesPerSecond = m.host.bytesPerSecond;
  facts.hostLatencySeconds = m.host.latencySeconds;
  for (const auto &entry : m.trust)
    ++facts.numbersByTrust[unsigned(entry.second)];
  return facts;
}

std::string toText(const Facts &f) {
  std::string text = f.name + ": " + f.description + "\n";
  text += line("clock", printQuantity(f.clockHz, "Hz"));
  text += line("PEs", std::to_string(f.pes) + " (" + f.topology + ", " + std::to_string(f.links) +
                          " links)");
  text += f.pes > 1 ? "  each PE:\n" : "";
  text += line("vector", bytes(f.vectorBytes));
  for (const FormatRate &rate : f.formats)
    text += line(std::string("peak ") + nameOf(rate.type),
                 fixed(rate.operationsPerSecond / 1e12, 1) + " TOPS (" +
                     fixed(double(rate.macsPerCycle) * 2e-3, 1) + " at 1 GHz), " +
                     std::to_string(rate.macsPerCycle) + " MACs/cycle");
  auto perCycle = [&f](uint64_t count) {
    return bytes(count) + "/cycle, " + fixed(double(count) * f.clockHz / 1e12, 2) + " TB/s";
  };
  text += line("streams", perCycle(f.streamBytesPerCycle));
  text += line("SRAM", perCycle(f.sramBytesPerCycle));
  text += line("memory", bytes(f.capacityBytes));
  text += line("weights in the MXM", bytes(f.weightBytes));
  text +=
      line("queues", std::to_string(f.queues) + ", with C2C " + std::to_string(f.queuesWithC2c));
  text += line("link", fixed(f.linkBytesPerSecond / 1e9, 2) + " GB/s each way, " +
                           fixed(f.linkLatencySeconds * 1e9, 1) + " ns");
  text += line("host", fixed(f.hostBytesPerSecond / 1e9, 2) + " GB/s each way, " +
                           fixed(f.hostLatencySeconds * 1e6, 1) + " us");
  std::string sources;
  for (unsigned trust = 0; trust < f.numbersByTrust.size(); ++trust)
    if (f.numbersByTrust[trust])
      sources += (sources.empty() ? "" : ", ") + std::to_string(f.numbersByTrust[trust]) + " " +
                 nameOf(Trust(trust));
  return text + line("numbers", sources.empty() ? "no sources stated" : sources);
}

nlohmann::json toJson(const Facts &f) {
  nlohmann::json json{{"name", f.name},
                      {"description", f.description},
                      {"clock_hz", f.clockHz},
                      {"pes", f.pes},
                      {"vector_bytes", f.vectorBytes},
                      {"stream_bytes_per_cycle", f.streamBytesPerCycle},
                      {"sram_bytes_per_cycle", f.sramBytesPerCycle},
                      {"capacity_bytes", f.capacityBytes},
                      {"weight_bytes", f.weightBytes},
                      {"queues", f.queues},
                      {"queues_with_c2c", f.queuesWithC2c},
                      {"topology", f.topology},
                      {"links", f.links},
                      {"link_bytes_per_second", f.linkBytesPerSecond},
                      {"link_latency_seconds", f.linkLatencySeconds},
                      {"host_bytes_per_second", f.hostBytesPerSecond},
                      {"host_latency_seconds", f.hostLatencySeconds}};
  for (const FormatRate &rate : f.formats)
    json["formats"][nameOf(rate.type)] = {{"macs_per_cycle", rate.macsPerCycle},
                                          {"operations_per_second", rate.operationsPerSecond}};
  for (unsigned trust = 0; trust < f.numbersByTrust.size(); ++trust)
    json["numbers"][nameOf(Trust(trust))] = f.numbersByTrust[trust];
  return json;
}

} // namespace millrace
