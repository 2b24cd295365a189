// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/Dump.h"

#include "arch/isa/Print.h"
#include "arch/program/AssemblerProgram.h"
#include "arch/program/HostData.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <map>

namespace millrace {
namespace {

constexpr const char *kRoles[] = {"input", "output", "host input", "host output", "host constant"};

std::string shapeOf(const Binding &b) {
  std::string text;
  for (int64_t extent : b.shape)
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

std::string sliceName(unsigned pe, Hemisphere h, unsigned slice) {
  return "pe " + std::to_string(pe) + " mem." + (h == Hemisphere::West ? "w." : "e.") +
         std::to_string(slice);
}

std::string nameIn(const Image &image, uint32_t index) {
  return index < image.strings.size() ? image.strings[index] : "";
}

uint64_t predictedCycles(const Image &image) {
  uint64_t cycles = 0;
  for (const Step &s : image.steps)
    cycles += s.predictedCycles;
  return cycles;
}

uint64_t elementsOf(const Binding &b) {
  uint64_t n = 1;
  for (int64_t extent : b.shape)
    n *= uint64_t(extent);
  return n;
}

std::string queueOf(const Machine &m, const Instruction &i) {
  return i.queue < m.queues() ? m.queueName(i.queue) : "queue." + std::to_string(i.queue);
}

/// "alu.3" is within "alu" and "alu.3", not within "alu.31" or "al".
bool isWithin(const std::string &queue, const std::string &wanted) {
  return queue.starts_with(wanted) &&
         (queue.size() == wanted.size() || wanted.empty() || queue[wanted.size()] == '.');
}

/// The first word of a queue's name: mem, mxm, alu, ...
std::string unitOf(const std::string &queue) { return queue.substr(0, queue.find('.')); }

class TextDump {
public:
  TextDump(const Image &image, const Machine &machine, const DumpFilter &filter)
      : image(image), m(machine), filter(filter) {}

  std::string run() {
    if (filter.tables) {
      header();
      steps();
      regions();
      bindings();
      notes();
    }
    if (filter.instructions)
      for (size_t s = 0; s < image.steps.size(); ++s)
        if (image.steps[s].kind == Step::Kind::Grid && (!filter.step || *filter.step == s))
          instructions(s);
    return std::move(out);
  }

private:
  void header() {
    uint64_t count = 0, producers = 0;
    for (const auto &list : image.instructions)
      count += list.size();
    for (const auto &list : image.producers)
      producers += list.size();
    line("machine       " + image.machineName + ", hash " + hexadecimal(image.machineHash) +
         (image.machineHash == m.hash() ? "" : " (not that of " + m.name + ")"));
    line("PEs           " + std::to_string(image.instructions.size()));
    line("cycles        " + std::to_string(predictedCycles(image)) + " predicted");
    line("instructions  " + std::to_string(count) + ", producers " + std::to_string(producers));
    line("data          " + std::to_string(image.data.size()) + " bytes in " +
         std::to_string(image.blocks.size()) + " blocks");
    line("lane maps     " + std::to_string(image.laneMaps.size()));
    line("host module   " + std::to_string(image.hostModule.size()) + " characters");
  }
  void steps() {
    line("\nsteps");
    for (size_t s = 0; s < image.steps.size(); ++s) {
      const Step &step = image.steps[s];
      uint64_t count = 0;
      for (const PeRange &r : step.pes)
        count += r.end - r.begin;
      line("  " + std::to_string(s) +
           (step.kind == Step::Kind::Grid
                ? "  grid  " + std::to_string(step.predictedCycles) + " cycles, " +
                      std::to_string(count) + " instructions"
                : "  " + (nameOf(step.device) + std::string("  ")).substr(0, 6) + step.function +
                      ", " + std::to_string(step.inputs.size()) + " inputs, " +
                      std::to_string(step.outputs.size()) + " outputs"));
    }
  }
  void regions() {
    line("\ntensors: rows, life as step:cycle");
    for (size_t k = 0; k < image.tensors.size(); ++k) {
      const Region &r = image.tensors[k];
      if (filter.pe && *filter.pe != r.pe)
        continue;
      const auto when = [](unsigned step, uint64_t cycle, uint64_t open) {
        return cycle == open ? std::string("..")
                             : std::to_string(step) + ":" + std::to_string(cycle);
      };
      line("  " + std::to_string(k) + "  " + sliceName(r.pe, r.hemisphere, r.slice) + "  [" +
           std::to_string(r.row) + ", " + std::to_string(uint64_t(r.row) + r.rows) + ")  " +
           when(r.step0, r.from, 0) + " to " + when(r.step1, r.to, UINT64_MAX) + "  " +
           nameIn(image, r.name));
    }
  }
  void bindings() {
    line("\nbindings");
    for (const Binding &b : image.bindings) {
      line("  " + std::string(kRoles[unsigned(b.role)]) + " '" + b.name + "' " + b.hostType + " " +
           shapeOf(b) + " as " + nameOf(b.gridType) + ", " + std::to_string(b.placements.size()) +
           " placements" + (b.extent ? ", indices of " + std::to_string(b.extent) + " rows" : ""));
      for (const Placement &p : b.placements) {
        std::string slices;
        for (uint16_t s : p.slices)
          slices += (slices.empty() ? "" : ",") + std::to_string(s);
        std::string loops;
        for (const BindingLoop &l : p.loops)
          loops += (loops.empty() ? "" : " x ") + std::to_string(l.count) + " (row " +
                   std::to_string(l.rowStep) + ", lane " + std::to_string(l.laneStep) +
                   (l.dim == kNoDim ? ", again)"
                                    : ", index " + std::to_string(l.dim) + " by " +
                                          std::to_string(l.step) + ")");
        line("    pe " + std::to_string(p.pe) + " mem." +
             (p.hemisphere == Hemisphere::West ? "w." : "e.") + slices + " from row " +
             std::to_string(p.row) + " lane " + std::to_string(p.lane) + ": " + loops);
      }
    }
  }
  void notes() {
    if (!image.notes.empty())
      line("\nnotes");
    for (const auto &[key, value] : image.notes)
      line("  " + key + ": " + value);
  }

  void instructions(size_t s) {
    for (size_t pe = 0; pe < image.instructions.size(); ++pe) {
      if (filter.pe && *filter.pe != pe)
        continue;
      line("\nstep " + std::to_string(s) + ", pe " + std::to_string(pe));
      const PeRange r = image.steps[s].pes[pe];
      for (uint32_t k = r.begin; k < r.end; ++k)
        if (isWanted(image.instructions[pe][k]))
          instruction(pe, k);
    }
  }
  bool isWanted(const Instruction &i) const {
    const bool repeats = i.opcode == Opcode::Nop; // its count is a length, not elements
    const uint64_t last = repeats ? i.cycle + i.n0 - 1 : i.lastCycle();
    return i.cycle <= filter.to && last >= filter.from &&
           (filter.queue.empty() || isWithin(queueOf(m, i), filter.queue)) &&
           nameIn(image, i.provenance).find(filter.node) != std::string::npos;
  }
  void instruction(size_t pe, uint32_t k) {
    const Instruction &i = image.instructions[pe][k];
    const std::string node = nameIn(image, i.provenance);
    line("  #" + std::to_string(k) + "  " + print(m, i) + (node.empty() ? "" : "  ; " + node));
    if (!filter.producers)
      return;
    for (unsigned n = 0; n < i.producerCount; ++n) {
      const Producer &p = image.producers[pe][i.producers + n];
      line("      " + std::string(kProducerOfNames[unsigned(p.of)]) +
           (p.byte == kAllBytes ? "" : "." + std::to_string(p.byte)) + " i0 " +
           std::to_string(p.from0) + "+" + std::to_string(p.count0) + " i1 " +
           std::to_string(p.from1) + "+" + std::to_string(p.count1) + " from pe " +
           std::to_string(p.pe) +
           (p.instruction == kInitialContents
                ? " block " + std::to_string(p.block) + " row "
                : " #" + std::to_string(p.instruction) + " element ") +
           std::to_string(p.first) + " by " + std::to_string(p.step0) + ", " +
           std::to_string(p.step1));
    }
  }

  void line(const std::string &text) { out += text + "\n"; }

  const Image &image;
  const Machine &m;
  const DumpFilter &filter;
  std::string out;
};

nlohmann::ordered_json bindingJson(const Binding &b) {
  nlohmann::ordered_json json;
  json["name"] = b.name;
  json["role"] = kRoles[unsigned(b.role)];
  json["host_type"] = b.hostType;
  json["grid_type"] = nameOf(b.gridType);
  json["shape"] = b.shape;
  json["placements"] = b.placements.size();
  json["elements"] = elementsOf(b);
  json["elements_written"] = elementsWritten(b);
  return json;
}

} // namespace

std::string dumpText(const Image &image, const Machine &machine, const DumpFilter &filter) {
  return TextDump(image, machine, filter).run();
}

std::string dumpJson(const Image &image, const Machine &machine) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["machine"] = image.machineName;
  json["machine_hash"] = hexadecimal(image.machineHash);
  json["pes"] = image.instructions.size();
  json["predicted_cycles"] = predictedCycles(image);
  uint64_t count = 0, elements = 0, producers = 0, rows = 0;
  std::map<std::string, uint64_t> perOpcode, perUnit;
  for (const auto &list : image.instructions)
    for (const Instruction &i : list) {
      ++count;
      elements += info(i.opcode).fields.has(Field::Loops) ? i.elements() : 1;
      ++perOpcode[std::string(info(i.opcode).mnemonic)];
      ++perUnit[unitOf(queueOf(machine, i))];
    }
  for (const auto &list : image.producers)
    producers += list.size();
  for (const Region &r : image.tensors)
    rows += r.rows;
  json["instructions"] = count;
  json["elements"] = elements;
  json["producers"] = producers;
  json["per_opcode"] = perOpcode;
  json["per_unit"] = perUnit;
  json["steps"] = Json::array();
  for (const Step &s : image.steps)
    json["steps"].push_back(
        s.kind == Step::Kind::Grid
            ? Json{{"kind", "grid"}, {"predicted_cycles", s.predictedCycles}}
            : Json{{"kind", "host"}, {"device", nameOf(s.device)}, {"function", s.function}});
  json["tensor_rows"] = rows;
  json["data_bytes"] = image.data.size();
  json["bindings"] = Json::array();
  for (const Binding &b : image.bindings)
    json["bindings"].push_back(bindingJson(b));
  json["notes"] = Json::object();
  for (const auto &[key, value] : image.notes) {
    const Json parsed = Json::parse(value, nullptr, false);
    json["notes"][key] = parsed.is_discarded() ? Json(value) : parsed;
  }
  // Names come from models and need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace millrace
