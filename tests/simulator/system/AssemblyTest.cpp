// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs as text: the example of docs/spec/assembly.md, and what becomes of it when a word
// changes.
#include "Program.h"

#include "arch/program/Assembler.h"

#include <fstream>

namespace millrace::sim::test {
namespace {

/// The first fenced block of the document.
std::string example() {
  std::ifstream file("docs/spec/assembly.md");
  std::string text, line;
  bool inside = false;
  while (std::getline(file, line)) {
    if (line == "```" && std::exchange(inside, !inside))
      break;
    if (inside && line != "```")
      text += line + "\n";
  }
  return text;
}

std::string with(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

struct Outcome {
  SimulationResult result;
  std::vector<std::vector<uint8_t>> rows; ///< 100 to 109 of mem.w.4
};

/// Simulates with every annotation required.
Outcome run(const std::string &text) {
  const Machine machine = machineNamed("tsp-small");
  Outcome outcome;
  Expected<Image> image = assemble(text, "example.s", &machine);
  EXPECT_TRUE(image) << image.error();
  if (!image)
    return outcome;
  SimulationOptions options;
  options.readOutputs = [&](RowAccess &memory) -> Status {
    for (uint32_t r = 0; r < 10; ++r) {
      outcome.rows.emplace_back(machine.lanes());
      memory.read(0, Hemisphere::West, 4, 100 + r, outcome.rows.back());
    }
    return Success{};
  };
  Expected<SimulationResult> result = simulate(*image, machine, options);
  EXPECT_TRUE(result) << result.error();
  if (result)
    outcome.result = *result;
  return outcome;
}

TEST(Assembled, the_example_of_the_document_adds_one_to_ten_rows_in_the_cycles_it_states) {
  const Outcome outcome = run(example());
  ASSERT_FALSE(outcome.result.violation) << verdict(outcome.result);
  ASSERT_EQ(outcome.rows.size(), 10u);
  const size_t lanes = outcome.rows[0].size();
  for (size_t r = 0; r < 10; ++r)
    for (size_t lane = 0; lane < lanes; ++lane)
      ASSERT_EQ(outcome.rows[r][lane], uint8_t(r * lanes + lane + 1)) << "row " << r;
}

TEST(Assembled, one_word_changed_is_the_violation_that_it_should_be) {
  const std::string good = example();
  const auto invariant = [](const std::string &text) {
    const Outcome outcome = run(text);
    return outcome.result.violation ? int(outcome.result.violation->invariant) : 0;
  };
  EXPECT_EQ(invariant(with(good, "@11 mem.w.4", "@12 mem.w.4")), 4) << "the vector has gone by";
  EXPECT_EQ(invariant(with(good, "a=w.out.7", "a=w.out.8")), 4) << "nothing is on that stream";
  EXPECT_EQ(invariant(with(good, "from a: load", "from a: load[1]")), 4)
      << "another element was meant";
  EXPECT_EQ(invariant(with(good, "rows=100..109", "rows=100..108")), 10)
      << "a row beyond the tensor";
  EXPECT_EQ(invariant(with(good, "cycles=60", "cycles=61")), 11) << "the count is wrong";
}

} // namespace
} // namespace millrace::sim::test
