// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Mutants.h"

#include "compiler/Forms/Builders.h"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::test {

constexpr unsigned kSecondsPerMutant = 20;

Judge::Judge(const Image &image, const forms::KernelGraph &graph, const Machine &machine)
    : graph(graph), machine(machine) {
  for (unsigned seed : {7u, 8u, 9u}) {
    inputs.push_back(forms::randomInputs(graph, seed));
    right.push_back(simulateImage(image, graph, machine, inputs.back()));
    const GridRun &run = right.back();
    error = !run.error.empty()        ? run.error
            : run.simulated.violation ? run.simulated.violation->describe()
                                      : error;
  }
}

Verdict Judge::inChild(const Image &mutant) const {
  for (size_t k = 0; k < inputs.size(); ++k) {
    GridRun run = simulateImage(mutant, graph, machine, inputs[k]);
    if (!run.error.empty())
      return {Verdict::Kind::Malformed};
    if (run.simulated.violation)
      return {Verdict::Kind::Rejected, unsigned(run.simulated.violation->invariant)};
    if (run.outputs != right[k].outputs ||
        run.simulated.measuredCycles != right[k].simulated.measuredCycles)
      return {Verdict::Kind::Different};
  }
  return {Verdict::Kind::Harmless};
}

Verdict Judge::judge(const Image &mutant) const {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsPerMutant);
    const Verdict v = inChild(mutant);
    _exit(int(v.kind) * 16 + int(v.invariant));
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child)
    return {Verdict::Kind::Crashed};
  if (WIFSIGNALED(status))
    return {WTERMSIG(status) == SIGALRM ? Verdict::Kind::Hung : Verdict::Kind::Crashed};
  return {Verdict::Kind(WEXITSTATUS(status) / 16), unsigned(WEXITSTATUS(status) % 16)};
}

void Tally::add(const Mutant &mutant, const Verdict &v, const std::string &image) {
  ++mutants;
  malformed += v.kind == Verdict::Kind::Malformed;
  different += v.kind == Verdict::Kind::Different;
  hung += v.kind == Verdict::Kind::Hung;
  crashed += v.kind == Verdict::Kind::Crashed;
  if (v.kind == Verdict::Kind::Rejected)
    ++rejected[v.invariant];
  if (!v.killed())
    survivors.push_back(std::string(v.kind == Verdict::Kind::Harmless ? "harmless"
                                    : v.kind == Verdict::Kind::Hung   ? "hung"
                                                                      : "crashed") +
                        ": " + mutant.kind + " of " + image + ", " + mutant.where);
}

unsigned Tally::killed() const { return mutants - unsigned(survivors.size()); }

std::string Tally::table() const {
  std::string text = std::to_string(mutants) + " mutants, " + std::to_string(killed()) + " killed:";
  for (unsigned s = 1; s < 12; ++s)
    text += " S" + std::to_string(s) + " " + std::to_string(rejected[s]);
  text += ", malformed " + std::to_string(malformed) + ", different " + std::to_string(different) +
          ", hung " + std::to_string(hung) + ", crashed " + std::to_string(crashed) + "\n";
  for (const std::string &survivor : survivors)
    text += survivor + "\n";
  return text;
}

std::string Tally::json() const {
  std::string text = "{\"mutants\": " + std::to_string(mutants) +
                     ", \"killed\": " + std::to_string(killed()) + ", \"rejected\": {";
  for (unsigned s = 1; s < 12; ++s)
    text += (s > 1 ? ", \"S" : "\"S") + std::to_string(s) + "\": " + std::to_string(rejected[s]);
  text += "}, \"malformed\": " + std::to_string(malformed) +
          ", \"different\": " + std::to_string(different) + ", \"hung\": " + std::to_string(hung) +
          ", \"crashed\": " + std::to_string(crashed) + ", \"survivors\": [";
  for (size_t k = 0; k < survivors.size(); ++k)
    text += (k ? ", \"" : "\"") + survivors[k] + "\"";
  return text + "]}\n";
}

std::vector<Subject> mutationSubjects() {
  using namespace forms;
  return {
      {"tsp-small", buildMatmul({.m = 20, .k = 100, .n = 70})},
      {"tsp-small",
       buildConv({.channels = 40, .height = 9, .width = 9, .filters = 50, .residual = true})},
      {"tsp-small",
       buildConv(
           {.channels = 40, .height = 9, .width = 9, .filters = 64, .type = ElementType::Int8})},
      {"tsp-small", buildMaxPool(64, 12, 12, 2, 2, 0, ElementType::Fp16)},
      {"tsp-small", buildLayerNorm(20, 100)},
      {"tsp-small", buildAttention(20, 32, 16, true)},
      {"tsp-v1", buildPerceptron(30, 64, 4, ElementType::Fp16)},
      {"mesh-4x4", buildAttention(20, 32, 16, true)},
  };
}

} // namespace millrace::test
