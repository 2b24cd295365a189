// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Timeline.h"

#include "arch/program/HostNumbers.h"
#include "compiler/Tools/Execute.h"
#include "compiler/Tools/Notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace millrace::driver {

using nlohmann::json;
using Role = Binding::Role;

/// Today's table, whatever the one that the image was made with.
static const gpu::GpuChip &estimatedChip() { return gpu::TuningTable::builtIn().estimatedChip(); }

namespace {

uint64_t elementsOf(const Binding &b) {
  uint64_t elements = 1;
  for (int64_t extent : b.shape)
    elements *= uint64_t(extent);
  return elements;
}

/// What the compiler noted that a kernel is; else what its name says.
gpu::KernelKind kindOf(const json &noted, const GpuLaunch &launch) {
  gpu::KernelKind kind{gpu::opOf(launch.kernel), "", {{"bytes", int64_t(launch.bytes)}}};
  if (!noted.is_object() || !noted.contains("kind") || !noted["kind"].is_object())
    return kind;
  for (const auto &[name, value] : noted["kind"].items())
    if (value.is_string())
      (name == "op" ? kind.op : kind.type) = value.get<std::string>();
    else if (value.is_number_integer())
      kind.sizes[name] = value.get<int64_t>();
  return kind;
}

/// The launches of a function that the compiler noted; empty if it noted none.
std::vector<GpuLaunch> launchesOf(const json &functions, const std::string &function) {
  std::vector<GpuLaunch> launches;
  if (!functions.is_object() || !functions.contains(function) || !functions[function].is_object() ||
      !functions[function].contains("launches"))
    return launches;
  for (const json &noted : functions[function]["launches"]) {
    GpuLaunch launch;
    const auto number = [&](const char *key) {
      return noted.is_object() && noted.contains(key) && noted[key].is_number()
                 ? noted[key].get<double>()
                 : 0;
    };
    if (noted.is_object() && noted.contains("kernel") && noted["kernel"].is_string())
      launch.kernel = noted["kernel"].get<std::string>();
    launch.programs = number("programs");
    launch.bytes = number("bytes");
    launch.matrixFlops = number("matrix_flops");
    launch.otherFlops = number("other_flops");
    launch.isWhole =
        !noted.is_object() || !noted.contains("is_whole") || noted["is_whole"] != false;
    launch.kind = kindOf(noted, launch);
    launches.push_back(launch);
  }
  return launches;
}

class TimelineBuilder {
public:
  TimelineBuilder(const Image &image, const Machine &machine)
      : image(image), machine(machine), functions(jsonNote(image, "gpu_functions")) {}

  Timeline build() {
    std::map<std::string, uint64_t> in,
        out; ///< bytes by name: what has several bindings moves once
    for (const Binding &b : image.bindings)
      if (b.role == Role::Input && !b.placements.empty())
        in[b.name] = hostBytesOf(b);
    transfer(0, "host", "grid", sumOf(in));
    for (size_t s = 0; s < image.steps.size(); ++s)
      step(s);
    for (uint32_t b = 0; b < image.bindings.size(); ++b)
      if (image.bindings[b].role == Role::Output && !madeBy.count(b))
        out[image.bindings[b].name] = hostBytesOf(image.bindings[b]);
    transfer(image.steps.empty() ? 0 : image.steps.size() - 1, "grid", "host", sumOf(out));
    return std::move(timeline);
  }

private:
  static uint64_t sumOf(const std::map<std::string, uint64_t> &bytes) {
    uint64_t sum = 0;
    for (const auto &[name, number] : bytes)
      sum += number;
    return sum;
  }
  static uint64_t hostBytesOf(const Binding &b) {
    const std::optional<HostElement> element = hostElementNamed(b.hostType);
    return elementsOf(b) * (element ? byteWidth(*element) : 1);
  }

  void transfer(size_t step, const std::string &from, const std::string &to, uint64_t bytes) {
    if (!bytes)
      return;
    TimelineEntry entry;
    entry.kind = TimelineEntry::Kind::Transfer;
    entry.step = step;
    entry.from = from;
    entry.to = to;
    entry.bytes = bytes;
    timeline.hasUnknown |= !(machine.host.bytesPerSecond > 0);
    if (machine.host.bytesPerSecond > 0) {
      entry.seconds = double(bytes) / machine.host.bytesPerSecond + machine.host.latencySeconds;
      entry.cycles = uint64_t(std::ceil(*entry.seconds * machine.clockHz));
    }
    timeline.transferCycles += entry.cycles;
    timeline.entries.push_back(std::move(entry));
  }

