// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One attempt to make a program of a kernel graph: what is planned, then scheduled kernel by
// kernel.
#pragma once

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Codegen/Grid/Flight.h"
#include "compiler/Codegen/Grid/Storage.h"
#include "compiler/Placement/Fabric.h"

#include <numeric>
#include <vector>

namespace millrace::grid {

/// How room is found for what a program needs.
struct Way {
  ColumnPlaces columnPlaces = ColumnPlaces::Sets;
  bool detours = false, alternates = false;
  /// How often there was too little room: values get what they need at their peak, then column
  /// copies room of their own, then gaps, then an eighth of the memory more each time; and from the
  /// third time on what needs long runs of rows comes before weights.
  unsigned pressure = 0;
  bool sharesRows = false; ///< weight tiles of few lanes lie beside each other
  auto operator<=>(const Way &) const = default;
};

class GridCompiler {
public:
  GridCompiler(const KernelGraph &graph, const Machine &machine, const CompileOptions &options,
               CompileReport &report, const Way &way, const Tactic &tactic,
               const std::set<unsigned> &whole, std::shared_ptr<const Touches> touches = nullptr)
      : graph(graph), machine(machine), options(options), report(report), pressure(way.pressure),
        tactic(tactic), program(machine, tactic.used.alus),
        c(machine, graph, program,
          {.columnPlaces = way.columnPlaces,
           .detours = way.detours,
           .alternates = way.alternates,
           .segments = tactic.segments,
           .touches = std::move(touches),
           .mostForMeeting = tactic.meeting,
           .bands = tactic.bands,
           .used = tactic.used,
           .pes = tactic.pes,
           .sharesRows = options.sharesRows || way.sharesRows,
           .spreads = isMixed(),
           .whole = whole}),
        routes(machine), storage(c, works, partition), mxm(machine) {}

  /// The program; before it, plan().
  Expected<Image> run();
  /// What is done in which order; schedules nothing.
  Status plan();
  /// Cycles of the program; before it, plan().
  Expected<uint64_t> count();
  /// What would be touched when, if memory held nothing up; before it, plan().
  Expected<std::shared_ptr<const Touches>> findTouches();
  /// Places of graph.order, in the order of scheduling.
  const std::vector<size_t> &kernelOrder() const { return order; }
  /// Did a kernel's bursts need one queue or bank at once? With rows in other places they may not.
  bool crowded() const { return program.crowded; }
  /// Of what is read by the kernel whose bursts met, and by those of as many terms, operands and
  /// nodes, what a hemisphere holds in part: with all of it a burst may read in the other one.
  std::set<unsigned> partsThatMet() const;
  /// Did something find no rows? With each weight in one hemisphere it may.
  bool full() const { return c.full; }
  /// Do weights and values at their peak leave less than an eighth of a hemisphere?
  bool isTight() const {
    const uint64_t width = machine.mxm.columnsPerInstall, all = c.rowsOfHemisphere() / width;
    return !partition.weightRows.empty() &&
           *std::max_element(partition.weightRows.begin(), partition.weightRows.end()) +
                   storage.mostValueRows() / width >
               all - all / 8;
  }
  /// Was it refused before anything was stored, as the partition has too many rows somewhere?
  bool isTooLarge() const { return tooLarge; }
  /// Does a single PE have less memory than weights take, each in one hemisphere? Of several, fewer
  /// may store each.
  bool isBeyondMemory() const {
    return tooLarge && c.pes == 1 &&
           std::accumulate(partition.weightRows.begin(), partition.weightRows.end(), uint64_t(0)) >
               kHemispheres * c.rowsOfHemisphere() / machine.mxm.columnsPerInstall;
  }
  /// Where weights lie; more pressure changes nothing once that stays.
  const std::vector<std::vector<std::vector<Hemisphere>>> &hemispheres() const {
    return partition.hemispheres;
  }

private:
  const KernelGraph &graph;
  const Machine &machine;
  const CompileOptions &options;
  CompileReport &report;
  const unsigned pressure; ///< of the way
  const Tactic tactic;
  schedule::Program program;
  Context c;
  placement::Routes routes;
  Partition partition;
  unsigned firstPe = 0; ///< of the line
  bool tooLarge = false;
  std::vector<Work> works; ///< per kernel
  Storage storage;
  std::vector<size_t> order;       ///< places of graph.order, in the order of scheduling
  std::vector<size_t> lastUse;     ///< per tensor: last place in the order that touches it
  std::vector<uint32_t> bindingOf; ///< per tensor: its binding, if it has one
  MxmState mxm;

  /// Do weights and activations lie in the same slices, whatever the weights take?
  bool isMixed() const { return pressure > 2 || tactic.mixed; }
  Status planKernels();
  Status checkFormats(const Kernel &kernel) const;
  Status planOrder();
  Status planPartition();
  uint64_t mostWeightRows() const;
  /// A kernel whose parts are being scheduled.
  struct Begun {
    uint32_t provenance = 0;
    KernelReport entry;
    ContractionCounts counts;
  };
  std::vector<Begun> begun; ///< per kernel
  std::vector<bool> ended;  ///< per place of the order
  size_t released = 0;      ///< places before which all have ended

  Status moveResults(size_t k, uint32_t provenance);
  /// What all it takes together needs, then its parts in the order in which they would run alone.
  Expected<std::vector<Part>> begin(size_t k);
  std::vector<Part> partsOfContraction(size_t k);
  std::vector<Part> partsOfMap(size_t k);
  Status scheduleMap(size_t k, const Share &share, unsigned pe, Hemisphere h);
  /// With its name in errors, and what it takes in the report.
  Status schedulePart(size_t k, const std::function<Status()> &part);
  /// Once all its parts are scheduled.
  Status end(size_t at);
  Status scheduleNext(Flight &flight);
  Status hostStep(const forms::HostCall &call);
  void noteEnd(size_t at);
  void releaseAfter(size_t at);
  void endGridStep();
  Status scheduleAll();
  Expected<Image> finish();
};

} // namespace millrace::grid
