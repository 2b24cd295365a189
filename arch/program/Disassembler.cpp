// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/isa/Print.h"
#include "arch/program/Assembler.h"
#include "arch/program/AssemblerProgram.h"

#include <algorithm>
#include <cstdio>

namespace millrace {
namespace {

const char *sideOf(Hemisphere h) { return h == Hemisphere::West ? "west" : "east"; }

template <class T> std::string list(const std::vector<T> &values) {
  std::string text;
  for (const T &v : values)
    text += (text.empty() ? "" : ",") + std::to_string(v);
  return text;
}

/// " key=value" unless it is what the assembler takes without.
std::string unless(int64_t value, int64_t otherwise, const char *key) {
  return value == otherwise ? "" : " " + std::string(key) + "=" + std::to_string(value);
}

std::string stretch(uint64_t first, uint64_t count) {
  return std::to_string(first) + "+" + std::to_string(count);
}

class Disassembler {
public:
  Disassembler(const Image &image, const Machine &machine, const DisassembleOptions &options)
      : image(image), m(machine), options(options) {}

  std::string run() {
    out = "machine " + quoted(image.machineName) + " hash=" + hexadecimal(image.machineHash) + "\n";
    if (!image.machineYaml.empty())
      out += "yaml " + quoted(image.machineYaml) + "\n";
    for (const auto &[key, value] : image.notes)
      out += "note " + quoted(key) + " " + quoted(value) + "\n";
    for (const std::string &s : image.strings)
      out += "string " + quoted(s) + "\n";
    if (!image.hostModule.empty())
      out += "hostmodule " + quoted(image.hostModule) + "\n";
    for (const auto &map : image.laneMaps)
      laneMap(map);
    memory();
    for (const Binding &b : image.bindings)
      binding(b);
    for (size_t s = 0; s < image.steps.size(); ++s)
      step(image.steps[s]);
    return std::move(out);
  }

private:
  void laneMap(const std::vector<uint16_t> &map) {
    out += "map";
    for (uint16_t lane : map)
      out += lane == 0xffff ? " -" : " " + std::to_string(lane);
    out += "\n";
  }
  static std::string cycle(uint64_t c) { return c == UINT64_MAX ? "end" : std::to_string(c); }
  void memory() {
    for (size_t k = 0; k < image.tensors.size(); ++k) {
      const Region &r = image.tensors[k];
      out += "tensor t" + std::to_string(k) + " " + sideOf(r.hemisphere) +
             " slice=" + std::to_string(r.slice) + " rows=" + stretch(r.row, r.rows) +
             unless(r.pe, 0, "pe") + " name=" + std::to_string(r.name) +
             unless(r.step0, 0, "step0") + unless(r.step1, 0xffff, "step1") +
             (r.from ? " from=" + std::to_string(r.from) : "") + " to=" + cycle(r.to) +
             (r.name < image.strings.size() ? " ; " + quoted(image.strings[r.name]) : "") + "\n";
    }
    for (const Block &b : image.blocks)
      out += "block t" + std::to_string(b.tensor) + " " + sideOf(b.hemisphere) +
             unless(b.pe, 0, "pe") + " slice=" + std::to_string(b.slice) +
             " rows=" + stretch(b.row, b.rows) + " bytes=" + std::to_string(b.bytes) +
             " offset=" + std::to_string(b.offset) + "\n";
    if (options.data)
      data();
    else if (!image.data.empty())
      out += "; " + std::to_string(image.data.size()) + " bytes of data left out\n";
  }
  void data() {
    constexpr size_t kLine = 32;
    const uint8_t *bytes = image.data.data();
    for (size_t at = 0, size = image.data.size(); at < size;) {
      const size_t zeros = size_t(
          std::find_if(bytes + at, bytes + size, [](uint8_t b) { return b != 0; }) - (bytes + at));
      if (zeros >= kLine) {
        out += "bytes zero " + std::to_string(zeros) + "\n";
        at += zeros;
        continue;
      }
      out += "bytes hex ";
      for (const size_t end = std::min(at + kLine, size); at < end; ++at)
        for (unsigned digit : {bytes[at] >> 4, bytes[at] & 15})
          out += "0123456789abcdef"[digit];
      out += "\n";
    }
  }

