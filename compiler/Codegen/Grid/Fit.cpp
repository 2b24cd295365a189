// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Fit.h"

#include "compiler/Forms/Rewritings/ExpandWeights.h"
#include "compiler/Forms/Rewritings/NarrowConstants.h"
#include "compiler/Forms/Rewritings/Rewritings.h"
#include "compiler/Forms/Rewritings/SplitBatches.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/SplitResults.h"

#include "arch/spec/Facts.h"

#include <utility>

namespace millrace::grid {

using forms::KernelGraph;

namespace {

/// The graph with values of at most `most` rows at a time, as far as chains of kernels can be done
/// part by part.
KernelGraph inParts(const KernelGraph &graph, const Machine &machine, int64_t most) {
  KernelGraph parts = graph;
  forms::splitEpilogues(parts, forms::longestChain(machine), machine);
  forms::splitBatches(parts, machine, most);
  return parts;
}

/// The graph with weights of groups of channels packed, where they take an eighth of the memory for
/// zeros.
KernelGraph withPackedWeights(const KernelGraph &graph, const Machine &machine) {
  KernelGraph packed = graph;
  const uint64_t least = factsOf(machine).capacityBytes * machine.pes() / 8;
  return forms::expandWeights(packed, machine) < int64_t(least) ? graph : packed;
}

/// Tries the graph as it is, then what rewritings of it need less room.
Expected<Image> compileInTurn(KernelGraph &graph, const Machine &machine, const FitOptions &options,
                              CompileReport &report) {
  const CompileReport before = report;
  Expected<Image> whole = compile(graph, machine, options.compile, report);
  if (whole || !options.rewrites)
    return whole;
  const bool crowded = report.crowded, full = report.full;
  CompileOptions how = options.compile;
  const auto attempt = [&](KernelGraph &&rewritten, std::vector<std::string> rounded) {
    CompileReport its = before;
    Expected<Image> image = compile(rewritten, machine, how, its);
    if (image) {
      graph = std::move(rewritten);
      report = std::move(its);
      report.rounded = std::move(rounded);
    }
    return image;
  };
  if (crowded) { // a result less in a piece leaves it more slices
    KernelGraph apart = graph;
    if (forms::splitResults(apart))
      if (Expected<Image> image = attempt(std::move(apart), {}))
        return image;
  }
  if (!full)
    return whole;
  how.sharesRows = true;
  if (Expected<Image> image = attempt(KernelGraph(graph), {}))
    return image;
  if (KernelGraph packed = withPackedWeights(graph, machine); packed != graph)
    if (Expected<Image> image = attempt(std::move(packed), {}))
      return image;
  // Values of a part of a loop at a time leave more room: half as much, a quarter.
  const int64_t peak = forms::peakRows(graph, machine);
  for (const bool narrows : {false, true}) {
    KernelGraph start = graph;
    std::vector<std::string> rounded;
    if (narrows && options.narrow)
      rounded = forms::narrowConstants(start, *options.narrow);
    if (narrows && rounded.empty())
      break;
    for (const int64_t share : {2, 4})
      if (KernelGraph parts = inParts(start, machine, peak / share); parts != graph)
        if (Expected<Image> image = attempt(withPackedWeights(parts, machine), rounded))
          return image;
  }
  return whole;
}

} // namespace

Expected<Image> compileToFit(KernelGraph &graph, const Machine &machine, const FitOptions &options,
                             CompileReport &report) {
  const CompileReport before = report;
  Expected<Image> image = compileInTurn(graph, machine, options, report);
  if (image || !options.rewrites || !report.full)
    return image;
  const CompileReport failed = std::exchange(report, before);
  FitOptions sparing = options;
  sparing.compile.sparing = true; // streams from afar are slower than all of those
  if (Expected<Image> spared = compileInTurn(graph, machine, sparing, report))
    return spared;
  report = failed;
  return image;
}

} // namespace millrace::grid
