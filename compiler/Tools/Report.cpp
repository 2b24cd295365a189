// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Execute.h"

#include "arch/spec/Facts.h"
#include "compiler/Tools/Notes.h"
#include "compiler/Tools/RunRecord.h"
#include "compiler/Tools/Throughput.h"
#include "compiler/Tools/Timeline.h"
#include "simulator/report/Report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <tuple>

namespace millrace::driver {

using nlohmann::json;

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;)
    text.insert(at -= 3, ",");
  return text;
}

namespace {

/// Most memory that this program had. Not getrusage's: that begins with the peak of whoever started
/// the process.
uint64_t peakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (uint64_t kibibytes = 0; std::sscanf(line.c_str(), "VmHWM: %" SCNu64, &kibibytes) == 1)
      return kibibytes * 1024;
  return 0;
}

/// Bytes of memory.
struct MemoryUse {
  uint64_t used = 0, capacity = 0, fullestPe = 0;
  uint64_t peak = 0; ///< alive at a time, at most, of all PEs
};

/// Rows of regions that live at the same time, at most.
uint64_t peakRows(const Image &image) {
  std::vector<std::tuple<uint16_t, uint64_t, int64_t>> changes; ///< step, cycle, rows
  for (const Region &r : image.tensors)
    if (r.rows) {
      changes.push_back({r.step0, r.from, r.rows});
      changes.push_back({r.step1, r.to + 1, -int64_t(r.rows)});
    }
  std::sort(changes.begin(), changes.end()); // what ends in a cycle goes before what begins there
  int64_t alive = 0, most = 0;
  for (const auto &[step, cycle, rows] : changes)
    most = std::max(most, alive += rows);
  return uint64_t(most);
}

/// Rows that some tensor ever lies in, each once.
MemoryUse memoryUse(const Image &image, const Machine &machine) {
  const size_t rowsPerPe = size_t(kHemispheres) * machine.memory.slices * machine.rowsPerSlice();
  std::vector<bool> isUsed(machine.pes() * rowsPerPe);
  for (const Region &r : image.tensors) {
    const size_t slice =
        (size_t(r.pe) * kHemispheres + size_t(r.hemisphere)) * machine.memory.slices + r.slice;
    const auto first = isUsed.begin() + ptrdiff_t(slice * machine.rowsPerSlice() + r.row);
    std::fill(first, first + r.rows, true);
  }
  MemoryUse use;
  for (auto pe = isUsed.begin(); pe != isUsed.end(); pe += ptrdiff_t(rowsPerPe)) {
    const auto rows = uint64_t(std::count(pe, pe + ptrdiff_t(rowsPerPe), true));
    use.used += rows * machine.lanes();
    use.fullestPe = std::max(use.fullestPe, rows * machine.lanes());
  }
  use.capacity = machine.pes() * rowsPerPe * machine.lanes();
  use.peak = peakRows(image) * machine.lanes();
  return use;
}

/// Cycles that one part of the machine needs for the program, if nothing else ever held it up.
struct Bounds {
  std::optional<uint64_t> macPeak; ///< MACs on the grid at the format's peak rate of all PEs
  uint64_t mxm = 0; ///< of the MXM unit with most to do: vectors streamed, or columns installed
  uint64_t vxm = 0; ///< operations on vectors over ALUs, of the PE with most
};

uint64_t divideUp(uint64_t number, uint64_t by) { return by ? (number + by - 1) / by : 0; }

/// A vector or a group of columns occupies a plane (a pair of planes in 16-bit formats) for a
/// cycle; installing goes on beside streaming. An operation on a vector occupies an ALU for a
/// cycle.
Bounds boundsOf(const Image &image, const Machine &machine, const Execution &e) {
  Bounds bounds;
  for (const sim::Counters &pe : e.result.pes) {
    uint64_t operations = 0, alus = 0;
    for (unsigned q = 0; q < machine.queues() && q < pe.busy.size(); ++q) {
      const UnitKind kind = machine.unit(q).kind;
      if (kind == UnitKind::MxmActivate || kind == UnitKind::MxmInstall)
        bounds.mxm = std::max<uint64_t>(bounds.mxm, pe.busy[q]);
      if (kind == UnitKind::Alu)
        operations += pe.busy[q], ++alus;
    }
    bounds.vxm = std::max(bounds.vxm, divideUp(operations, alus));
  }
  const json macs = jsonNote(image, "macs_on_grid"), precision = jsonNote(image, "precision");
  if (!macs.is_number() || !precision.is_string())
    return bounds;
  for (const FormatRate &rate : factsOf(machine).formats)
    if (nameOf(rate.type) == precision.get<std::string>())
      bounds.macPeak = divideUp(macs.get<uint64_t>(), rate.macsPerCycle * machine.pes());
  return bounds;
}

