// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs on random machines: is each legal, as long as predicted and bit for bit what the
// evaluation gives, or refused with an error that is true? Are failures reduced, and do those of
// the past stay repaired?
#include "tests/contract/Campaign.h"
#include "tests/contract/Reduce.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace millrace;
using namespace millrace::test;

namespace {

/// A campaign takes its length from the environment.
unsigned numberOf(const char *variable, unsigned otherwise) {
  const char *text = std::getenv(variable);
  return text ? unsigned(std::atoi(text)) : otherwise;
}

TEST(RandomCampaign, AgreesOrSaysTrulyWhatTheMachineLacks) {
  CampaignOptions options;
  options.machines = numberOf("MILLRACE_RANDOM_MACHINES", 30);
  options.graphs = numberOf("MILLRACE_RANDOM_GRAPHS", 3);
  options.first = numberOf("MILLRACE_RANDOM_FIRST", 1);
  options.mostSteps = numberOf("MILLRACE_RANDOM_STEPS", 5000);
  const CampaignTally tally =
      runCampaign(options, [](const std::string &text) { std::printf("%s\n", text.c_str()); });
  std::printf("%s", tally.text().c_str());
  EXPECT_EQ(tally.failures, 0u);
  EXPECT_LE(100 * tally.refused, 15 * tally.cases);
  EXPECT_GE(2 * tally.stepped, tally.cases) << "few programs were held to the slow simulator";
}

Case smallCase() {
  Case c;
  c.machine = {"memory.banks=3", "streams=48", "latency.hop=2", "vxm.alus=20"};
  for (const char *line : {"0 input lanes=40 rows=30 type=fp16", "1 linear 0 lanes=17 relu=1",
                           "2 map 1 o0=3 o1=5", "3 input lanes=17 rows=30 type=fp16",
                           "4 zip 2 3 combine=2", "5 affine 4 weights=2", "out 2", "simplify"})
    EXPECT_TRUE(parseLine(line, c.recipe)) << line;
  return c;
}

TEST(Cases, ReadBackAsTheyWerePrinted) {
  for (const Case &c : {smallCase(), randomCase(5, 6), randomCase(7, 8)}) {
    const Expected<Case> read = parseCase("# a remark\n" + print(c));
    ASSERT_TRUE(read) << read.error();
    EXPECT_TRUE(*read == c) << print(*read);
  }
  EXPECT_FALSE(parseCase("0 input\n2 map 0\n")) << "a step is missing";
  EXPECT_FALSE(parseCase("zero input\n"));
}

/// FNV-1a.
uint64_t hashOf(const auto &bytes, uint64_t hash = 0xcbf29ce484222325ull) {
  for (const auto byte : bytes)
    hash = (hash ^ uint8_t(byte)) * 0x100000001b3ull;
  return hash;
}

/// That of release and debug builds; it changes only with the generators.
constexpr uint64_t kHashOfCases = 3132168516844419660u;

TEST(Cases, AreTheSameForASeedOnEveryRunAndBuild) {
  uint64_t hash = hashOf(std::string());
  for (unsigned seed = 1; seed <= 200; ++seed)
    hash = hashOf(print(randomCase(seed, 1000 * seed)), hash);
  EXPECT_EQ(hash, kHashOfCases) << "if a generator was meant to change, write this number there";
}

TEST(Cases, CompileToTheSameBytesEachTime) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    const Case c = randomCase(seed, seed);
    const auto first = imageOf(c), second = imageOf(c);
    ASSERT_EQ(bool(first), bool(second)) << "seed " << seed;
    if (first) {
      EXPECT_EQ(hashOf(*first), hashOf(*second)) << "seed " << seed;
    }
  }
}

TEST(Reduction, LeavesTheStepTheSizeAndTheParameterThatMatter) {
  const Shows shows = [](const Case &c) {
    const Expected<std::vector<Value>> values = valuesOf(c.recipe);
    if (!values || !std::count(c.machine.begin(), c.machine.end(), "latency.hop=2"))
      return false;
    for (size_t s = 0; s < c.recipe.steps.size(); ++s)
      if (c.recipe.steps[s].operation == "affine" && (*values)[s].lanes() >= 7)
        return true;
    return false;
  };
  const Case small = reduce(smallCase(), shows);
  EXPECT_EQ(print(small), "set latency.hop=2\n0 input lanes=7 type=int8\n1 affine 0\n");
}

TEST(Reduction, KeepsTheReasonOfARefusal) {
  Case c = smallCase();
  c.machine.push_back("latency.alu_ops.pass=12"); // what waits in the VXM waits for four times as long
  ASSERT_TRUE(parseLine("6 layernorm 5", c.recipe));
  const TrialOptions options;
  const Outcome outcome = tryCaseApart(c, options);
  ASSERT_EQ(outcome.verdict, Verdict::Refused) << describe(outcome);
  const Case small = reduce(c, sameAs(outcome, options), 30);
  EXPECT_LT(small.recipe.steps.size(), 5u) << print(small);
  EXPECT_EQ(tryCaseApart(small, options).kind, outcome.kind);
}

/// Files of tests/contract/reduced; the first line is "# VERDICT: why".
class Reduced : public testing::TestWithParam<std::string> {};

TEST_P(Reduced, ComesToTheVerdictThatItsFirstLineSays) {
  std::ifstream file("tests/contract/reduced/" + GetParam() + ".txt");
  std::stringstream text;
  text << file.rdbuf();
  const Expected<Case> c = parseCase(text.str());
  ASSERT_TRUE(c) << c.error();
  const std::string verdict = text.str().substr(2, text.str().find(':') - 2);
  const Outcome outcome = tryCaseApart(*c, {1, 5000});
  EXPECT_TRUE(describe(outcome).starts_with(verdict)) << describe(outcome);
}

std::vector<std::string> reducedNames() {
  std::vector<std::string> names;
  std::error_code none; // elsewhere than in the source root: no cases, which fails
  for (const auto &entry : std::filesystem::directory_iterator("tests/contract/reduced", none))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cases, Reduced, testing::ValuesIn(reducedNames()), [](const auto &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

} // namespace
