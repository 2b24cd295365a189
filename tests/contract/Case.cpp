// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Case.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Codegen/Grid/Fit.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Rewritings/Rewritings.h"
#include "compiler/Forms/Simplify.h"
#include "tests/contract/Distance.h"
#include "tests/contract/GridRun.h"
#include "tests/contract/RandomGraph.h"
#include "tests/contract/RandomMachine.h"
#include "tests/simulator/system/Same.h"

#include <cctype>
#include <csignal>
#include <optional>
#include <random>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::test {

Case randomCase(unsigned machineSeed, unsigned graphSeed) {
  Case c;
  Draw ofMachine(machineSeed);
  c.machine = randomMachine(ofMachine);
  const Expected<Machine> machine = loadMachine(kBaseMachine, c.machine);
  if (!machine) // numbers that contradict each other: a fault of the generator, which trying it
                // says
    return c;
  Draw ofGraph(graphSeed);
  c.recipe = randomGraph(ofGraph, *machine);
  c.layouts = graphSeed % 2 ? graphSeed : 0;
  c.schedule = graphSeed % 3 ? graphSeed : 0;
  return c;
}

std::string print(const Case &c) {
  std::string text;
  for (const std::string &override : c.machine)
    text += "set " + override + "\n";
  if (c.layouts)
    text += "layouts " + std::to_string(c.layouts) + "\n";
  if (c.schedule)
    text += "schedule " + std::to_string(c.schedule) + "\n";
  return text + print(c.recipe);
}

Expected<Case> parseCase(const std::string &text) {
  Case c;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    if (line.starts_with("set "))
      c.machine.push_back(line.substr(4));
    else if (line.starts_with("layouts "))
      c.layouts = std::strtoull(line.c_str() + 8, nullptr, 10);
    else if (line.starts_with("schedule "))
      c.schedule = std::strtoull(line.c_str() + 9, nullptr, 10);
    else if (Status s = parseLine(line, c.recipe); !s)
      return s.takeError();
  }
  return c;
}