std::string inCycles(uint64_t number) { return grouped(number) + " cycles"; }

/// Lines of two columns, in sections. The first column is as wide as its names, but for very long
/// ones.
class Table {
public:
  explicit Table(std::string title) : title(std::move(title)) {}
  void section() { rows.emplace_back(); }
  void row(const std::string &name, const std::string &value) { rows.push_back({name, value}); }
  std::string str() const {
    constexpr size_t kLeast = 24, kMost = 48;
    size_t width = kLeast;
    for (const auto &[name, value] : rows)
      if (name.size() + 2 <= kMost)
        width = std::max(width, name.size() + 2);
    std::string text = title + "\n";
    for (const auto &[name, value] : rows)
      text += value.empty()
                  ? "\n"
                  : "  " + name + std::string(std::max(width, name.size() + 2) - name.size(), ' ') +
                        value + "\n";
    return text;
  }

private:
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows; ///< a section begins with an empty one
};

double mebibytes(uint64_t bytes) { return double(bytes) / (1 << 20); }

double secondsAtClock(const Machine &machine, const Execution &e) {
  return double(e.result.measuredCycles) / machine.clockHz;
}

/// What people count, per second at the clock; nothing of a program that does nothing or is wrong.
std::optional<double> rateOf(const Image &image, const Machine &machine, const Execution &e) {
  const double seconds = secondsAtClock(machine, e);
  if (e.result.violation || !(seconds > 0))
    return std::nullopt;
  return double(workOf(image).perRun) / seconds;
}

void addCycles(Table &table, const Image &image, const Machine &machine, const Execution &e) {
  uint64_t predicted = 0;
  for (const sim::StepResult &s : e.result.steps)
    predicted += s.predictedCycles;
  table.row("cycles predicted", grouped(predicted));
  table.row("cycles measured", grouped(e.result.measuredCycles));
  if (const std::optional<sim::Violation> &v = e.result.violation) {
    table.row("first broken rule", fmt::format("{} at cycle {} of step {}, {}",
                                               nameOf(v->invariant), v->cycle, v->step, v->unit));
    return; // no time and no rate of what is no run
  }
  if (e.result.steps.size() > 1)
    for (size_t s = 0; s < e.result.steps.size(); ++s)
      if (const sim::StepResult &step = e.result.steps[s]; step.kind == Step::Kind::Grid)
        table.row(fmt::format("  step {}", s), inCycles(step.measuredCycles));
  table.row("time at the clock",
            fmt::format("{:.2f} us at {:g} MHz", secondsAtClock(machine, e) * 1e6,
                        machine.clockHz / 1e6));
  if (const std::optional<double> rate = rateOf(image, machine, e))
    table.row(std::string(workOf(image).unit) + " per second",
              grouped(uint64_t(*rate + 0.5)) + ", one run after the other");
}

/// Who multiplies, a line per operator.
void addOperators(Table &table, const Image &image) {
  const json rows = jsonNote(image, "macs_by_operator");
  if (!rows.is_array())
    return;
  const std::map<std::string, const char *> phrases = {
      {"grid", " on the grid"},
      {"host", " on the host"},
      {"none", " by nobody (equal or without effect)"}};
  std::map<std::string, std::string> lines;
  for (json row : rows) {
    if (!row.is_object() || !row["operator"].is_string() || !row["device"].is_string() ||
        !row["macs"].is_number_unsigned())
      continue; // an image may say anything
    const auto phrase = phrases.find(row["device"].get<std::string>());
    std::string &line = lines[row["operator"].get<std::string>()];
    if (phrase != phrases.end())
      line += (line.empty() ? "" : ", ") + grouped(row["macs"].get<uint64_t>()) + phrase->second;
  }
  for (const auto &[name, line] : lines)
    table.row("  " + name, line);
}

