// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Traces, waveforms and reports of a program written by hand.
#include "simulator/observe/TraceWriter.h"
#include "simulator/observe/VcdWriter.h"
#include "simulator/pe/VectorUnit.h"
#include "simulator/report/Report.h"
#include "tests/simulator/system/Program.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace millrace::sim::test {

/// Four rows read at 100, doubled, written from bank slot 112 on.
static Program doubling() {
  Program p(machineNamed("tsp-v1"));
  p.image.strings = {"", "the \"Mul\" node"};
  p.rows(E, 0, 0, std::vector<Row>(4, Row(320, 3)));
  p.tensor(E, 0, 4096, 4);
  p.read(100, E, 0, 0, p.stream(E, In, 0), times(4)).provenance = 1;
  p.compute(102, 5, AluOp::AddI32, p.on(E, In, 0), p.on(E, In, 0), p.stream(E, Out, 0), 1,
            times(4));
  p.write(110, E, 0, 4096, p.on(E, Out, 0), times(4));
  return p;
}

TEST(TraceWriter, HasATrackPerQueueAndASlicePerBurst) {
  Program p = doubling();
  std::ostringstream text;
  {
    p.run();
    TraceWriter trace(text, p.image, p.machine);
    SimulationOptions options = handWritten();
    options.observer = &trace;
    ASSERT_TRUE(simulate(p.image, p.machine, options));
  }
  const nlohmann::json json = nlohmann::json::parse(text.str());
  unsigned slices = 0;
  std::set<std::string> tracks;
  for (const auto &event : json["traceEvents"]) {
    if (event["name"] == "thread_name")
      tracks.insert(event["args"]["name"]);
    if (event["ph"] != "X" || !event.contains("cat"))
      continue;
    ++slices;
    if (event["cat"] == "read") {
      EXPECT_EQ(event["name"], "the \"Mul\" node");
      EXPECT_EQ(event["ts"], 100);
      EXPECT_EQ(event["dur"], 4);
    }
  }
  EXPECT_EQ(slices, 3u);
  EXPECT_EQ(tracks, (std::set<std::string>{"alu.5", "grid steps", "mem.e.0.read", "mem.e.0.write",
                                           "the \"Mul\" node"}));
}

/// Values of a counter by the cycle from which on they hold.
static std::map<uint64_t, double> counterOf(const nlohmann::json &trace, const char *name) {
  std::map<uint64_t, double> values;
  for (const auto &event : trace["traceEvents"])
    if (event["ph"] == "C" && event["name"] == name)
      values[event["ts"]] = event["args"]["per cycle"];
  return values;
}

TEST(TraceWriter, CountsStreamsPortsAndMacs) {
  Program p = doubling();
  std::ostringstream text;
  {
    p.run();
    TraceWriter trace(text, p.image, p.machine);
    SimulationOptions options = handWritten();
    options.observer = &trace;
    ASSERT_TRUE(simulate(p.image, p.machine, options));
  }
  const nlohmann::json json = nlohmann::json::parse(text.str());
  using Values = std::map<uint64_t, double>;
  // The read of 100 to 103, the ALU of 102 to 105, the write of 110 to 113.
  EXPECT_EQ(counterOf(json, "streams in use"), (Values{{100, 1}, {102, 2}, {104, 1}, {106, 0}}));
  EXPECT_EQ(counterOf(json, "MEM ports"), (Values{{100, 1}, {104, 0}, {110, 1}, {114, 0}}));
  EXPECT_EQ(counterOf(json, "MACs"), Values());
}

TEST(TraceWriter, SlicesThatOverlapGetATrackOfTheirOwn) {
  // As a program that breaks S2 could have them.
  Program p = doubling();
  p.run();
  std::ostringstream text;
  {
    TraceWriter trace(text, p.image, p.machine);
    Instruction i = p.image.instructions[0][0];
    i.n0 = 10;
    Burst burst;
    burst.instruction = &i;
    burst.n0 = i.n0;
    trace.beginStep(0);
    for (Cycle start : {0, 5, 10}) {
      burst.start = start;
      trace.dispatched(0, i.queue, burst);
    }
    trace.endStep(0, 20);
  }
  std::map<unsigned, std::vector<uint64_t>> starts;
  const nlohmann::json json = nlohmann::json::parse(text.str());
  for (const auto &event : json["traceEvents"])
    if (event["ph"] == "X" && event.contains("cat"))
      starts[event["tid"]].push_back(event["ts"]);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts.begin()->second, (std::vector<uint64_t>{0, 10}));
  EXPECT_EQ(starts.rbegin()->second, std::vector<uint64_t>{5});
}

