// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do the entries of an annotation say of each element what it was made of, and nothing else?
#include "compiler/Schedule/Annotate.h"

#include <gtest/gtest.h>
#include <random>

using namespace millrace;
using schedule::Origin;

namespace {

/// What the entries say of every element.
std::vector<Origin> read(const std::vector<Producer> &entries, unsigned n0, unsigned n1) {
  std::vector<Origin> said(size_t(n0) * n1, Origin{schedule::kNoOrigin, 0, 0});
  for (const Producer &p : entries)
    for (unsigned i1 = p.from1; i1 < unsigned(p.from1) + p.count1; ++i1)
      for (unsigned i0 = p.from0; i0 < unsigned(p.from0) + p.count0; ++i0) {
        Origin &o = said.at(size_t(i1) * n0 + i0);
        EXPECT_EQ(o.instruction, schedule::kNoOrigin) << "element " << i0 << ", " << i1 << " is said twice";
        o = {p.instruction,
             uint32_t(int64_t(p.first) + int64_t(i0 - p.from0) * p.step0 + int64_t(i1 - p.from1) * p.step1),
             p.block};
      }
  return said;
}

std::vector<Producer> annotated(const std::vector<Origin> &origins, unsigned n0, unsigned n1) {
  std::vector<Producer> entries;
  schedule::annotate(entries, ProducerOf::B, 2, 3, n0, n1, origins);
  EXPECT_EQ(read(entries, n0, n1), origins);
  return entries;
}

std::vector<Origin> elements(std::vector<uint32_t> of, uint32_t instruction = 5) {
  std::vector<Origin> origins;
  for (uint32_t e : of)
    origins.push_back({instruction, e, 0});
  return origins;
}

TEST(Annotate, TakesEvenStepsTogetherAndNoOthers) {
  EXPECT_EQ(annotated(elements({4, 6, 8, 10}), 4, 1).size(), 1u);
  EXPECT_EQ(annotated(elements({0, 1, 5}), 3, 1).size(), 2u) << "the third element is another step on";
  EXPECT_EQ(annotated(elements({3, 3, 3}), 3, 1).size(), 1u);
  EXPECT_EQ(annotated(elements({9, 8, 7, 3}), 4, 1).size(), 2u);
}

TEST(Annotate, TakesEvenRoundsTogetherAndNoOthers) {
  EXPECT_EQ(annotated(elements({0, 1, 10, 11, 20, 21}), 2, 3).size(), 1u);
  EXPECT_EQ(annotated(elements({0, 1, 10, 11, 25, 26}), 2, 3).size(), 2u);
  EXPECT_EQ(annotated(elements({0, 1, 10, 12, 20, 21}), 2, 3).size(), 3u)
      << "rounds of one step, with one of another between them";
}

TEST(Annotate, NamesOperandByteAndPe) {
  for (const Producer &p : annotated(elements({1}), 1, 1)) {
    EXPECT_EQ(p.of, ProducerOf::B);
    EXPECT_EQ(p.byte, 2);
    EXPECT_EQ(p.pe, 3);
  }
}

TEST(Annotate, KeepsInstructionsAndBlocksApartAndLeavesOutWhatHasNoOrigin) {
  std::mt19937 random(9);
  const auto below = [&](unsigned n) { return uint32_t(random() % n); };
  for (unsigned round = 0; round < 3000; ++round) {
    const unsigned n0 = 1 + below(6), n1 = 1 + below(5);
    std::vector<Origin> origins;
    for (unsigned e = 0; e < n0 * n1; ++e) {
      const unsigned kind = below(8);
      if (kind == 0)
        origins.push_back({schedule::kNoOrigin, 0, 0});
      else if (kind == 1)
        origins.push_back({kInitialContents, e, below(2)});
      else
        origins.push_back({below(2), kind < 6 ? e : below(4), 0});
    }
    annotated(origins, n0, n1);
  }
}

} // namespace
