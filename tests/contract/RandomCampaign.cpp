// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// RandomCampaign ranges                    the tables that cases are drawn from
// RandomCampaign case MACHINE GRAPH        the case of these seeds, as text
// RandomCampaign try FILE                  what becomes of a case
// RandomCampaign run MACHINES GRAPHS [FIRST [STEPS]]
//     the tables, then GRAPHS cases on each of MACHINES machines, seeds from FIRST on; runs of at
//     most STEPS cycles times PEs are stepped in the slow simulator, too
#include "tests/contract/Campaign.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace millrace;
using namespace millrace::test;

namespace {

int tryFile(const char *path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const Expected<Case> c = parseCase(text.str());
  if (!file || !c) {
    std::fprintf(stderr, "%s: %s\n", path, file ? c.error().c_str() : "cannot be read");
    return 2;
  }
  const Outcome o = tryCaseApart(*c, {1, kMostSteps});
  std::printf("%s\n", describe(o).c_str());
  return o.verdict == Verdict::Failed;
}

} // namespace

int main(int argc, char **argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  auto number = [&](int k, unsigned otherwise) {
    return k < argc ? unsigned(std::strtoul(argv[k], nullptr, 10)) : otherwise;
  };
  if (command == "ranges")
    std::printf("%s", rangesText().c_str());
  else if (command == "case" && argc == 4)
    std::printf("%s", print(randomCase(number(2, 1), number(3, 1))).c_str());
  else if (command == "try" && argc == 3)
    return tryFile(argv[2]);
  else if (command == "run" && argc >= 4) {
    std::printf("%s\n", rangesText().c_str());
    const CampaignTally tally =
        runCampaign({number(2, 1), number(3, 1), number(4, 1), number(5, kMostSteps)},
                    [](const std::string &s) {
                      std::printf("%s\n", s.c_str());
                      std::fflush(stdout);
                    });
    std::printf("%s", tally.text().c_str());
    return tally.failures != 0;
  } else {
    std::fprintf(stderr, "usage: RandomCampaign ranges | case MACHINE GRAPH | try FILE | "
                         "run MACHINES GRAPHS [FIRST [STEPS]]\n");
    return 2;
  }
  return 0;
}
