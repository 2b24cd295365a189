// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows that the host fills between grid steps: whose they are, and whom they leave alone.
#include "arch/program/Assembler.h"
#include "arch/program/HostStep.h"
#include "tests/simulator/system/Program.h"

#include <functional>

namespace millrace::sim::test {
namespace {

constexpr unsigned kLanes = 32;

class HostWrites : public HostStepRunner {
public:
  explicit HostWrites(std::function<void(RowAccess &)> step) : step(std::move(step)) {}
  Status run(const Image &, const Step &, RowAccess &memory) override {
    step(memory);
    return Success{};
  }

private:
  std::function<void(RowAccess &)> step;
};

void fill(RowAccess &memory, unsigned slice, uint32_t row, uint8_t value) {
  for (uint8_t &byte : memory.write(0, W, slice, row))
    byte = value;
}

using Simulator = Expected<SimulationResult> (*)(const Image &, const Machine &, const SimulationOptions &,
                                                 HostStepRunner *);

/// Both simulators run the program, whose host steps do `step`, and must end with slice 20's row 0
/// full of `expected`.
void expectRow(const std::string &text, const std::function<void(RowAccess &)> &step, uint8_t expected) {
  const Machine machine = machineNamed("tsp-small");
  Expected<Image> image = assemble("machine tsp-small\n" + text, "host.mas", &machine);
  ASSERT_TRUE(image) << image.error();
  for (Simulator simulator : {Simulator(simulate), Simulator(simulateSlowly)}) {
    SimulationOptions options;
    Row row(kLanes);
    options.readOutputs = [&](RowAccess &memory) -> Status {
      memory.read(0, W, 20, 0, row);
      return Success{};
    };
    HostWrites host(step);
    const Expected<SimulationResult> result = simulator(*image, machine, options, &host);
    ASSERT_TRUE(result) << result.error();
    EXPECT_FALSE(result->violation) << verdict(*result);
    EXPECT_EQ(row, Row(kLanes, expected)) << (simulator == Simulator(simulate) ? "fast" : "slow");
  }
}

TEST(HostRows, AWriteOfTheHostLeavesOtherRowsThatHoldTheSameVectorAlone) {
  expectRow(R"(tensor X west slice=0 rows=0..0
data X all int8 7
tensor A west slice=4 rows=0..0
tensor B west slice=5 rows=0..0
tensor Y west slice=20 rows=0..0
step grid cycles=42
load: @0 mem.w.0 read address=0 out=w.out.0 tensor=X from memory: X
a:    @2 mem.w.4 write address=0 a=w.out.0 tensor=A from a: load
b:    @2 mem.w.5 write address=0 a=w.out.0 tensor=B from a: load
step host "f"
step grid cycles=45
back: @0 mem.w.5 read address=0 out=w.out.0 tensor=B from memory: b
      @5 mem.w.20 write address=0 a=w.out.0 tensor=Y from a: back
)",
            [](RowAccess &memory) { fill(memory, 4, 0, 99); }, 7);
}

TEST(HostRows, AreOfTheBlockThatLivesInTheStepNotOfOneThatIsOver) {
  // Row 2 of slice 0 belongs to B in step 0, and to A, which begins at row 0, later.
  expectRow(R"(tensor A west slice=0 rows=0..3 step0=1 step1=2 from=0 to=50
data A host
tensor B west slice=0 rows=2..2 step0=0 step1=0 from=0 to=50
data B all int8 3
tensor Y west slice=20 rows=0..0
step grid cycles=46
old:  @0 mem.w.0 read address=2 out=w.out.0 tensor=B from memory: B
      @6 mem.w.20 write address=0 a=w.out.0 tensor=Y from a: old
step host "f"
step grid cycles=46
back: @0 mem.w.0 read address=2 out=w.out.0 tensor=A from memory: A[2]
      @6 mem.w.20 write address=0 a=w.out.0 tensor=Y from a: back
)",
            [](RowAccess &memory) { fill(memory, 0, 2, 44); }, 44);
}

TEST(HostRows, OfALaterStepDoNotReplaceWhatIsThereBefore) {
  expectRow(R"(tensor B west slice=0 rows=0..0 step0=0 step1=0 from=0 to=50
data B all int8 3
tensor A west slice=0 rows=0..0 step0=1 step1=2 from=0 to=50
data A host
tensor Y west slice=20 rows=0..0
step grid cycles=46
old:  @0 mem.w.0 read address=0 out=w.out.0 tensor=B from memory: B
      @6 mem.w.20 write address=0 a=w.out.0 tensor=Y from a: old
step host "f"
)",
            [](RowAccess &memory) { fill(memory, 0, 0, 44); }, 3);
}

TEST(HostRows, AreOfTheirBlockAgainAfterAWriteOfTheGrid) {
  expectRow(R"(tensor X west slice=0 rows=0..0
data X all int8 7
tensor A west slice=4 rows=0..0 step0=0 step1=2 from=0 to=60
data A host
tensor Y west slice=20 rows=0..0
step grid cycles=42
load: @0 mem.w.0 read address=0 out=w.out.0 tensor=X from memory: X
a:    @2 mem.w.4 write address=0 a=w.out.0 tensor=A from a: load
step host "f"
step grid cycles=45
back: @0 mem.w.4 read address=0 out=w.out.0 tensor=A from memory: A
      @5 mem.w.20 write address=0 a=w.out.0 tensor=Y from a: back
)",
            [](RowAccess &memory) { fill(memory, 4, 0, 99); }, 99);
}

TEST(HostRows, KeepTheBytesThatTheHostDoesNotTouch) {
  expectRow(R"(tensor X west slice=0 rows=0..0
data X all int8 7
tensor A west slice=4 rows=0..0
tensor Y west slice=20 rows=0..0
step grid cycles=42
load: @0 mem.w.0 read address=0 out=w.out.0 tensor=X from memory: X
a:    @2 mem.w.4 write address=0 a=w.out.0 tensor=A from a: load
step host "f"
step grid cycles=45
back: @0 mem.w.4 read address=0 out=w.out.0 tensor=A from memory: a
      @5 mem.w.20 write address=0 a=w.out.0 tensor=Y from a: back
)",
            [](RowAccess &memory) { memory.write(0, W, 4, 0); }, 7);
}

} // namespace
} // namespace millrace::sim::test
