// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Ranges.h"

#include <charconv>
#include <cstdlib>
#include <optional>

namespace millrace::test {
namespace {

const Range kMachine[] = {
    {"name", How::Fixed, "", "words"},
    {"description", How::Fixed, "", "words"},
    {"clock", How::Drawn, "100000000 900000000 1500000000 3000000000",
     "cycles do not depend on it"},
    {"superlanes", How::Bounded, "1..6", "at least 16 lanes"},
    {"lanes_per_superlane", How::Drawn, "8 16 16 16 20 32", ""},
    {"streams", How::Drawn, "32 48 64 96", "whole groups of an install"},

    {"memory.slices", How::Bounded, "16..96", "a multiple of memory.slices_per_register; at least columns_per_install"},
    {"memory.slices_per_register", How::Drawn, "1 2 4 4 11", ""},
    {"memory.banks", How::Drawn, "2 2 3 4 8", ""},
    {"memory.rows_per_bank", How::Drawn, "128 300 1024 2048 4096 5000 8192", ""},

    {"mxm.planes", How::Drawn, "2 4 6", "16-bit formats pair them"},
    {"mxm.rows", How::Bounded, "16..192", "equals the vector length"},
    {"mxm.columns", How::Bounded, "16..192",
     "the vector length or less, a multiple of columns_per_install"},
    {"mxm.columns_per_install", How::Bounded, "16 16 16 32",
     "at most the vector length; divides the streams"},
    {"mxm.buffers", How::Drawn, "2..4", ""},
    {"mxm.accumulator_rows", How::Drawn, "64 256 777 1024 4096", ""},
    {"mxm.formats.*.planes", How::Fixed, "", "the bytes of the format, by Machine::verify"},
    {"mxm.formats.*.lanes_per_pass", How::Bounded, "1..4", "mxm.rows divided by this"},

    {"vxm.alus", How::Drawn, "12..24", ""},
    {"vxm.running_accumulators", How::Drawn, "1..6", ""},

    {"sxm.transposers", How::Drawn, "0..3", ""},
    {"sxm.permutors", How::Drawn, "0..2", ""},
    {"sxm.distributors", How::Drawn, "0..5", ""},
    {"sxm.shifters", How::Drawn, "0..3", ""},
    {"sxm.selectors", How::Drawn, "0..5", ""},
    {"sxm.rotators", How::Drawn, "0..2", ""},

    {"c2c.ports", How::Drawn, "16..20", "a full fabric of 16 PEs takes 15"},
    {"c2c.position", How::Bounded, "0..96", "up to the last stream position"},

    {"latency.hop", How::Drawn, "1..3", ""},
    {"latency.mem_read", How::Drawn, "1..4", ""},
    {"latency.mem_gather", How::Drawn, "1..5", ""},
    {"latency.mem_write", How::Drawn, "0..5", ""},
    {"latency.read_after_write", How::Drawn, "1..6", ""},
    {"latency.alu_entry", How::Drawn, "0..6", ""},
    {"latency.alu_op", How::Drawn, "1..6", ""},
    {"latency.alu_ops.*", How::Bounded, "1..12", "one machine in four: of one operation"},
    {"latency.alu_chain", How::Drawn, "0..2", ""},
    {"latency.alu_exit", How::Drawn, "0..3", ""},
    {"latency.sxm_entry", How::Drawn, "0..8", ""},
    {"latency.transposer", How::Drawn, "1..8", ""},
    {"latency.transposer_exit", How::Drawn, "0..3", ""},
    {"latency.distributor", How::Drawn, "1..6", ""},
    {"latency.permutor", How::Drawn, "1..60", ""},
    {"latency.shifter", How::Drawn, "1..8", ""},
    {"latency.selector", How::Drawn, "1..8", ""},
    {"latency.rotator", How::Drawn, "1..8", ""},
    {"latency.mxm_entry", How::Drawn, "0..12", ""},
    {"latency.mxm_multiply", How::Drawn, "1..20", ""},
    {"latency.mxm_accumulate", How::Bounded, "1..50",
     "raised until a result leaves after its last column group"},
    {"latency.mxm_exit", How::Drawn, "0..6", ""},
    {"latency.install_to_activate", How::Drawn, "0..9", ""},
    {"latency.accumulate_interval", How::Drawn, "1..50", ""},
    {"latency.start_barrier", How::Drawn, "0..60", ""},
    {"latency.superlane_stagger", How::Drawn, "0..40", ""},

    {"fabric.topology", How::Drawn, "single single single single mesh torus ring full list", ""},
    {"fabric.rows", How::Bounded, "1..4", "1 for single; all PEs at most 16"},
    {"fabric.columns", How::Bounded, "1..16", "1 for single; all PEs 2 to 16"},
    {"fabric.link.name", How::Fixed, "", "words"},
    {"fabric.link.latency", How::Drawn, "1 2 5 40 216", ""},
    {"fabric.link.slot", How::Drawn, "1 1 2 5 24", ""},
    {"fabric.links.*.from", How::Bounded, "0..15", "list: a ring both ways and chords"},
    {"fabric.links.*.to", How::Bounded, "0..15", "list: a ring both ways and chords"},
    {"fabric.links.*.port", How::Bounded, "0..15", "list: the sender's next port"},
    {"fabric.links.*.to_port", How::Bounded, "0..15", "list: the receiver's next port"},
    {"fabric.links.*.latency", How::Drawn, "1 2 5 40 216", "list: each its own"},
    {"fabric.links.*.slot", How::Drawn, "1 1 2 5 24", "list: each its own"},

    {"host.rate", How::Drawn, "1000000000 24000000000", "cycles do not depend on it"},
    {"host.latency", How::Drawn, "0 1 2", "cycles do not depend on it"},

    {"energy.mac_int8", How::Drawn, "0..9", "cycles do not depend on it"},
    {"energy.mac_float", How::Drawn, "0..9", "cycles do not depend on it"},
    {"energy.alu_lane", How::Drawn, "0..9", "cycles do not depend on it"},
    {"energy.sram_byte", How::Drawn, "0..9", "cycles do not depend on it"},
    {"energy.stream_byte_hop", How::Drawn, "0..9", "cycles do not depend on it"},
    {"energy.link_byte", How::Drawn, "0..9", "cycles do not depend on it"},
};

const Range kGraph[] = {
    {"steps", How::Drawn, "1 2 3 4 5 6 8", "operations after the first input"},
    {"start", How::Drawn, "matrix matrix matrix image image batch embedding", "the first value"},
    {"type", How::Drawn, "fp16 fp16 bf16 int8", "of inputs and constants"},
    {"operation", How::Bounded,
     "linear linear swapped product transpose conv conv map map zip zip zip affine softmax "
     "layernorm attention sums partsums partsums alternate reduce pool window concat lanes convert "
     "flatten unflatten parts constant",
     "what the value's rank and type allow"},
    {"operand", How::Bounded, "0 0 0 1 2 3 4 5 6 7 8 9",
     "how many values ago, so that paths part and meet"},
    {"lanes", How::Bounded, "1..200",
     "lanes, channels, filters: one in five 1; two in five any; two in five one below, at or above "
     "a superlane, a column group, the lanes of a pass, the columns, the vector, or twice these"},
    {"rows", How::Bounded, "1..70",
     "rows: as lanes; one in sixteen one below, at or above the accumulator rows, the rows of a "
     "bank or the columns"},
    {"edge", How::Drawn, "1 2 3 4 5 6 7 8 9 10 11 13 14 16 17", "height and width of images"},
    {"batch", How::Drawn, "1 2 3 5", "batches of products"},
    {"kernel", How::Drawn, "1 1 2 3 3 4 5", "height and width of windows, each its own"},
    {"stride", How::Drawn, "1 1 2 3", ""},
    {"dilation", How::Drawn, "1 1 1 2 3", "of convolutions"},
    {"pad", How::Bounded, "0..4", "less than the window"},
    {"groups", How::Bounded, "1 1 1 2 3 4 0", "divides the channels; 0: one per channel"},
    {"parts", How::Bounded, "1..200",
     "of the lanes, each summed over all rows: divides the lanes; at most 4,000 sweeps and weights "
     "of half a hemisphere"},
    {"flag", How::Drawn, "0 1",
     "bias, ReLU, average or maximum, rows in the MXM or running, simplified or not: each its own"},
    {"alternations", How::Drawn, "3 4 6 8", "sums in changing types, one behind the other"},
    {"chain", How::Drawn, "1 2 3 5 8", "operations of a map"},
    {"scalar", How::Drawn, "0..11", "which operation of a map"},
    {"combine", How::Drawn, "0..4", "add, sub, max, min, mul"},
    {"from", How::Bounded, "-2..5", "first row of a window; rows outside are padding"},
    {"table", How::Drawn, "1 2 15 16 17 100 500", "rows of an embedding's table"},
    {"weights", How::Drawn, "1..3",
     "seed of constants: equal seeds of equal shape are one constant"},
    {"elements", How::Fixed, "", "at most 40,000 in a tensor: the evaluation is plain loops"},
    {"macs", How::Fixed, "", "at most 4,000,000 in a contraction: the same"},
    {"memory", How::Fixed, "",
     "vectors of all tensors, lanes rounded up to whole vectors: at most half of the machine's "
     "rows"},
};

} // namespace

std::span<const Range> machineRanges() { return kMachine; }
std::span<const Range> graphRanges() { return kGraph; }

std::string_view rangeOf(std::span<const Range> table, std::string_view name) {
  for (const Range &range : table)
    if (range.name == name)
      return range.range;
  std::abort(); // a name that the generators misspell
}

std::string Draw::from(std::string_view range) {
  if (const size_t dots = range.find(".."); dots != range.npos) {
    int64_t least = 0, most = 0;
    std::from_chars(range.data(), range.data() + dots, least);
    std::from_chars(range.data() + dots + 2, range.data() + range.size(), most);
    return std::to_string(between(least, most));
  }
  std::vector<std::string> words(1);
  for (char c : range)
    if (c == ' ')
      words.emplace_back();
    else
      words.back() += c;
  return of(words);
}

static std::string tableText(std::span<const Range> table, const char *title) {
  std::string text = std::string("| ") + title + " | drawn from | within |\n|---|---|---|\n";
  for (const Range &range : table)
    text += "| `" + std::string(range.name) + "` | " +
            (range.how == How::Fixed ? "fixed" : std::string(range.range)) + " | " +
            std::string(range.text) + " |\n";
  return text;
}

std::string rangesText() {
  return tableText(machineRanges(), "machine") + "\n" + tableText(graphRanges(), "graph");
}

} // namespace millrace::test