TEST(TraceWriter, StepsFollowEachOtherAndNodesLastFromTheirFirstBurstToTheirLast) {
  Program p = doubling();
  p.run();
  std::ostringstream text;
  {
    TraceWriter trace(text, p.image, p.machine);
    Instruction read = p.image.instructions[0][0], add = p.image.instructions[0][1];
    ASSERT_EQ(read.provenance, 1u);
    const auto dispatch = [&](Instruction &i, Cycle start) {
      Burst burst;
      burst.instruction = &i, burst.n0 = 4, burst.start = start;
      trace.dispatched(0, i.queue, burst);
    };
    trace.beginStep(0);
    dispatch(add, 1);
    dispatch(read, 3);
    dispatch(read, 7);
    dispatch(read, 15);
    trace.endStep(0, 20);
    trace.beginStep(1);
    dispatch(read, 2);
    trace.endStep(1, 30);
  }
  const nlohmann::json json = nlohmann::json::parse(text.str());
  using Spans = std::vector<std::pair<uint64_t, uint64_t>>;
  std::map<std::string, Spans> spans;
  std::map<uint64_t, std::string> names;
  std::map<std::string, unsigned> places;
  for (const auto &event : json["traceEvents"]) {
    if (event["name"] == "thread_name")
      names[event["tid"]] = event["args"]["name"];
    if (event["name"] == "thread_sort_index")
      places[names.at(event["tid"])] = event["args"]["sort_index"];
    if (event["ph"] == "X" && !event.contains("cat"))
      spans[event["name"]].push_back({event["ts"], event["dur"]});
  }
  EXPECT_EQ(spans["step 0"], (Spans{{0, 20}}));
  EXPECT_EQ(spans["step 1"], (Spans{{20, 30}}));
  EXPECT_EQ(spans["the \"Mul\" node"], (Spans{{3, 8}, {15, 4}, {22, 4}}));
  EXPECT_LT(places.at("alu.5"), places.at("mem.e.0.read")) << "the MXM and the VXM come first, memory last";
}

TEST(VcdWriter, ShowsTheInstructionUnderWay) {
  Program p = doubling();
  std::ostringstream text;
  {
    p.run();
    VcdWriter vcd(text, p.machine);
    SimulationOptions options = handWritten();
    options.observer = &vcd;
    ASSERT_TRUE(simulate(p.image, p.machine, options));
  }
  const std::string expected = "#100\nb00000000000000000000000000000001 ";
  EXPECT_NE(text.str().find("pe0.alu.5"), std::string::npos);
  EXPECT_NE(text.str().find(expected), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("#106\nb00000000000000000000000000000000 "), std::string::npos);
}

/// A user's VXM: the simulator's own, and a process that notes when it is called.
class WatchedVxm : public VectorUnit {
public:
  WatchedVxm(const sc_core::sc_module_name &name, PeContext &context, std::vector<Cycle> &seen)
      : VectorUnit(name, context), seen(seen) {
    SC_METHOD(react);
    sensitive << called;
    dont_initialize();
  }
  SC_HAS_PROCESS(WatchedVxm);
  bool hasProcesses() const override { return true; }
  void element(Burst &burst, Cycle now) override {
    VectorUnit::element(burst, now);
    called.notify(sc_core::sc_time::from_value(2)); // two cycles later
  }

private:
  void react() { seen.push_back(Cycle(sc_core::sc_time_stamp().value())); }
  sc_core::sc_event_queue called;
  std::vector<Cycle> &seen;
};

TEST(Units, AUserMayPutAModuleOfTheirOwnInPlace) {
  Program p = doubling();
  const SimulationResult own = p.run();
  std::vector<Cycle> seen;
  SimulationOptions options = handWritten();
  options.makeUnit = [&](const sc_core::sc_module_name &name, PeContext &context, Unit unit) {
    return unit.kind == UnitKind::Alu ? std::make_unique<WatchedVxm>(name, context, seen) : nullptr;
  };
  auto theirs = simulate(p.image, p.machine, options);
  ASSERT_TRUE(theirs) << theirs.error();
  EXPECT_FALSE(theirs->violation) << verdict(*theirs);
  EXPECT_EQ(theirs->measuredCycles, own.measuredCycles);
  EXPECT_EQ(seen, (std::vector<Cycle>{104, 105, 106, 107}));
}

