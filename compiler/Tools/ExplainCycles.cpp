// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/ExplainCycles.h"

#include "compiler/Tools/Execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace millrace::driver {

using nlohmann::json;
using schedule::Cause;
using schedule::Engine;
using schedule::IdleCycles;
using schedule::kCauses;
using schedule::kNobody;
using schedule::Ledger;

namespace {

constexpr Engine kAll[] = {Engine::Mxm, Engine::Vxm};

std::string nameOf(Engine e) { return e == Engine::Mxm ? "mxm" : "vxm"; }

/// "read port"
std::string textOf(Cause cause) {
  std::string text(schedule::nameOf(cause));
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

/// Of a unit on average, to the next whole number.
std::string perUnit(const Ledger &ledger, Engine e, int64_t unitCycles) {
  const int64_t units = std::max<int64_t>(1, ledger.units[unsigned(e)]);
  return grouped(uint64_t((unitCycles + units / 2) / units));
}

double percentOf(const Ledger &ledger, Engine e, int64_t unitCycles) {
  const int64_t all = ledger.unitCycles(e);
  return all ? 100.0 * double(unitCycles) / double(all) : 0;
}

/// One row of both engines.
void addRow(std::string &text, const Ledger &ledger, const std::string &name, int64_t mxm,
            int64_t vxm) {
  text += fmt::format("  {:<24}{:>12}{:>7.1f} %{:>12}{:>7.1f} %\n", name,
                      perUnit(ledger, Engine::Mxm, mxm), percentOf(ledger, Engine::Mxm, mxm),
                      perUnit(ledger, Engine::Vxm, vxm), percentOf(ledger, Engine::Vxm, vxm));
}

/// What one kernel has of an engine.
struct KernelAccount {
  int64_t busy = 0, idle = 0;
  std::map<Cause, int64_t> causes;
  std::map<std::pair<Cause, uint32_t>, int64_t> holders; ///< by cause and the kernel behind it
};

/// By kernel; kNobody: idle cycles behind which no work follows.
std::map<uint32_t, KernelAccount> byKernel(const Ledger &ledger, Engine e) {
  std::map<uint32_t, KernelAccount> kernels;
  for (const schedule::BusyCycles &b : ledger.busy)
    if (b.engine == e)
      kernels[b.kernel].busy += b.unitCycles;
  for (const IdleCycles &i : ledger.idle)
    if (i.engine == e) {
      KernelAccount &k = kernels[i.kernel];
      k.idle += i.unitCycles;
      k.causes[i.cause] += i.unitCycles;
      k.holders[{i.cause, i.holder}] += i.unitCycles;
    }
  return kernels;
}

std::string kernelName(const CycleReport &report, uint32_t kernel) {
  return kernel < report.kernels.size() ? report.kernels[kernel] : "";
}

/// "bank 120 (conv_1 100), read port 20"
std::string causesText(const CycleReport &report, Engine e, uint32_t kernel,
                       const KernelAccount &account) {
  std::vector<std::pair<int64_t, Cause>> sorted;
  for (const auto &[cause, cycles] : account.causes)
    sorted.emplace_back(-cycles, cause);
  std::sort(sorted.begin(), sorted.end());
  constexpr size_t kMostCauses = 4;
  std::string text;
  for (size_t k = 0; k < std::min(sorted.size(), kMostCauses); ++k) {
    const Cause cause = sorted[k].second;
    text += fmt::format("{}{} {}", k ? ", " : "", textOf(cause),
                        perUnit(report.ledger, e, -sorted[k].first));
    uint32_t worst = kNobody;
    int64_t most = 0;
    for (const auto &[key, cycles] : account.holders)
      if (key.first == cause && key.second != kNobody && key.second != kernel && cycles > most)
        most = cycles, worst = key.second;
    if (worst != kNobody)
      text += fmt::format(" ({} {})", kernelName(report, worst), perUnit(report.ledger, e, most));
  }
  if (sorted.size() > kMostCauses)
    text += fmt::format(" and {} more", sorted.size() - kMostCauses);
  return text;
}

/// Kernels before whose work the engine idles most.
void addKernels(std::string &text, const CycleReport &report, Engine e) {
  constexpr size_t kMostLines = 20;
  const auto kernels = byKernel(report.ledger, e);
  std::vector<std::pair<int64_t, uint32_t>> sorted;
  for (const auto &[kernel, account] : kernels)
    if (kernel != kNobody && account.idle)
      sorted.emplace_back(-account.idle, kernel);
  if (sorted.empty())
    return;
  std::sort(sorted.begin(), sorted.end());
  size_t width = 6;
  for (size_t k = 0; k < std::min(sorted.size(), kMostLines); ++k)
    width = std::max(width, std::min<size_t>(40, kernelName(report, sorted[k].second).size()));
  text += fmt::format("\n  {:<{}}  {:>9}{:>9}  before its work the {} waits for (held by)\n",
                      "kernel", width, "works", "idles", e == Engine::Mxm ? "MXM" : "VXM");
  for (size_t k = 0; k < std::min(sorted.size(), kMostLines); ++k) {
    const KernelAccount &account = kernels.at(sorted[k].second);
    text += fmt::format("  {:<{}}  {:>9}{:>9}  {}\n", kernelName(report, sorted[k].second), width,
                        perUnit(report.ledger, e, account.busy),
                        perUnit(report.ledger, e, account.idle),
                        causesText(report, e, sorted[k].second, account));
  }
  if (sorted.size() > kMostLines)
    text += fmt::format("  and {} more; --json lists all\n", sorted.size() - kMostLines);
}

/// Why installs came no sooner that sweeps waited for.
void addInstalls(std::string &text, const Ledger &ledger) {
  std::vector<std::pair<int64_t, Cause>> sorted;
  for (const IdleCycles &i : ledger.installs)
    if (i.engine == Engine::Mxm)
      sorted.emplace_back(-i.unitCycles, i.cause);
  std::sort(sorted.begin(), sorted.end());
  std::string line;
  for (const auto &[negative, cause] : sorted)
    line +=
        (line.empty() ? "" : ", ") + textOf(cause) + " " + perUnit(ledger, Engine::Mxm, -negative);
  if (!line.empty())
    text += "  installs that an MXM plane waited for waited themselves for " + line + "\n";
}

/// "critical path"
std::string textOf(schedule::BoundKind kind) {
  std::string name(schedule::nameOf(kind));
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

/// The parts of a step's bound that give most of it, in order of time.
void addParts(std::string &text, const CycleReport &report, size_t step) {
  constexpr size_t kMostLines = 12;
  const std::vector<schedule::BoundPart> &parts = report.bounds.steps[step].parts;
  std::vector<size_t> shown(parts.size());
  std::iota(shown.begin(), shown.end(), size_t(0));
  std::stable_sort(shown.begin(), shown.end(),
                   [&](size_t x, size_t y) { return parts[x].cycles > parts[y].cycles; });
  shown.resize(std::min(shown.size(), kMostLines));
  std::sort(shown.begin(), shown.end());
  text += fmt::format("  the bound of step {} in order of time\n", report.bounds.steps[step].step);
  for (const size_t n : shown) {
    const schedule::BoundPart &part = parts[n];
    text += fmt::format("    {:<22}{:>12}", textOf(part.kind), grouped(part.cycles));
    if (part.kind != schedule::BoundKind::CriticalPath) {
      text += fmt::format("  PE {}", part.pe);
      if (part.kind != schedule::BoundKind::Vxm)
        text += ", " + report.boundUnits[step][n];
      text += fmt::format(", kernels {} to {}", kernelName(report, part.firstKernel),
                          kernelName(report, part.lastKernel));
    }
    text += "\n";
  }
  if (shown.size() < parts.size())
    text += fmt::format("    and {} more; --json lists all\n", parts.size() - shown.size());
}

void addBounds(std::string &text, const CycleReport &report) {
  const schedule::Bounds &bounds = report.bounds;
  const int64_t gap = report.ledger.cycles - bounds.cycles;
  const double percent =
      report.ledger.cycles ? 100.0 * double(gap) / double(report.ledger.cycles) : 0;
  text += fmt::format("\n  {:<24}{:>12}  gap {} cycles ({:.1f} %)\n", "proven bound",
                      grouped(uint64_t(bounds.cycles)), grouped(uint64_t(gap)), percent);
  for (unsigned k = 0; k < schedule::kBoundKinds; ++k) {
    const auto kind = schedule::BoundKind(k);
    if (bounds.byKind[k])
      text += fmt::format("    {:<22}{:>12}\n", textOf(kind) + " alone",
                          grouped(uint64_t(bounds.byKind[k])));
  }
  constexpr size_t kMostSteps = 3;
  for (size_t s = 0; s < std::min(bounds.steps.size(), kMostSteps); ++s)
    addParts(text, report, s);
}

json boundsJson(const CycleReport &report) {
  json kinds = json::object(), steps = json::array();
  for (unsigned k = 0; k < schedule::kBoundKinds; ++k)
    kinds[std::string(schedule::nameOf(schedule::BoundKind(k))) + "_cycles"] =
        report.bounds.byKind[k];
  for (size_t s = 0; s < report.bounds.steps.size(); ++s) {
    const schedule::StepBound &bound = report.bounds.steps[s];
    json parts = json::array();
    for (size_t n = 0; n < bound.parts.size(); ++n) {
      const schedule::BoundPart &part = bound.parts[n];
      const bool isUnit = part.kind != schedule::BoundKind::CriticalPath;
      const auto ofUnit = [&](json it) { return isUnit ? it : json(); };
      parts.push_back({{"cycles", part.cycles},
                       {"by", schedule::nameOf(part.kind)},
                       {"pe", ofUnit(part.pe)},
                       {"queue", ofUnit(report.boundUnits[s][n])},
                       {"first_kernel", ofUnit(kernelName(report, part.firstKernel))},
                       {"last_kernel", ofUnit(kernelName(report, part.lastKernel))}});
    }
    steps.push_back(
        {{"step", bound.step}, {"bound_cycles", bound.cycles}, {"parts", std::move(parts)}});
  }
  return {{"bound_cycles", report.bounds.cycles},
          {"gap_cycles", report.ledger.cycles - report.bounds.cycles},
          {"by_kind", std::move(kinds)},
          {"steps", std::move(steps)}};
}

json causesJson(const std::map<Cause, int64_t> &causes) {
  json out = json::object();
  for (const auto &[cause, cycles] : causes)
    out[std::string(schedule::nameOf(cause))] = cycles;
  return out;
}

json engineJson(const Ledger &ledger, Engine e) {
  std::map<Cause, int64_t> causes, installs;
  for (unsigned c = 0; c < kCauses; ++c)
    causes[Cause(c)] = ledger.idleOf(e, Cause(c));
  for (const IdleCycles &i : ledger.installs)
    if (i.engine == e)
      installs[i.cause] = i.unitCycles;
  return {{"units", ledger.units[unsigned(e)]},
          {"unit_cycles", ledger.unitCycles(e)},
          {"busy_unit_cycles", ledger.busyOf(e)},
          {"idle_unit_cycles", causesJson(causes)},
          {"install_unit_cycles", causesJson(installs)}};
}

/// A row of the list of kernels; without an engine that it does not touch.
json kernelJson(const CycleReport &report, uint32_t kernel,
                const std::map<Engine, const KernelAccount *> &engines) {
  json out = {{"name", kernel == kNobody ? json() : json(kernelName(report, kernel))}};
  for (const Engine e : kAll) {
    const auto found = engines.find(e);
    if (found == engines.end()) {
      out[nameOf(e)] = json();
      continue;
    }
    json holders = json::array();
    for (const auto &[key, cycles] : found->second->holders)
      if (key.second != kNobody)
        holders.push_back({{"cause", schedule::nameOf(key.first)},
                           {"kernel", kernelName(report, key.second)},
                           {"unit_cycles", cycles}});
    out[nameOf(e)] = {{"busy_unit_cycles", found->second->busy},
                      {"idle_unit_cycles", causesJson(found->second->causes)},
                      {"held_by", std::move(holders)}};
  }
  return out;
}

} // namespace

std::string textOf(const CycleReport &report) {
  const Ledger &ledger = report.ledger;
  std::string text = fmt::format("cycles of {} on {} in {}: {}\n", report.model, report.machine,
                                 report.precision, grouped(uint64_t(ledger.cycles)));
  text += fmt::format("  {:<24}{:>21}{:>21}\n", "", "an MXM plane", "the VXM of a PE");
  addRow(text, ledger, "works", ledger.busyOf(Engine::Mxm), ledger.busyOf(Engine::Vxm));
  std::vector<std::pair<int64_t, Cause>> sorted;
  for (unsigned c = 0; c < kCauses; ++c)
    sorted.emplace_back(-ledger.idleOf(Engine::Mxm, Cause(c)), Cause(c));
  std::sort(sorted.begin(), sorted.end());
  for (const auto &[negative, cause] : sorted)
    if (const int64_t vxm = ledger.idleOf(Engine::Vxm, cause); negative || vxm)
      addRow(text, ledger, textOf(cause), -negative, vxm);
  addInstalls(text, ledger);
  addBounds(text, report);
  addKernels(text, report, Engine::Mxm);
  addKernels(text, report, Engine::Vxm);
  return text;
}

std::vector<sim::IdleSlice> idleSlices(const CycleReport &report, const Image &image,
                                       const Machine &machine) {
  std::vector<uint64_t> begin; ///< of each step, in cycles of the program
  uint64_t cycles = 0;
  for (const Step &step : image.steps) {
    begin.push_back(cycles);
    cycles += step.predictedCycles;
  }
  std::vector<sim::IdleSlice> slices;
  for (const schedule::Gap &gap : report.ledger.gaps) {
    const Hemisphere h = Hemisphere(gap.unit / machine.mxm.planes);
    slices.push_back(
        {gap.pe,
         gap.engine == Engine::Vxm
             ? "vxm"
             : machine.queueName(
                   machine.queue({UnitKind::MxmActivate, h, gap.unit % machine.mxm.planes})),
         textOf(gap.cause), kernelName(report, gap.kernel), kernelName(report, gap.holder),
         begin[gap.step] + uint64_t(gap.from), begin[gap.step] + uint64_t(gap.to)});
  }
  return slices;
}

json jsonOf(const CycleReport &report) {
  std::map<uint32_t, std::map<Engine, const KernelAccount *>> kernels;
  std::map<uint32_t, KernelAccount> accounts[schedule::kEngines];
  for (const Engine e : kAll) {
    accounts[unsigned(e)] = byKernel(report.ledger, e);
    for (const auto &[kernel, account] : accounts[unsigned(e)])
      kernels[kernel][e] = &account;
  }
  json rows = json::array();
  for (const auto &[kernel, engines] : kernels)
    rows.push_back(kernelJson(report, kernel, engines));
  return {{"cycles", report.ledger.cycles},
          {"mxm", engineJson(report.ledger, Engine::Mxm)},
          {"vxm", engineJson(report.ledger, Engine::Vxm)},
          {"bounds", boundsJson(report)},
          {"kernels", std::move(rows)}};
}

} // namespace millrace::driver
