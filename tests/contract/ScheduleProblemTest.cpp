// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is a set of starts a solution of an image's schedule problem exactly if the image with these
// starts passes verifyImage and the simulator, gives the same outputs and takes the cycles that the
// problem says? Of random graphs on random machines, as compiled, improved and damaged.
#include "arch/program/ImageCheck.h"
#include "compiler/Forms/Builders.h"
#include "compiler/MemoryPlan/Verify.h"
#include "compiler/Schedule/Problem/Extract.h"
#include "compiler/Schedule/Problem/Text.h"
#include "tests/contract/Case.h"
#include "tests/contract/GridRun.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <random>

using namespace millrace;
using namespace millrace::test;
using schedule::Bundle;
using schedule::Hold;
using schedule::ScheduleProblem;
using schedule::Starts;

namespace {

unsigned numberOf(const char *variable, unsigned otherwise) {
  const char *text = std::getenv(variable);
  return text ? unsigned(std::atoi(text)) : otherwise;
}

/// A compiled case with its problem, and what simulations of it gave.
struct Subject {
  unsigned seed = 0;
  CompiledCase compiled;
  ScheduleProblem problem;
  std::map<unsigned, forms::TensorBytes> inputs;
  std::map<std::string, std::vector<uint8_t>> outputs;

  /// Empty if the image with these starts is legal, as long as the problem says and gives the same
  /// outputs; else what is wrong.
  std::string judge(const Starts &starts) const {
    Image image = compiled.image;
    schedule::reschedule(image, compiled.machine, problem, starts);
    return judge(image, starts);
  }
  std::string judge(const Image &image, const Starts &starts) const {
    if (Status s = verifyImage(image, compiled.machine); !s)
      return "verifyImage: " + s.error();
    if (Status s = memory::verify(compiled.machine, image.tensors, image.strings); !s)
      return "memory plan: " + s.error();
    const GridRun run = simulateImage(image, compiled.graph, compiled.machine, inputs);
    if (!run.error.empty())
      return run.error;
    if (run.simulated.violation)
      return run.simulated.violation->describe();
    if (run.simulated.measuredCycles != uint64_t(schedule::cyclesOf(problem, starts)))
      return "cycles: " + std::to_string(run.simulated.measuredCycles) + ", the problem says " +
             std::to_string(schedule::cyclesOf(problem, starts));
    if (run.outputs != outputs)
      return "other outputs";
    return {};
  }
};

/// The random case of a seed, if the machine takes it.
std::optional<Subject> subjectOf(unsigned seed) {
  Expected<CompiledCase> compiled = compileCase(randomCase(seed, seed));
  if (!compiled)
    return std::nullopt;
  Expected<ScheduleProblem> problem = schedule::problemOf(compiled->image, compiled->machine);
  EXPECT_TRUE(problem) << "seed " << seed << ": " << problem.error();
  if (!problem)
    return std::nullopt;
  Subject subject{seed, std::move(*compiled), std::move(*problem), {}, {}};
  subject.inputs = forms::randomInputs(subject.compiled.graph, seed);
  const GridRun run = simulateImage(subject.compiled.image, subject.compiled.graph,
                                    subject.compiled.machine, subject.inputs);
  EXPECT_TRUE(run.error.empty() && !run.simulated.violation) << "seed " << seed;
  subject.outputs = run.outputs;
  return subject;
}

/// Calls f with the subjects of so many seeds.
void forEachSubject(unsigned count, const std::function<void(const Subject &)> &f) {
  unsigned seen = 0;
  const unsigned first = numberOf("MILLRACE_RANDOM_FIRST", 1);
  for (unsigned seed = first; seed < first + count; ++seed)
    if (const auto subject = subjectOf(seed)) {
      ++seen;
      f(*subject);
    }
  EXPECT_GE(2 * seen, count) << "few cases were compiled";
}

TEST(ScheduleProblem, TheCompilersScheduleSolvesItAndTakesTheCyclesThatItSays) {
  forEachSubject(numberOf("MILLRACE_RANDOM_MACHINES", 40), [](const Subject &s) {
    const Starts starts = schedule::startsOf(s.problem);
    const Status whole = schedule::check(s.problem), verified = schedule::verify(s.problem, starts);
    EXPECT_TRUE(whole) << "seed " << s.seed << ": " << whole.error();
    EXPECT_TRUE(verified) << "seed " << s.seed << ": " << verified.error();
    EXPECT_EQ(s.judge(starts), "") << "seed " << s.seed;
    Cycle fewest = 0;
    for (const schedule::GridStep &step : s.problem.steps)
      fewest += step.fewest;
    EXPECT_LE(fewest, schedule::cyclesOf(s.problem, starts)) << "seed " << s.seed;
  });
}

/// Else agreement says nothing about a kind. Rows with several contents, and SXM units, no compiled
/// program has.
TEST(ScheduleProblem, RandomProgramsMeetOnEveryKindOfResource) {
  std::map<std::string, unsigned> kinds, waits;
  forEachSubject(numberOf("MILLRACE_RANDOM_MACHINES", 40), [&](const Subject &s) {
    for (const Bundle &b : s.problem.bundles)
      for (const Hold &h : b.holds)
        ++kinds[std::string(nameOf(s.problem.resources[h.resource].kind))];
    for (const schedule::Span &span : s.problem.spans)
      ++kinds[std::string(nameOf(s.problem.resources[span.resource].kind))];
    for (const schedule::Precedence &p : s.problem.precedence)
      ++waits[std::string(nameOf(p.kind))];
  });
  for (const char *kind :
       {"queue", "read_port", "write_port", "banks", "mxm_port", "alu", "link_port", "alu_result",
        "link", "stream", "weights", "accumulators", "latch", "rows"})
    EXPECT_GT(kinds[kind], 100u) << kind;
  for (const char *kind : {"data", "install", "partial_sum", "latch"})
    EXPECT_GT(waits[kind], 100u) << kind;
}

TEST(ScheduleProblem, ReadsBackAsItWasWritten) {
  forEachSubject(20, [](const Subject &s) {
    const std::string text = schedule::writeProblem(s.problem);
    const Expected<ScheduleProblem> read = schedule::readProblem(text);
    ASSERT_TRUE(read) << read.error();
    EXPECT_TRUE(*read == s.problem) << "seed " << s.seed;
    EXPECT_EQ(schedule::writeProblem(*read), text);
    const Starts starts = schedule::startsOf(s.problem);
    const Expected<Starts> again =
        schedule::readSchedule(schedule::writeSchedule(s.problem, starts), *read);
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(*again, starts);
  });
}

TEST(ScheduleProblem, ImprovedStartsAreAScheduleAndNoLonger) {
  unsigned shorter = 0;
  forEachSubject(numberOf("MILLRACE_RANDOM_MACHINES", 40), [&](const Subject &s) {
    const Starts before = schedule::startsOf(s.problem),
                 starts = schedule::improve(s.problem, before, {.rounds = 3});
    const Status verified = schedule::verify(s.problem, starts);
    EXPECT_TRUE(verified) << "seed " << s.seed << ": " << verified.error();
    EXPECT_EQ(s.judge(starts), "") << "seed " << s.seed;
    EXPECT_LE(schedule::cyclesOf(s.problem, starts), schedule::cyclesOf(s.problem, before));
    EXPECT_EQ(starts, schedule::improve(s.problem, before, {.rounds = 3})) << "not the same again";
    shorter += schedule::cyclesOf(s.problem, starts) < schedule::cyclesOf(s.problem, before);
  });
  EXPECT_GT(shorter, 5u) << "the solver moves nothing";
}

/// Damages starts; returns how.
class Damager {
public:
  Damager(const Subject &subject, unsigned seed) : problem(subject.problem), random(seed) {}