void addUnits(Table &table, const Image &image, const Machine &machine, const Execution &e) {
  const json total = jsonNote(image, "macs_total"), onGrid = jsonNote(image, "macs_on_grid");
  if (total.is_number() && onGrid.is_number())
    table.row("MACs on the grid",
              grouped(onGrid.get<uint64_t>()) + " of " + grouped(total.get<uint64_t>()));
  addOperators(table, image);
  const Bounds bounds = boundsOf(image, machine, e);
  if (bounds.macPeak)
    table.row("MACs at peak rate", inCycles(*bounds.macPeak));
  table.row("layout on MXM alone", inCycles(bounds.mxm));
  table.row("layout on VXM alone", inCycles(bounds.vxm));
  for (const sim::Utilisation &u : sim::utilisations(e.result, machine))
    if (u.busyCycles)
      table.row("busy " + u.unit, fmt::format("{:.1f} %", 100 * u.share));
}

/// What the MXM idled for, most first, and the proven bound, as the compiler noted them.
void addAccount(Table &table, const Image &image) {
  const json account = jsonNote(image, "cycle_account");
  const auto number = [&](const json::json_pointer &at) -> std::optional<double> {
    const json value = account.is_object() ? account.value(at, json()) : json();
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  };
  const auto all = number("/mxm/unit_cycles"_json_pointer);
  const auto cycles = number("/cycles"_json_pointer);
  const auto bound = number("/bounds/bound_cycles"_json_pointer);
  if (!all || !cycles || !bound || !(*all > 0) || !(*cycles > 0) || *bound < 0)
    return; // an image may say anything
  std::vector<std::pair<double, std::string>> causes;
  for (const auto &[name, value] : account["mxm"]["idle_unit_cycles"].items())
    if (value.is_number() && value.get<double>() > 0)
      causes.emplace_back(value.get<double>(), name);
  std::sort(causes.rbegin(), causes.rend());
  constexpr size_t kMostCauses = 3;
  std::string text;
  double rest = 0;
  for (size_t k = 0; k < causes.size(); ++k) {
    std::replace(causes[k].second.begin(), causes[k].second.end(), '_', ' ');
    if (k < kMostCauses)
      text += fmt::format("{}{} {:.1f} %", k ? ", " : "", causes[k].second,
                          100 * causes[k].first / *all);
    else
      rest += causes[k].first;
  }
  if (rest > 0)
    text += fmt::format(", other causes {:.1f} %", 100 * rest / *all);
  if (!text.empty())
    table.row("idle mxm", text);
  table.row("proven bound", fmt::format("{}; gap {:.1f} %", inCycles(uint64_t(*bound)),
                                        100 * (*cycles - *bound) / *cycles));
}

void addMemoryAndLinks(Table &table, const Image &image, const Machine &machine,
                       const Execution &e) {
  const MemoryUse memory = memoryUse(image, machine);
  std::string used =
      fmt::format("{:.2f} of {:.0f} MiB, {:.2f} at most at a time", mebibytes(memory.used),
                  mebibytes(memory.capacity), mebibytes(memory.peak));
  if (machine.pes() > 1)
    used += fmt::format(", {:.2f} of {:.0f} MiB in the fullest PE", mebibytes(memory.fullestPe),
                        mebibytes(memory.capacity / machine.pes()));
  table.row("memory used", used);
  if (machine.links.empty())
    return;
  const std::vector<sim::LinkUse> links = sim::linkUses(e.result, machine);
  table.row("links used", fmt::format("{} of {}, {} vectors", links.size(), machine.links.size(),
                                      e.result.total.linkVectors));
  if (!links.empty())
    table.row("peak link",
              fmt::format("PE {} to PE {}: {} vectors, busy {:.1f} %", links[0].link.from,
                          links[0].link.to, links[0].vectors, 100 * links[0].share));
}

