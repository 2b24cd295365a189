// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is an annotation that names each vector once, and nothing else, taken, and any other refused?
#include "arch/operations/AluOp.h"
#include "arch/spec/MachineFile.h"
#include "simulator/base/Annotation.h"

#include <gtest/gtest.h>

namespace millrace::sim {
namespace {

Producer entry(unsigned byte, unsigned from0, unsigned count0, unsigned from1 = 0, unsigned count1 = 1) {
  Producer p;
  p.of = ProducerOf::A, p.byte = uint8_t(byte), p.instruction = 1;
  p.from0 = uint16_t(from0), p.count0 = uint16_t(count0), p.from1 = uint16_t(from1), p.count1 = uint16_t(count1);
  return p;
}

/// Of an operation on one operand of four byte streams with 4 x 2 elements.
std::string problem(const std::vector<Producer> &producers) {
  static const Machine machine = *loadMachine("tsp-small");
  Instruction i;
  i.opcode = Opcode::Alu, i.function = uint8_t(AluOp::Pass);
  i.a = {OperandKind::Stream, 4, machine.stream(Hemisphere::West, Direction::Inward, 0)};
  Burst burst;
  burst.instruction = &i, burst.n0 = 4, burst.n1 = 2, burst.producers = producers;
  return damage(burst, machine).value_or("whole");
}

TEST(WholeAnnotation, NamesEachByteOfEachElementOnce) {
  EXPECT_EQ(problem({entry(kAllBytes, 0, 4, 0, 2)}), "whole");
  std::vector<Producer> bytes;
  for (unsigned b = 0; b < 4; ++b)
    bytes.push_back(entry(b, 0, 4, 0, 2));
  EXPECT_EQ(problem(bytes), "whole");
  std::vector<Producer> backwards(bytes.rbegin(), bytes.rend());
  EXPECT_EQ(problem(backwards), "whole");
  bytes.back().byte = 4;
  EXPECT_NE(problem(bytes).find("byte 4 of operand a, which has 4"), std::string::npos) << problem(bytes);
  bytes.back().byte = 2;
  EXPECT_NE(problem(bytes).find("the same element"), std::string::npos) << problem(bytes);
  bytes.pop_back();
  EXPECT_NE(problem(bytes).find("covers 24 of 32"), std::string::npos) << problem(bytes);
}

TEST(WholeAnnotation, StaysInsideTheLoops) {
  EXPECT_EQ(problem({entry(kAllBytes, 0, 4, 0, 1), entry(kAllBytes, 0, 4, 1, 1)}), "whole");
  EXPECT_NE(problem({entry(kAllBytes, 1, 4, 0, 2)}).find("not there"), std::string::npos);
  EXPECT_NE(problem({entry(kAllBytes, 0, 4, 1, 2)}).find("not there"), std::string::npos);
  EXPECT_NE(problem({entry(kAllBytes, 0, 0, 0, 2)}).find("not there"), std::string::npos);
  EXPECT_NE(problem({entry(kAllBytes, 0, 3, 0, 2), entry(kAllBytes, 2, 1, 0, 2)}), "whole")
      << "element 3 is left out, element 2 said twice";
}

TEST(WholeAnnotation, SeesOverlapsInLongListsToo) {
  Instruction i;
  i.opcode = Opcode::Read;
  for (bool twice : {false, true}) {
    std::vector<Producer> producers;
    for (unsigned k = 0; k < 60; ++k) { // backwards, so that they are no bricks
      Producer p = entry(kAllBytes, 0, 1, 59 - k, 1);
      p.of = ProducerOf::Memory;
      producers.push_back(p);
    }
    if (twice)
      producers[20].from1 = producers[30].from1;
    Burst burst;
    burst.instruction = &i, burst.n0 = 1, burst.n1 = 60, burst.producers = producers;
    EXPECT_EQ(damage(burst, *loadMachine("tsp-small")).has_value(), twice);
  }
}

} // namespace
} // namespace millrace::sim