  void binding(const Binding &b) {
    constexpr const char *roles[] = {"input", "output", "hostinput", "hostoutput", "hostconstant"};
    out += std::string("binding ") + roles[unsigned(b.role)] + " " + quoted(b.name) +
           " host=" + quoted(b.hostType) + " grid=" + nameOf(b.gridType) +
           " shape=" + list(b.shape);
    if (b.scale != 0) {
      char text[32];
      std::snprintf(text, sizeof(text), " scale=%.17g", b.scale);
      out += text;
    }
    out += unless(b.zero, 0, "zero") + unless(b.extent, 0, "extent") +
           unless(b.offset, 0, "offset") + "\n";
    for (const Placement &p : b.placements) {
      out += std::string("  place ") + sideOf(p.hemisphere) + " slices=" + list(p.slices) +
             unless(p.pe, 0, "pe") + unless(p.bytesInLanes, 0, "inlanes") +
             unless(p.firstByte, 0, "first") + " row=" + std::to_string(p.row) +
             " lane=" + std::to_string(p.lane) + " start=" + list(p.start) +
             unless(p.fill, 0, "fill") + unless(p.first, 0, "from") + unless(p.rows, 0, "rows") +
             "\n";
      for (const BindingLoop &l : p.loops)
        out += "    loop count=" + std::to_string(l.count) + unless(l.rowStep, 0, "row") +
               unless(l.laneStep, 0, "lane") + unless(l.dim, kNoDim, "dim") +
               unless(l.step, 0, "step") + "\n";
    }
  }

  void step(const Step &s) {
    if (s.kind == Step::Kind::Host) {
      out += "step " + std::string(nameOf(s.device)) + " " + quoted(s.function) +
             (s.predictedCycles ? " cycles=" + std::to_string(s.predictedCycles) : "") +
             " inputs=" + list(s.inputs) + " outputs=" + list(s.outputs) + "\n";
      return;
    }
    out += "step grid cycles=" + std::to_string(s.predictedCycles) + "\n";
    for (size_t pe = 0; pe < s.pes.size(); ++pe) {
      const bool own = producersAreInOrder(pe);
      const bool last = s.pes[pe].end == image.instructions[pe].size();
      if (s.pes[pe].begin == s.pes[pe].end && (own || !last))
        continue;
      out += "pe " + std::to_string(pe) + "\n";
      for (uint32_t k = s.pes[pe].begin; k < s.pes[pe].end; ++k)
        instruction(pe, k, own);
      if (!own && &s == lastGridStep())
        for (const Producer &p : image.producers[pe])
          out += "  " + source(p, Instruction(), pe) + "\n";
    }
  }
  const Step *lastGridStep() const {
    const Step *last = nullptr;
    for (const Step &s : image.steps)
      if (s.kind == Step::Kind::Grid)
        last = &s;
    return last;
  }
  /// Whether each instruction's entries follow those of the one before, so that they can stand
  /// beside it.
  bool producersAreInOrder(size_t pe) const {
    uint64_t next = 0;
    for (const Instruction &i : image.instructions[pe])
      if (i.producerCount && i.producers != std::exchange(next, next + i.producerCount))
        return false;
    return next == image.producers[pe].size();
  }

  void instruction(size_t pe, uint32_t k, bool own) {
    const Instruction &i = image.instructions[pe][k];
    out += "  " + print(m, i);
    if (i.provenance)
      out += " node=" + std::to_string(i.provenance);
    if (own ? !i.producerCount && i.producers : i.producers || i.producerCount)
      out += " producers=" + stretch(i.producers, i.producerCount);
    if (own)
      for (unsigned p = 0; p < i.producerCount; ++p)
        out += " " + source(image.producers[pe][i.producers + p], i, pe);
    if (i.provenance && i.provenance < image.strings.size())
      out += " ; " + quoted(image.strings[i.provenance]);
    out += "\n";
  }

  std::string source(const Producer &p, const Instruction &consumer, size_t pe) const {
    const Producer usual = defaultProducer(consumer, p.of);
    std::string text = std::string("from ") + kProducerOfNames[unsigned(p.of)];
    text += p.byte == kAllBytes ? ": " : "." + std::to_string(p.byte) + ": ";
    const bool loaded = p.instruction == kInitialContents;
    if (p.pe != pe)
      text += "pe" + std::to_string(p.pe) + "/";
    text += loaded ? "block." + std::to_string(p.block) : "#" + std::to_string(p.instruction);
    text += "[" + std::to_string(p.first) + "]";
    if (p.from0 != usual.from0 || p.count0 != usual.count0)
      text += " i0=" + stretch(p.from0, p.count0);
    if (p.from1 != usual.from1 || p.count1 != usual.count1)
      text += " i1=" + stretch(p.from1, p.count1);
    return text + unless(p.step0, usual.step0, "step0") + unless(p.step1, usual.step1, "step1") +
           unless(loaded ? 0 : p.block, 0, "block");
  }

  const Image &image;
  const Machine &m;
  const DisassembleOptions &options;
  std::string out;
};

} // namespace

std::string disassemble(const Image &image, const Machine &machine,
                        const DisassembleOptions &options) {
  return Disassembler(image, machine, options).run();
}

} // namespace millrace
