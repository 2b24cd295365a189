// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Fit.h"

#include "compiler/Forms/Rewritings/ExpandWeights.h"
#include "compiler/Forms/Rewritings/NarrowConstants.h"
#include "compiler/Forms/Rewritings/Rewritings.h"
#include "compiler/Forms/Rewritings/SplitBatches.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/SplitResults.h"

#include "arch/spec/Facts.h"

#include <optional>
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
class Fitting {
public:
  Fitting(KernelGraph &graph, const Machine &machine, const FitOptions &options,
          CompileReport &report)
      : graph(graph), machine(machine), options(options), how(options.compile), before(report),
        report(report) {}

  Expected<Image> run();

private:
  KernelGraph &graph;
  const Machine &machine;
  const FitOptions &options;
  CompileOptions how;
  const CompileReport before;
  CompileReport &report;

  Expected<Image> attempt(KernelGraph rewritten, std::vector<std::string> rounded = {});
  std::optional<Image> fitApart();
  std::optional<Image> fitRewritten();
};

/// Leaves the graph that fits.
Expected<Image> Fitting::attempt(KernelGraph rewritten, std::vector<std::string> rounded) {
  CompileReport its = before;
  Expected<Image> image = compile(rewritten, machine, how, its);
  if (image) {
    graph = std::move(rewritten);
    report = std::move(its);
    report.rounded = std::move(rounded);
  }
  return image;
}

/// A result less in a piece leaves it more slices.
std::optional<Image> Fitting::fitApart() {
  KernelGraph apart = graph;
  if (forms::splitResults(apart))
    if (Expected<Image> image = attempt(std::move(apart)))
      return std::move(*image);
  return std::nullopt;
}

/// What needs fewer rows, exact ones first.
std::optional<Image> Fitting::fitRewritten() {
  if (Expected<Image> image = attempt(graph))
    return std::move(*image);
  if (report.crowded)
    if (std::optional<Image> image = fitApart())
      return image;
  if (KernelGraph packed = withPackedWeights(graph, machine); packed != graph)
    if (Expected<Image> image = attempt(std::move(packed)))
      return std::move(*image);
  // Values of a part of a loop at a time leave more room: half as much, a quarter.
  const int64_t peak = forms::peakRows(graph, machine);
  for (const bool narrows : {false, true}) {
    KernelGraph start = graph;
    std::vector<std::string> rounded;
    if (narrows && options.narrow)
      rounded = forms::narrowConstants(start, *options.narrow);
    if (narrows && rounded.empty())
      break;
    for (const int64_t share : {2, 4}) {
      KernelGraph parts = inParts(start, machine, peak / share);
      if (parts == graph)
        continue;
      KernelGraph packed = withPackedWeights(parts, machine);
      if (packed != parts)
        if (Expected<Image> image = attempt(std::move(parts), rounded))
          return std::move(*image);
      if (Expected<Image> image = attempt(std::move(packed), rounded))
        return std::move(*image);
    }
  }
  return std::nullopt;
}

Expected<Image> Fitting::run() {
  Expected<Image> whole = compile(graph, machine, how, report);
  if (whole || !options.rewrites)
    return whole;
  if (report.crowded)
    if (std::optional<Image> image = fitApart())
      return std::move(*image);
  if (!report.full && !report.crowded)
    return whole;
  how.sharesRows = true;
  for (const bool sparing : {false, true}) { // streams from afar are slower than all of those
    how.sparing = sparing;
    if (std::optional<Image> image = fitRewritten())
      return std::move(*image);
  }
  return whole;
}

} // namespace

Expected<Image> compileToFit(KernelGraph &graph, const Machine &machine, const FitOptions &options,
                             CompileReport &report) {
  return Fitting(graph, machine, options, report).run();
}

} // namespace millrace::grid