/// Joules by the machine's costs, or which of them it does not state.
void addEnergy(Table &table, const Machine &machine, const Execution &e) {
  const sim::Energy energy = sim::energyOf(e.result.total, machine);
  if (const std::optional<double> total = energy.total()) {
    table.row("energy", fmt::format("{:.3f} uJ", *total * 1e-6));
    return;
  }
  std::string unknown;
  for (const auto &[name, part] :
       {std::pair("macs", energy.macs), std::pair("alus", energy.alus),
        std::pair("sram", energy.sram), std::pair("streams", energy.streams),
        std::pair("links", energy.links)})
    if (!part)
      unknown += (unknown.empty() ? "" : ", ") + std::string(name);
  table.row("energy", "unknown: the machine states no cost of " + unknown);
}

void addHost(Table &table, const Image &image, const Machine &machine) {
  table.row("host link", fmt::format("{:.1f} us in and out, beside the cycles",
                                     sim::hostSeconds(image, machine) * 1e6));
  const json host = jsonNote(image, "host_ops");
  std::string steps;
  if (host.is_array())
    for (const json &op : host)
      steps += (steps.empty() ? "" : ", ") + (op.is_string() ? op.get<std::string>() : op.dump());
  table.row("host steps", steps.empty() ? "none" : steps + "; not in the cycles");
  if (const json packed = jsonNote(image, "packed"); packed.is_array())
    for (const json &line : packed)
      if (line.is_string())
        table.row(&line == &packed.front() ? "to note" : "", line.get<std::string>());
}

void addVerdict(Table &table, const Verdict &verdict) {
  const auto row = [&](const std::string &name, const Distance &d, const std::string &judge) {
    std::string text = fmt::format("relative L2 {:.1e} from {}, {} of {} elements differ",
                                   d.relativeL2, judge, d.differing, d.elements);
    if (d.infinite || d.nan)
      text += fmt::format("; {} became infinite, {} NaN", d.infinite, d.nan);
    table.row("check " + name, text);
  };
  for (const auto &[name, d] : verdict.kernels)
    row(name, d, "the evaluation");
  for (const auto &[name, d] : verdict.outputs)
    row(name, d, verdict.judge);
  if (verdict.departure)
    table.row("first departure",
              fmt::format("'{}': relative L2 {:.1e}, of what it is computed of at most {:.1e}; {} "
                          "values compared up to there",
                          verdict.departure->value, verdict.departure->relativeL2,
                          verdict.departure->before, verdict.compared));
  else if (!verdict.judge.empty())
    table.row("first departure", fmt::format("none in {} values compared", verdict.compared));
}

/// What became of host steps that were to run as GPU kernels or had a device, a line for each.
void addHostKernels(Table &table, const Execution &e, const std::optional<GpuUse> &use) {
  if (use)
    table.row("GPU", use->why.empty() ? fmt::format("{}, code for {}", use->name, use->chip)
                                      : "none, kernels run on this CPU: " + use->why);
  for (size_t k = 0; k < e.hostDevices.size(); ++k) {
    const HostStepDevice &step = e.hostDevices[k];
    const std::string device =
        step.device == StepDevice::Host ? "" : fmt::format(" ({})", nameOf(step.device));
    table.row(k ? "" : "GPU kernels",
              fmt::format("{}{}: {}{}{}{}{}", step.function, device,
                          step.kernels.empty() ? "none"
                                               : fmt::format("{}", fmt::join(step.kernels, ", ")),
                          step.left.empty() ? "" : "; on the host: ", fmt::join(step.left, "; "),
                          step.notes.empty() ? "" : "; ", fmt::join(step.notes, "; ")));
  }
}

/// With a device map: what runs where, and why.
void addPlacement(Table &table, const Image &image) {
  constexpr size_t kMostRows = 24;
  const json placement = jsonNote(image, "placement");
  if (!placement.is_array())
    return;
  for (size_t k = 0; k < std::min(placement.size(), kMostRows); ++k) {
    const json &row = placement[k];
    const auto text = [&](const char *key) {
      return row.is_object() && row.contains(key) && row[key].is_string()
                 ? row[key].get<std::string>()
                 : "";
    };
    std::string work;
    if (row.is_object() && row.contains("work") && row["work"].is_array())
      for (const json &name : row["work"])
        work += (work.empty() ? " (" : ", ") + (name.is_string() ? name.get<std::string>() : "?");
    table.row(k ? "" : "placement",
              fmt::format("step {}: {}{}{}; {}", k, text("device"),
                          text("function").empty() ? "" : ", " + text("function"),
                          work.empty() ? "" : work + ")", text("why")));
  }
  if (placement.size() > kMostRows)
    table.row("", fmt::format("and {} more", placement.size() - kMostRows));
}

