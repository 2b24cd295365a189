// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do rows remember when they were last used, whatever way they are cut, joined and shared?
#include "compiler/MemoryPlan/Allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

using namespace millrace;
using memory::HemisphereAllocator;
using memory::Span;

namespace {

constexpr Cycle kFresh = INT64_MIN / 4;

Machine machine(unsigned slices, unsigned rowsPerBank = 8) {
  Machine m;
  m.memory.slices = slices;
  m.memory.slicesPerRegister = 1;
  m.memory.banks = 1;
  m.memory.rowsPerBank = rowsPerBank;
  return m;
}

TEST(Times, TheRestOfAFreedRunRemembersItsLastUse) {
  const Machine m = machine(1);
  HemisphereAllocator a(m);
  Span all = a.take(1, 8, 0, 1, {});
  EXPECT_EQ(all.notBefore, kFresh);
  all.notBefore = 100;
  a.give(all);
  const Span first = a.take(1, 3, 0, 1, {});
  EXPECT_EQ(first.notBefore, 100);
  EXPECT_EQ(a.take(1, 5, 0, 1, {}).notBefore, 100) << "what was left behind it";
}

TEST(Times, OfSeveralSlicesTheOneUsedLastDecides) {
  for (unsigned late : {0u, 1u, 2u}) {
    const Machine m = machine(3);
    HemisphereAllocator a(m);
    for (unsigned slice = 0; slice < 3; ++slice) {
      Span span = a.take(1, 8, slice, slice + 1, {});
      span.notBefore = slice == late ? 100 : 5;
      a.give(span);
    }
    EXPECT_EQ(a.take(3, 4, 0, 3, {}).notBefore, 100) << "slice " << late << " was used last";
  }
}

TEST(Times, RunsThatFollowEachOtherCountAsFarAsTheyAreTaken) {
  const Machine m = machine(1);
  HemisphereAllocator a(m);
  Span first = a.take(1, 4, 0, 1, {}), second = a.take(1, 4, 0, 1, {});
  first.notBefore = 10, second.notBefore = 50;
  a.give(first), a.give(second);
  const Span both = a.take(1, 8, 0, 1, {});
  ASSERT_EQ(both.rows, 8u);
  EXPECT_EQ(both.notBefore, 50);
  a.give(both);
  a.forgetTimes();
  EXPECT_EQ(a.take(1, 8, 0, 1, {}).notBefore, kFresh);
}

TEST(Times, ASpanIsNeverFreeBeforeAnyOfItsRows) {
  std::mt19937 random(5);
  const auto below = [&](unsigned n) { return unsigned(random() % n); };
  for (unsigned round = 0; round < 100; ++round) {
    const Machine m = machine(4, 24);
    HemisphereAllocator a(m);
    std::map<std::pair<unsigned, unsigned>, Cycle> used; ///< (slice, row): when, if ever
    std::vector<Span> held;
    for (unsigned step = 1; step < 80; ++step) {
      if (below(2) && !held.empty()) {
        const size_t which = below(unsigned(held.size()));
        held[which].notBefore = step;
        for (unsigned slice : held[which].slices)
          for (unsigned r = 0; r < held[which].rows; ++r)
            used[{slice, held[which].address + r}] = step;
        a.give(held[which]);
        held.erase(held.begin() + which);
        continue;
      }
      std::vector<Span> taken;
      if (below(2))
        taken = a.takeApart(1 + below(3), 1 + below(8), 0, 4, {}, below(2));
      else if (Span s = a.take(1 + below(3), 1 + below(12), 0, 4, {}); !s.slices.empty())
        taken = {s};
      for (const Span &s : taken) {
        for (unsigned slice : s.slices)
          for (unsigned r = 0; r < s.rows; ++r)
            if (const auto found = used.find({slice, s.address + r}); found != used.end()) {
              EXPECT_GE(s.notBefore, found->second) << "row " << s.address + r << " of slice " << slice;
            }
        held.push_back(s);
      }
    }
  }
}

} // namespace
