// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a kernel graph to a scheduled program image.
#pragma once

#include "arch/program/Image.h"
#include "compiler/Codegen/Grid/Tactics.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Schedule/Bounds.h"
#include "compiler/Schedule/Ledger.h"
#include "compiler/Schedule/Relief.h"

#include <functional>
#include <string>
#include <vector>

namespace millrace::grid {

struct CompileOptions {
  /// Who deals kernels to PEs: a name of partitionSolvers(), or `auto`.
  std::string partition = "auto";
  /// How it is scheduled, and how long to look for a way of fewer cycles: 0, not at all, to
  /// kMostEffort (searchTactics); in the same order if that is kept.
  Tactic tactic;
  unsigned effort = 0;
  bool keepsOrder = false;
  /// One copy of what maps alone read, in one hemisphere, where more have no room.
  bool sparing = false;
  /// Weight tiles of few lanes lie beside each other in memory. That takes shifters, and a few
  /// cycles more.
  bool sharesRows = false;
  /// Keeps each run of idle cycles in the report's ledger, for a trace.
  bool gaps = false;
  /// Each is estimated in the report.
  std::vector<schedule::Relief> reliefs;
  /// Called after each kernel with how many are done, of how many.
  std::function<void(size_t, size_t)> progress;
  /// Called with how many schedules of a search are counted, of how many at most.
  std::function<void(size_t, size_t)> searching;
  /// Called with why an attempt failed, before the next one.
  std::function<void(const std::string &)> refused;
};

/// What the compiler knows about one kernel's schedule; cycles within the grid segment.
struct KernelReport {
  unsigned kernel = 0; ///< its number in the graph
  std::string name, provenance;
  Cycle firstCycle = 0, lastCycle = 0; ///< of its bursts
  int64_t macs = 0;
  std::vector<forms::Pass> passes; ///< of its contraction, as EvaluateOptions::passes takes them
  int64_t mxmVectors = 0, mxmInstalls = 0, vxmVectors = 0;
};

struct CompileReport {
  std::string order;        ///< the solver that ordered the kernels
  Tactic tactic;            ///< how it is scheduled
  std::string partition;    ///< the solver that dealt the kernels
  std::vector<Tried> tried; ///< of a search, in its order; empty at effort 0
  std::vector<KernelReport> kernels;
  int64_t macsOnGrid = 0;
  std::vector<std::string> hostCalls; ///< ONNX nodes that run on the host
  uint64_t predictedCycles = 0;       ///< over all grid steps
  uint64_t bursts = 0;
  schedule::Ledger ledger;                     ///< kernels by their number in the graph
  schedule::Bounds bounds;                     ///< likewise
  std::vector<std::vector<uint32_t>> kernelOf; ///< [pe][instruction]: its kernel's number
  std::vector<int64_t> relieved;               ///< cycles, of each relief that was asked for
  bool crowded = false; ///< refused, as bursts of one piece met in whatever places were tried
  bool full = false;    ///< refused, and in some attempt as something found no rows
  std::vector<std::string> rounded; ///< constants that were rounded to fit, by compileToFit()
};

/// Plans layouts and memory, schedules every kernel, and writes the image. Errors name the tensor
/// or kernel, the numbers and the remedy (a model larger than memory says by how much).
Expected<Image> compile(const forms::KernelGraph &graph, const Machine &machine,
                        const CompileOptions &options, CompileReport &report);

} // namespace millrace::grid
