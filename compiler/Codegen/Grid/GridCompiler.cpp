// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/GridCompiler.h"

#include "compiler/Codegen/Grid/Bindings.h"
#include "compiler/Codegen/Grid/Detours.h"
#include "compiler/Codegen/Grid/Transfer.h"
#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/Uses.h"
#include "compiler/MemoryPlan/Verify.h"
#include "compiler/Schedule/Order.h"
#include "compiler/Schedule/Prune.h"

#include <algorithm>
#include <optional>
#include <set>

namespace millrace::grid {

using forms::TensorRole;

Status GridCompiler::checkFormats(const Kernel &kernel) const {
  for (const forms::Term &t : kernel.terms)
    if (!machine.mxm.format(c.tensor(t.a.tensor).type))
      return Error{"kernel '" + kernel.name + "' multiplies " + nameOf(c.tensor(t.a.tensor).type) +
                   ", which the MXM of '" + machine.name +
                   "' does not; choose another --precision"};
  return Success{};
}

/// Rows of a piece with which ALUs pass what the MXM emits, or a map's rows of both hemispheres.
/// Sums of several passes keep long pieces: with short ones their tiles would be installed again.
static std::optional<int64_t> burstRowsOf(const Context &c, const Kernel &kernel,
                                          const Work &work) {
  const bool isMap = kernel.terms.empty();
  const auto parts = int64_t(work.instances.size() * work.tiles.size());
  if (!work.roles.running.empty() || (!isMap && leastBundlesOf(c, kernel, work) > parts))
    return std::nullopt;
  const unsigned alus = c.used.alus ? c.used.alus : c.machine.vxm.alus;
  const size_t atOnce = isMap ? kHemispheres : workersOf(c, 0, contractedType(c, kernel)).size();
  return forms::rowsOfBurst(kernel, c.graph, c.machine, alus, work.stripRows, double(atOnce));
}

Status GridCompiler::planKernels() {
  int64_t bundles = 0, most = 0;
  const Kernel *largest = nullptr;
  for (const Kernel &kernel : graph.kernels) {
    if (Status s = checkFormats(kernel); !s)
      return s;
    Expected<Work> work = workOf(c, kernel);
    if (!work)
      return work.takeError();
    if (tactic.fills > (kernel.terms.empty() ? 1 : 0))
      work->burstRows = burstRowsOf(c, kernel, *work);
    works.push_back(std::move(*work));
    const int64_t its = leastBundlesOf(c, kernel, works.back());
    bundles += its;
    if (its > most) {
      most = its;
      largest = &kernel;
    }
    if (bundles > kMostBundles) // each holds what its parts are: those that follow could be many
      return tooManyBundles(*largest, most, bundles);
  }
  if (Status s = planOrder(); !s)
    return s;
  lastUse.assign(graph.tensors.size(), 0);
  for (size_t at = 0; at < order.size(); ++at) {
    forms::forEachTensor(graph, graph.order[order[at]], [&](unsigned t) { lastUse[t] = at; });
  }
  const std::vector<unsigned> bound = boundTensors(graph);
  bindingOf.assign(graph.tensors.size(), 0);
  for (uint32_t b = 0; b < bound.size(); ++b)
    bindingOf[bound[b]] = b;
  return Success{};
}

/// Whoever touches a tensor after another does so in the graph's order, unless both only read it.
Status GridCompiler::planOrder() {
  schedule::OrderProblem problem;
  std::vector<std::vector<size_t>> touched(graph.tensors.size()); ///< places, per tensor
  for (size_t at = 0; at < graph.order.size(); ++at) {
    auto [host, index] = graph.order[at];
    problem.barriers.push_back(host);
    problem.costs.push_back(host ? 1 : vectorsOf(c, graph.kernels[index], works[index]));
    auto writes = [&](size_t place, unsigned tensor) {
      const auto &results = graph.kernels[graph.order[place].second].results;
      return !graph.order[place].first &&
             std::any_of(results.begin(), results.end(),
                         [&](const forms::Result &r) { return r.access.tensor == tensor; });
    };
    auto touch = [&](unsigned tensor) {
      if (c.tensor(tensor).role == TensorRole::Constant)
        return;
      for (size_t before : touched[tensor])
        if (before != at && (writes(before, tensor) || writes(at, tensor)))
          problem.edges.push_back({before, at});
      touched[tensor].push_back(at);
    };
    forms::forEachTensor(graph, graph.order[at], touch);
  }
  problem.seed = tactic.seed;
  Expected<std::vector<size_t>> solved = schedule::solve(problem, tactic.order);
  if (!solved)
    return solved.takeError();
  order = std::move(*solved);
  report.order = tactic.order;
  report.tactic = tactic;
  return schedule::verify(problem, order);
}

/// What values leave free at their peak; then also what column copies, which take long runs of rows
/// of many slices, would if none took the rows of another; then with room for gaps between them,
/// and less where that was not enough. Of several PEs each keeps an eighth for what travels: what
/// else each holds is counted when work is dealt.
uint64_t GridCompiler::mostWeightRows() const {
  const uint64_t width = machine.mxm.columnsPerInstall, all = c.rowsOfHemisphere() / width;
  const uint64_t values = storage.mostValueRows() / width;
  if (c.pes > 1)
    return all - std::min(all, std::max(values, all / 8) + all / 16 * pressure);
  uint64_t taken = values;
  if (pressure > 0)
    taken += storage.columnRows();
  if (pressure > 1)
    taken += values / 4 + all / 32 + all / 8 * (pressure - 2);
  if (pressure > 1)
    taken = std::max(taken, all / 8);
  return all - std::min(taken, all);
}

/// Times that a partition is solved again as its values leave weights less room than they were
/// given.
constexpr unsigned kMostTurns = 3;

/// Solvers are checked, so that a new one need not be believed.
Status GridCompiler::planPartition() {
  const placement::Placement line = placement::solve(machine, tactic.pes);
  if (Status s = placement::verify(machine, line); !s)
    return s;
  firstPe = line.order.front();
  storage.planCopies(order, options.sparing && pressure > 2 ? CopiesFor::Least
                            : pressure > 1                  ? CopiesFor::Reads
                                                            : CopiesFor::Speed);
  PartitionProblem problem{
      c,          works,
      line.order, std::vector<uint64_t>(size_t(machine.pes()) * kHemispheres, mostWeightRows()),
      tactic.pes, storage.plannedCopies()};
  for (unsigned turn = 0;; ++turn) {
    Expected<Partition> solved = solve(problem, options.partition);
    if (!solved)
      return solved.takeError();
    partition = std::move(*solved);
    const bool isOne = c.pes == 1;
    if (turn == (isOne ? 1 : kMostTurns))
      break;
    const std::vector<uint64_t> room = storage.roomBesideValues(isOne ? 0 : pressure);
    if (std::equal(room.begin(), room.end(), partition.weightRows.begin(),
                   [](uint64_t has, uint64_t takes) { return takes <= has; }))
      break;
    if (isOne) // what values take at least is counted when work is dealt
      for (size_t h = 0; h < room.size(); ++h)
        problem.mostWeightRows[h] = std::min(problem.mostWeightRows[h], room[h]);
    else
      problem.mostWeightRows =
          storage.roomBesideValues(1 + pressure); // and some for what will change
  }
  report.partition = partition.solver;
  if (Status s = verify(problem, partition); !s)
    return s;
  Status room = storage.checkRoom();
  tooLarge = !room;
  return room;
}

std::vector<Part> GridCompiler::partsOfContraction(size_t k) {
  const Kernel &kernel = graph.kernels[k];
  const Work &work = works[k];
  const int64_t most = longestShare(c, work);
  struct Job {
    std::vector<Worker> workers;
    std::vector<Share> shares;
    size_t atOnce = 1;
  };
  std::vector<Job> jobs;
  for (unsigned pe = 0; pe < machine.pes(); ++pe) {
    const std::vector<Worker> team = workersOf(c, pe, contractedType(c, kernel));
    const bool splitK = partition.splitK[k];
    for (size_t w = 0; w < team.size(); w += splitK ? kHemispheres : 1) {
      std::vector<Worker> workers{team[w]};
      if (splitK) {
        workers.push_back(team[w + 1]);
        if (halfOf(partition, k, team[w].hemisphere) != 0)
          std::swap(workers.front(), workers.back());
      }
      jobs.push_back(
          {std::move(workers), storage.cutForOthers(k, pe, team[w].hemisphere,
                                                    sharesOf(c, work, partition, k, pe, w, most))});
      jobs.back().atOnce = sharesAtOnce(machine, graph.kernels[k], work, jobs.back().shares);
    }
  }
  std::vector<Part> parts;
  bool any = true;
  for (size_t turn = 0; any; ++turn) { // all workers advance together
    any = false;
    for (const Job &job : jobs) {
      const size_t first = turn * job.atOnce;
      if (first >= job.shares.size())
        continue;
      any = true;
      const auto from = job.shares.begin() + std::ptrdiff_t(first);
      Part part{
          {from, from + std::ptrdiff_t(std::min(job.atOnce, job.shares.size() - first))}, {}, {}};
      for (const Worker &worker : job.workers)
        part.queues.push_back(
            machine.queue({UnitKind::MxmActivate, worker.hemisphere, worker.plane}));
      part.schedule = [this, k, shares = part.shares, workers = job.workers] {
        return contract(c, graph.kernels[k], k, works[k], shares, workers, mxm, begun[k].counts,
                        begun[k].provenance);
      };
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::vector<Part> GridCompiler::partsOfMap(size_t k) {
  const Work &work = works[k];
  const int64_t rows = std::min(tactic.mapRows, work.burstRows.value_or(tactic.mapRows));
  const int64_t most = std::max<int64_t>(1, rows / work.stripRows);
  std::vector<Part> parts;
  for (unsigned pe = 0; pe < machine.pes(); ++pe) {
    std::vector<Share> shares[kHemispheres];
    for (unsigned h = 0; h < kHemispheres; ++h)
      shares[h] =
          storage.cutForOthers(k, pe, Hemisphere(h), sharesOf(c, work, partition, k, pe, h, most));
    for (size_t j = 0; j < std::max(shares[0].size(), shares[1].size()); ++j)
      for (unsigned h = 0; h < kHemispheres; ++h)
        if (j < shares[h].size())
          parts.push_back({{shares[h][j]}, {}, [this, k, share = shares[h][j], pe, h] {
                             return scheduleMap(k, share, pe, Hemisphere(h));
                           }});
  }
  return parts;
}

Status GridCompiler::scheduleMap(size_t k, const Share &share, unsigned pe, Hemisphere h) {
  const Kernel &kernel = graph.kernels[k];
  Domain d = domainOf(works[k], kernel, share, pe, begun[k].provenance);
  for (unsigned attempt = 0;;) {
    Piece piece(program);
    if (Status s = addEpilogue(c, piece, d, {}, 0, h, 0, passesOf(attempt)); !s)
      return s;
    if (triesAgain(c, piece, attempt)) {
      ++attempt;
      continue;
    }
    if (!d.keepsCopies && piece.conflict()) { // first with constants elsewhere
      d.keepsCopies = true;
      attempt = 0;
      continue;
    }
    if (Expected<Cycle> start = grid::place(c, piece, 0, attempt); !start)
      return Error{"kernel '" + kernel.name + "': " + start.error()};
    break;
  }
  begun[k].entry.vxmVectors += d.flow.n0 * d.flow.n1;
  return Success{};
}

/// To the PEs that need them.
Status GridCompiler::moveResults(size_t k, uint32_t provenance) {
  std::set<unsigned> written;
  for (const forms::Result &r : graph.kernels[k].results)
    written.insert(r.access.tensor);
  if (machine.pes() > 1)
    for (unsigned t : written)
      for (const Transfer &transfer : transfersOf(partition, c, k, t, works[k]))
        if (Status s = moveRows(c, routes, t, transfer, provenance); !s)
          return s;
  return Success{};
}

Expected<std::vector<Part>> GridCompiler::begin(size_t k) {
  const Kernel &kernel = graph.kernels[k];
  if (Status s = storage.allocateFor(k); !s)
    return s.takeError();
  KernelReport entry;
  entry.kernel = unsigned(k);
  entry.name = kernel.name;
  entry.provenance = kernel.provenance;
  entry.firstCycle = INT64_MAX;
  for (const forms::Term &t : kernel.terms)
    entry.macs += t.macs;
  begun[k] = {
      c.string(kernel.provenance.empty() ? kernel.name : kernel.provenance), std::move(entry), {}};
  return kernel.terms.empty() ? partsOfMap(k) : partsOfContraction(k);
}

Status GridCompiler::schedulePart(size_t k, const std::function<Status()> &part) {
  program.waits.kernel = uint32_t(k);
  std::vector<size_t> before;
  for (const schedule::PeProgram &pe : program.pes)
    before.push_back(pe.instructions.size());
  if (Status s = part(); !s)
    return s.error().starts_with("kernel '")
               ? std::move(s)
               : Status(Error{"kernel '" + graph.kernels[k].name + "': " + s.error()});
  KernelReport &entry = begun[k].entry;
  for (size_t pe = 0; pe < program.pes.size(); ++pe)
    for (size_t i = before[pe]; i < program.pes[pe].instructions.size(); ++i) {
      const Instruction &burst = program.pes[pe].instructions[i];
      entry.firstCycle = std::min(entry.firstCycle, Cycle(burst.cycle));
      entry.lastCycle = std::max(entry.lastCycle, Cycle(burst.lastCycle()));
    }
  return Success{};
}

Status GridCompiler::end(size_t at) {
  const size_t k = graph.order[order[at]].second;
  const Kernel &kernel = graph.kernels[k];
  if (Status s = schedulePart(k, [&] { return moveResults(k, begun[k].provenance); }); !s)
    return s;
  KernelReport &entry = begun[k].entry;
  if (!kernel.terms.empty()) {
    Expected<std::vector<forms::Pass>> passes =
        passesOf(c, kernel, k, works[k], partition.splitK[k]);
    if (!passes)
      return passes.takeError();
    entry.passes = std::move(*passes);
    entry.mxmVectors = begun[k].counts.vectors;
    entry.mxmInstalls = begun[k].counts.installs;
    entry.vxmVectors = begun[k].counts.emitted;
  }
  report.macsOnGrid += entry.macs;
  report.kernels.push_back(std::move(entry));
  noteEnd(at);
  return Success{};
}

/// What nobody touches any more is released once all that come before it in the order have ended.
void GridCompiler::noteEnd(size_t at) {
  ended[at] = true;
  while (released < ended.size() && ended[released]) {
    releaseAfter(released++);
    if (options.progress)
      options.progress(released, order.size());
  }
}

Status GridCompiler::scheduleNext(Flight &flight) {
  Expected<size_t> at = flight.scheduleNext();
  if (!at)
    return at.takeError();
  return flight.isOpen(*at) ? Status(Success{}) : end(*at);
}

void GridCompiler::releaseAfter(size_t at) {
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (lastUse[t] == at &&
        (c.tensor(t).role == TensorRole::Intermediate || c.tensor(t).role == TensorRole::Input))
      c.release(t);
}

void GridCompiler::endGridStep() {
  program.endGridStep();
  mxm.beginStep();
  c.forgetTimes();
}

Status GridCompiler::hostStep(const forms::HostCall &call) {
  if (!program.stepIsEmpty())
    endGridStep();
  for (unsigned t : call.outputs)
    if (Status s = storage.allocateFromHost(t); !s)
      return s;
  Step step;
  step.function = call.function;
  step.device = call.device;
  for (unsigned t : call.inputs)
    step.inputs.push_back(bindingOf[t]);
  for (unsigned t : call.outputs)
    step.outputs.push_back(bindingOf[t]);
  program.addHostStep(std::move(step));
  report.hostCalls.push_back(call.name);
  return Success{};
}

Expected<Image> GridCompiler::finish() {
  Image image;
  image.machineName = machine.name;
  image.machineHash = machine.hash();
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (c.tensor(t).role == TensorRole::Output)
      c.keepToEnd(t);
  std::vector<std::vector<uint32_t>> numbers = program.finish(image);
  image.bindings = bindingsOf(c, partition);
  image.blocks = std::move(c.blocks);
  image.data = c.data.write();
  image.strings = std::move(c.strings);
  image.hostModule = graph.hostModule;
  const schedule::Pruned pruned = schedule::prune(image, machine);
  for (size_t pe = 0; pe < numbers.size(); ++pe) {
    std::vector<uint32_t> kept;
    for (const uint32_t k : pruned.kept[pe])
      kept.push_back(numbers[pe][k]);
    numbers[pe] = std::move(kept);
  }
  Expected<schedule::Ledger> ledger = schedule::account(image, program, numbers, options.gaps);
  if (!ledger)
    return ledger.takeError();
  report.ledger = std::move(*ledger);
  report.bounds = schedule::boundsOf(image, program, numbers);
  if (!options.reliefs.empty()) {
    Expected<std::vector<int64_t>> relieved =
        schedule::relievedCycles(image, program, numbers, options.reliefs);
    if (!relieved)
      return relieved.takeError();
    report.relieved = std::move(*relieved);
  }
  for (size_t pe = 0; pe < numbers.size(); ++pe) {
    report.kernelOf.emplace_back();
    for (const uint32_t number : numbers[pe])
      report.kernelOf[pe].push_back(
          program.waits.placements[program.pes[pe].placements[number]].kernel);
  }
  for (const Step &step : image.steps)
    report.predictedCycles += step.predictedCycles;
  for (const auto &list : image.instructions)
    report.bursts += list.size();
  return image;
}

Status GridCompiler::plan() {
  if (std::string wrong = graph.verify(); !wrong.empty())
    return Error{wrong};
  return planKernels();
}

Status GridCompiler::scheduleAll() {
  if (Status s = planPartition(); !s)
    return s;
  if (Status s = storage.plan(pressure, isMixed()); !s)
    return s;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (c.tensor(t).role == TensorRole::Input)
      if (Status s = storage.allocateFromHost(t); !s)
        return s;
  begun.resize(graph.kernels.size());
  ended.assign(order.size(), false);
  Flight flight(c, program.alus, firstPe);
  const unsigned together = c.pes == 1 ? tactic.flight : 1;
  for (size_t at = 0; at < order.size(); ++at) {
    const auto [host, index] = graph.order[order[at]];
    while (flight.kernels() > 0 && (host || flight.kernels() >= together))
      if (Status s = scheduleNext(flight); !s)
        return s;
    if (host) {
      if (Status s = hostStep(graph.hostCalls[index]); !s)
        return s;
      flight.forget();
      noteEnd(at);
      continue;
    }
    Expected<std::vector<Part>> parts = begin(index);
    if (!parts)
      return parts.takeError();
    if (together > 1 && !parts->empty()) {
      for (Part &part : *parts)
        part.schedule = [this, k = index, its = std::move(part.schedule)] {
          return schedulePart(k, its);
        };
      flight.add(at, index, works[index], std::move(*parts));
      continue;
    }
    for (const Part &part : *parts)
      if (Status s = schedulePart(index, part.schedule); !s)
        return s;
    if (Status s = end(at); !s)
      return s;
  }
  while (flight.kernels() > 0)
    if (Status s = scheduleNext(flight); !s)
      return s;
  if (!program.stepIsEmpty())
    endGridStep();
  return Success{};
}

std::set<unsigned> GridCompiler::partsThatMet() const {
  std::set<unsigned> parts;
  if (!crowded())
    return parts;
  const auto add = [&](const Access &access) {
    if (storage.isDealt(access.tensor) && !storage.hasCopies(access.tensor))
      parts.insert(access.tensor);
  };
  const Kernel &met = graph.kernels[program.waits.kernel];
  for (const Kernel &kernel : graph.kernels) {
    if (kernel.terms.size() != met.terms.size() || kernel.operands.size() != met.operands.size() ||
        kernel.nodes.size() != met.nodes.size())
      continue;
    for (const forms::Term &term : kernel.terms)
      add(term.a);
    for (const Access &operand : kernel.operands)
      add(operand);
  }
  return parts;
}

Expected<uint64_t> GridCompiler::count() {
  if (Status s = scheduleAll(); !s)
    return s.takeError();
  return program.cycles();
}

Expected<std::shared_ptr<const Touches>> GridCompiler::findTouches() {
  program.ignoresMemory = true;
  if (Status s = scheduleAll(); !s)
    return s.takeError();
  return std::make_shared<const Touches>(machine, c.layouts, program);
}

Expected<Image> GridCompiler::run() {
  if (Status s = scheduleAll(); !s)
    return s.takeError();
  Expected<Image> image = finish();
  if (!image)
    return image.takeError();
  if (Status s = memory::verify(machine, image->tensors, image->strings); !s)
    return s.takeError();
  return image;
}

} // namespace millrace::grid