  std::string damage(Starts &starts) {
    switch (below(5)) {
    case 0:
      return move(starts, below(2) ? 1 : -1);
    case 1:
      return move(starts, Cycle(below(400)) - 200);
    case 2:
      return swap(starts);
    case 3:
      return delayAll(starts);
    default:
      return collide(starts);
    }
  }

private:
  const ScheduleProblem &problem;
  std::mt19937 random;
  size_t below(size_t count) { return random() % count; }
  uint32_t bundle() { return uint32_t(below(problem.bundles.size())); }

  std::string move(Starts &starts, Cycle by) {
    const uint32_t b = bundle();
    starts[b] = std::max<Cycle>(0, starts[b] + by);
    return "bundle " + std::to_string(b) + " to cycle " + std::to_string(starts[b]);
  }
  /// Two take each other's place.
  std::string swap(Starts &starts) {
    const uint32_t x = bundle(), y = bundle();
    std::swap(starts[x], starts[y]);
    return "bundles " + std::to_string(x) + " and " + std::to_string(y) + " swapped";
  }
  /// All behind a cycle later, which may tear nothing apart.
  std::string delayAll(Starts &starts) {
    const Cycle from = starts[bundle()], by = Cycle(1 + below(50));
    for (Cycle &start : starts)
      if (start >= from)
        start += by;
    return "all from cycle " + std::to_string(from) + " on later by " + std::to_string(by);
  }
  /// A bundle moved to where it holds what another holds.
  std::string collide(Starts &starts) {
    for (unsigned attempt = 0; attempt < 200; ++attempt) {
      const uint32_t x = bundle(), y = bundle();
      if (x == y || problem.bundles[x].holds.empty() || problem.bundles[y].holds.empty())
        continue;
      const Hold &a = problem.bundles[x].holds[below(problem.bundles[x].holds.size())],
                 &b = problem.bundles[y].holds[below(problem.bundles[y].holds.size())];
      if (a.resource != b.resource || starts[y] + b.at - a.at < 0)
        continue;
      starts[x] = starts[y] + b.at - a.at;
      return "bundle " + std::to_string(x) + " meets bundle " + std::to_string(y) + " in " +
             problem.resources[a.resource].name;
    }
    return move(starts, 7);
  }
};

TEST(ScheduleProblem, VerifyAndTheSimulatorAgreeOnDamagedSchedules) {
  const unsigned each = numberOf("MILLRACE_DAMAGES", 20);
  unsigned refused = 0, accepted = 0, wrong = 0;
  forEachSubject(numberOf("MILLRACE_RANDOM_MACHINES", 40), [&](const Subject &s) {
    const Starts compiled = schedule::startsOf(s.problem),
                 improved = schedule::improve(s.problem, compiled, {.rounds = 1});
    for (unsigned k = 0; k < each; ++k) {
      Starts starts = k % 2 ? improved : compiled;
      Damager damager(s, s.seed * 1000 + k);
      const std::string how = damager.damage(starts);
      const Status verified = schedule::verify(s.problem, starts);
      const std::string judged = s.judge(starts);
      if (bool(verified) != judged.empty()) {
        ++wrong;
        ADD_FAILURE() << "seed " << s.seed << ", damage " << k << " (" << how << "): verify "
                      << (verified ? "accepts" : "says " + verified.error()) << ", the simulator "
                      << (judged.empty() ? "accepts" : "says " + judged);
      }
      (verified ? accepted : refused) += 1;
      if (!verified && k % 2 == 0) { // it names two bundles or a limit, and a cycle
        EXPECT_NE(verified.error().find("bundle "), std::string::npos) << verified.error();
        EXPECT_NE(verified.error().find("cycle "), std::string::npos) << verified.error();
      }
    }
  });
  std::printf("%u damaged schedules refused, %u accepted, %u in disagreement\n", refused, accepted,
              wrong);
  EXPECT_GE(refused, 500u);
  EXPECT_GE(accepted, 30u);
}

/// Gives a bundle other streams, or another ALU, wherever its instructions name them.
class Rebinder {
public:
  Rebinder(const Subject &subject, Image &image, unsigned seed)
      : machine(subject.compiled.machine), problem(subject.problem), image(image), random(seed) {}