  /// Whether the host does not see its memory.
  static bool isAway(const std::string &device) { return device == nameOf(StepDevice::Gpu); }

  void step(size_t number) {
    const Step &s = image.steps[number];
    TimelineEntry entry;
    entry.step = number;
    if (s.kind == Step::Kind::Grid) {
      entry.cycles = s.predictedCycles;
      entry.seconds = double(s.predictedCycles) / machine.clockHz;
      timeline.gridCycles += entry.cycles;
      timeline.entries.push_back(std::move(entry));
      return;
    }
    // Of the grid's memory, in the type that it has there. Constants are with the device before the
    // program begins, and the host has inputs of the model and takes outputs.
    uint64_t in = 0, out = 0, outputs = 0;
    std::map<std::string, uint64_t> direct; ///< bytes from others, which the grid never reads
    for (uint32_t b : s.inputs) {
      const Binding &binding = image.bindings[b];
      const auto made = madeBy.find(b);
      if (binding.role == Role::Input)
        direct[nameOf(StepDevice::Host)] += hostBytesOf(binding);
      else if (!binding.placements.empty())
        in += elementsOf(binding) * byteWidth(binding.gridType);
      else if (made != madeBy.end())
        direct[nameOf(made->second)] += hostBytesOf(binding);
    }
    for (uint32_t b : s.outputs) {
      const Binding &binding = image.bindings[b];
      madeBy[b] = s.device;
      if (binding.role == Role::Output)
        outputs += hostBytesOf(binding);
      if (!binding.placements.empty())
        out += elementsOf(binding) * byteWidth(binding.gridType);
    }
    entry.device = nameOf(s.device);
    entry.function = s.function;
    entry.kind = TimelineEntry::Kind::Host;
    if (s.device == StepDevice::Gpu) {
      entry.launches = launchesOf(functions, s.function);
      entry.kind = entry.launches.empty() ? entry.kind : TimelineEntry::Kind::Kernels;
    }
    for (const GpuLaunch &launch : entry.launches)
      entry.seconds = entry.seconds.value_or(0) + gpu::estimate(launch).seconds;
    if (entry.seconds)
      timeline.kernelSeconds += *entry.seconds;
    else
      timeline.hasUnknown = true;
    const std::string device = entry.device;
    transfer(number, "grid", device, in);
    for (const auto &[from, bytes] : direct)
      if (isAway(from) != isAway(device))
        transfer(number, from, device, bytes);
    timeline.entries.push_back(std::move(entry));
    transfer(number, device, "grid", out);
    if (isAway(device))
      transfer(number, device, nameOf(StepDevice::Host), outputs);
  }

  const Image &image;
  const Machine &machine;
  const json functions;
  std::map<uint32_t, StepDevice> madeBy; ///< by binding
  Timeline timeline;
};

std::string inMicroseconds(double seconds) { return fmt::format("{:.2f} us", seconds * 1e6); }

} // namespace

std::optional<Timeline> timelineOf(const Image &image, const Machine &machine) {
  if (std::none_of(image.steps.begin(), image.steps.end(),
                   [](const Step &s) { return s.device != StepDevice::Host; }))
    return std::nullopt;
  return TimelineBuilder(image, machine).build();
}

/// Of all three; nothing if a part is not predicted.
static std::optional<double> totalOf(const Timeline &t, const Machine &machine) {
  if (t.hasUnknown)
    return std::nullopt;
  return double(t.gridCycles + t.transferCycles) / machine.clockHz + t.kernelSeconds;
}

