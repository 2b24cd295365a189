// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What must hold between the numbers of a machine: the one place that knows it, for compiler and
// simulator alike (docs/spec/machine.md, 7). The range of a single number is the schema's business
// (Schema.h).

#include "arch/spec/Verify.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

namespace millrace {
namespace {

/// "key = number", as every message below names a value.
std::string value(const char *key, uint64_t number) {
  return std::string(key) + " = " + std::to_string(number);
}

using Keys = std::vector<std::string>;

/// Collects what is wrong with one machine.
class Verifier {
public:
  explicit Verifier(const Machine &machine) : m(machine) {}

  std::vector<Contradiction> run() {
    // The later checks divide by what the first one finds to be more than 0.
    shape();
    if (!found.empty())
      return std::move(found);
    vectors();
    if (m.mxm.planes)
      mxm();
    else
      require(m.mxm.formats.empty(), {"mxm.planes"},
              "'mxm.planes' is 0 but 'mxm.formats' lists formats; remove them or add planes");
    vxm();
    fabric();
    links();
    size();
    return std::move(found);
  }

private:
  bool require(bool holds, Keys keys, const std::string &text) {
    if (!holds)
      found.push_back({std::move(keys), text});
    return holds;
  }

  void shape() {
    require(m.superlanes && m.lanesPerSuperlane, {"superlanes", "lanes_per_superlane"},
            "a vector has no lanes: set 'superlanes' and 'lanes_per_superlane' to at least 1");
    require(m.clockHz > 0, {"clock"}, "the clock stands still: set 'clock' to more than 0 Hz");
    require(m.memory.slices && m.memory.slicesPerRegister && m.memory.banks &&
                m.memory.rowsPerBank,
            {"memory.slices", "memory.slices_per_register", "memory.banks", "memory.rows_per_bank"},
            "memory is empty: set 'memory.slices', 'memory.slices_per_register', 'memory.banks' "
            "and 'memory.rows_per_bank' to at least 1");
    require(m.latency.hop && m.latency.memRead && m.latency.memGather,
            {"latency.hop", "latency.mem_read", "latency.mem_gather"},
            "'latency.hop', 'latency.mem_read' and 'latency.mem_gather' must be at least 1 cycle");
    require(m.pes(), {"fabric.rows", "fabric.columns"},
            "the fabric has no PE: set 'fabric.rows' and 'fabric.columns' to at least 1");
    if (m.mxm.planes)
      require(m.mxm.columns && m.mxm.columnsPerInstall, {"mxm.columns", "mxm.columns_per_install"},
              "planes have no columns: set 'mxm.columns' and 'mxm.columns_per_install' to at least "
              "16");
  }

  void vectors() {
    const uint64_t lanes = uint64_t(m.superlanes) * m.lanesPerSuperlane;
    require(lanes <= kMostLanes, {"superlanes", "lanes_per_superlane"},
            "the vector length superlanes x lanes_per_superlane = " + std::to_string(lanes) +
                " exceeds " + std::to_string(kMostLanes) +
                ", as far as instructions count lanes; lower one of them");
    require(m.memory.slices % m.memory.slicesPerRegister == 0,
            {"memory.slices", "memory.slices_per_register"},
            value("memory.slices", m.memory.slices) + " is no multiple of " +
                value("memory.slices_per_register", m.memory.slicesPerRegister) +
                ": the last stream register would be partly empty; change one of them");
    require(m.streams >= kWidestElement, {"streams"},
            value("streams", m.streams) + " cannot carry a result of 32 bits, which takes " +
                std::to_string(kWidestElement) + " streams; raise it");
    require(m.streamCount() < kNoStream, {"streams"},
            value("streams", m.streams) + " leaves no number for 'no stream' in 16 bits; use at "
                                          "most " +
                std::to_string((kNoStream - 1) / (2 * kHemispheres)));
    require(m.queues() <= kMostQueuesOfAPe, {"memory.slices", "mxm.planes", "c2c.ports"},
            "a PE would have " + std::to_string(m.queues()) +
                " queues; instructions name at most " + std::to_string(kMostQueuesOfAPe) +
                ": lower 'memory.slices' or 'c2c.ports'");
  }

  void mxm() {
    const MxmSpec &mxm = m.mxm;
    require(mxm.rows == m.lanes(), {"mxm.rows", "superlanes", "lanes_per_superlane"},
            value("mxm.rows", mxm.rows) + " differs from the vector length " +
                std::to_string(m.lanes()) +
                " = superlanes x lanes_per_superlane; an activation feeds one row per lane: make "
                "them equal");
    require(mxm.columns <= m.lanes(), {"mxm.columns", "superlanes", "lanes_per_superlane"},
            value("mxm.columns", mxm.columns) + " exceeds the vector length " +
                std::to_string(m.lanes()) + ": a result would not fit into one vector; lower it");
    columnGroups();
    for (size_t k = 0; k < mxm.formats.size(); ++k)
      format(k);
  }

