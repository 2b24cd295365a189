// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// MutantCampaign EACH SEED [NAME=IMAGE=EACH]...: EACH mutants of every kind of the built-in images
// (0: none of those) and of image files, with its own number each. JSON on standard output, each
// survivor with its reason; fails if one has none, or if the slow simulator, which steps every
// short mutant too, says otherwise of one.
#include "tests/contract/Subjects.h"
#include "tests/contract/Tally.h"

#include "arch/program/ImageFile.h"

#include <cstdio>
#include <cstdlib>

using namespace millrace;

namespace {

bool damage(test::Tally &tally, const test::Program &program, unsigned each, unsigned seed) {
  test::Judge judge(program.image, program.machine);
  if (!judge.error.empty()) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), judge.error.c_str());
    return false;
  }
  test::forEachMutant(program.image, program.machine, each, seed, [&](const test::Mutant &mutant) {
    tally.add(program.name, mutant, judge.judge(mutant.image),
              [&] { return test::explain(program.image, program.machine, mutant, judge); });
    tally.addTruth(program.name, mutant, judge.inTruth(mutant.image));
  });
  std::fprintf(stderr,
               "%s: %u mutants so far, %zu survivors, %u unexplained, %u stepped, %zu of them "
               "otherwise\n",
               program.name.c_str(), tally.total.mutants, tally.survivors.size(), tally.unexplained,
               tally.stepped, tally.disagreements.size());
  return true;
}

/// NAME=IMAGE=EACH
bool damageFile(test::Tally &tally, const std::string &text, unsigned seed) {
  const size_t first = text.find('='), last = text.rfind('=');
  if (first == last || first == text.npos) {
    std::fprintf(stderr, "'%s' is not NAME=IMAGE=EACH\n", text.c_str());
    return false;
  }
  Expected<Image> image = readImage(text.substr(first + 1, last - first - 1));
  Expected<Machine> machine =
      image ? test::machineOf(*image) : Expected<Machine>(Error{image.error()});
  if (!machine) {
    std::fprintf(stderr, "%s: %s\n", text.c_str(), machine.error().c_str());
    return false;
  }
  return damage(tally, {text.substr(0, first), *machine, std::move(*image)},
                unsigned(std::atoi(text.c_str() + last + 1)), seed);
}

} // namespace

int main(int argc, char **argv) {
  const unsigned each = argc > 1 ? unsigned(std::atoi(argv[1])) : 10;
  const unsigned seed = argc > 2 ? unsigned(std::atoi(argv[2])) : 1;
  test::Tally tally;
  for (const test::Subject &subject : test::mutationSubjects()) {
    if (!each)
      break;
    Expected<test::Program> program = test::compiled(subject);
    if (!program) {
      std::fprintf(stderr, "%s\n", program.error().c_str());
      return 1;
    }
    if (!damage(tally, *program, each, seed))
      return 1;
  }
  for (int k = 3; k < argc; ++k)
    if (!damageFile(tally, argv[k], seed))
      return 1;
  std::printf("%s", tally.json(each, seed).c_str());
  return tally.total.hung || tally.total.crashed || tally.unexplained ||
                 !tally.disagreements.empty()
             ? 1
             : 0;
}
