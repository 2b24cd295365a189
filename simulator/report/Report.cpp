// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/report/Report.h"

#include "arch/program/HostNumbers.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace millrace::sim {

static const char *groupOf(UnitKind kind) {
  switch (kind) {
  case UnitKind::Mem:
    return "mem";
  case UnitKind::MxmInstall:
    return "mxm install";
  case UnitKind::MxmActivate:
    return "mxm activate";
  case UnitKind::MxmAccumulate:
    return "mxm accumulate";
  case UnitKind::Alu:
    return "vxm";
  case UnitKind::Send:
    return "send";
  case UnitKind::Receive:
    return "receive";
  default:
    return "sxm";
  }
}

std::vector<Utilisation> utilisations(const SimulationResult &result, const Machine &machine) {
  std::vector<Utilisation> groups;
  std::vector<uint64_t> queues;
  for (unsigned q = 0; q < machine.queues() && q < result.total.busy.size(); ++q) {
    const std::string name = groupOf(machine.unit(q).kind);
    size_t g = 0;
    while (g < groups.size() && groups[g].unit != name)
      ++g;
    if (g == groups.size()) {
      groups.push_back({name, 0, 0});
      queues.push_back(0);
    }
    groups[g].busyCycles += result.total.busy[q];
    queues[g] += machine.pes();
  }
  for (Utilisation &group : groups)
    group.busyCycles +=
        group.unit == groupOf(UnitKind::MxmActivate)     ? result.total.partnerActivations
        : group.unit == groupOf(UnitKind::MxmAccumulate) ? result.total.partnerAccumulations
                                                         : 0;
  for (size_t g = 0; g < groups.size(); ++g)
    if (result.measuredCycles)
      groups[g].share =
          double(groups[g].busyCycles) / (double(queues[g]) * double(result.measuredCycles));
  return groups;
}

std::vector<LinkUse> linkUses(const SimulationResult &result, const Machine &machine) {
  std::vector<LinkUse> uses;
  for (const Link &link : machine.links) {
    const unsigned queue = machine.queue({UnitKind::Send, Hemisphere::West, link.port});
    if (link.from >= result.pes.size() || queue >= result.pes[link.from].busy.size())
      continue;
    const uint64_t vectors = result.pes[link.from].busy[queue];
    if (vectors && result.measuredCycles)
      uses.push_back({link, vectors, double(vectors) * link.slot / double(result.measuredCycles)});
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const LinkUse &a, const LinkUse &b) { return a.share > b.share; });
  return uses;
}

/// Of so many events; nothing if there are any and a cost of zero says that it is not known.
static std::optional<double> costOf(uint64_t events, double each) {
  return events == 0 || each > 0 ? std::optional(double(events) * each) : std::nullopt;
}

static std::optional<double> sum(std::initializer_list<std::optional<double>> parts) {
  double all = 0;
  for (const std::optional<double> &part : parts) {
    if (!part)
      return std::nullopt;
    all += *part;
  }
  return all;
}

std::optional<double> Energy::total() const { return sum({macs, alus, sram, streams, links}); }

Energy energyOf(const Counters &c, const Machine &m) {
  const EnergySpec &e = m.energy;
  const double lanes = m.lanes();
  Energy energy;
  energy.macs = sum({costOf(c.macsInt8, e.macInt8), costOf(c.macsFloat, e.macFloat)});
  energy.alus = costOf(c.aluLanes, e.aluLane);
  energy.sram = costOf(c.sramReads + c.sramWrites, lanes * e.sramByte);
  energy.streams = costOf(c.streamHops, lanes * e.streamByteHop);
  energy.links = costOf(c.linkVectors, lanes * e.linkByte);
  return energy;
}

double hostSeconds(const Image &image, const Machine &machine) {
  uint64_t bytes[2] = {};
  std::set<std::pair<Binding::Role, std::string>> seen; // what has several bindings moves once
  for (const Binding &b : image.bindings) {
    if (!seen.emplace(b.role, b.name).second)
      continue;
    const std::optional<HostElement> element = hostElementNamed(b.hostType);
    uint64_t size = element ? byteWidth(*element) : 1; // of unknown types, bytes
    for (int64_t extent : b.shape)
      size *= uint64_t(extent);
    if (b.role == Binding::Role::Input || b.role == Binding::Role::Output)
      bytes[b.role == Binding::Role::Output] += size;
  }
  double seconds = 0;
  for (uint64_t b : bytes)
    if (b && machine.host.bytesPerSecond > 0)
      seconds += double(b) / machine.host.bytesPerSecond + machine.host.latencySeconds;
  return seconds;
}

static uint64_t predictedCycles(const Image &image) {
  uint64_t sum = 0;
  for (const Step &step : image.steps)
    sum += step.predictedCycles;
  return sum;
}

static nlohmann::json violationJson(const Violation &v) {
  return {{"invariant", nameOf(v.invariant)},
          {"step", v.step},
          {"cycle", v.cycle},
          {"pe", v.pe},
          {"queue", v.queue},
          {"unit", v.unit},
          {"instruction", v.instruction},
          {"node", v.provenance},
          {"message", v.message}};
}

nlohmann::json toJson(const SimulationResult &r, const Image &image, const Machine &machine) {
  nlohmann::json json;
  json["predicted_cycles"] = predictedCycles(image);
  json["measured_cycles"] = r.measuredCycles;
  json["seconds_at_clock"] = machine.clockHz > 0 ? double(r.measuredCycles) / machine.clockHz : 0;
  json["steps"] = nlohmann::json::array();
  for (size_t n = 0; n < r.steps.size(); ++n) {
    const StepResult &s = r.steps[n];
    const bool isGrid = s.kind == Step::Kind::Grid;
    json["steps"].push_back({{"kind", isGrid ? "grid" : "host"},
                             {"device", isGrid ? "grid" : nameOf(image.steps[n].device)},
                             {"predicted_cycles", s.predictedCycles},
                             {"measured_cycles", s.measuredCycles}});
  }
  for (const Utilisation &u : utilisations(r, machine))
    json["utilisation"][u.unit] = u.share;
  json["instructions"] = r.total.instructions;
  json["macs_executed"] = r.total.macsInt8 + r.total.macsFloat;
  json["sram_reads"] = r.total.sramReads;
  json["sram_writes"] = r.total.sramWrites;
  json["stream_vectors"] = r.total.streamVectors;
  json["stream_hops"] = r.total.streamHops;
  json["link_vectors"] = r.total.linkVectors;
  json["links"] = nlohmann::json::array();
  for (const LinkUse &use : linkUses(r, machine))
    json["links"].push_back({{"from_pe", use.link.from},
                             {"port", use.link.port},
                             {"to_pe", use.link.to},
                             {"vectors", use.vectors},
                             {"share", use.share}});
  const Energy energy = energyOf(r.total, machine);
  const auto orNull = [](const std::optional<double> &part) {
    return part ? nlohmann::json(*part) : nlohmann::json();
  };
  json["energy_picojoules"] = {{"macs", orNull(energy.macs)},   {"alus", orNull(energy.alus)},
                               {"sram", orNull(energy.sram)},   {"streams", orNull(energy.streams)},
                               {"links", orNull(energy.links)}, {"total", orNull(energy.total())}};
  json["host_transfer_seconds"] = hostSeconds(image, machine);
  json["violation"] = r.violation ? violationJson(*r.violation) : nlohmann::json();
  return json;
}

} // namespace millrace::sim