  void columnGroups() {
    const unsigned width = m.mxm.columnsPerInstall;
    require(width % kColumnsTogether == 0, {"mxm.columns_per_install"},
            value("mxm.columns_per_install", width) + " is no multiple of " +
                std::to_string(kColumnsTogether) +
                ": columns are installed in whole groups of that many; change it");
    require(m.mxm.columns % width == 0, {"mxm.columns", "mxm.columns_per_install"},
            value("mxm.columns", m.mxm.columns) + " is no multiple of " +
                value("mxm.columns_per_install", width) + "; change one of them");
    require(m.streams % width == 0, {"streams", "mxm.columns_per_install"},
            value("streams", m.streams) + " is no multiple of " +
                value("mxm.columns_per_install", width) +
                ": an install needs an aligned group of that many streams; change one of them");
    require(m.memory.slices >= width, {"memory.slices", "mxm.columns_per_install"},
            value("memory.slices", m.memory.slices) + " is less than " +
                value("mxm.columns_per_install", width) +
                ": an install takes one vector from each of that many slices in a cycle; raise "
                "memory.slices");
    const LatencySpec &l = m.latency;
    const uint64_t groups = m.mxm.columns / width,
                   cycles = uint64_t(l.mxmEntry) + l.mxmMultiply + l.mxmAccumulate + l.mxmExit;
    require(cycles >= groups,
            {"mxm.columns", "mxm.columns_per_install", "latency.mxm_accumulate",
             "latency.mxm_entry", "latency.mxm_multiply", "latency.mxm_exit"},
            "latency.mxm_entry + mxm_multiply + mxm_accumulate + mxm_exit = " +
                std::to_string(cycles) + " cycles, fewer than the " + std::to_string(groups) +
                " column groups of mxm.columns / mxm.columns_per_install, which an activation "
                "passes one a cycle: its result would leave before the last group is used (T11); "
                "raise latency.mxm_accumulate to at least " +
                std::to_string(groups - (cycles - l.mxmAccumulate)) + " or lower mxm.columns");
  }

  void format(size_t index) {
    const MxmFormatSpec &format = m.mxm.formats[index];
    const std::string name = std::string("mxm.formats.") + nameOf(format.type);
    const Keys keys = {name + ".planes"};
    for (size_t k = 0; k < index; ++k)
      if (m.mxm.formats[k].type == format.type)
        require(false, keys, "'" + name + "' is listed twice; keep one");
    if (!require(isMultiplied(format.type), keys,
                 "'" + name + "' is nothing that the MXM multiplies (R13); it multiplies int8, "
                              "fp16, bf16, e4m3 and e5m2"))
      return;
    require(format.planes == byteWidth(format.type), keys,
            "'" + name + "' has " + std::to_string(byteWidth(format.type)) +
                " bytes per weight and needs that many planes, not " +
                std::to_string(format.planes));
    require(!format.planes || m.mxm.planes % format.planes == 0, {"mxm.planes", keys[0]},
            "'" + name + "' works on " + std::to_string(format.planes) + " planes at once, but " +
                value("mxm.planes", m.mxm.planes) +
                " (per hemisphere) is no multiple of that; change one");
    require(format.lanesPerPass && m.mxm.rows % format.lanesPerPass == 0,
            {name + ".lanes_per_pass", "mxm.rows"},
            "'" + name + ".lanes_per_pass' = " + std::to_string(format.lanesPerPass) +
                " does not divide " + value("mxm.rows", m.mxm.rows) + "; choose a divisor");
  }

  static bool isMultiplied(ElementType type) {
    return type == ElementType::Int8 || type == ElementType::Fp16 || type == ElementType::Bf16 ||
           type == ElementType::E4M3 || type == ElementType::E5M2;
  }

  void vxm() {
    require(!m.vxm.alus || m.vxm.runningAccumulators, {"vxm.running_accumulators"},
            "'vxm.running_accumulators' is 0: an ALU holds at least one running value; set it to 1 "
            "or more");
  }

  void fabric() {
    require(m.pes() <= kMostPes, {"fabric.rows", "fabric.columns"},
            "the fabric has " + std::to_string(m.pes()) + " PEs; images name at most " +
                std::to_string(kMostPes) + ": lower 'fabric.rows' or 'fabric.columns'");
    require(!m.c2c.ports || m.c2c.position <= m.lastPosition(),
            {"c2c.position", "memory.slices", "memory.slices_per_register"},
            value("c2c.position", m.c2c.position) + " lies beyond the last stream position " +
                std::to_string(m.lastPosition()) +
                " = memory.slices / memory.slices_per_register; lower it");
  }

