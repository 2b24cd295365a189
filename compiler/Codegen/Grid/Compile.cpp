// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Compile.h"

#include "compiler/Codegen/Grid/Bindings.h"
#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Codegen/Grid/Transfer.h"

#include <algorithm>
#include <set>

namespace millrace::grid {

using forms::TensorRole;

namespace {

/// Copies that a tensor needs on a PE.
struct CopyNeed {
  unsigned rows[kHemispheres] = {0, 0};
  bool columns = false;
};

bool touches(const Kernel &kernel, unsigned tensor) {
  auto is = [&](const Access &a) { return a.tensor == tensor; };
  for (const forms::Term &t : kernel.terms)
    if (is(t.a) || is(t.w))
      return true;
  for (const forms::Result &r : kernel.results)
    if (is(r.access))
      return true;
  return std::any_of(kernel.operands.begin(), kernel.operands.end(), is);
}

bool touches(const forms::HostCall &call, unsigned tensor) {
  return std::count(call.inputs.begin(), call.inputs.end(), tensor) ||
         std::count(call.outputs.begin(), call.outputs.end(), tensor);
}

class GridCompiler {
public:
  GridCompiler(const KernelGraph &graph, const Machine &machine, const CompileOptions &options,
               CompileReport &report)
      : graph(graph), machine(machine), options(options), report(report), program(machine),
        c(machine, graph, program), routes(machine) {}

  Expected<Image> run();

private:
  const KernelGraph &graph;
  const Machine &machine;
  const CompileOptions &options;
  CompileReport &report;
  schedule::Program program;
  Context c;
  Routes routes;
  Partition partition;
  std::vector<Work> works; ///< per kernel
  std::vector<CopyNeed> needs;
  std::vector<size_t> lastUse;      ///< per tensor: last place in the graph's order that touches it
  std::vector<uint32_t> bindingOf;  ///< per tensor: its binding, if it has one
  std::vector<WorkerState> workers; ///< of all formats, by plane

