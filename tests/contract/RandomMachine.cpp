// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/RandomMachine.h"

#include "arch/operations/AluOp.h"
#include "arch/spec/Schema.h"

#include <algorithm>

namespace millrace::test {
namespace {

class MachineDraw {
public:
  explicit MachineDraw(Draw &draw) : draw(draw) {}

  std::vector<std::string> run() {
    drawShape();
    drawMemory();
    drawFabric();
    for (const Range &range : machineRanges())
      if (range.how == How::Drawn && range.name.find('*') == range.name.npos && !isSet(range.name))
        set(std::string(range.name), draw.from(range.range));
    drawLatencies();
    return std::move(list);
  }

private:
  std::string from(std::string_view key) { return draw.from(rangeOf(machineRanges(), key)); }
  int64_t number(std::string_view key) { return std::stoll(from(key)); }

  void set(const std::string &path, const std::string &value) {
    const Key *key = findKey(path).key;
    const bool isReal = key && std::holds_alternative<Key::Member<double>>(key->member);
    list.push_back(path + "=" + value + (isReal ? " " + std::string(key->unit) : ""));
  }
  int64_t set(const std::string &path, int64_t value) {
    set(path, std::to_string(value));
    return value;
  }
  bool isSet(std::string_view path) const {
    return std::any_of(list.begin(), list.end(), [&](const std::string &text) {
      return text.starts_with(std::string(path) + "=");
    });
  }
  int64_t draws(const std::string &path) { return set(path, number(path)); }

  /// Vectors, planes and streams.
  void drawShape() {
    const int64_t width = draws("lanes_per_superlane");
    const int64_t superlanes =
        set("superlanes", std::max(number("superlanes"), (15 + width) / width));
    const int64_t lanes = set("mxm.rows", superlanes * width), streams = draws("streams");
    group = number("mxm.columns_per_install");
    if (group > lanes || streams % group)
      group = 16;
    set("mxm.columns_per_install", group);
    // All lanes that make whole groups, or fewer.
    groups = lanes / group;
    if (draw.oneIn(3))
      groups = draw.between(1, groups);
    set("mxm.columns", groups * group);
    for (const char *format : {"int8", "fp16", "bf16"}) {
      int64_t parts = number("mxm.formats.*.lanes_per_pass");
      while (lanes % parts)
        --parts;
      set("mxm.formats." + std::string(format) + ".lanes_per_pass", lanes / parts);
    }
  }

  void drawMemory() {
    const int64_t step = draws("memory.slices_per_register");
    int64_t slices = number("memory.slices");
    slices -= slices % step;
    while (slices < group)
      slices += step;
    set("memory.slices", slices);
    set("c2c.position", draw.between(0, slices / step));
  }

  void drawFabric() {
    const std::string topology = from("fabric.topology");
    set("fabric.topology", topology);
    if (topology == "single")
      return;
    const int64_t rows = number("fabric.rows");
    const int64_t columns =
        std::clamp<int64_t>(number("fabric.columns"), rows == 1 ? 2 : 1, 16 / rows);
    set("fabric.rows", rows), set("fabric.columns", columns);
    if (topology == "list")
      drawLinks(rows * columns);
  }

  void drawLinks(int64_t pes) {
    std::vector<int64_t> sends(size_t(pes), 0), receives(size_t(pes), 0);
    int64_t count = 0;
    auto link = [&](int64_t from, int64_t to) {
      const std::string at = "fabric.links." + std::to_string(count++) + ".";
      set(at + "from", from), set(at + "to", to);
      set(at + "port", sends[size_t(from)]++), set(at + "to_port", receives[size_t(to)]++);
      for (const char *what : {"latency", "slot"})
        set(at + what, number("fabric.links.*." + std::string(what)));
    };
    for (int64_t pe = 0; pe < pes; ++pe)
      link(pe, (pe + 1) % pes), link((pe + 1) % pes, pe);
    for (int64_t chord = draw.below(pes); chord > 0; --chord) {
      const int64_t from = draw.below(pes), to = draw.below(pes);
      if (from != to && sends[size_t(from)] < 16 && receives[size_t(to)] < 16)
        link(from, to);
    }
  }

  void drawLatencies() {
    auto valueOf = [&](const std::string &path) {
      for (const std::string &text : list)
        if (text.starts_with(path + "="))
          return int64_t(std::stoll(text.substr(path.size() + 1)));
      return int64_t(0);
    };
    const int64_t others = valueOf("latency.mxm_entry") + valueOf("latency.mxm_multiply") +
                           valueOf("latency.mxm_exit");
    set("latency.mxm_accumulate", std::max(number("latency.mxm_accumulate"), groups - others));
    if (draw.oneIn(4)) {
      const auto op = AluOp(draw.below(int64_t(aluOpCount)));
      set("latency.alu_ops." + std::string(aluOpInfo(op).mnemonic), number("latency.alu_ops.*"));
    }
  }

  Draw &draw;
  std::vector<std::string> list;
  int64_t group = 16, groups = 1; ///< columns of a group, and groups of a plane
};

} // namespace

std::vector<std::string> randomMachine(Draw &draw) { return MachineDraw(draw).run(); }

} // namespace millrace::test