/// Numbers beyond the range of the format that they were stored in, a line per input and kernel.
void addLosses(Table &table, const std::vector<Loss> &losses) {
  constexpr size_t kMostLines = 3;
  for (size_t k = 0; k < std::min(losses.size(), kMostLines); ++k) {
    const Loss &loss = losses[k];
    table.row(k ? "" : "beyond range",
              fmt::format("{}: {} {} {}", loss.input.empty() ? loss.nodes : "input " + loss.input,
                          grouped(loss.count), loss.input.empty() ? "lanes" : "elements",
                          loss.becomes));
  }
  if (losses.size() > kMostLines)
    table.row("", fmt::format("and {} more", losses.size() - kMostLines));
}

void addThisComputer(Table &table, const Image &image, const Execution &e) {
  std::string text;
  if (const json compiled = jsonNote(image, "compile_seconds"); compiled.is_number())
    text = fmt::format("compiled in {:.2f} s, ", compiled.get<double>());
  text += fmt::format("simulated in {:.2f} s", e.simulateSeconds);
  if (e.hostStepSeconds > 0)
    text += fmt::format(", {:.2f} s of it in host steps", e.hostStepSeconds);
  table.row("this computer",
            text + fmt::format("; {:.0f} MiB of this process", mebibytes(peakBytes())));
  addVerdict(table, e.verdict);
  for (const auto &[name, file] : e.files)
    table.row("output " + name, file);
}

} // namespace

std::string tableOf(const Image &image, const Machine &machine, const ExecuteOptions &options,
                    const Execution &e) {
  const json model = jsonNote(image, "model"), precision = jsonNote(image, "precision");
  std::string title = model.is_string() ? model.get<std::string>() : "program";
  title += " on " + machine.name;
  if (precision.is_string())
    title += " in " + precision.get<std::string>();
  Table table(title);
  addCycles(table, image, machine, e);
  table.section();
  addUnits(table, image, machine, e);
  addAccount(table, image);
  table.section();
  addMemoryAndLinks(table, image, machine, e);
  addEnergy(table, machine, e);
  addHost(table, image, machine);
  addPlacement(table, image);
  addHostKernels(table, e, options.gpuUse);
  if (const std::optional<Timeline> timeline = timelineOf(image, machine);
      timeline && !e.result.violation) {
    table.section();
    for (const auto &[name, value] : rowsOf(*timeline, machine))
      table.row(name, value);
  }
  addLosses(table, e.losses);
  table.section();
  addThisComputer(table, image, e);
  return table.str();
}

/// Figures of the computer that simulates: none of them says anything of the machine.
static json thisComputer(const Image &image, const Execution &e) {
  return {{"compile_seconds", jsonNote(image, "compile_seconds")},
          {"simulate_seconds", e.simulateSeconds},
          {"host_step_seconds", e.hostStepSeconds},
          {"peak_rss_bytes", peakBytes()}};
}

/// Null if no host step was to run as kernels, or had a device.
static json hostKernelsJson(const ExecuteOptions &options, const Execution &e) {
  if ((options.gpu.empty() || options.gpu == "off") && e.hostDevices.empty())
    return {};
  json steps = json::array();
  for (const HostStepDevice &step : e.hostDevices)
    steps.push_back({{"function", step.function},
                     {"assigned", nameOf(step.device)},
                     {"device", step.kernels.empty() ? json() : json(step.ran)},
                     {"kernels", step.kernels},
                     {"left", step.left},
                     {"notes", step.notes}});
  return steps;
}

/// Null without --gpu cuda or auto.
static json gpuJson(const std::optional<GpuUse> &use) {
  if (!use)
    return {};
  const auto orNull = [](const std::string &text) { return text.empty() ? json() : json(text); };
  return {{"asked", use->asked},
          {"used", use->used},
          {"why", orNull(use->why)},
          {"name", orNull(use->name)},
          {"chip", orNull(use->chip)}};
}

