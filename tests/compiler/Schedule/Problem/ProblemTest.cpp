// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rule of docs/spec/schedule-problem.md where it holds by one cycle and where it fails by one.
#include "tests/compiler/Schedule/Problem/Problems.h"

#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::schedule;
using millrace::test::problemOf;
using testing::HasSubstr;

namespace {

/// The error of starts, or "accepted".
std::string said(const ScheduleProblem &problem, const Starts &starts) {
  EXPECT_TRUE(check(problem)) << check(problem).error();
  const Status s = verify(problem, starts);
  return s ? "accepted" : s.error();
}

std::string checked(const ScheduleProblem &problem) {
  const Status s = check(problem);
  return s ? "whole" : s.error();
}

TEST(Verify, PrecedenceLetsABundleStartAtItsDistanceAndNotOneCycleBefore) {
  ScheduleProblem p = problemOf(2);
  p.precedence = {{0, 1, 7, PrecedenceKind::Data}};
  EXPECT_EQ(said(p, {3, 10}), "accepted");
  EXPECT_EQ(said(p, {3, 9}), "bundle 1 ('node1') starts in cycle 9; data of bundle 0 ('node0'), "
                             "which starts in cycle 3, lets it start in cycle 10");
}

TEST(Verify, ADistanceBelowZeroLetsABundleStartBeforeTheOneItWaitsFor) {
  ScheduleProblem p = problemOf(2);
  p.precedence = {{0, 1, -5, PrecedenceKind::Install}};
  EXPECT_EQ(said(p, {20, 15}), "accepted");
  EXPECT_THAT(said(p, {20, 14}), HasSubstr("install of bundle 0"));
}

TEST(Verify, APortTakesOneBundleAtATime) {
  ScheduleProblem p = problemOf(2);
  p.bundles[0].holds = {{0, 0, 0, 2, 10, 1, 0}}; // cycles 2 to 11
  p.bundles[1].holds = {{0, 0, 0, 0, 3, 1, 0}};
  EXPECT_EQ(said(p, {0, 12}), "accepted");
  EXPECT_EQ(said(p, {1, 0}), "accepted");
  EXPECT_EQ(said(p, {0, 11}), "bundle 0 ('node0') and bundle 1 ('node1') both hold "
                              "pe0.mem.w.3.read (read_port) in cycle 11");
  EXPECT_THAT(said(p, {0, 0}), HasSubstr("in cycle 2"));
}

TEST(Verify, HoldsThatComeAgainLeaveTheCyclesBetweenToOthers) {
  ScheduleProblem p = problemOf(2);
  p.bundles[0].holds = {{0, 0, 0, 0, 1, 4, 2}}; // cycles 0, 2, 4, 6
  p.bundles[1].holds = {{0, 0, 0, 0, 1, 4, 2}};
  EXPECT_EQ(said(p, {0, 1}), "accepted");
  EXPECT_EQ(said(p, {0, 7}), "accepted");
  EXPECT_THAT(said(p, {0, 6}), HasSubstr("in cycle 6"));
}

TEST(Verify, RegistersOfAStreamMeetOnlyWhereTheyOverlap) {
  ScheduleProblem p = problemOf(2);
  p.bundles[0].holds = {{1, 0, 3, 0, 5, 1, 0}};
  p.bundles[1].holds = {{1, 4, 6, 0, 5, 1, 0}};
  EXPECT_EQ(said(p, {0, 0}), "accepted");
  p.bundles[1].holds[0].low = 3;
  EXPECT_EQ(said(p, {0, 0}), "bundle 0 ('node0') and bundle 1 ('node1') both hold pe0.w.out.5 "
                             "(stream 3) in cycle 3")
      << "diagonal 0 passes register 3 in cycle 3";
  EXPECT_EQ(said(p, {0, 5}), "accepted");
}

TEST(Verify, ValuesThatShareRowsMayFollowEachOtherInEitherOrder) {
  ScheduleProblem p = problemOf(4);
  p.spans = {{2, 0, 9, 0, {{0, 2}}, {{0, 3}, {1, 6}}}, {2, 5, 14, 0, {{2, 2}}, {{3, 4}}}};
  EXPECT_EQ(said(p, {0, 10, 14, 20}), "accepted")
      << "the second begins in 16, the first ends in 16";
  EXPECT_EQ(
      said(p, {0, 10, 13, 20}),
      "what bundle 2 ('node2') puts there and what bundle 1 ('node1') needs last both live in "
      "pe0.mem.w.3.rows (rows 5) in cycle 15");
  EXPECT_EQ(said(p, {30, 40, 0, 28}), "accepted") << "the other way round";
  EXPECT_NE(said(p, {30, 40, 0, 29}), "accepted");
  p.spans[1].low = 10;
  EXPECT_EQ(said(p, {0, 10, 0, 10}), "accepted") << "other rows";
}

TEST(Verify, AValueThatIsThereFromTheBeginningKeepsOthersAwayUntilItsLastUse) {
  ScheduleProblem p = problemOf(2);
  p.spans = {{2, 0, 0, 0, {}, {{0, 5}}}, {2, 0, 0, 0, {{1, 2}}, {}}};
  EXPECT_EQ(said(p, {0, 3}), "accepted");
  EXPECT_NE(said(p, {0, 2}), "accepted");
}

TEST(Verify, BundlesOfDifferentStepsNeverMeet) {
  ScheduleProblem p = problemOf(2);
  p.steps.push_back({2, 56, 56});
  p.bundles[1].step = 1;
  p.bundles[0].holds = p.bundles[1].holds = {{0, 0, 0, 0, 5, 1, 0}};
  EXPECT_EQ(said(p, {0, 0}), "accepted");
  p.bundles[0].step = 1;
  EXPECT_THAT(said(p, {0, 0}), HasSubstr("of step 2"));
}

TEST(Verify, EveryBundleHasAStartWithinItsStep) {
  const ScheduleProblem p = problemOf(2);
  EXPECT_EQ(said(p, {0}), "the schedule starts 1 bundles; the problem has 2");
  EXPECT_THAT(said(p, {0, -1}), HasSubstr("bundle 1 ('node1') starts in cycle -1"));
  EXPECT_THAT(said(p, {0, kLatest + 1}), HasSubstr("a step has the cycles 0 to"));
}

TEST(Objective, IsTheLastWriteSlotAndWhatIsFixedOfEveryStep) {
  ScheduleProblem p = problemOf(3);
  p.steps.push_back({2, 100, 100});
  p.bundles[2].step = 1;
  EXPECT_EQ(cyclesOf(p, {5, 7, 1}), 56 + 17 + 100 + 11);
  p.bundles[2].lastWrite.reset();
  EXPECT_EQ(cyclesOf(p, {5, 7, 1}), 56 + 17 + 100) << "a step without a write takes what is fixed";
}

TEST(Check, NamesProblemsWithoutASolution) {
  EXPECT_EQ(checked(problemOf(2)), "whole");
  ScheduleProblem twice = problemOf(1);
  twice.bundles[0].holds = {{0, 0, 0, 0, 5, 1, 0}, {0, 0, 0, 4, 2, 1, 0}};
  EXPECT_EQ(checked(twice), "no schedule exists: bundle 0 ('node0') holds pe0.mem.w.3.read twice 4 "
                            "cycles behind its start");
  ScheduleProblem circle = problemOf(3);
  circle.precedence = {{0, 1, 5, PrecedenceKind::Data},
                       {1, 2, -3, PrecedenceKind::Data},
                       {2, 0, -2, PrecedenceKind::Data}};
  EXPECT_EQ(checked(circle), "whole") << "it adds up to 0";
  circle.precedence[2].distance = -1;
  EXPECT_THAT(checked(circle), HasSubstr("waits for itself, along precedence"));
  ScheduleProblem lasting = problemOf(2);
  lasting.spans = {{2, 0, 9, 0, {}, {{0, 5}}}, {2, 9, 9, 0, {}, {{1, 5}}}};
  EXPECT_EQ(checked(lasting), "no schedule exists: two values live from the beginning of a step in "
                              "pe0.mem.w.3.rows 9");
  lasting.spans[1].low = lasting.spans[1].high = 10;
  EXPECT_EQ(checked(lasting), "whole");
}

TEST(Check, NamesWhatDoesNotExist) {
  ScheduleProblem p = problemOf(1);
  p.bundles[0].holds = {{3, 0, 0, 0, 5, 1, 0}};
  EXPECT_THAT(checked(p), HasSubstr("bundle 0 ('node0') names resource 3; there are 3"));
  p = problemOf(1);
  p.precedence = {{0, 1, 5, PrecedenceKind::Data}};
  EXPECT_THAT(checked(p), HasSubstr("precedence names bundle 1; there are 1"));
  p = problemOf(1);
  p.bundles[0].step = 1;
  EXPECT_THAT(checked(p), HasSubstr("names step 1; there are 1"));
  p = problemOf(1);
  p.spans = {{2, 0, 0, 0, {}, {}}};
  EXPECT_THAT(checked(p), HasSubstr("a span has no resource"));
  p = problemOf(1);
  p.bundles[0].holds = {{0, 0, 0, 0, 0, 1, 0}};
  EXPECT_THAT(checked(p), HasSubstr("for no cycles"));
}

TEST(LowerBound, IsTheLongestWayOrTheWorkOfAResourceWithWhatLiesAroundIt) {
  ScheduleProblem p = problemOf(3);
  EXPECT_EQ(lowerBound(p, 0), 56 + 10);
  p.precedence = {{0, 1, 20, PrecedenceKind::Data}};
  EXPECT_EQ(lowerBound(p, 0), 56 + 30);
  for (Bundle &b :
       p.bundles) // 8 cycles each from cycle 1 on: 24, and a write slot 2 behind the last
    b.holds = {{0, 0, 0, 1, 8, 1, 0}};
  p.precedence.clear();
  EXPECT_EQ(lowerBound(p, 0), 56 + 1 + 24 + 1);
  EXPECT_EQ(said(p, {0, 8, 16}), "accepted");
  EXPECT_EQ(cyclesOf(p, {0, 8, 16}), lowerBound(p, 0)) << "and it is reached";
}

TEST(Improve, ClosesGapsAndPutsWhatTheEndWaitsForFirst) {
  ScheduleProblem p = problemOf(3);
  for (Bundle &b : p.bundles)
    b.holds = {{0, 0, 0, 0, 10, 1, 0}};
  p.bundles[2].lastWrite = 100; // the longest tail, placed last
  const Starts before{0, 15, 30};
  for (uint32_t b = 0; b < 3; ++b)
    p.bundles[b].start = before[b];
  ASSERT_EQ(said(p, before), "accepted");
  const Starts better = improve(p, before, {.rounds = 5});
  EXPECT_EQ(said(p, better), "accepted");
  EXPECT_LE(cyclesOf(p, better), cyclesOf(p, before) - 10);
  EXPECT_EQ(improve(p, before, {.rounds = 0}), before);
}

TEST(Improve, KeepsWhoFollowsWhomWhereValuesLive) {
  ScheduleProblem p = problemOf(2);
  p.spans = {{2, 0, 0, 0, {{0, 0}}, {{0, 10}}}, {2, 0, 0, 0, {{1, 0}}, {{1, 10}}}};
  const Starts better = improve(p, {5, 40}, {.rounds = 3});
  EXPECT_EQ(better, (Starts{0, 10}));
}

} // namespace