  std::string rebind() {
    const auto bundle = uint32_t(random() % problem.bundles.size()),
               near = uint32_t((bundle + 1 + random() % 8) % problem.bundles.size());
    const bool alus = random() % 3 == 0;
    // Groups that keep every alignment; of all hemispheres and directions alike (R8).
    const unsigned width = alus ? 1 : widthOf(bundle);
    const std::vector<unsigned> own = indicesOf(bundle, alus), others = indicesOf(near, alus);
    if (own.empty() || others.empty())
      return "nothing";
    const unsigned x = own[random() % own.size()] / width,
                   y = others[random() % others.size()] / width;
    const auto other = [&](unsigned index) {
      const unsigned group = index / width;
      return index % width + width * (group == x ? y : group == y ? x : group);
    };
    for (const schedule::Member &m : problem.bundles[bundle].members) {
      Instruction &i = image.instructions[m.pe].edit()[m.instruction];
      if (alus && machine.unit(i.queue).kind == UnitKind::Alu)
        i.queue = uint16_t(
            machine.queue({UnitKind::Alu, Hemisphere::West, other(machine.unit(i.queue).index)}));
      for (Operand *o : {&i.a, &i.b, &i.c})
        if (alus && o->kind == OperandKind::Alu)
          o->index = uint16_t(other(o->index));
        else if (!alus && o->kind == OperandKind::Stream)
          o->index = streamOf(o->index, other(machine.indexOf(o->index)));
      for (StreamId &out : i.out)
        if (!alus && out != kNoStream)
          out = streamOf(out, other(machine.indexOf(out)));
    }
    return "bundle " + std::to_string(bundle) + (alus ? ": ALUs " : ": groups of streams ") +
           std::to_string(x) + " and " + std::to_string(y) + " swapped";
  }

private:
  const Machine &machine;
  const ScheduleProblem &problem;
  Image &image;
  std::mt19937 random;

