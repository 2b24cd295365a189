// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What SXM units do at the edges of a superlane and of the vector.
#include "tests/simulator/system/Program.h"

namespace millrace::sim::test {
namespace {

constexpr unsigned kLanes = 32;

Row moved(Opcode opcode, UnitKind kind, unsigned latency, const std::vector<uint16_t> &map, int32_t immediate = 0,
          unsigned k0 = 0, unsigned k1 = 0) {
  Program p(machineNamed("tsp-small"));
  Row a(kLanes);
  for (unsigned l = 0; l < kLanes; ++l)
    a[l] = uint8_t(100 + l);
  p.rows(W, 40, 0, {a});
  if (!map.empty()) {
    p.image.laneMaps.push_back(map);
    p.add(90, {kind, W, 0}, Opcode::Config).address = 0;
  }
  p.read(99, W, 40, 0, p.stream(W, Out, 0));
  Instruction &i = p.add(100, {kind, W, 0}, opcode);
  i.a = p.on(W, Out, 0), i.out[0] = p.stream(W, In, 9), i.immediate = uint32_t(immediate);
  i.k0 = uint16_t(k0), i.k1 = uint16_t(k1);
  p.tensor(W, 41, 0, 1);
  p.write(100 + Cycle(p.machine.latency.sxmEntry + latency), W, 41, 0, p.on(W, In, 9));
  const SimulationResult r = p.run();
  EXPECT_FALSE(r.violation) << verdict(r);
  return p.row(W, 41, 0);
}

TEST(Switch, ADistributorTakesNoLaneOfTheNextSuperlane) {
  const LatencySpec l = machineNamed("tsp-small").latency;
  for (uint16_t from : {0, 15, 16, 17, 31, 0xffff}) {
    const Row out = moved(Opcode::Distribute, UnitKind::Distributor, l.distributor,
                          std::vector<uint16_t>(kLanes, from));
    for (unsigned lane = 0; lane < kLanes; ++lane)
      EXPECT_EQ(out[lane], from < 16 ? 100 + lane / 16 * 16 + from : 0) << from << ", " << lane;
  }
}

TEST(Switch, ShiftsLoseWhatLeavesTheVector) {
  const LatencySpec l = machineNamed("tsp-small").latency;
  for (int32_t shift : {0, 1, -1, 31, -31, 32, -32, 1000}) {
    const Row out = moved(Opcode::Shift, UnitKind::Shifter, l.shifter, {}, shift);
    for (int lane = 0; lane < int(kLanes); ++lane)
      EXPECT_EQ(out[size_t(lane)], lane - shift >= 0 && lane - shift < int(kLanes) ? 100 + lane - shift : 0)
          << shift << ", " << lane;
  }
}

TEST(Switch, RotationsStayInTheirLanes) {
  const LatencySpec l = machineNamed("tsp-small").latency;
  for (int32_t shift : {0, 1, -1, 5, -7, 23, -23})
    for (auto [k0, k1] : {std::pair(0, 32), std::pair(3, 10), std::pair(31, 32)}) {
      const Row out = moved(Opcode::Rotate, UnitKind::Rotator, l.rotator, {}, shift, unsigned(k0), unsigned(k1));
      for (int lane = 0; lane < int(kLanes); ++lane) {
        int from = lane;
        if (lane >= k0 && lane < k1)
          for (from -= shift; from < k0 || from >= k1;)
            from += from < k0 ? k1 - k0 : k0 - k1;
        EXPECT_EQ(out[size_t(lane)], 100 + from) << shift << ", " << k0 << " to " << k1 << ", " << lane;
      }
    }
}

} // namespace
} // namespace millrace::sim::test
