// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a program remember when its regions are first and last used, and end its steps where they end?
#include "compiler/Schedule/Program.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

using namespace millrace;
using schedule::RegionState;

namespace {

class ProgramOf : public testing::Test {
protected:
  Machine machine = *loadMachine("tsp-small");
  schedule::Program program{machine};

  uint32_t region(unsigned row) {
    RegionState r;
    r.slice = 5, r.row = row, r.rows = 2;
    return program.addRegion(r);
  }
  Image finished() const {
    Image image;
    program.finish(image);
    return image;
  }
};

TEST_F(ProgramOf, ARegionBeginsWithItsEarliestAccessOfItsFirstStepAndEndsWithTheLatestOfItsLast) {
  const uint32_t r = region(7);
  program.noteAccess(r, 20, 25);
  program.noteAccess(r, 10, 12);
  program.noteAccess(r, 15, 30);
  EXPECT_EQ(program.regions[r].from, 10);
  EXPECT_EQ(program.regions[r].to, 30);
  program.endGridStep();
  program.noteAccess(r, 4, 5);
  EXPECT_EQ(program.regions[r].from, 10);
  EXPECT_EQ(program.regions[r].to, 5);
  program.endGridStep();
  const Image image = finished();
  EXPECT_EQ(image.tensors[r].row, 7u);
  EXPECT_EQ(image.tensors[r].step0, 0u);
  EXPECT_EQ(image.tensors[r].from, 10u);
  EXPECT_EQ(image.tensors[r].step1, 1u);
  EXPECT_EQ(image.tensors[r].to, 5u);
}

TEST_F(ProgramOf, ARegionThatIsKeptToTheEndEndsWithTheLastStep) {
  const uint32_t r = region(0);
  program.noteAccess(r, 3, 4);
  program.regions[r].untilEnd = true;
  program.endGridStep();
  program.addHostStep({});
  program.noteWrite(50);
  program.endGridStep();
  const Image image = finished();
  EXPECT_EQ(image.tensors[r].step1, 2u);
  EXPECT_EQ(image.tensors[r].to, image.steps[2].predictedCycles);
  EXPECT_EQ(image.steps[1].kind, Step::Kind::Host);
}

TEST_F(ProgramOf, AStepIsEmptyUntilABurstIsPlacedInIt) {
  EXPECT_TRUE(program.stepIsEmpty());
  const auto place = [&] {
    program.pes[0].instructions.emplace_back();
    program.pes[0].producers.emplace_back();
  };
  place();
  EXPECT_FALSE(program.stepIsEmpty());
  program.endGridStep();
  EXPECT_TRUE(program.stepIsEmpty());
  program.addHostStep({});
  EXPECT_TRUE(program.stepIsEmpty());
  place();
  EXPECT_FALSE(program.stepIsEmpty());
}

} // namespace
