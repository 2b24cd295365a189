// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Problem/Text.h"
#include "tests/compiler/Schedule/Problem/Problems.h"

#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::schedule;
using millrace::test::problemOf;
using testing::HasSubstr;

namespace {

/// One of everything.
ScheduleProblem full() {
  ScheduleProblem p = problemOf(2);
  p.bundles[1].lastWrite.reset();
  p.bundles[1].name = "a \"name\" of\nUTF-8: \xc3\xa9";
  p.bundles[0].holds = {{0, 0, 0, 2, 10, 3, 12}, {1, 2, 4, -3, 1, 1, 0}};
  p.precedence = {{0, 1, -7, PrecedenceKind::PartialSum}};
  p.spans = {{2, 0, 9, 0, {}, {{0, 5}, {1, -2}}}, {2, 3, 3, 0, {{1, 40}}, {}}};
  return p;
}

std::string with(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

std::string errorOf(const std::string &text) {
  const Expected<ScheduleProblem> read = readProblem(text);
  return read ? "read" : read.error();
}

TEST(ProblemText, ReadsBackWithoutLoss) {
  const ScheduleProblem p = full();
  const Expected<ScheduleProblem> read = readProblem(writeProblem(p));
  ASSERT_TRUE(read) << read.error();
  EXPECT_TRUE(*read == p);
  EXPECT_EQ(writeProblem(*read), writeProblem(p));
}

TEST(ProblemText, SaysWhatIsWrongWithIt) {
  const std::string text = writeProblem(full());
  EXPECT_THAT(errorOf("{"), HasSubstr("it is no JSON"));
  EXPECT_THAT(errorOf("[]"), HasSubstr("has no 'format'"));
  EXPECT_THAT(errorOf(with(text, "millrace-schedule-problem", "other")),
              HasSubstr("its format is 'other'"));
  EXPECT_THAT(errorOf(with(text, "\"version\":1", "\"version\":2")), HasSubstr("version 2"));
  EXPECT_THAT(errorOf(with(text, "\"kind\":\"stream\"", "\"kind\":\"river\"")),
              HasSubstr("resources 1: no kind is called 'river'"));
  EXPECT_THAT(errorOf(with(text, "[0,2,10,3,12,0,0]", "[0,2,10,3,12,0]")),
              HasSubstr("bundles 0: [0,2,10,3,12,0] is not a list of 7"));
  EXPECT_THAT(errorOf(with(text, "[0,2,10,3,12,0,0]", "[0,2,1e1,3,12,0,0]")),
              HasSubstr("is no number that can stand there"));
  EXPECT_THAT(errorOf(with(text, "[0,2,10,3,12,0,0]", "[-1,2,10,3,12,0,0]")),
              HasSubstr("-1 is no number that can stand there"));
  EXPECT_THAT(errorOf(with(text, "[0,2,10,3,12,0,0]", "[0,2,99999999999999999999,3,12,0,0]")),
              HasSubstr("is no number that can stand there"));
  EXPECT_THAT(errorOf(with(text, "\"low_part\":", "\"lowest_part\":")),
              HasSubstr("spans 0 has no 'low_part'"));
  EXPECT_THAT(errorOf(with(text, "\"count\",\"every_cycles\"", "\"every_cycles\",\"count\"")),
              HasSubstr("'hold_columns' is not [\"resource\""));
  EXPECT_THAT(
      errorOf(with(text, "\"step\":0,\"start_cycle\"", "\"x\":1,\"step\":0,\"start_cycle\"")),
      HasSubstr("bundles 0 has 'x', which is not known"));
  EXPECT_THAT(errorOf(with(text, "[0,2,10,3,12,0,0]", "[0,3,10,3,12,0,0]")),
              HasSubstr("its numbers are not those of the problem that it names"));
}

TEST(ScheduleText, ReadsBackAndNamesWhatIsMissingUnknownOrTwice) {
  const ScheduleProblem p = full();
  const auto said = [&](const std::string &text) {
    const Expected<Starts> read = readSchedule(text, p);
    return read ? "read" : read.error();
  };
  const std::string text = writeSchedule(p, {12, 34});
  const Expected<Starts> read = readSchedule(text, p);
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(*read, (Starts{12, 34}));
  EXPECT_THAT(said(with(text, ",\n[1,34]", "")), HasSubstr("it does not start bundle 1 ('a "));
  EXPECT_THAT(said(with(text, "[1,34]", "[2,34]")),
              HasSubstr("starts bundle 2; the problem has 2"));
  EXPECT_THAT(said(with(text, "[1,34]", "[0,34]")), HasSubstr("starts bundle 0 again"));
  EXPECT_THAT(said(with(text, "[1,34]", "[1,-1]")), HasSubstr("in cycle -1, before its step"));
  EXPECT_THAT(said(with(text, "[1,34]", "[1,2.5]")), HasSubstr("2.5 is no number"));
  EXPECT_THAT(said(with(text, "[1,34]", "[1]")), HasSubstr("is not a list of 2"));
  EXPECT_THAT(said(with(text, fingerprintOf(p), "0123456789abcdef")),
              HasSubstr("it solves the problem 0123456789abcdef"));
  EXPECT_THAT(said(writeProblem(p)), HasSubstr("its format is 'millrace-schedule-problem'"));
}

} // namespace
