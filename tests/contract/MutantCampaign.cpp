// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// MutantCampaign [EACH [SEED]]: EACH mutants of every kind and image; JSON on standard output.
#include "tests/contract/Mutants.h"

#include "arch/spec/MachineFile.h"

#include <cstdlib>

using namespace millrace;

int main(int argc, char **argv) {
  const unsigned each = argc > 1 ? unsigned(std::atoi(argv[1])) : 10;
  const unsigned seed = argc > 2 ? unsigned(std::atoi(argv[2])) : 1;
  test::Tally tally;
  for (const test::Subject &subject : test::mutationSubjects()) {
    const std::string name = subject.graph.name + " on " + subject.machine;
    Expected<Machine> machine = loadMachine(subject.machine);
    grid::CompileReport report;
    Expected<Image> image = machine ? grid::compile(subject.graph, *machine, {}, report)
                                    : Expected<Image>(Error{machine.error()});
    if (!image) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), image.error().c_str());
      return 1;
    }
    test::Judge judge(*image, subject.graph, *machine);
    if (!judge.error.empty()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), judge.error.c_str());
      return 1;
    }
    test::forEachMutant(*image, *machine, each, seed, [&](const test::Mutant &mutant) {
      tally.add(mutant, judge.judge(mutant.image), name);
    });
    std::fprintf(stderr, "%s: %u mutants so far\n", name.c_str(), tally.mutants);
  }
  std::printf("%s", tally.json().c_str());
  return tally.hung || tally.crashed ? 1 : 0;
}