  /// The first link with each kind of fault; topologies make many that are alike.
  void links() {
    std::set<std::pair<unsigned, unsigned>> senders, receivers;
    std::set<const char *> told;
    for (size_t k = 0; k < m.links.size(); ++k) {
      const Link &link = m.links[k];
      const std::string name = "link from PE " + std::to_string(link.from) + " port " +
                               std::to_string(link.port) + " to PE " + std::to_string(link.to) +
                               " port " + std::to_string(link.toPort) + ": ";
      const auto holds = [&](bool isTrue, const char *key, const std::string &text) {
        if (isTrue || !told.insert(key).second)
          return;
        Keys keys = {"fabric.links." + std::to_string(k) + "." + key, "fabric.topology",
                     "fabric.rows", "fabric.columns", "c2c.ports"};
        require(false, std::move(keys), name + text);
      };
      holds(link.from < m.pes() && link.to < m.pes() && link.from != link.to, "to",
            "need two different PEs below " + std::to_string(m.pes()));
      holds(link.port < m.c2c.ports && link.toPort < m.c2c.ports, "port",
            "a PE has " + value("c2c.ports", m.c2c.ports) + "; raise it or lower the port");
      holds(senders.insert({link.from, link.port}).second, "from",
            "this port already sends to another PE; one port feeds one link");
      holds(receivers.insert({link.to, link.toPort}).second, "to_port",
            "this port already receives from another PE; one port ends one link");
      holds(link.latency && link.slot, "latency",
            "latency " + std::to_string(link.latency) + " and slot " + std::to_string(link.slot) +
                " must be at least 1 cycle");
    }
  }

  /// Cycles from an instruction to its result in a stream, of all kinds of units together.
  double longestDelays() const {
    const LatencySpec &l = m.latency;
    double alu = l.aluOp;
    for (const auto &[operation, cycles] : l.aluOps)
      alu = std::max<double>(alu, cycles);
    return double(l.memRead) + l.memGather + l.aluEntry + alu + l.aluExit + l.sxmEntry +
           l.transposer + l.transposerExit + l.distributor + l.permutor + l.shifter + l.selector +
           l.rotator + l.mxmAccumulate + l.mxmExit;
  }

  /// State that exists whatever the program is: what a compiler and a simulator hold of it fits an
  /// ordinary computer.
  void size() {
    const auto most = [this](double number, uint64_t limit, const char *what, Keys keys) {
      std::string names;
      for (const std::string &key : keys)
        names += (names.empty() ? "'" : ", '") + key + "'";
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.0f", number);
      require(number <= double(limit), std::move(keys),
              "all PEs together would have " + std::string(digits) + " " + what +
                  "; a machine has at most " + std::to_string(limit) + ": lower one of " + names);
    };
    const double pes = m.pes(), planes = kHemispheres * pes * m.mxm.planes;
    most(pes * m.queues(), kMostQueues, "instruction queues",
         {"memory.slices", "c2c.ports", "fabric.rows", "fabric.columns"});
    const double inStreams = m.streamCount() * (double(m.lastPosition()) * m.latency.hop + 1);
    most(pes * (inStreams + longestDelays()), kMostVectors, "vectors under way in streams and units",
         {"streams", "latency.hop", "latency.mem_read", "latency.mem_gather", "latency.alu_op",
          "latency.permutor", "latency.mxm_accumulate", "memory.slices",
          "memory.slices_per_register", "fabric.rows", "fabric.columns"});
    most(pes * kHemispheres * m.memory.slices * m.memory.banks * m.memory.rowsPerBank, kMostRows,
         "rows of memory",
         {"memory.slices", "memory.banks", "memory.rows_per_bank", "fabric.rows",
          "fabric.columns"});
    if (!m.mxm.planes)
      return;
    most(planes * m.mxm.accumulatorRows, kMostAccumulatorRows, "accumulator rows",
         {"mxm.accumulator_rows", "mxm.planes", "fabric.rows", "fabric.columns"});
    most(planes * m.mxm.buffers * m.mxm.rows * m.mxm.columns, kMostWeights,
         "bytes of weights in planes",
         {"mxm.planes", "mxm.buffers", "mxm.rows", "mxm.columns", "fabric.rows",
          "fabric.columns"});
  }

  static constexpr unsigned kMostLanes = 65535, kMostQueuesOfAPe = 65535, kMostPes = 65535;
  static constexpr unsigned kWidestElement = 4;    ///< streams of a 32-bit element
  static constexpr unsigned kColumnsTogether = 16; ///< streams of a transposed group (R5, R11)
  static constexpr uint64_t kMostQueues = 1u << 18, kMostVectors = 1u << 23, kMostRows = 1u << 28,
                            kMostAccumulatorRows = 1u << 22, kMostWeights = 1u << 31;

  const Machine &m;
  std::vector<Contradiction> found;
};

} // namespace

std::vector<Contradiction> contradictionsOf(const Machine &machine) {
  return Verifier(machine).run();
}

Status Machine::verify() const {
  std::string text;
  for (const Contradiction &each : contradictionsOf(*this))
    text += (text.empty() ? "" : "\n") + each.text;
  return text.empty() ? Status(Success{}) : Status(Error{text});
}

} // namespace millrace
