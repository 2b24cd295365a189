// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/Annotation.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace millrace::sim {

/// What an entry says of an element, by its definition; nothing when it does not speak of it.
static std::optional<Meant> definition(const Producer &p, ProducerOf of, unsigned byte,
                                       const Burst &b) {
  const int64_t i1 = int64_t(b.repeat) * b.n1 + b.i1;
  const bool speaks = p.of == of && (p.byte == byte || p.byte == kAllBytes) && b.i0 >= p.from0 &&
                      b.i0 < p.from0 + p.count0 && i1 >= p.from1 && i1 < p.from1 + p.count1;
  if (!speaks)
    return std::nullopt;
  const int64_t element = p.first + (int64_t(b.i0) - p.from0) * p.step0 + (i1 - p.from1) * p.step1;
  const bool loaded = p.instruction == kInitialContents;
  return Meant{loaded ? Tag::initial(p.block, uint32_t(element))
                      : Tag{p.instruction, uint32_t(element)},
               p.pe};
}

/// Whatever was found for the elements before, each one gets what its own entry says.
TEST(Annotation, WalkedInOrderEveryElementGetsWhatItsEntrySays) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    auto any = [&](unsigned least, unsigned most) { return least + random() % (most - least + 1); };
    Instruction read;
    Burst burst;
    burst.instruction = &read;
    burst.n0 = uint16_t(any(1, 9)), burst.n1 = uint16_t(any(1, 5)), burst.repeats = any(1, 3);
    const unsigned rounds = burst.repeats * burst.n1, bytes = any(1, 4);
    // Columns of entries, some missing, in any order; those of some operands for all bytes at once.
    std::vector<Producer> producers;
    for (ProducerOf of : {ProducerOf::A, ProducerOf::B})
      for (unsigned byte = 0; byte < bytes; ++byte) {
        const bool all = of == ProducerOf::B;
        if (all && byte)
          continue;
        const unsigned split0 = any(0, burst.n0), split1 = any(0, rounds);
        for (auto [from0, to0] : {std::pair(0u, split0), std::pair(split0, unsigned(burst.n0))})
          for (auto [from1, to1] : {std::pair(0u, split1), std::pair(split1, rounds)}) {
            if (from0 == to0 || from1 == to1 || any(0, 7) == 0)
              continue;
            Producer p;
            p.of = of, p.byte = all ? kAllBytes : uint8_t(byte), p.pe = uint16_t(any(0, 2));
            p.instruction = any(0, 3) ? any(0, 100) : kInitialContents;
            p.block = any(0, 9), p.first = any(0, 1000);
            p.from0 = uint16_t(from0), p.count0 = uint16_t(to0 - from0);
            p.from1 = uint16_t(from1), p.count1 = uint16_t(to1 - from1);
            p.step0 = int(any(0, 6)) - 3, p.step1 = int(any(0, 60)) - 30;
            producers.push_back(p);
          }
      }
    std::shuffle(producers.begin(), producers.end(), random);
    burst.producers = producers;
    for (uint32_t number = 0; !burst.finished(); ++number, burst.next()) {
      ASSERT_EQ(burst.number, number);
      for (unsigned ask = 0; ask < 2 * bytes; ++ask) {
        const ProducerOf of = ask % 2 ? ProducerOf::B : ProducerOf::A;
        const unsigned byte = ask / 2, slot = (ask % 2 ? slot::B : slot::A) + byte;
        std::optional<Meant> expected;
        for (const Producer &p : producers)
          if (auto said = definition(p, of, byte, burst))
            expected = said;
        const auto found = meant(burst, of, slot, byte);
        ASSERT_EQ(bool(found), bool(expected)) << "seed " << seed << " element " << number;
        if (!found)
          continue;
        EXPECT_EQ(found->tag, expected->tag) << "seed " << seed << " element " << number;
        EXPECT_EQ(found->pe, expected->pe);
        const Tag tag = expected->tag;
        EXPECT_TRUE(isMeant(burst, of, slot, byte, tag, expected->pe));
        EXPECT_FALSE(isMeant(burst, of, slot, byte, tag, expected->pe + 1));
        EXPECT_FALSE(
            isMeant(burst, of, slot, byte, {tag.instruction, tag.element + 1}, expected->pe));
        EXPECT_FALSE(
            isMeant(burst, of, slot, byte, {tag.instruction + 1, tag.element}, expected->pe));
      }
    }
  }
}

/// An Install's columns beyond the slots share the last of them.
TEST(Annotation, BytesThatShareASlotAreKeptApart) {
  Instruction install;
  Burst burst;
  burst.instruction = &install;
  burst.n0 = 2;
  std::vector<Producer> producers(3);
  for (unsigned byte = 0; byte < 3; ++byte) {
    producers[byte].byte = uint8_t(15 + byte), producers[byte].instruction = 7 + byte;
    producers[byte].count0 = 2, producers[byte].count1 = 1, producers[byte].step0 = 1;
  }
  burst.producers = producers;
  for (; !burst.finished(); burst.next())
    for (unsigned byte = 0; byte < 3; ++byte)
      EXPECT_TRUE(isMeant(burst, ProducerOf::A, slot::B - 1, 15 + byte, {7 + byte, burst.i0}, 0));
}

/// A copy searches by itself.
TEST(Annotation, ACopyOfABurstKnowsNothingOfWhatWasFound) {
  Instruction read;
  Burst burst;
  burst.instruction = &read;
  std::vector<Producer> producers(1), others(1);
  producers[0].count0 = producers[0].count1 = others[0].count0 = others[0].count1 = 1;
  producers[0].instruction = 3, others[0].instruction = 4;
  burst.producers = producers;
  EXPECT_TRUE(isMeant(burst, ProducerOf::A, slot::A, 0, {3, 0}, 0));
  Burst copy = burst;
  copy.producers = others;
  EXPECT_TRUE(isMeant(copy, ProducerOf::A, slot::A, 0, {4, 0}, 0));
  burst = copy;
  EXPECT_TRUE(isMeant(burst, ProducerOf::A, slot::A, 0, {4, 0}, 0));
}

} // namespace millrace::sim
