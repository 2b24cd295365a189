// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Execute.h"

#include "arch/spec/Facts.h"
#include "compiler/Tools/Notes.h"
#include "simulator/report/Report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <optional>

namespace millrace::driver {

using nlohmann::json;

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
};

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
  return use;
}

/// What one run of a model does, as people count it: tokens if it looks up rows of a table by an
/// input [batch, sequence], images if its first input is [batch, channels, height, width], else the
/// run itself.
struct Work {
  const char *unit = "runs"; ///< plural
  int64_t perRun = 1;
};

Work workOf(const Image &image) {
  const json bounds = jsonNote(image, "integer_input_bounds");
  const Binding *first = nullptr;
  for (const Binding &b : image.bindings) {
    if (b.role != Binding::Role::Input)
      continue;
    if (bounds.is_object() && bounds.contains(b.name) && b.shape.size() == 2)
      return {"tokens", b.shape[0] * b.shape[1]};
    first = first ? first : &b;
  }
  if (first && first->shape.size() == 4)
    return {"images", first->shape[0]};
  return {};
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

/// 1,234,567: what people compare is easier to read so.
std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;)
    text.insert(at -= 3, ",");
  return text;
}

std::string inCycles(uint64_t number) { return grouped(number) + " cycles"; }

/// Lines of two columns, in sections.
class Table {
public:
  explicit Table(const std::string &title) : text(title + "\n") {}
  void section() { text += "\n"; }
  void row(const std::string &name, const std::string &value) {
    text += fmt::format("  {:<24}{}\n", name, value);
  }
  const std::string &str() const { return text; }

private:
  std::string text;
};

double mebibytes(uint64_t bytes) { return double(bytes) / (1 << 20); }

double secondsAtClock(const Machine &machine, const Execution &e) {
  return double(e.result.measuredCycles) / machine.clockHz;
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
  const double seconds = secondsAtClock(machine, e);
  table.row("time at the clock",
            fmt::format("{:.2f} us at {:g} MHz", seconds * 1e6, machine.clockHz / 1e6));
  const Work work = workOf(image);
  if (seconds > 0)
    table.row(std::string(work.unit) + " per second",
              grouped(uint64_t(double(work.perRun) / seconds + 0.5)) + ", one run after the other");
}

void addUnits(Table &table, const Image &image, const Machine &machine, const Execution &e) {
  const json total = jsonNote(image, "macs_total"), onGrid = jsonNote(image, "macs_on_grid");
  if (total.is_number() && onGrid.is_number())
    table.row("MACs on the grid",
              grouped(onGrid.get<uint64_t>()) + " of " + grouped(total.get<uint64_t>()));
  const Bounds bounds = boundsOf(image, machine, e);
  if (bounds.macPeak)
    table.row("MACs at peak rate", inCycles(*bounds.macPeak));
  table.row("layout on MXM alone", inCycles(bounds.mxm));
  table.row("layout on VXM alone", inCycles(bounds.vxm));
  for (const sim::Utilisation &u : sim::utilisations(e.result, machine))
    if (u.busyCycles)
      table.row("busy " + u.unit, fmt::format("{:.1f} %", 100 * u.share));
}

void addMemoryAndLinks(Table &table, const Image &image, const Machine &machine,
                       const Execution &e) {
  const MemoryUse memory = memoryUse(image, machine);
  std::string used =
      fmt::format("{:.2f} of {:.0f} MiB", mebibytes(memory.used), mebibytes(memory.capacity));
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

void addHost(Table &table, const Image &image, const Machine &machine) {
  table.row("host link", fmt::format("{:.1f} us in and out, beside the cycles",
                                     sim::hostSeconds(image, machine) * 1e6));
  const json host = jsonNote(image, "host_ops");
  std::string steps;
  if (host.is_array())
    for (const json &op : host)
      steps += (steps.empty() ? "" : ", ") + (op.is_string() ? op.get<std::string>() : op.dump());
  table.row("host steps", steps.empty() ? "none" : steps);
  if (const json packed = jsonNote(image, "packed"); packed.is_array())
    for (const json &line : packed)
      if (line.is_string())
        table.row(&line == &packed.front() ? "to note" : "", line.get<std::string>());
}

void addThisComputer(Table &table, const Image &image, const Execution &e) {
  if (const json compiled = jsonNote(image, "compile_seconds"); compiled.is_number())
    table.row("compiled in", fmt::format("{:.2f} s", compiled.get<double>()));
  table.row("simulated in", fmt::format("{:.2f} s, host steps {:.2f} s of it", e.simulateSeconds,
                                        e.hostStepSeconds));
  table.row("peak memory", fmt::format("{:.0f} MiB of this process", mebibytes(peakBytes())));
  for (const auto &[name, d] : e.distances)
    table.row("check " + name,
              fmt::format("relative L2 {:.1e} from the evaluation, {} of {} elements "
                          "differ",
                          d.relativeL2, d.differing, d.elements));
  for (const auto &[name, file] : e.files)
    table.row("output " + name, file);
}

} // namespace

std::string tableOf(const Image &image, const Machine &machine, const Execution &e) {
  const json model = jsonNote(image, "model"), precision = jsonNote(image, "precision");
  std::string title = model.is_string() ? model.get<std::string>() : "program";
  title += " on " + machine.name;
  if (precision.is_string())
    title += " in " + precision.get<std::string>();
  Table table(title);
  addCycles(table, image, machine, e);
  table.section();
  addUnits(table, image, machine, e);
  table.section();
  addMemoryAndLinks(table, image, machine, e);
  addHost(table, image, machine);
  table.section();
  addThisComputer(table, image, e);
  return table.str();
}

std::string jsonOf(const Image &image, const Machine &machine, const Execution &e) {
  json out = sim::toJson(e.result, image, machine);
  for (const char *key : {"model", "precision", "macs_total", "macs_on_grid", "host_ops",
                          "compile_seconds", "bursts", "kernels", "order", "packed", "partition"})
    out[key] = jsonNote(image, key);
  out["machine"] = machine.name;
  out["machine_yaml"] = image.machineYaml;
  out["clock_hertz"] = machine.clockHz;
  out["simulate_seconds"] = e.simulateSeconds;
  out["host_step_seconds"] = e.hostStepSeconds;
  out["peak_rss_bytes"] = peakBytes();
  const Bounds bounds = boundsOf(image, machine, e);
  out["mac_peak_cycles"] = bounds.macPeak ? json(*bounds.macPeak) : json();
  out["mxm_alone_cycles"] = bounds.mxm;
  out["vxm_alone_cycles"] = bounds.vxm;
  const MemoryUse memory = memoryUse(image, machine);
  out["memory_used_bytes"] = memory.used;
  out["memory_capacity_bytes"] = memory.capacity;
  out["memory_fullest_pe_bytes"] = memory.fullestPe;
  const Work work = workOf(image);
  out[std::string(work.unit) + "_per_second"] =
      out["measured_cycles"] == 0 ? 0 : double(work.perRun) / secondsAtClock(machine, e);
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
  if (!e.distances.empty())
    out["check_seconds"] = e.checkSeconds;
  for (json &output : out["outputs"])
    if (auto d = e.distances.find(output["name"].get<std::string>()); d != e.distances.end()) {
      output["reference_relative_l2"] = d->second.relativeL2;
      output["reference_differing_elements"] = d->second.differing;
    }
  return jsonText(out, 2);
}

} // namespace millrace::driver
