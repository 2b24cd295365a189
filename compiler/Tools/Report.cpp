// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Execute.h"

#include "simulator/report/Report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sys/resource.h>

namespace millrace::driver {

using nlohmann::json;

namespace {

uint64_t peakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return uint64_t(usage.ru_maxrss) * 1024;
}

json notes(const Image &image, const char *key) { return json::parse(noteOf(image, key, "null")); }

std::string number(double value, const char *format = "%.3g") {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// Bytes of memory that regions hold at most, as if all lived at once: what the plan reserves.
uint64_t reservedBytes(const Image &image, const Machine &machine) {
  // Rows that some region ever uses, each once.
  std::vector<bool> used(size_t(machine.pes()) * kHemispheres * machine.memory.slices *
                         machine.rowsPerSlice());
  for (const Region &r : image.tensors)
    for (uint32_t row = 0; row < r.rows; ++row)
      used[((size_t(r.pe) * kHemispheres + size_t(r.hemisphere)) * machine.memory.slices +
            r.slice) *
               machine.rowsPerSlice() +
           r.row + row] = true;
  return uint64_t(std::count(used.begin(), used.end(), true)) * machine.lanes();
}

std::string line(const std::string &name, const std::string &value) {
  return "  " + name + std::string(name.size() < 24 ? 24 - name.size() : 1, ' ') + value + "\n";
}

} // namespace

std::string tableOf(const Image &image, const Machine &machine, const Execution &e) {
  uint64_t predicted = 0;
  for (const sim::StepResult &s : e.result.steps)
    predicted += s.predictedCycles;
  const double seconds = double(e.result.measuredCycles) / machine.clockHz;
  std::string text =
      notes(image, "model").is_string() ? notes(image, "model").get<std::string>() : "program";
  text += " on " + machine.name + "\n";
  text += line("cycles predicted", std::to_string(predicted));
  text += line("cycles measured", std::to_string(e.result.measuredCycles));
  if (e.result.steps.size() > 1)
    for (size_t s = 0; s < e.result.steps.size(); ++s)
      if (e.result.steps[s].kind == Step::Kind::Grid)
        text += line("  step " + std::to_string(s),
                     std::to_string(e.result.steps[s].measuredCycles) + " cycles");
  text += line("time at the clock", number(seconds * 1e6, "%.2f") + " us at " +
                                        number(machine.clockHz / 1e6) + " MHz, " +
                                        number(1 / seconds, "%.0f") + " runs/s");
  if (json total = notes(image, "macs_total"); total.is_number())
    text += line("MACs on the grid", notes(image, "macs_on_grid").dump() + " of " + total.dump());
  for (const sim::Utilisation &u : sim::utilisations(e.result, machine))
    if (u.busyCycles)
      text += line("busy " + u.unit, number(100 * u.share, "%.1f") + " %");
  text += line("memory used",
               number(double(reservedBytes(image, machine)) / (1 << 20), "%.2f") + " MiB of " +
                   number(double(machine.pes()) * kHemispheres * machine.memory.slices *
                              machine.rowsPerSlice() * machine.lanes() / (1 << 20),
                          "%.0f") +
                   " MiB");
  text += line("host link", number(sim::hostSeconds(image, machine) * 1e6, "%.1f") +
                                " us in and out, beside the cycles");
  json host = notes(image, "host_ops");
  text += line("host steps", host.is_array() && !host.empty() ? host.dump() : "none");
  if (machine.pes() > 1) {
    uint64_t most = 0;
    for (const sim::Counters &pe : e.result.pes)
      most = std::max(most, pe.linkVectors);
    text += line("vectors sent", std::to_string(e.result.total.linkVectors) + ", at most " +
                                     std::to_string(most) + " by one PE");
  }
  text += line("compiled, simulated", number(notes(image, "compile_seconds").is_number()
                                                 ? notes(image, "compile_seconds").get<double>()
                                                 : 0,
                                             "%.2f") +
                                          " s, " + number(e.simulateSeconds, "%.2f") + " s");
  for (const auto &[name, file] : e.files)
    text += line("output " + name, file);
  return text;
}

std::string jsonOf(const Image &image, const Machine &machine, const Execution &e) {
  json out = sim::toJson(e.result, image, machine);
  for (const char *key : {"model", "precision", "macs_total", "macs_on_grid", "host_ops",
                          "compile_seconds", "bursts", "kernels"})
    out[key] = notes(image, key);
  out["machine"] = machine.name;
  out["machine_yaml"] = image.machineYaml;
  out["clock_hertz"] = machine.clockHz;
  out["simulate_seconds"] = e.simulateSeconds;
  out["host_step_seconds"] = e.hostStepSeconds;
  out["peak_rss_bytes"] = peakBytes();
  out["memory_used_bytes"] = reservedBytes(image, machine);
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
  return out.dump(2);
}

} // namespace millrace::driver
