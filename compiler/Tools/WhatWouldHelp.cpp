// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/WhatWouldHelp.h"

#include "compiler/Tools/Execute.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::driver {

using nlohmann::json;
using schedule::Cause;

namespace {

std::bitset<schedule::kCauses> causesOf(std::initializer_list<Cause> causes) {
  std::bitset<schedule::kCauses> all;
  for (const Cause cause : causes)
    all.set(unsigned(cause));
  return all;
}

double shareOf(size_t now, size_t then) { return double(now) / double(then); }

/// One key that counts the resource.
Raise counted(const std::string &resource, const std::string &key, unsigned now, unsigned more,
              std::initializer_list<Cause> causes) {
  return {resource,
          {{key, {std::to_string(now), std::to_string(now + more)}}},
          {.causes = causesOf(causes), .share = shareOf(now, now + more)}};
}

/// Another column of PEs, of which each has everything.
std::optional<Raise> morePes(const Machine &m) {
  if (m.fabric.topology == "list")
    return std::nullopt;
  const unsigned columns = m.fabric.columns + 1, pes = m.fabric.rows * columns;
  Raise raise = counted("pes", "fabric.columns", m.fabric.columns, 1,
                        {Cause::ReadPort, Cause::WritePort, Cause::Bank, Cause::Dispatch,
                         Cause::MxmPort, Cause::SxmPort, Cause::Alu, Cause::Stream,
                         Cause::BufferReuse, Cause::AccumulatorRow, Cause::MemoryReuse});
  raise.relief.maps = true;
  unsigned ports = m.c2c.ports;
  if (m.fabric.topology == "single") {
    raise.keys["fabric.topology"] = {"single", "mesh"};
    ports = std::max(ports, 4u);
  }
  if (m.fabric.topology == "full")
    ports = std::max(ports, pes - 1);
  if (ports != m.c2c.ports)
    raise.keys["c2c.ports"] = {std::to_string(m.c2c.ports), std::to_string(ports)};
  return raise;
}

/// A mesh becomes a torus, a ring has a link between any two.
std::optional<Raise> moreLinks(const Machine &m) {
  const bool isMesh = m.fabric.topology == "mesh";
  if (m.pes() == 1 || (!isMesh && m.fabric.topology != "ring"))
    return std::nullopt;
  Raise raise{
      "links",
      {{"fabric.topology", isMesh ? std::pair("mesh", "torus") : std::pair("ring", "full")}},
      {.causes = causesOf({Cause::LinkPort})}};
  const unsigned ports = std::max(m.c2c.ports, isMesh ? 4u : m.pes() - 1);
  if (ports != m.c2c.ports)
    raise.keys["c2c.ports"] = {std::to_string(m.c2c.ports), std::to_string(ports)};
  const size_t then = isMesh ? size_t(4) * m.pes() : size_t(m.pes()) * (m.pes() - 1);
  raise.relief.share = shareOf(std::min(m.links.size(), then), then);
  return raise;
}

/// Of the options for the machine as it is, with other keys.
ModelOptions with(ModelOptions options, const Raise &raise) {
  std::erase_if(options.settings, [&](const std::string &setting) {
    return raise.keys.contains(setting.substr(0, setting.find('=')));
  });
  for (const auto &[key, values] : raise.keys)
    options.settings.push_back(key + "=" + values.second);
  options.explain.clear();
  options.schedule.clear(); // of the problem on the machine as it is
  options.verbosity = Verbosity::Quiet;
  return options;
}

/// "mxm.planes=4 (from 2)"
std::string changeOf(const Raise &raise) {
  std::string text;
  for (const auto &[key, values] : raise.keys)
    text += fmt::format("{}{}={} (from {})", text.empty() ? "" : ", ", key, values.second,
                        values.first);
  return text;
}

/// "20,344 -17.6 %"
std::string column(int64_t cycles, int64_t before) {
  return fmt::format("{:>12}{:>+7.1f} %", grouped(uint64_t(cycles)),
                     100.0 * double(cycles - before) / double(std::max<int64_t>(before, 1)));
}

} // namespace