  Status planKernels();
  Status checkFormats(const Kernel &kernel) const;
  void planCopies();
  void planMemory();
  Status allocate(unsigned tensor, unsigned pe, const RowRuns &runs);
  Status allocateResults(size_t k);
  Status allocateConstants(size_t k);
  RowRuns runsOf(unsigned tensor, unsigned pe, size_t k) const;
  size_t teamOf(size_t k) const;
  std::vector<Share> sharesOf(size_t k, unsigned pe, size_t member, int64_t most) const;
  size_t bursts() const;
  Status schedule(size_t k);
  Status hostStep(const forms::HostCall &call);
  Status allocateFromHost(unsigned tensor);
  void releaseAfter(size_t at);
  void endGridStep();
  Status scheduleContraction(size_t k, uint32_t provenance, KernelReport &entry);
  Status scheduleMap(size_t k, uint32_t provenance, KernelReport &entry);
  WorkerState &stateOf(const Worker &worker);
  Image finish();
};

Status GridCompiler::checkFormats(const Kernel &kernel) const {
  for (const forms::Term &t : kernel.terms)
    if (!machine.mxm.format(c.tensor(t.a.tensor).type))
      return Error{"kernel '" + kernel.name + "' multiplies " + nameOf(c.tensor(t.a.tensor).type) +
                   ", which the MXM of '" + machine.name +
                   "' does not; choose another --precision"};
  return Success{};
}

Status GridCompiler::planKernels() {
  for (const Kernel &kernel : graph.kernels) {
    if (Status s = checkFormats(kernel); !s)
      return s;
    Expected<Work> work = workOf(c, kernel);
    if (!work)
      return work.takeError();
    works.push_back(std::move(*work));
  }
  lastUse.assign(graph.tensors.size(), 0);
  for (size_t at = 0; at < graph.order.size(); ++at) {
    auto [host, index] = graph.order[at];
    for (unsigned t = 0; t < graph.tensors.size(); ++t)
      if (host ? touches(graph.hostCalls[index], t) : touches(graph.kernels[index], t))
        lastUse[t] = at;
  }
  const std::vector<unsigned> bound = boundTensors(graph);
  bindingOf.assign(graph.tensors.size(), 0);
  for (uint32_t b = 0; b < bound.size(); ++b)
    bindingOf[bound[b]] = b;
  return Success{};
}

void GridCompiler::planCopies() {
  needs.resize(graph.tensors.size());
  for (size_t k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    for (const forms::Term &t : kernel.terms) {
      const unsigned planes = machine.mxm.format(c.tensor(t.a.tensor).type)->planes;
      for (unsigned &rows : needs[t.a.tensor].rows)
        rows = std::max(rows, std::max(1u, machine.mxm.planes / planes));
      if (c.tensor(t.w.tensor).role != TensorRole::Constant)
        needs[t.w.tensor].columns = true;
    }
    std::map<unsigned, unsigned> reads; // of one tensor in one piece
    for (const Access &o : kernel.operands)
      ++reads[o.tensor];
    for (auto [t, n] : reads) {
      CopyNeed &need = needs[t];
      unsigned h = 0;
      need.rows[0] = std::max(need.rows[0], 1u);
      need.rows[1] = std::max(need.rows[1], 1u);
      while (need.rows[0] + need.rows[1] < n)
        ++need.rows[h++ % kHemispheres];
    }
  }
  for (unsigned t = 0; t < graph.tensors.size(); ++t) {
    const bool byHost = c.tensor(t).role == TensorRole::Output ||
                        std::any_of(graph.hostCalls.begin(), graph.hostCalls.end(),
                                    [&](const forms::HostCall &call) { return touches(call, t); });
    const bool read = byHost || (needs[t].columns && machine.pes() > 1); // or to travel
    if (needs[t].rows[0] + needs[t].rows[1] == 0 && read)
      needs[t].rows[0] = 1;
  }
}

/// Splits the slices of a hemisphere: whole install sets for weights, the rest for activations.
void GridCompiler::planMemory() {
  const unsigned set = machine.mxm.columnsPerInstall;
  uint64_t rows = 64; // constant rows
  std::vector<uint64_t> perPe(machine.pes(), 0);
  for (size_t k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    const Work &w = works[k];
    uint64_t perTile = 0;
    for (const forms::Term &t : kernel.terms) {
      uint64_t taps = 1;
      for (unsigned l : w.roles.contracted)
        if (coefficient(t.a.index[c.tensor(t.a.tensor).laneDim], l) == 0)
          taps *= uint64_t(kernel.loops[l].extent);
      const uint64_t groups = (uint64_t(w.tiles[0].count) + set - 1) / set;
      perTile +=
          taps * c.layouts[t.a.tensor].tiles.size() * groups * byteWidth(c.tensor(t.a.tensor).type);
    }
    for (unsigned pe = 0; pe < machine.pes(); ++pe) {
      const uint64_t shares = partition.shares[k][pe].size();
      perPe[pe] += perTile * (shares < kHemispheres ? shares : (shares + 1) / kHemispheres + 1);
    }
  }
  rows += *std::max_element(perPe.begin(), perPe.end());
  for (unsigned t = 0; t < needs.size(); ++t)
    if (needs[t].columns)
      rows += uint64_t(c.layouts[t].rows / set + 2) * byteWidth(c.tensor(t).type) *
              c.layouts[t].tiles.size();
  const unsigned most = std::max(1u, (machine.memory.slices - machine.memory.slices / 6) / set);
  const uint64_t sets = std::max<uint64_t>(2, (rows + rows / 16) / machine.rowsPerSlice() + 1);
  c.weightSlices = unsigned(std::min<uint64_t>(sets, most)) * set;
}

Status GridCompiler::allocate(unsigned tensor, unsigned pe, const RowRuns &runs) {
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
    if (c.rowCopy(tensor, pe, h) || c.columnCopy(tensor, pe, h))
      return Success{};
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
    for (unsigned n = 0; n < needs[tensor].rows[size_t(h)]; ++n)
      if (Status s = c.addRowCopy(tensor, pe, h, runs); !s)
        return s;
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
    if (needs[tensor].columns)
      if (Status s = c.addColumnCopy(tensor, pe, h); !s)
        return s;
  return Success{};
}

size_t GridCompiler::bursts() const {
  size_t count = 0;
  for (const schedule::PeProgram &pe : program.pes)
    count += pe.instructions.size();
  return count;
}

/// How many share a kernel on one PE: the workers of its format, or the two sides of the VXM.
size_t GridCompiler::teamOf(size_t k) const {
  const Kernel &kernel = graph.kernels[k];
  return kernel.terms.empty() ? kHemispheres
                              : workersOf(machine, 0, contractedType(c, kernel)).size();
}

/// The share of one member of a PE's team, in pieces of at most `most` strips; a running reduction
/// stays in one piece.
std::vector<Share> GridCompiler::sharesOf(size_t k, unsigned pe, size_t member,
                                          int64_t most) const {
  const Work &w = works[k];
  const std::vector<Share> &all = partition.shares[k][pe];
  const bool running = !w.roles.running.empty();
  int64_t units = 0;
  for (const Share &share : all)
    units += running ? 1 : share.strips;
  const int64_t team = int64_t(teamOf(k)), from = units * int64_t(member) / team,
                to = units * int64_t(member + 1) / team;
  std::vector<Share> mine;
  int64_t unit = 0;
  for (const Share &share : all) {
    const int64_t strips = running ? 1 : share.strips;
    const int64_t a = std::max(from - unit, int64_t(0)), b = std::min(to - unit, strips);
    unit += strips;
    if (a >= b)
      continue;
    if (running) {
      mine.push_back(share);
      continue;
    }
    const int64_t pieces = (b - a + most - 1) / most;
    for (int64_t p = 0; p < pieces; ++p) {
      const int64_t x = a + (b - a) * p / pieces, y = a + (b - a) * (p + 1) / pieces;
      mine.push_back({share.instance, share.tile, share.strip + x, y - x});
    }
  }
  return mine;
}

/// Rows of a tensor that a PE holds, cut where its workers' shares of kernel `k` meet.
RowRuns GridCompiler::runsOf(unsigned tensor, unsigned pe, size_t k) const {
  const TensorLayout &layout = c.layouts[tensor];
  std::vector<std::vector<int>> owner(layout.tiles.size(),
                                      std::vector<int>(size_t(layout.rows), -1));
  for (const RowSet *set :
       {&partition.tensors[tensor].needed[pe], &partition.tensors[tensor].owned[pe]})
    for (unsigned tile = 0; tile < set->tiles.size(); ++tile)
      for (size_t row = 0; row < set->tiles[tile].size(); ++row)
        if (set->tiles[tile][row])
          owner[tile][row] = 0;
  if (k < graph.kernels.size())
    for (size_t member = 0; member < teamOf(k); ++member)
      for (const Share &share : sharesOf(k, pe, member, works[k].strips))
        forEachWritten(c, graph.kernels[k], works[k], share,
                       [&](unsigned t, unsigned tile, int64_t row) {
                         if (t == tensor)
                           owner[tile][size_t(row)] = int(member);
                       });
  // Owners that alternate row by row would tear the tensor apart: then all rows stay together.
  for (auto &rows : owner) {
    size_t changes = 0;
    for (size_t row = 1; row < rows.size(); ++row)
      changes += rows[row] >= 0 && rows[row - 1] >= 0 && rows[row] != rows[row - 1];
    if (changes > 8)
      for (int &o : rows)
        o = std::min(o, 0);
  }
  RowRuns runs(layout.tiles.size());
  for (unsigned tile = 0; tile < layout.tiles.size(); ++tile)
    for (int64_t row = 0; row < layout.rows; ++row) {
      const int o = owner[tile][size_t(row)];
      if (o < 0)
        continue;
      auto &list = runs[tile];
      if (!list.empty() && list.back().first + list.back().rows == row &&
          int(list.back().owner) == o)
        ++list.back().rows;
      else
        list.push_back({row, 1, unsigned(o)});
    }
  return runs;
}

Status GridCompiler::allocateResults(size_t k) {
  for (const forms::Result &r : graph.kernels[k].results)
    for (unsigned pe = 0; pe < machine.pes(); ++pe) {
      const TensorRows &rows = partition.tensors[r.access.tensor];
      if (rows.owned[pe].any() || rows.needed[pe].any())
        if (Status s = allocate(r.access.tensor, pe, runsOf(r.access.tensor, pe, k)); !s)
          return s;
    }
  return Success{};
}

/// Constants that flow as activations or operand rows, on every PE with a share.
Status GridCompiler::allocateConstants(size_t k) {
  const Kernel &kernel = graph.kernels[k];
  std::set<unsigned> constants;
  for (const forms::Term &t : kernel.terms)
    if (c.tensor(t.a.tensor).role == TensorRole::Constant)
      constants.insert(t.a.tensor);
  for (const Access &o : kernel.operands) {
    bool byRow = false;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      byRow |= rowCoefficient(c.layouts[o.tensor], o, l) != 0;
    if (c.tensor(o.tensor).role == TensorRole::Constant && byRow)
      constants.insert(o.tensor);
  }
  for (unsigned t : constants)
    for (unsigned pe = 0; pe < machine.pes(); ++pe)
      if (!partition.shares[k][pe].empty())
        if (Status s = allocate(t, pe, allRows(c.layouts[t])); !s)
          return s;
  return Success{};
}

WorkerState &GridCompiler::stateOf(const Worker &worker) {
  for (WorkerState &s : workers)
    if (s.worker == worker)
      return s;
  WorkerState state;
  state.worker = worker;
  state.resident.assign(machine.mxm.buffers, "");
  workers.push_back(state);
  return workers.back();
}

Status GridCompiler::scheduleContraction(size_t k, uint32_t provenance, KernelReport &entry) {
  const Kernel &kernel = graph.kernels[k];
  const Work &work = works[k];
  const int64_t most = std::max<int64_t>(1, machine.mxm.accumulatorRows / 2 / work.stripRows);
  struct Job {
    Worker worker;
    std::vector<Share> shares;
  };
  std::vector<Job> jobs;
  for (unsigned pe = 0; pe < machine.pes(); ++pe) {
    const std::vector<Worker> team = workersOf(machine, pe, contractedType(c, kernel));
    for (size_t w = 0; w < team.size(); ++w)
      jobs.push_back({team[w], sharesOf(k, pe, w, most)});
  }
  ContractionCounts counts;
  bool any = true;
  for (size_t j = 0; any; ++j) { // all workers advance together
    any = false;
    for (const Job &job : jobs) {
      if (j >= job.shares.size())
        continue;
      any = true;
      if (Status s =
              contract(c, kernel, k, work, job.shares[j], stateOf(job.worker), counts, provenance);
          !s)
        return s;
    }
  }
  entry.mxmVectors = counts.vectors;
  entry.mxmInstalls = counts.installs;
  entry.vxmVectors = counts.emitted;
  for (const forms::Term &t : kernel.terms)
    entry.macs += t.macs;
  return Success{};
}

Status GridCompiler::scheduleMap(size_t k, uint32_t provenance, KernelReport &entry) {
  const Kernel &kernel = graph.kernels[k];
  const Work &work = works[k];
  const bool running = !work.roles.running.empty();
  Cycle interval = 1;
  for (const forms::Node &node : kernel.nodes)
    if (node.kind == forms::Node::Kind::Reduce)
      interval = std::max(interval, program.timing.aluOp(node.op));
  constexpr int64_t kLongest = 2048; // rows of one piece
  const int64_t most = std::max<int64_t>(1, kLongest / work.stripRows);
  for (unsigned pe = 0; pe < machine.pes(); ++pe) {
    const std::vector<Share> shares[kHemispheres] = {sharesOf(k, pe, 0, most),
                                                     sharesOf(k, pe, 1, most)};
    for (size_t j = 0; j < std::max(shares[0].size(), shares[1].size()); ++j)
      for (unsigned h = 0; h < kHemispheres; ++h) {
        if (j >= shares[h].size())
          continue;
        Domain d = domainOf(work, kernel, shares[h][j], pe, provenance);
        if (running) {
          d.loop1 = d.loop0;
          d.loop0.reset();
          d.flow = Flow{1, d.flow.n0, 1, interval};
        }
        for (unsigned passes = 0;; ++passes) {
          Piece piece(program);
          if (Status s = addEpilogue(c, piece, d, {}, 0, Hemisphere(h), 0, passes); !s)
            return s;
          if (piece.clashes() && passes < kMostPasses)
            continue;
          if (Expected<Cycle> start = piece.place(0); !start)
            return Error{"kernel '" + kernel.name + "': " + start.error()};
          break;
        }
        entry.vxmVectors += d.flow.n0 * d.flow.n1;
      }
  }
  return Success{};
}

Status GridCompiler::schedule(size_t k) {
  const Kernel &kernel = graph.kernels[k];
  KernelReport entry;
  entry.name = kernel.name;
  entry.provenance = kernel.provenance;
  if (Status s = allocateConstants(k); !s)
    return s;
  if (Status s = allocateResults(k); !s)
    return s;
  const uint32_t provenance = c.string(kernel.provenance.empty() ? kernel.name : kernel.provenance);
  std::vector<size_t> before;
  for (const schedule::PeProgram &pe : program.pes)
    before.push_back(pe.instructions.size());
  Status done = kernel.terms.empty() ? scheduleMap(k, provenance, entry)
                                     : scheduleContraction(k, provenance, entry);
  if (!done)
    return done;
  std::set<unsigned> written;
  for (const forms::Result &r : kernel.results)
    written.insert(r.access.tensor);
  if (machine.pes() > 1)
    for (unsigned t : written)
      for (const Transfer &transfer : transfersOf(partition, c, k, t, works[k]))
        if (Status s = moveRows(c, routes, t, transfer, provenance); !s)
          return s;
  entry.firstCycle = INT64_MAX;
  for (size_t pe = 0; pe < program.pes.size(); ++pe)
    for (size_t i = before[pe]; i < program.pes[pe].instructions.size(); ++i) {
      const Instruction &burst = program.pes[pe].instructions[i];
      entry.firstCycle = std::min(entry.firstCycle, Cycle(burst.cycle));
      entry.lastCycle = std::max(entry.lastCycle, Cycle(burst.lastCycle()));
    }
  report.macsOnGrid += entry.macs;
  report.kernels.push_back(entry);
  return Success{};
}

void GridCompiler::releaseAfter(size_t at) {
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (lastUse[t] == at &&
        (c.tensor(t).role == TensorRole::Intermediate || c.tensor(t).role == TensorRole::Input))
      c.release(t);
}

void GridCompiler::endGridStep() {
  program.endGridStep();
  for (WorkerState &worker : workers)
    worker.resident.assign(machine.mxm.buffers, "");
  for (memory::HemisphereAllocator &a : c.allocators)
    a.forgetTimes();
}

/// Rows of the tensor on every PE that reads it, filled by the host.
Status GridCompiler::allocateFromHost(unsigned tensor) {
  for (unsigned pe = 0; pe < machine.pes(); ++pe)
    if (partition.tensors[tensor].needed[pe].any())
      if (Status s = allocate(tensor, pe, runsOf(tensor, pe, graph.kernels.size())); !s)
        return s;
  c.loadFromHost(tensor);
  return Success{};
}

Status GridCompiler::hostStep(const forms::HostCall &call) {
  if (!program.stepIsEmpty())
    endGridStep();
  for (unsigned t : call.outputs)
    if (Status s = allocateFromHost(t); !s)
      return s;
  for (unsigned t : call.inputs) // constants lie in memory like everything that the host reads
    if (c.tensor(t).role == TensorRole::Constant)
      if (Status s = allocate(t, 0, allRows(c.layouts[t])); !s)
        return s;
  Step step;
  step.function = call.function;
  for (unsigned t : call.inputs)
    step.inputs.push_back(bindingOf[t]);
  for (unsigned t : call.outputs)
    step.outputs.push_back(bindingOf[t]);
  program.addHostStep(std::move(step));
  report.hostCalls.push_back(call.name);
  return Success{};
}

Image GridCompiler::finish() {
  Image image;
  image.machineName = machine.name;
  image.machineHash = machine.hash();
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (c.tensor(t).role == TensorRole::Output)
      c.keepToEnd(t);
  program.finish(image);
  image.blocks = std::move(c.blocks);
  image.data = std::move(c.data);
  image.bindings = bindingsOf(c, partition);
  image.strings = std::move(c.strings);
  image.hostModule = graph.hostModule;
  for (const Step &step : image.steps)
    report.predictedCycles += step.predictedCycles;
  report.bursts = bursts();
  return image;
}

Expected<Image> GridCompiler::run() {
  if (std::string wrong = graph.verify(); !wrong.empty())
    return Error{wrong};
  if (Status s = planKernels(); !s)
    return s.takeError();
  partition = partitionOf(c, works);
  planCopies();
  planMemory();
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (c.tensor(t).role == TensorRole::Input)
      if (Status s = allocateFromHost(t); !s)
        return s.takeError();
  for (size_t at = 0; at < graph.order.size(); ++at) {
    auto [host, index] = graph.order[at];
    if (Status s = host ? hostStep(graph.hostCalls[index]) : schedule(index); !s)
      return s.takeError();
    releaseAfter(at);
    if (options.progress)
      options.progress(at + 1, graph.order.size());
  }
  if (!program.stepIsEmpty())
    endGridStep();
  return finish();
}

} // namespace

Expected<Image> compile(const KernelGraph &graph, const Machine &machine,
                        const CompileOptions &options, CompileReport &report) {
  return GridCompiler(graph, machine, options, report).run();
}

} // namespace millrace::grid