static json lossesJson(const std::vector<Loss> &losses) {
  json rows = json::array();
  for (const Loss &loss : losses)
    rows.push_back({{"input", loss.input.empty() ? json() : json(loss.input)},
                    {"nodes", loss.input.empty() ? json(loss.nodes) : json()},
                    {"format", loss.format},
                    {"became", loss.becomes},
                    {"lanes", loss.count}});
  return rows;
}

/// Null without a check. Numbers that JSON lacks (NaN and infinity) are null.
static json checkJson(const Verdict &verdict) {
  if (verdict.kernels.empty())
    return {};
  json check = {{"judges", json::array()}};
  const auto add = [&](const std::string &judge, const std::map<std::string, Distance> &outputs) {
    json rows = json::array();
    for (const auto &[name, d] : outputs)
      rows.push_back({{"name", name},
                      {"relative_l2", std::isfinite(d.relativeL2) ? json(d.relativeL2) : json()},
                      {"elements", d.elements},
                      {"differing_elements", d.differing},
                      {"elements_became_infinite", d.infinite},
                      {"elements_became_nan", d.nan}});
    check["judges"].push_back({{"judge", judge}, {"outputs", rows}});
  };
  add("kernels", verdict.kernels);
  if (!verdict.judge.empty())
    add(verdict.judge, verdict.outputs);
  check["values_compared"] = verdict.judge.empty() ? json() : json(verdict.compared);
  const auto orNull = [](double number) { return std::isfinite(number) ? json(number) : json(); };
  check["first_departure"] = verdict.departure
                                 ? json({{"value", verdict.departure->value},
                                         {"relative_l2", orNull(verdict.departure->relativeL2)},
                                         {"before_relative_l2", orNull(verdict.departure->before)}})
                                 : json();
  return check;
}

std::string jsonOf(const Image &image, const Machine &machine, const ExecuteOptions &options,
                   const Execution &e) {
  json out = sim::toJson(e.result, image, machine);
  out.update(runRecordOf(options));
  for (const char *key : {"model", "precision", "macs_total", "macs_on_grid", "macs_by_operator",
                          "host_ops", "bursts", "cycle_account", "kernels", "layouts", "order",
                          "packed", "partition", "schedule", "schedules_tried"})
    out[key] = jsonNote(image, key);
  out["machine"] = machine.name;
  out["machine_yaml"] = image.machineYaml;
  out["clock_hertz"] = machine.clockHz;
  out["this_computer"] = thisComputer(image, e);
  out["host_kernels"] = hostKernelsJson(options, e);
  out["gpu"] = gpuJson(options.gpuUse);
  const std::optional<Timeline> timeline = timelineOf(image, machine);
  out["placement"] = jsonNote(image, "placement");
  out["timeline"] = timeline ? jsonOf(*timeline, machine) : json();
  const Bounds bounds = boundsOf(image, machine, e);
  out["mac_peak_cycles"] = bounds.macPeak ? json(*bounds.macPeak) : json();
  out["mxm_alone_cycles"] = bounds.mxm;
  out["vxm_alone_cycles"] = bounds.vxm;
  const MemoryUse memory = memoryUse(image, machine);
  out["memory_used_bytes"] = memory.used;
  out["memory_peak_bytes"] = memory.peak;
  out["memory_capacity_bytes"] = memory.capacity;
  out["memory_fullest_pe_bytes"] = memory.fullestPe;
  const std::optional<double> rate = rateOf(image, machine, e);
  out[std::string(workOf(image).unit) + "_per_second"] = rate ? json(*rate) : json();
  json macs = json::array();
  for (const sim::Counters &pe : e.result.pes)
    macs.push_back(pe.macsInt8 + pe.macsFloat);
  out["macs_executed_by_pe"] = macs;
  out["outputs"] = json::array();
  for (const auto &[name, tensor] : e.outputs)
    out["outputs"].push_back({{"name", name},
                              {"file", e.files.count(name) ? json(e.files.at(name)) : json()},
                              {"shape", tensor.shape},
                              {"type", std::string(onnxName(tensor.type))}});
  out["lost_values"] = options.cyclesOnly ? json() : lossesJson(e.losses);
  out["check"] = checkJson(e.verdict);
  if (!e.verdict.kernels.empty())
    out["this_computer"]["check_seconds"] = e.checkSeconds;
  return jsonText(out, 2);
}

} // namespace millrace::driver