TEST(Report, CountsWhatTheProgramDid) {
  Program p = doubling();
  p.machine.energy.sramByte = 2;
  SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  const nlohmann::json json = toJson(r, p.image, p.machine);
  EXPECT_EQ(json["measured_cycles"], 1 + 115 + 35 + 20);
  EXPECT_EQ(json["predicted_cycles"], json["measured_cycles"]);
  EXPECT_EQ(json["sram_reads"], 4);
  EXPECT_EQ(json["sram_writes"], 4);
  EXPECT_EQ(json["stream_vectors"], 8);
  EXPECT_EQ(json["stream_hops"], 8); // one register to the VXM, one back
  EXPECT_EQ(json["energy_picojoules"]["sram"], 8 * 320 * 2);
  EXPECT_DOUBLE_EQ(json["utilisation"]["vxm"], 4.0 / (16 * 171));
  EXPECT_TRUE(json["violation"].is_null());
}

TEST(Report, EnergyIsUnknownWhereEventsHaveNoCost) {
  Machine m = machineNamed("tsp-v1");
  Counters c;
  EXPECT_EQ(energyOf(c, m).total(), 0) << "of nothing";
  c.macsFloat = 10;
  EXPECT_FALSE(energyOf(c, m).macs);
  EXPECT_FALSE(energyOf(c, m).total());
  m.energy.macFloat = 3;
  EXPECT_EQ(energyOf(c, m).macs, 30) << "the cost of what does not happen does not matter";
  c.macsInt8 = 1;
  EXPECT_FALSE(energyOf(c, m).macs);
  EXPECT_EQ(energyOf(c, m).links, 0);
}

TEST(Report, AnInputOfSeveralBindingsMovesOnce) {
  Machine m = machineNamed("tsp-v1");
  m.host.bytesPerSecond = 100;
  m.host.latencySeconds = 1;
  Image image;
  Binding x;
  x.name = "x";
  x.hostType = "float";
  x.shape = {5, 10};
  image.bindings = {x, x};
  EXPECT_DOUBLE_EQ(hostSeconds(image, m), 1 + 4 * 50 / 100.0);
  image.bindings[1].role = Binding::Role::Output;
  EXPECT_DOUBLE_EQ(hostSeconds(image, m), 2 + 2 * 4 * 50 / 100.0);
}

TEST(Report, UtilisationOfTheMxmCountsBothPlanesOfAPair) {
  const Machine m = machineNamed("tsp-v1"); // two planes on either side
  SimulationResult r;
  r.measuredCycles = 100;
  r.total.busy.resize(m.queues());
  const auto share = [&] {
    for (const Utilisation &u : utilisations(r, m))
      if (u.unit == "mxm activate")
        return u.share;
    return -1.0;
  };
  for (Hemisphere h : {W, E}) // all that a 16-bit format can do: the first plane of each pair
    r.total.busy[m.queue({UnitKind::MxmActivate, h, 0})] = 100;
  r.total.partnerActivations = 200;
  EXPECT_DOUBLE_EQ(share(), 1);
  r.total.partnerActivations = 100; // half of the elements int8, which leave the partner idle
  EXPECT_DOUBLE_EQ(share(), 0.75);
}

TEST(Report, NamesTheFirstViolation) {
  Program p = doubling();
  const SimulationResult right = p.run();
  ASSERT_FALSE(right.violation) << verdict(right);
  const SimulationResult r = p.run(handWritten(), right.measuredCycles + 1);
  const nlohmann::json violation = toJson(r, p.image, p.machine)["violation"];
  ASSERT_TRUE(violation.is_object()) << violation;
  EXPECT_EQ(violation["invariant"], "S11");
  EXPECT_EQ(violation["step"], 0);
  EXPECT_EQ(violation["cycle"], right.measuredCycles);
  EXPECT_EQ(violation["message"], r.violation->message);
}

} // namespace millrace::sim::test