namespace {

/// What the whole text says without its names and numbers, so that smaller cases say the same.
std::string kindOf(const std::string &text) {
  std::string kind;
  bool quoted = false, inParentheses = false;
  char before = ' ';
  for (char c : text) {
    if (c == '\'' &&
        (quoted || !std::isalpha(static_cast<unsigned char>(before)))) // not "kernel's"
      quoted = !quoted;
    before = c;
    inParentheses = c == '(' || (inParentheses && c != ')');
    if (quoted || inParentheses || (c >= '0' && c <= '9'))
      continue;
    kind += c;
  }
  return kind;
}

/// An error that says which number of the machine cannot carry which kernel, and the number with
/// which it can.
struct ClearError {
  const char *words, *key, *value; ///< no value: as the base machine has it
};
/// All other errors count as failures: of a graph that takes at most half of the memory, "does not
/// fit" too.
constexpr ClearError kClearErrors[] = {
    {"ALUs at once, the VXM has", "vxm.alus", "64"},
    {"streams of one hemisphere at once", "streams", "128"},
    {"accumulator rows at once, the plane has", "mxm.accumulator_rows", "16384"},
    {"give the operations equal latencies", "latency.alu_ops.", nullptr},
    {"too few slices or banks for this kernel", "memory.slices", "176"},
    {"slices at once, a hemisphere has memory.slices", "memory.slices", "176"},
};

/// The machine with the remedy that an error names; nothing if it names none.
std::optional<std::vector<std::string>> remedied(const std::vector<std::string> &machine,
                                                 const std::string &error) {
  for (const ClearError &clear : kClearErrors) {
    if (error.find(clear.words) == error.npos || !error.starts_with("kernel '"))
      continue;
    std::vector<std::string> better = machine;
    std::erase_if(better, [&](const std::string &o) {
      return o.starts_with(clear.value ? std::string(clear.key) + "=" : clear.key);
    });
    if (clear.value)
      better.push_back(std::string(clear.key) + "=" + clear.value);
    return better;
  }
  return std::nullopt;
}

Outcome failed(const std::string &kind, const std::string &text) {
  return {Verdict::Failed, kind, text, 0, 0, false};
}

Outcome refused(const std::string &error) {
  return {Verdict::Refused, kindOf(error), error, 0, 0, false};
}

std::map<unsigned, forms::TensorBytes> byName(const forms::KernelGraph &from,
                                              const std::map<unsigned, forms::TensorBytes> &inputs,
                                              const forms::KernelGraph &to) {
  std::map<unsigned, forms::TensorBytes> result;
  for (unsigned t = 0; t < to.tensors.size(); ++t)
    for (const auto &[input, bytes] : inputs)
      if (to.tensors[t].role == forms::TensorRole::Input &&
          to.tensors[t].hostName == from.tensors[input].hostName)
        result[t] = bytes;
  return result;
}

std::map<std::string, forms::TensorBytes> outputsOf(const forms::KernelGraph &graph,
                                                    const std::vector<forms::TensorBytes> &bytes) {
  std::map<std::string, forms::TensorBytes> result;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (graph.tensors[t].role == forms::TensorRole::Output)
      result[graph.tensors[t].hostName] = bytes[t];
  return result;
}

/// Where an output differs from the evaluation in any bit, or nothing.
std::string differenceInBits(const std::map<std::string, forms::TensorBytes> &reference,
                             const GridRun &run) {
  for (const auto &[name, bytes] : reference) {
    const auto it = run.outputs.find(name);
    if (it == run.outputs.end() || it->second.size() != bytes.size())
      return "output '" + name + "' is missing or of another size";
    size_t different = 0, first = 0;
    for (size_t b = bytes.size(); b-- > 0;)
      if (bytes[b] != it->second[b])
        ++different, first = b;
    if (different)
      return "output '" + name + "' differs in " + std::to_string(different) + " of " +
             std::to_string(bytes.size()) + " bytes, first in byte " + std::to_string(first);
  }
  return "";
}

/// Largest distance of an output from that of the graph before rewriting.
double distanceBetween(const forms::KernelGraph &graph,
                       const std::map<std::string, forms::TensorBytes> &a,
                       const std::map<std::string, forms::TensorBytes> &b) {
  double worst = 0;
  for (const forms::Tensor &t : graph.tensors) {
    if (t.role != forms::TensorRole::Output)
      continue;
    const unsigned width = byteWidth(t.type);
    auto number = [&](const forms::TensorBytes &bytes, size_t e) {
      uint32_t bits = 0;
      for (unsigned k = 0; k < width; ++k)
        bits |= uint32_t(bytes[e * width + k]) << 8 * k;
      return t.type == ElementType::Int8 ? double(int8_t(bits))
                                         : double(forms::decode(t.type, bits));
    };
    const forms::TensorBytes &p = a.at(t.hostName), &q = b.at(t.hostName);
    Distance distance;
    for (size_t e = 0; e * width < p.size(); ++e)
      distance.add(number(p, e), number(q, e));
    worst = std::max(worst, distance.relative(1e-12));
  }
  return worst;
}

/// What the compiler does between forming and layout.
Status rewrite(forms::KernelGraph &graph, const Case &c, const Machine &machine) {
  if (c.recipe.simplified)
    forms::simplify(graph, forms::longestChain(machine));
  if (auto lines = forms::rewrite(
          graph, machine, {.layouts = c.layouts ? "random" : "exact", .layoutSeed = c.layouts});
      !lines)
    return lines.takeError();
  return Success{};
}

/// As the case draws it: any order that dependences allow, pieces of any length, all PEs, one or
/// two, all planes or fewer, weights in rows of their own or beside each other.
grid::FitOptions optionsOf(const Case &c, const Machine &machine) {
  grid::FitOptions options;
  schedule::Relief relief; // of all that pieces hold
  for (unsigned cause = unsigned(schedule::Cause::AccumulatorRow);
       cause < unsigned(schedule::Cause::Dropped); ++cause)
    if (const auto its = schedule::Cause(cause);
        its != schedule::Cause::Order && its != schedule::Cause::GivenStart &&
        its != schedule::Cause::StepBegin && its != schedule::Cause::HostBarrier)
      relief.causes.set(cause);
  for (const double share : {0.0, 0.5}) {
    relief.share = share;
    options.compile.reliefs.push_back(relief);
  }
  if (!c.schedule)
    return options;
  std::mt19937_64 draw(c.schedule);
  const int64_t rows[] = {1, 16, 32, 128, 512, 2048};
  const unsigned bands[] = {2, 3, 4, 8, 64};
  grid::Tactic &tactic = options.compile.tactic;
  tactic.order = draw() % 4 ? "critical" : "graph";
  tactic.seed = draw() % 4 ? c.schedule : 0;
  tactic.mapRows = rows[draw() % std::size(rows)];
  tactic.bands = bands[draw() % std::size(bands)];
  tactic.pes = unsigned(draw() % 3);
  tactic.flight = draw() % 2 ? 1 : unsigned(draw() % 12) + 2;
  for (const grid::Used &part : grid::partsOf(machine))
    if (part.planes && draw() % 3 == 0)
      tactic.used = part;
  options.compile.sharesRows = draw() % 2 == 0;
  tactic.segments = draw() % 2 ? 0 : unsigned(draw() % 9);
  tactic.fills = unsigned(draw() % 3);
  return options;
}

/// Compiled, encoded and read back.
Expected<Image> compiled(forms::KernelGraph &graph, const Machine &machine, const Case &c,
                         grid::CompileReport &report) {
  Expected<Image> image = grid::compileToFit(graph, machine, optionsOf(c, machine), report);
  if (!image)
    return image.takeError();
  Expected<Image> read = decodeImage(encodeImage(*image), "compiled");
  if (!read)
    return Error{"image: " + read.error()};
  if (Status verified = verifyImage(*read, machine); !verified)
    return Error{"image: " + verified.error()};
  return read;
}

struct Trial {
  const Case &c;
  const Machine &machine;
  const forms::KernelGraph &original;
  forms::KernelGraph graph; ///< rewritten
  std::map<unsigned, forms::TensorBytes> inputs;

