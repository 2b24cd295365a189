// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Compile.h"

#include "compiler/Codegen/Grid/Bindings.h"
#include "compiler/Codegen/Grid/Contraction.h"

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

class GridCompiler {
public:
  GridCompiler(const KernelGraph &graph, const Machine &machine, const CompileOptions &options,
               CompileReport &report)
      : graph(graph), machine(machine), options(options), report(report), program(machine),
        c(machine, graph, program) {}

  Expected<Image> run();

private:
  const KernelGraph &graph;
  const Machine &machine;
  const CompileOptions &options;
  CompileReport &report;
  schedule::Program program;
  Context c;
  std::vector<Work> works; ///< per kernel
  std::vector<CopyNeed> needs;
  std::vector<size_t> lastUse; ///< per tensor: last kernel that touches it
  std::vector<WorkerState> workers; ///< of all formats, by plane

  Status planKernels();
  Status checkFormats(const Kernel &kernel) const;
  void planCopies();
  void planMemory();
  Status allocate(unsigned tensor, const RowOwners &owners = {});
  RowOwners ownersOf(size_t k, const Access &result) const;
  size_t teamOf(size_t k) const;
  std::vector<Share> sharesOf(size_t k, size_t member, int64_t most) const;
  Status schedule(size_t k);
  Status scheduleContraction(size_t k, uint32_t provenance, KernelReport &entry);
  Status scheduleMap(size_t k, uint32_t provenance, KernelReport &entry);
  WorkerState &stateOf(const Worker &worker);
  Image finish();
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

Status GridCompiler::checkFormats(const Kernel &kernel) const {
  for (const forms::Term &t : kernel.terms)
    if (!machine.mxm.format(c.tensor(t.a.tensor).type))
      return Error{"kernel '" + kernel.name + "' multiplies " + nameOf(c.tensor(t.a.tensor).type) +
                   ", which the MXM of '" + machine.name + "' does not; choose another --precision"};
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
  for (size_t k = 0; k < graph.kernels.size(); ++k)
    for (unsigned t = 0; t < graph.tensors.size(); ++t)
      if (touches(graph.kernels[k], t))
        lastUse[t] = k;
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
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (needs[t].rows[0] + needs[t].rows[1] == 0 &&
        (c.tensor(t).role == TensorRole::Output || c.tensor(t).role == TensorRole::Input))
      needs[t].rows[0] = 1;
}

/// Splits the slices of a hemisphere: whole install sets for weights, the rest for activations.
void GridCompiler::planMemory() {
  const unsigned set = machine.mxm.columnsPerInstall;
  uint64_t rows = 64; // constant rows
  for (size_t k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    const Work &w = works[k];
    const uint64_t shares = w.instances.size() * w.tiles.size();
    uint64_t perShare = 0;
    for (const forms::Term &t : kernel.terms) {
      uint64_t taps = 1;
      for (unsigned l : w.roles.contracted)
        if (coefficient(t.a.index[c.tensor(t.a.tensor).laneDim], l) == 0)
          taps *= uint64_t(kernel.loops[l].extent);
      const uint64_t groups = (uint64_t(w.tiles[0].count) + set - 1) / set;
      perShare += taps * c.layouts[t.a.tensor].tiles.size() * groups * byteWidth(c.tensor(t.a.tensor).type);
    }
    rows += perShare * (shares < kHemispheres ? shares : (shares + 1) / kHemispheres + 1);
  }
  for (unsigned t = 0; t < needs.size(); ++t)
    if (needs[t].columns)
      rows += uint64_t(c.layouts[t].rows / set + 2) * byteWidth(c.tensor(t).type) * c.layouts[t].tiles.size();
  const unsigned most = std::max(1u, (machine.memory.slices - machine.memory.slices / 6) / set);
  const uint64_t sets = std::max<uint64_t>(2, (rows + rows / 16) / machine.rowsPerSlice() + 1);
  c.weightSlices = unsigned(std::min<uint64_t>(sets, most)) * set;
}

/// How many share a kernel: the workers of its format, or the two sides of the VXM.
size_t GridCompiler::teamOf(size_t k) const {
  const Kernel &kernel = graph.kernels[k];
  return kernel.terms.empty() ? kHemispheres : workersOf(machine, 0, contractedType(c, kernel)).size();
}

/// The share of one member, in pieces of at most `most` strips; a running reduction stays in one piece.
std::vector<Share> GridCompiler::sharesOf(size_t k, size_t member, int64_t most) const {
  const Work &w = works[k];
  const bool running = !w.roles.running.empty();
  const int64_t whole = running ? w.strips : 1, units = w.units() / whole, team = int64_t(teamOf(k));
  return grid::sharesOf(w, units * int64_t(member) / team * whole, units * int64_t(member + 1) / team * whole,
                        running ? w.strips : most);
}

RowOwners GridCompiler::ownersOf(size_t k, const Access &result) const {
  const Work &w = works[k];
  const Tensor &t = c.tensor(result.tensor);
  const TensorLayout &layout = c.layouts[result.tensor];
  RowOwners owners;
  for (size_t member = 0; member < teamOf(k); ++member)
    for (const Share &share : sharesOf(k, member, w.strips)) {
      const Domain d = domainOf(w, graph.kernels[k], share, 0, 0);
      std::optional<unsigned> tile = layout.tileAt(evaluate(result.index[t.laneDim], d.loops));
      if (tile)
        owners[*tile].push_back({rowOf(layout, result, d.loops), unsigned(member)});
    }
  for (auto &[tile, list] : owners) {
    std::sort(list.begin(), list.end(), [](const RowOwner &x, const RowOwner &y) { return x.first < y.first; });
    auto same = [](const RowOwner &x, const RowOwner &y) { return x.owner == y.owner; };
    list.erase(std::unique(list.begin(), list.end(), same), list.end());
  }
  return owners;
}

Status GridCompiler::allocate(unsigned tensor, const RowOwners &owners) {
  if (!c.layouts[tensor].copies.empty())
    return Success{};
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
    for (unsigned n = 0; n < needs[tensor].rows[size_t(h)]; ++n)
      if (Status s = c.addRowCopy(tensor, 0, h, owners); !s)
        return s;
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
    if (needs[tensor].columns)
      if (Status s = c.addColumnCopy(tensor, 0, h); !s)
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
  const std::vector<Worker> team = workersOf(machine, 0, contractedType(c, kernel));
  const int64_t most = std::max<int64_t>(1, machine.mxm.accumulatorRows / 2 / work.stripRows);
  std::vector<std::vector<Share>> shares(team.size());
  for (size_t w = 0; w < team.size(); ++w)
    shares[w] = sharesOf(k, w, most);
  ContractionCounts counts;
  bool any = true;
  for (size_t j = 0; any; ++j) {
    any = false;
    for (size_t w = 0; w < team.size(); ++w) {
      if (j >= shares[w].size())
        continue;
      any = true;
      if (Status s = contract(c, kernel, k, work, shares[w][j], stateOf(team[w]), counts, provenance); !s)
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
  const std::vector<Share> shares[kHemispheres] = {sharesOf(k, 0, most), sharesOf(k, 1, most)};
  for (size_t j = 0; j < std::max(shares[0].size(), shares[1].size()); ++j)
    for (unsigned h = 0; h < kHemispheres; ++h) {
      if (j >= shares[h].size())
        continue;
      Domain d = domainOf(work, kernel, shares[h][j], 0, provenance);
      if (running) {
        d.loop1 = d.loop0;
        d.loop0.reset();
        d.flow = Flow{1, d.flow.n0, 1, interval};
      }
      Piece piece(program);
      if (Status s = addEpilogue(c, piece, d, {}, 0, Hemisphere(h), 0); !s)
        return s;
      if (Expected<Cycle> start = piece.place(0); !start)
        return start.takeError();
      entry.vxmVectors += d.flow.n0 * d.flow.n1;
    }
  return Success{};
}

Status GridCompiler::schedule(size_t k) {
  const Kernel &kernel = graph.kernels[k];
  KernelReport entry;
  entry.name = kernel.name;
  entry.provenance = kernel.provenance;
  for (const forms::Term &t : kernel.terms) {
    if (c.tensor(t.a.tensor).role == TensorRole::Constant)
      if (Status s = allocate(t.a.tensor); !s)
        return s;
  }
  for (const Access &o : kernel.operands) {
    bool byRow = false;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      byRow |= rowCoefficient(c.layouts[o.tensor], o, l) != 0;
    if (c.tensor(o.tensor).role == TensorRole::Constant && byRow)
      if (Status s = allocate(o.tensor); !s)
        return s;
  }
  for (const forms::Result &r : kernel.results)
    if (Status s = allocate(r.access.tensor, ownersOf(k, r.access)); !s)
      return s;
  const uint32_t provenance = c.string(kernel.provenance.empty() ? kernel.name : kernel.provenance);
  const size_t before = program.pes[0].instructions.size();
  Status done = kernel.terms.empty() ? scheduleMap(k, provenance, entry)
                                     : scheduleContraction(k, provenance, entry);
  if (!done)
    return done;
  entry.firstCycle = INT64_MAX;
  for (size_t i = before; i < program.pes[0].instructions.size(); ++i) {
    entry.firstCycle = std::min(entry.firstCycle, Cycle(program.pes[0].instructions[i].cycle));
    entry.lastCycle = std::max(entry.lastCycle, Cycle(program.pes[0].instructions[i].lastCycle()));
  }
  report.macsOnGrid += entry.macs;
  report.kernels.push_back(entry);
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (lastUse[t] == k && touches(kernel, t) &&
        (c.tensor(t).role == TensorRole::Intermediate || c.tensor(t).role == TensorRole::Input))
      c.release(t);
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
  image.bindings = bindingsOf(c);
  image.strings = std::move(c.strings);
  report.predictedCycles = image.steps.front().predictedCycles;
  for (const auto &pe : image.instructions)
    report.bursts += pe.size();
  return image;
}

Expected<Image> GridCompiler::run() {
  if (std::string wrong = graph.verify(); !wrong.empty())
    return Error{wrong};
  if (!graph.hostCalls.empty())
    return Error{"'" + graph.hostCalls.front().name + "' needs a host step, which the grid code generator does not place yet"};
  if (Status s = planKernels(); !s)
    return s.takeError();
  planCopies();
  planMemory();
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (c.tensor(t).role == TensorRole::Input) {
      if (Status s = allocate(t); !s)
        return s.takeError();
      c.loadInput(t);
    }
  for (size_t k = 0; k < graph.kernels.size(); ++k) {
    if (Status s = schedule(k); !s)
      return s.takeError();
    if (options.progress)
      options.progress(k + 1, graph.kernels.size());
  }
  return finish();
}

} // namespace

Expected<Image> compile(const KernelGraph &graph, const Machine &machine, const CompileOptions &options,
                        CompileReport &report) {
  return GridCompiler(graph, machine, options, report).run();
}

} // namespace millrace::grid