std::vector<Raise> raisesOf(const Machine &m) {
  unsigned together = 1; // planes of the widest format
  for (const MxmFormatSpec &format : m.mxm.formats)
    together = std::max(together, format.planes);
  std::vector<Raise> raises;
  raises.push_back(counted("planes", "mxm.planes", m.mxm.planes, together,
                           {Cause::MxmPort, Cause::BufferReuse, Cause::AccumulatorRow}));
  raises.back().relief.sweeps = true;
  raises.push_back(counted("buffers", "mxm.buffers", m.mxm.buffers, 1, {Cause::BufferReuse}));
  raises.push_back(counted("accumulators", "mxm.accumulator_rows", m.mxm.accumulatorRows,
                           m.mxm.accumulatorRows, {Cause::AccumulatorRow}));
  raises.push_back(counted("alus", "vxm.alus", m.vxm.alus, 1, {Cause::Alu}));
  raises.push_back(
      counted("streams", "streams", m.streams, m.mxm.columnsPerInstall, {Cause::Stream}));
  raises.push_back(
      counted("banks", "memory.banks", m.memory.banks, 1, {Cause::Bank, Cause::MemoryReuse}));
  raises.push_back(counted(
      "slices", "memory.slices_per_register", m.memory.slicesPerRegister, 1,
      {Cause::ReadPort, Cause::WritePort, Cause::Bank, Cause::Dispatch, Cause::MemoryReuse}));
  raises.back().keys["memory.slices"] = {std::to_string(m.memory.slices),
                                         std::to_string(m.memory.slices + m.groups())};
  for (std::optional<Raise> raise : {moreLinks(m), morePes(m)})
    if (raise)
      raises.push_back(std::move(*raise));
  return raises;
}

HelpReport whatWouldHelp(const ModelOptions &options, const Machine &machine,
                         const CycleReport &cycles) {
  const std::vector<Raise> raises = raisesOf(machine);
  HelpReport report{options.model, machine.name, cycles.precision, cycles.ledger.cycles, {}};
  Progress progress(options.verbosity);
  progress.stage("compiling for larger machines", raises.size());
  for (size_t r = 0; r < raises.size(); ++r) {
    Help help{raises[r], cycles.relieved.at(2 * r), cycles.relieved.at(2 * r + 1), {}, {}};
    const std::variant<Built, Failure> built = build(with(options, raises[r]));
    if (const auto *failure = std::get_if<Failure>(&built))
      help.refusal = failure->message;
    else
      help.compiledCycles = std::get<Built>(built).cycles->ledger.cycles;
    report.helps.push_back(std::move(help));
    progress.update(r + 1);
  }
  return report;
}

std::string textOf(const HelpReport &report) {
  std::string text =
      fmt::format("what would help {} on {} in {}: {} cycles\n", report.model, report.machine,
                  report.precision, grouped(uint64_t(report.cycles)));
  std::vector<const Help *> sorted;
  size_t width = 8;
  for (const Help &help : report.helps) {
    sorted.push_back(&help);
    width = std::max(width, changeOf(help.raise).size());
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Help *x, const Help *y) {
    return x->compiledCycles.value_or(INT64_MAX) < y->compiledCycles.value_or(INT64_MAX);
  });
  text += fmt::format("  {:<{}}{:>21}{:>21}{:>21}\n", "one more", width, "estimated", "unlimited",
                      "compiled");
  for (const Help *help : sorted) {
    text += fmt::format("  {:<{}}{}{}", changeOf(help->raise), width,
                        column(help->estimatedCycles, report.cycles),
                        column(help->unlimitedCycles, report.cycles));
    text += help->compiledCycles ? column(*help->compiledCycles, report.cycles)
                                 : "  refused: " + help->refusal;
    text += "\n";
  }
  return text;
}

json jsonOf(const HelpReport &report) {
  json rows = json::array();
  for (const Help &help : report.helps) {
    json keys = json::array();
    for (const auto &[key, values] : help.raise.keys)
      keys.push_back({{"key", key}, {"from", values.first}, {"to", values.second}});
    rows.push_back(
        {{"resource", help.raise.resource},
         {"keys", std::move(keys)},
         {"estimated_cycles", help.estimatedCycles},
         {"unlimited_cycles", help.unlimitedCycles},
         {"compiled_cycles", help.compiledCycles ? json(*help.compiledCycles) : json(nullptr)},
         {"refusal", help.refusal.empty() ? json(nullptr) : json(help.refusal)}});
  }
  return {{"cycles", report.cycles}, {"resources", std::move(rows)}};
}

} // namespace millrace::driver