std::vector<std::pair<std::string, std::string>> rowsOf(const Timeline &t, const Machine &machine) {
  constexpr size_t kMostRows = 24;
  std::vector<std::pair<std::string, std::string>> rows;
  double at = 0;
  for (const TimelineEntry &e : t.entries) {
    std::string text;
    switch (e.kind) {
    case TimelineEntry::Kind::Grid:
      text = fmt::format("grid, {} cycles", grouped(e.cycles));
      break;
    case TimelineEntry::Kind::Transfer:
      text = fmt::format("{} to {}, {} bytes, {}", e.from, e.to, grouped(e.bytes),
                         e.seconds ? grouped(e.cycles) + " cycles of the host link"
                                   : "a link whose rate the machine does not state");
      break;
    case TimelineEntry::Kind::Kernels:
      text =
          fmt::format("{}, {}, {} kernel{}, {} estimated", e.device, e.function, e.launches.size(),
                      e.launches.size() == 1 ? "" : "s", inMicroseconds(*e.seconds));
      break;
    case TimelineEntry::Kind::Host:
      text = fmt::format("{}, {}, not predicted", e.device, e.function);
      break;
    }
    if (rows.size() < kMostRows)
      rows.push_back({rows.empty() ? "timeline" : "",
                      fmt::format("{:>12}  step {}: {}", inMicroseconds(at), e.step, text)});
    at += e.seconds.value_or(0);
  }
  if (t.entries.size() > kMostRows)
    rows.push_back({"", fmt::format("and {} more", t.entries.size() - kMostRows)});
  rows.push_back({"  grid", grouped(t.gridCycles) + " cycles, exact"});
  rows.push_back(
      {"  transfers", grouped(t.transferCycles) + " cycles of the host link, by its rate"});
  rows.push_back({"  gpu", fmt::format("{}, estimated for an {}", inMicroseconds(t.kernelSeconds),
                                       estimatedChip().name)});
  const std::optional<double> total = totalOf(t, machine);
  rows.push_back({"  all, estimated", total ? inMicroseconds(*total) + ", one after the other"
                                            : "unknown, as a part is not predicted"});
  return rows;
}

json jsonOf(const Timeline &t, const Machine &machine) {
  const gpu::GpuChip &chip = estimatedChip();
  json entries = json::array();
  for (const TimelineEntry &e : t.entries) {
    json entry = {{"step", e.step}};
    switch (e.kind) {
    case TimelineEntry::Kind::Grid:
      entry.update({{"kind", "grid"}, {"device", "grid"}, {"cycles", e.cycles}});
      break;
    case TimelineEntry::Kind::Transfer:
      entry.update({{"kind", "transfer"},
                    {"from", e.from},
                    {"to", e.to},
                    {"bytes", e.bytes},
                    {"link_cycles", e.seconds ? json(e.cycles) : json()}});
      break;
    case TimelineEntry::Kind::Kernels: {
      entry.update({{"kind", "kernels"},
                    {"device", e.device},
                    {"function", e.function},
                    {"estimated_seconds", *e.seconds}});
      entry["launches"] = json::array();
      for (const GpuLaunch &l : e.launches)
        entry["launches"].push_back({{"kernel", l.kernel},
                                     {"programs", l.programs},
                                     {"bytes", l.bytes},
                                     {"matrix_flops", l.matrixFlops},
                                     {"other_flops", l.otherFlops},
                                     {"is_whole", l.isWhole},
                                     {"estimated_seconds", gpu::estimate(l).seconds},
                                     {"is_by_measurement", gpu::estimate(l).isMeasured}});
      break;
    }
    case TimelineEntry::Kind::Host:
      entry.update({{"kind", "host"},
                    {"device", e.device},
                    {"function", e.function},
                    {"estimated_seconds", json()}});
      break;
    }
    entries.push_back(std::move(entry));
  }
  const std::optional<double> total = totalOf(t, machine);
  return {{"entries", entries},
          {"grid_cycles", t.gridCycles},
          {"transfer_link_cycles", t.transferCycles},
          {"kernels_estimated_seconds", t.kernelSeconds},
          {"all_estimated_seconds", total ? json(*total) : json()},
          {"estimated_chip",
           {{"name", chip.name},
            {"bytes_per_second", chip.bytesPerSecond},
            {"matrix_flops_per_second", chip.matrixFlops},
            {"other_flops_per_second", chip.otherFlops},
            {"processors", chip.processors},
            {"launch_seconds", chip.launchSeconds}}}};
}

} // namespace millrace::driver
