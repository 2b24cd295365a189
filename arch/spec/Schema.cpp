// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Schema.h"

#include "arch/operations/AluOp.h"
#include "arch/spec/Nearest.h"
#include "arch/spec/Quantity.h"

#include <charconv>

namespace millrace {
namespace {

/// The format of this name, appended if the machine has none yet; null if there is no such element
/// type.
MxmFormatSpec *formatNamed(Machine &m, const std::string &name) {
  for (MxmFormatSpec &format : m.mxm.formats)
    if (name == nameOf(format.type))
      return &format;
  for (unsigned type = 0; type < kElementTypes; ++type)
    if (name == nameOf(ElementType(type)))
      return &m.mxm.formats.emplace_back(MxmFormatSpec{.type = ElementType(type), .planes = 0});
  return nullptr;
}

/// The link at this index, appended without latency and slot if it is the next; null otherwise.
Link *linkAt(Machine &m, const std::string &name) {
  size_t index = 0;
  auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (code != std::errc() || end != name.data() + name.size() || index > m.links.size())
    return nullptr;
  return index == m.links.size() ? &m.links.emplace_back(Link{.slot = 0}) : &m.links[index];
}

/// The latency of the operation with this mnemonic, such as exp.f32; null if there is none.
unsigned *aluOpNamed(Machine &m, const std::string &name) {
  return aluOpFromMnemonic(name) ? &m.latency.aluOps[name] : nullptr;
}

using Name = const std::string &;

// clang-format off
#define COUNT(PATH, UNIT, LEAST, MOST, MEMBER, DOC) \
  Key{PATH, UNIT, LEAST, MOST, true, DOC, +[](Machine &m, Name) -> unsigned * { return &m.MEMBER; }}
#define CYCLES(NAME, LEAST, MEMBER, DOC) COUNT("latency." NAME, "cycles", LEAST, 100000, latency.MEMBER, DOC)
#define REAL(PATH, UNIT, LEAST, MOST, REQUIRED, MEMBER, DOC) \
  Key{PATH, UNIT, LEAST, MOST, REQUIRED, DOC, +[](Machine &m, Name) -> double * { return &m.MEMBER; }}
#define TEXT(PATH, REQUIRED, MEMBER, DOC) \
  Key{PATH, "text", 0, 0, REQUIRED, DOC, +[](Machine &m, Name) -> std::string * { return &m.MEMBER; }}
#define FORMAT(NAME, UNIT, LEAST, MOST, MEMBER, DOC) \
  Key{"mxm.formats.*." NAME, UNIT, LEAST, MOST, false, DOC, +[](Machine &m, Name name) -> unsigned * { \
        auto *format = formatNamed(m, name); return format ? &format->MEMBER : nullptr; }}
#define LINK(NAME, UNIT, LEAST, MOST, MEMBER, DOC) \
  Key{"fabric.links.*." NAME, UNIT, LEAST, MOST, false, DOC, +[](Machine &m, Name name) -> unsigned * { \
        auto *link = linkAt(m, name); return link ? &link->MEMBER : nullptr; }}
#define ENERGY(NAME, MEMBER, DOC) REAL("energy." NAME, "pJ", 0, 1e9, false, energy.MEMBER, DOC)

const Key kKeys[] = {
TEXT("name", true, name, "name of the machine; the file is NAME.yaml"),
TEXT("description", false, description, "one sentence for people"),
REAL("clock", "Hz", 1, 1e12, true, clockHz, "clock of every unit; cycles become seconds by it"),
COUNT("superlanes", "superlanes", 1, 4096, superlanes, "tile rows of a slice"),
COUNT("lanes_per_superlane", "lanes", 1, 1024, lanesPerSuperlane, "one-byte lanes of a superlane; superlanes x this is the vector length"),
COUNT("streams", "streams", 4, 1024, streams, "byte streams in each direction of each hemisphere"),

COUNT("memory.slices", "slices", 1, 16384, memory.slices, "MEM slices per hemisphere"),
COUNT("memory.slices_per_register", "slices", 1, 16384, memory.slicesPerRegister, "adjacent MEM slices that share one stream register, one position"),
COUNT("memory.banks", "banks", 1, 64, memory.banks, "banks per slice; one access per bank and cycle"),
COUNT("memory.rows_per_bank", "rows", 1, 16777216, memory.rowsPerBank, "rows of one vector in a bank"),

COUNT("mxm.planes", "planes", 0, 64, mxm.planes, "weight planes per hemisphere"),
COUNT("mxm.rows", "weights", 1, 65535, mxm.rows, "weights along K in a plane; equals the vector length"),
COUNT("mxm.columns", "columns", 1, 65535, mxm.columns, "weights along N in a plane"),
COUNT("mxm.columns_per_install", "columns", 16, 64, mxm.columnsPerInstall, "columns that one element of an Install fills, one per stream: a column group; a multiple of 16"),
COUNT("mxm.buffers", "buffers", 1, 255, mxm.buffers, "weight buffers per plane"),
COUNT("mxm.accumulator_rows", "accumulators", 1, 65536, mxm.accumulatorRows, "accumulator rows per plane, or per pair of planes in a 16-bit format"),
FORMAT("planes", "planes", 1, 4, planes, "planes that hold one weight of this format, a byte each"),
FORMAT("lanes_per_pass", "lanes", 1, 65535, lanesPerPass, "lanes of an activation that multiply in one cycle"),

COUNT("vxm.alus", "ALUs", 1, 255, vxm.alus, "ALUs per lane, each of 32 bits"),
COUNT("vxm.running_accumulators", "accumulators", 1, 255, vxm.runningAccumulators, "interleaved accumulators of an ALU's running form"),

COUNT("sxm.transposers", "units", 0, 255, sxm.transposers, "transposers per hemisphere, 16 streams in and out"),
COUNT("sxm.permutors", "units", 0, 255, sxm.permutors, "permutors per hemisphere: any bijection of the lanes"),
COUNT("sxm.distributors", "units", 0, 255, sxm.distributors, "distributors per hemisphere: any map within each superlane"),
COUNT("sxm.shifters", "units", 0, 255, sxm.shifters, "shifters per hemisphere"),
COUNT("sxm.selectors", "units", 0, 255, sxm.selectors, "selectors per hemisphere"),
COUNT("sxm.rotators", "units", 0, 255, sxm.rotators, "rotators per hemisphere"),

COUNT("c2c.ports", "ports", 0, 4096, c2c.ports, "link ports of a PE; each has a Send queue and a Receive queue"),
COUNT("c2c.position", "registers", 0, 65535, c2c.position, "stream position, in either hemisphere, where Send samples and Receive injects"),

CYCLES("hop", 1, hop, "one stream register to the next"),
CYCLES("mem_read", 1, memRead, "Read to its vector being sampled at the slice's own position"),
CYCLES("mem_gather", 1, memGather, "Gather sampling its map to its data being sampled at the slice's own position"),
CYCLES("mem_write", 0, memWrite, "Write or Scatter sampling its stream to its bank slot"),
CYCLES("read_after_write", 1, readAfterWrite, "bank slot of a write to the first read of that row"),
CYCLES("alu_entry", 0, aluEntry, "ALU: stream operand sampled to the operation; chained operands are sampled this much after dispatch"),
CYCLES("alu_op", 1, aluOp, "ALU: the operation, unless alu_ops names it"),
Key{"latency.alu_ops.*", "cycles", 1, 100000, false, "ALU: operations (by mnemonic) whose latency differs from alu_op",
    +[](Machine &m, Name name) -> unsigned * { return aluOpNamed(m, name); }},
CYCLES("alu_chain", 0, aluChain, "ALU: result to a chained ALU's operand"),
CYCLES("alu_exit", 0, aluExit, "ALU: result to stream position 0"),
CYCLES("sxm_entry", 0, sxmEntry, "SXM: operand sampled to the unit"),
CYCLES("transposer", 1, transposer, "transposer's operation"),
CYCLES("transposer_exit", 0, transposerExit, "transposer's result to the stream"),
CYCLES("distributor", 1, distributor, "distributor's operation, result on the stream"),
CYCLES("permutor", 1, permutor, "permutor's operation, result on the stream"),
CYCLES("shifter", 1, shifter, "shifter's operation, result on the stream"),
CYCLES("selector", 1, selector, "selector's operation, result on the stream"),
CYCLES("rotator", 1, rotator, "rotator's operation, result on the stream"),
CYCLES("mxm_entry", 0, mxmEntry, "MXM: operand sampled at the last position to the array"),
CYCLES("mxm_multiply", 1, mxmMultiply, "MXM: activation at the array to its product, which Accumulate takes"),
CYCLES("mxm_accumulate", 1, mxmAccumulate, "MXM: product to accumulated result"),
CYCLES("mxm_exit", 0, mxmExit, "MXM: result to the stream at the last position"),
CYCLES("install_to_activate", 0, installToActivate, "first column group installed to the first activation that uses it (S7)"),
CYCLES("accumulate_interval", 1, accumulateInterval, "between two operations on one accumulator row (S8)"),
CYCLES("start_barrier", 0, startBarrier, "before cycle 0; counted once"),
CYCLES("superlane_stagger", 0, superlaneStagger, "first to last superlane; counted once"),

TEXT("fabric.topology", true, fabric.topology, "single, mesh, torus, ring, full, or list (links are given one by one)"),
COUNT("fabric.rows", "PEs", 1, 65535, fabric.rows, "PEs in a column of the grid"),
COUNT("fabric.columns", "PEs", 1, 65535, fabric.columns, "PEs in a row of the grid"),
TEXT("fabric.link.name", true, fabric.link.name, "name of the link class"),
COUNT("fabric.link.latency", "cycles", 1, 10000000, fabric.link.latency, "Send dispatch to the dispatch of its Receive"),
COUNT("fabric.link.slot", "cycles", 1, 10000000, fabric.link.slot, "cycles that one vector occupies a link: ceil(wire bytes x clock / rate)"),
LINK("from", "PE", 0, 65534, from, "topology list: sending PE; every link names it"),
LINK("to", "PE", 0, 65534, to, "topology list: receiving PE; every link names it"),
LINK("port", "port", 0, 4095, port, "topology list: Send port, 0 if not given"),
LINK("to_port", "port", 0, 4095, toPort, "topology list: Receive port, 0 if not given"),
LINK("latency", "cycles", 1, 10000000, latency, "topology list: as fabric.link.latency, which is the default"),
LINK("slot", "cycles", 1, 10000000, slot, "topology list: as fabric.link.slot, which is the default"),

REAL("host.rate", "B/s", 1, 1e18, true, host.bytesPerSecond, "host link, each direction"),
REAL("host.latency", "s", 0, 1e6, true, host.latencySeconds, "host link, each way"),

ENERGY("mac_int8", macInt8, "one int8 multiply-accumulate"),
ENERGY("mac_float", macFloat, "one floating-point multiply-accumulate"),
ENERGY("alu_lane", aluLane, "one ALU operation on one lane"),
ENERGY("sram_byte", sramByte, "one byte read or written"),
ENERGY("stream_byte_hop", streamByteHop, "one byte moved by one stream register"),
ENERGY("link_byte", linkByte, "one byte over a link"),
};
// clang-format on

/// Splits "a.b.c" at dots.
std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> parts(1);
  for (char c : path)
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

/// Text before and after the `*` of a family's path.
std::pair<std::string_view, std::string_view> around(std::string_view path) {
  const size_t star = path.find('*');
  return {path.substr(0, star), path.substr(star + 1)};
}

} // namespace

std::span<const Key> machineKeys() { return kKeys; }

KeyMatch findKey(std::string_view path) {
  for (const Key &key : kKeys)
    if (key.path == path)
      return {&key, ""};
  for (const Key &key : kKeys) {
    if (key.path.find('*') == key.path.npos)
      continue;
    auto [before, after] = around(key.path);
    if (path.size() <= before.size() + after.size() || !path.starts_with(before) ||
        !path.ends_with(after))
      continue;
    std::string name(path.substr(before.size(), path.size() - before.size() - after.size()));
    // Only an operation's mnemonic contains dots: `exp.f32`.
    if (after.empty() || name.find('.') == name.npos)
      return {&key, name};
  }
  return {};
}

bool isSection(std::string_view path) {
  const std::vector<std::string> parts = split(path);
  for (const Key &key : kKeys) {
    const std::vector<std::string> of = split(key.path);
    bool matches = parts.size() < of.size();
    for (size_t i = 0; matches && i < parts.size(); ++i)
      matches = of[i] == "*" || of[i] == parts[i];
    if (matches)
      return true;
  }
  return false;
}

std::vector<std::string> pathsOf(const Key &key, const Machine &machine) {
  if (key.path.find('*') == key.path.npos)
    return {std::string(key.path)};
  auto [before, after] = around(key.path);
  std::vector<std::string> paths;
  auto add = [&, before = before, after = after](const std::string &name) {
    paths.push_back(std::string(before) + name + std::string(after));
  };
  if (before == "mxm.formats.")
    for (const MxmFormatSpec &format : machine.mxm.formats)
      add(nameOf(format.type));
  else if (before == "latency.alu_ops.")
    for (const auto &entry : machine.latency.aluOps)
      add(entry.first);
  else if (machine.fabric.topology == "list")
    for (size_t index = 0; index < machine.links.size(); ++index)
      add(std::to_string(index));
  return paths;
}

std::string suggestKey(std::string_view path) {
  auto lastOf = [](std::string_view text) { return text.substr(text.rfind('.') + 1); };
  std::string best;
  unsigned bestDistance = ~0u;
  auto consider = [&](std::string_view known) {
    // The right word in the wrong section is as near as two typing errors.
    const unsigned distance =
        std::min(editDistance(path, known), editDistance(lastOf(path), lastOf(known)) + 2);
    const bool near = isNear(path, known) || isNear(lastOf(path), lastOf(known));
    if (near && distance < bestDistance) {
      bestDistance = distance;
      best = known;
    }
  };
  consider("base");
  for (const Key &key : kKeys)
    for (size_t end = key.path.find('.');; end = key.path.find('.', end + 1)) {
      consider(key.path.substr(0, end));
      if (end == key.path.npos)
        break;
    }
  return best.empty() ? "; docs/spec/machine-keys.md lists the keys"
                      : "; did you mean '" + best + "'?";
}

std::string machineKeysMarkdown() {
  std::string text =
      "# Keys of a machine file\n\n"
      "Generated from arch/spec/Schema.cpp; machine.md says what the numbers mean. `*` stands for "
      "a "
      "format, an operation\nor an index. Besides these a file may name its `base`.\n\n"
      "| key | unit | range | required | meaning |\n|---|---|---|---|---|\n";
  auto number = [](double value) {
    char buffer[40];
    return std::string(
        buffer, std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr);
  };
  for (const Key &key : kKeys) {
    const bool isText = key.unit == "text";
    text += "| `" + std::string(key.path) + "` | " + (isText ? "text" : acceptedUnits(key.unit)) +
            " | " +
            (isText ? ""
                    : number(key.least) + " to " + number(key.most) + " " + std::string(key.unit)) +
            " | " + (key.required ? "yes" : "no") + " | " + std::string(key.doc) + " |\n";
  }
  return text;
}

const char *nameOf(Trust trust) {
  constexpr const char *names[kTrusts] = {"published", "quoted", "public", "derived", "inferred"};
  return unsigned(trust) < kTrusts ? names[unsigned(trust)] : "unknown";
}

} // namespace millrace