  Outcome run(const TrialOptions &options) {
    GridRun run;
    const Expected<Image> image = compiled(graph, machine, c, run.report);
    if (!image)
      return refused(image.error());
    const auto own = byName(original, inputs, graph);
    const grid::CompileReport report = run.report;
    // In small batches, as of sums by the thousand that nobody takes; the one held to the slow
    // simulator in large ones.
    run = simulateImage(*image, graph, machine, own, true, false, 1 + options.seed % 50);
    run.report = report;
    if (!run.error.empty())
      return refused(run.error);
    if (const auto &violation = run.simulated.violation)
      return failed("S" + std::to_string(unsigned(violation->invariant)), violation->describe());
    if (run.simulated.measuredCycles != report.predictedCycles)
      return failed("cycles", "predicted " + std::to_string(report.predictedCycles) +
                                  " cycles, measured " +
                                  std::to_string(run.simulated.measuredCycles));
    if (report.bounds.cycles > int64_t(report.predictedCycles))
      return failed("bound", "no schedule takes fewer than " +
                                 std::to_string(report.bounds.cycles) + " cycles, this one takes " +
                                 std::to_string(report.predictedCycles));
    if (report.ledger.cycles != int64_t(report.predictedCycles))
      return failed("ledger", "an account of " + std::to_string(report.ledger.cycles) +
                                  " cycles, predicted " + std::to_string(report.predictedCycles));
    const std::vector<int64_t> &relieved = report.relieved;
    if (const int64_t path = report.bounds.byKind[unsigned(schedule::BoundKind::CriticalPath)];
        relieved.size() != 2 || path > relieved[0] || relieved[0] > relieved[1] ||
        relieved[1] > int64_t(report.predictedCycles))
      return failed("relief", "not in order: a critical path of " + std::to_string(path) + ", " +
                                  std::to_string(relieved.at(0)) + " without waits, " +
                                  std::to_string(relieved.at(1)) + " with half of them, " +
                                  std::to_string(report.predictedCycles) + " cycles in all");
    Outcome outcome = compareValues(run, own);
    outcome.cycles = run.simulated.measuredCycles;
    if (outcome.verdict == Verdict::Agrees && outcome.cycles * machine.pes() <= options.mostSteps)
      step(*image, own, outcome);
    return outcome;
  }

  Outcome compareValues(const GridRun &run, const std::map<unsigned, forms::TensorBytes> &own) {
    forms::EvaluateOptions same;
    same.threads = 1;
    same.passes = [&](unsigned kernel) {
      for (const grid::KernelReport &k : run.report.kernels)
        if (k.kernel == kernel)
          return k.passes;
      return std::vector<forms::Pass>();
    };
    const auto reference = forms::evaluate(graph, own, same);
    if (!reference)
      return failed("evaluation", reference.error());
    const auto outputs = outputsOf(graph, *reference);
    if (const std::string text = differenceInBits(outputs, run); !text.empty())
      return failed("values", text);
    forms::EvaluateOptions plain;
    plain.threads = 1;
    const auto before = forms::evaluate(original, inputs, plain);
    if (!before)
      return failed("evaluation", before.error());
    Outcome outcome{Verdict::Agrees, "", "", 0, 0, false};
    outcome.distance = distanceBetween(original, outputs, outputsOf(original, *before));
    if (!(outcome.distance <= kMostDistance))
      return failed("rewriting", "an output lies " + std::to_string(outcome.distance) +
                                     " from that of the graph before rewriting");
    return outcome;
  }