  template <class F> void forEachStream(uint32_t bundle, F f) const {
    for (const schedule::Member &m : problem.bundles[bundle].members) {
      const Instruction &i = image.instructions[m.pe][m.instruction];
      for (const Operand *o : {&i.a, &i.b, &i.c})
        if (o->kind == OperandKind::Stream)
          f(i, o->index);
      for (const StreamId out : i.out)
        if (out != kNoStream)
          f(i, out);
    }
  }
  unsigned widthOf(uint32_t bundle) const {
    unsigned width = 4;
    forEachStream(bundle, [&](const Instruction &i, StreamId) {
      if (i.opcode == Opcode::Install)
        width = machine.mxm.columnsPerInstall;
      else if (i.opcode == Opcode::Transpose)
        width = std::max(width, 16u);
    });
    return width;
  }
  /// ALUs or streams that the bundle has.
  std::vector<unsigned> indicesOf(uint32_t bundle, bool alus) const {
    std::vector<unsigned> indices;
    if (!alus)
      forEachStream(bundle, [&](const Instruction &, StreamId stream) {
        indices.push_back(machine.indexOf(stream));
      });
    for (const schedule::Member &m : problem.bundles[bundle].members)
      if (const Unit unit = machine.unit(image.instructions[m.pe][m.instruction].queue);
          alus && unit.kind == UnitKind::Alu)
        indices.push_back(unit.index);
    return indices;
  }
  StreamId streamOf(StreamId like, unsigned index) const {
    return machine.stream(machine.hemisphereOf(like), machine.directionOf(like), index);
  }
};

/// The problem of an image that is wrong is refused, or its own schedule is.
TEST(ScheduleProblem, VerifyAndTheSimulatorAgreeOnOtherStreamsAndAlus) {
  const unsigned each = numberOf("MILLRACE_DAMAGES", 10);
  unsigned refused = 0, accepted = 0;
  forEachSubject(numberOf("MILLRACE_RANDOM_MACHINES", 40), [&](const Subject &s) {
    const Starts starts = schedule::startsOf(s.problem);
    for (unsigned k = 0; k < each; ++k) {
      Image image = s.compiled.image;
      const std::string how = Rebinder(s, image, s.seed * 1000 + k).rebind();
      schedule::reschedule(image, s.compiled.machine, s.problem, starts); // sorts queues
      const Expected<ScheduleProblem> posed = schedule::problemOf(image, s.compiled.machine);
      Status said = posed ? schedule::check(*posed) : Status(Error{posed.error()});
      if (said)
        said = schedule::verify(*posed, schedule::startsOf(*posed));
      const std::string judged = s.judge(image, starts);
      EXPECT_EQ(bool(said), judged.empty())
          << "seed " << s.seed << " (" << how << "): verify "
          << (said ? "accepts" : "says " + said.error()) << ", the simulator "
          << (judged.empty() ? "accepts" : "says " + judged);
      (said ? accepted : refused) += 1;
    }
  });
  std::printf("%u other bindings refused, %u accepted\n", refused, accepted);
  EXPECT_GE(refused, 60u);
  EXPECT_GE(accepted, 60u);
}

} // namespace
