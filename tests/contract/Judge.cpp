// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Judge.h"

#include "arch/isa/semantics/Convert.h"
#include "tests/contract/GridRun.h"
#include "tests/simulator/system/Same.h"

#include <csignal>
#include <cstring>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::test {

namespace {
constexpr unsigned kSecondsPerMutant = 60;
constexpr uint64_t kMostSteps = 20000; ///< cycles that are stepped

/// One element in its grid type, raw bits. Later seeds draw wider and narrower numbers.
uint32_t randomElement(ElementType type, unsigned seed, std::mt19937 &random) {
  const float wide[] = {1, 1, 1, 0.01f, 30, 0.3f, 3};
  const float x = std::normal_distribution<float>()(random) * wide[seed < 3 ? 0 : seed % 7];
  switch (type) {
  case ElementType::Fp16:
    return semantics::fp32ToFp16(x);
  case ElementType::Bf16:
    return semantics::fp32ToBf16(x);
  case ElementType::Fp32: {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }
  case ElementType::Int32: // token ids and masks: what every model takes
    return uint32_t(random() % 2);
  default:
    return uint32_t(random() & 0xff);
  }
}

Status writeInput(const Binding &b, unsigned seed, RowAccess &memory) {
  size_t count = 1;
  for (int64_t d : b.shape)
    count *= size_t(d);
  std::mt19937 random(seed * 7919u + unsigned(count));
  std::vector<uint32_t> elements(count);
  for (uint32_t &e : elements)
    e = randomElement(b.gridType, seed, random);
  for (const Placement &p : b.placements)
    forEachElement(b, p, [&](int64_t element, uint32_t row, size_t lane) {
      const uint32_t bits = element < 0 ? p.fill : elements[size_t(element)];
      for (size_t k = 0; k < p.slices.size(); ++k)
        memory.write(p.pe, p.hemisphere, p.slices[k], row)[lane] =
            uint8_t(bits >> 8 * (p.firstByte + k));
    });
  return Success{};
}

void readOutput(const Binding &b, unsigned lanes, RowAccess &memory, std::vector<uint8_t> &bytes) {
  std::vector<uint8_t> row(lanes);
  for (const Placement &p : b.placements)
    for (uint16_t slice : p.slices) {
      uint32_t held = UINT32_MAX;
      forEachElement(b, p, [&](int64_t element, uint32_t r, size_t lane) {
        if (element < 0)
          return;
        if (r != held)
          memory.read(p.pe, p.hemisphere, slice, held = r, row);
        bytes.push_back(row[lane]);
      });
    }
}
} // namespace

sim::SimulationOptions Judge::optionsFor(const Image &image, unsigned seed, bool values) const {
  sim::SimulationOptions options;
  options.values = values;
  options.writeInputs = [&image, seed](RowAccess &memory) -> Status {
    for (const Binding &b : image.bindings)
      if (b.role == Binding::Role::Input)
        if (Status s = writeInput(b, seed, memory); !s)
          return s;
    return Success{};
  };
  return options;
}

Judge::Run Judge::run(const Image &image, unsigned seed, bool values,
                      sim::Annotations annotations) const {
  Run run;
  sim::SimulationOptions options = optionsFor(image, seed, values);
  options.annotations = annotations;
  options.readOutputs = [&](RowAccess &memory) -> Status {
    for (const Binding &b : image.bindings)
      if (b.role == Binding::Role::Output)
        readOutput(b, machine.lanes(), memory, run.outputs);
    return Success{};
  };
  Expected<sim::SimulationResult> result = sim::simulate(image, machine, options);
  if (!result) {
    run.error = result.error();
    return run;
  }
  run.cycles = result->measuredCycles;
  if (result->violation) {
    run.invariant = unsigned(result->violation->invariant);
    run.error = result->violation->describe();
  }
  return run;
}

Judge::Judge(const Image &image, const Machine &machine) : image(image), machine(machine) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    right.push_back(run(image, seed, true));
    error = right.back().error.empty() ? error : right.back().error;
    if (right.back().outputs.empty() && error.empty())
      error = "the image has no outputs";
  }
}

Verdict Judge::inChild(const Image &mutant) const {
  for (unsigned pass = 0; pass <= right.size(); ++pass) {
    const unsigned seed = pass ? pass - 1 : 0; // cycles and violations first: no data is needed
    const Run ran = run(mutant, seed, pass > 0);
    if (ran.invariant)
      return {Verdict::Kind::Rejected, ran.invariant};
    if (!ran.error.empty())
      return {Verdict::Kind::Malformed};
    if (ran.cycles != right[seed].cycles || (pass && ran.outputs != right[seed].outputs))
      return {Verdict::Kind::Different};
  }
  return {Verdict::Kind::Harmless};
}

namespace {
/// Runs in a child process; its exit status, or a signal's number + 256.
template <class F> int inProcess(F f) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsPerMutant);
    _exit(f());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child)
    return 256;
  return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}
} // namespace

Verdict Judge::judge(const Image &mutant) const {
  const int status = inProcess([&] {
    const Verdict v = inChild(mutant);
    return int(v.kind) * 16 + int(v.invariant);
  });
  if (status >= 256)
    return {status == 256 + SIGALRM ? Verdict::Kind::Hung : Verdict::Kind::Crashed};
  return {Verdict::Kind(status / 16), unsigned(status % 16)};
}

Truth Judge::inTruth(const Image &mutant) const {
  const int status = inProcess([&] {
    const auto cycles = sim::simulate(mutant, machine, optionsFor(mutant, 0, false));
    if (!cycles || cycles->measuredCycles > kMostSteps ||
        (cycles->violation && cycles->violation->cycle > Cycle(kMostSteps)))
      return int(Truth::NotCompared);
    for (bool values : {false, true})
      if (!sim::test::differenceOn(mutant, machine, optionsFor(mutant, 0, values)).empty())
        return int(Truth::Differs);
    return int(Truth::Agrees);
  });
  if (status == 256 + SIGALRM)
    return Truth::NotCompared;
  return status >= 256 ? Truth::Differs : Truth(status);
}

bool Judge::showsOnMoreInputs(const Image &mutant, unsigned count) const {
  return inProcess([&] {
           for (unsigned seed = 3; seed < 3 + count; ++seed)
             if (run(mutant, seed, true).outputs != run(image, seed, true).outputs)
               return 1;
           return 0;
         }) == 1;
}

bool Judge::givesTheSame(const Image &other) const {
  return inProcess([&] {
           for (unsigned seed = 0; seed < right.size(); ++seed) {
             const Run ran = run(other, seed, true, sim::Annotations::Ignored);
             if (!ran.error.empty() || ran.outputs != right[seed].outputs)
               return 1;
           }
           return 0;
         }) == 0;
}

} // namespace millrace::test
