// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Campaign.h"

#include <algorithm>
#include <cstdio>
#include <set>

namespace millrace::test {

std::string describe(const Outcome &o) {
  constexpr const char *names[] = {"agrees", "refused", "FAILED", "invalid"};
  std::string text = names[unsigned(o.verdict)];
  if (!o.kind.empty())
    text += " (" + o.kind + "): " + o.text;
  else
    text += ", " + std::to_string(o.cycles) + " cycles" +
            (o.stepped ? ", as in the slow simulator" : "");
  return text;
}

std::string CampaignTally::text() const {
  char line[200];
  std::snprintf(line, sizeof line,
                "%u cases: %u agree, %u refused (%.1f %%), %u failures; %u stepped in the slow "
                "simulator; %llu cycles; largest distance from the graph before rewriting %.2g\n",
                cases, agreed, refused, 100.0 * refused / std::max(1u, cases), failures, stepped,
                static_cast<unsigned long long>(cycles), distance);
  std::string result = line;
  auto list = [&](const char *title, const std::map<std::string, unsigned> &counts) {
    for (const auto &[what, count] : counts)
      result += std::string(title) + ": " + std::to_string(count) + " x " + what + "\n";
  };
  list("failure", failureKinds);
  list("refused", refusals);
  list("cases with", operations);
  return result;
}

CampaignTally runCampaign(const CampaignOptions &options,
                          const std::function<void(const std::string &)> &say) {
  CampaignTally tally;
  for (unsigned m = options.first; m < options.first + options.machines; ++m)
    for (unsigned g = 0; g < options.graphs; ++g) {
      const unsigned graphSeed = m * 1000 + g;
      const Case c = randomCase(m, graphSeed);
      const Outcome o = tryCaseApart(c, {graphSeed, options.mostSteps});
      ++tally.cases;
      std::set<std::string> operations;
      for (const Step &step : c.recipe.steps)
        operations.insert(step.operation);
      for (const std::string &operation : operations)
        ++tally.operations[operation];
      if (o.verdict == Verdict::Agrees) {
        ++tally.agreed, tally.stepped += o.stepped, tally.cycles += o.cycles;
        tally.distance = std::max(tally.distance, o.distance);
        continue;
      }
      const bool refused = o.verdict == Verdict::Refused;
      ++(refused ? tally.refused : tally.failures);
      ++(refused ? tally.refusals : tally.failureKinds)[o.kind];
      say("machine " + std::to_string(m) + " graph " + std::to_string(graphSeed) + ": " +
          describe(o));
    }
  return tally;
}

} // namespace millrace::test