  void step(const Image &image, const std::map<unsigned, forms::TensorBytes> &own,
            Outcome &outcome) {
    sim::SimulationOptions options;
    options.writeInputs = inputWriter(image, graph, own);
    outcome.stepped = true;
    if (const std::string text = sim::test::differenceOn(image, machine, options); !text.empty())
      outcome = failed("truth", text);
  }
};

} // namespace

static Outcome tryOnce(const Case &c, const TrialOptions &options) {
  const Expected<Machine> machine = loadMachine(kBaseMachine, c.machine);
  if (!machine)
    return {Verdict::Invalid, "machine", machine.error(), 0, 0, false};
  const Expected<forms::KernelGraph> graph = realise(c.recipe);
  if (!graph)
    return {Verdict::Invalid, "graph", graph.error(), 0, 0, false};
  if (2 * memoryRows(*graph, *machine) > memoryRows(*machine))
    return {
        Verdict::Invalid, "memory", "the graph takes more than half of the memory", 0, 0, false};
  Trial trial{c, *machine, *graph, *graph, forms::randomInputs(*graph, options.seed)};
  if (Status s = rewrite(trial.graph, c, *machine); !s)
    return failed("rewritten graph", s.error());
  return trial.run(options);
}

Outcome tryCase(const Case &c, const TrialOptions &options) {
  Outcome first = tryOnce(c, options);
  if (first.verdict != Verdict::Refused)
    return first;
  first.verdict = Verdict::Failed; // unless what the error says is clear and true
  Case better = c;
  std::string error = first.text;
  for (;;) {
    const auto machine = remedied(better.machine, error);
    if (!machine || *machine == better.machine)
      return first;
    better.machine = *machine;
    const Outcome next = tryOnce(better, options);
    if (next.verdict == Verdict::Agrees)
      first.verdict = Verdict::Refused;
    if (next.verdict != Verdict::Refused)
      return first;
    error = next.text; // another number is too small as well
  }
}

Outcome tryCaseApart(const Case &c, const TrialOptions &options, unsigned seconds) {
  int ends[2];
  if (pipe(ends) != 0)
    return failed("pipe", "no pipe for a process");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{seconds, seconds + 1}; // of computing: the computer may be busy
    setrlimit(RLIMIT_CPU, &limit);
    alarm(20 * seconds);
    const Outcome o = tryCase(c, options);
    std::ostringstream text;
    text.precision(17);
    text << unsigned(o.verdict) << ' ' << o.cycles << ' ' << o.distance << ' ' << o.stepped << '\n'
         << o.kind << '\n'
         << o.text;
    const std::string bytes = text.str();
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = write(ends[1], bytes.data() + sent, bytes.size() - sent);
      if (n <= 0)
        break;
      sent += size_t(n);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string bytes;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    bytes.append(buffer, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGXCPU
               ? failed("time", "took more than " + std::to_string(seconds) + " seconds")
               : failed("crash", "ended by signal " + std::to_string(WTERMSIG(status)));
  std::istringstream text(bytes);
  Outcome o;
  unsigned verdict = unsigned(Verdict::Failed);
  text >> verdict >> o.cycles >> o.distance >> o.stepped;
  o.verdict = Verdict(verdict);
  text.ignore(1);
  std::getline(text, o.kind);
  std::getline(text, o.text, '\0');
  return o;
}

Expected<CompiledCase> compileCase(const Case &c, unsigned effort) {
  Expected<Machine> machine = loadMachine(kBaseMachine, c.machine);
  if (!machine)
    return machine.takeError();
  Expected<forms::KernelGraph> graph = realise(c.recipe);
  if (!graph)
    return graph.takeError();
  if (Status s = rewrite(*graph, c, *machine); !s)
    return s.takeError();
  grid::CompileReport report;
  grid::FitOptions options = optionsOf(c, *machine);
  options.compile.effort = effort;
  Expected<Image> image = grid::compileToFit(*graph, *machine, options, report);
  if (!image)
    return image.takeError();
  return CompiledCase{std::move(*machine), std::move(*graph), std::move(*image),
                      report.bounds.cycles};
}

Expected<std::vector<uint8_t>> imageOf(const Case &c) {
  Expected<CompiledCase> compiled = compileCase(c);
  if (!compiled)
    return compiled.takeError();
  return encodeImage(compiled->image);
}

} // namespace millrace::test
