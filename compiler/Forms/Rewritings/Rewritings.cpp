// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/Rewritings.h"

#include "compiler/Forms/Rewritings/AlignRanks.h"
#include "compiler/Forms/Rewritings/ClipRunning.h"
#include "compiler/Forms/Rewritings/CutSelections.h"
#include "compiler/Forms/Rewritings/FoldOperands.h"
#include "compiler/Forms/Rewritings/FoldTiles.h"
#include "compiler/Forms/Rewritings/ForwardCopies.h"
#include "compiler/Forms/Rewritings/HoistRows.h"
#include "compiler/Forms/Rewritings/InterleaveRunning.h"
#include "compiler/Forms/Rewritings/JoinLanes.h"
#include "compiler/Forms/Rewritings/KeepHeads.h"
#include "compiler/Forms/Rewritings/KeepWhole.h"
#include "compiler/Forms/Rewritings/LateValues.h"
#include "compiler/Forms/Rewritings/MergeHeads.h"
#include "compiler/Forms/Rewritings/PackHeads.h"
#include "compiler/Forms/Rewritings/PadOperands.h"
#include "compiler/Forms/Rewritings/PairRunning.h"
#include "compiler/Forms/Rewritings/SpaceHeads.h"
#include "compiler/Forms/Rewritings/SplitColumns.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/SplitResults.h"
#include "compiler/Forms/Rewritings/SplitRunning.h"
#include "compiler/Forms/Rewritings/SplitSums.h"
#include "compiler/Forms/Rewritings/SplitTables.h"
#include "compiler/Forms/Rewritings/SplitWindows.h"
#include "compiler/Forms/Rewritings/StreamBias.h"
#include "compiler/Forms/Rewritings/SubtractInSums.h"
#include "compiler/Forms/Rewritings/UniformRows.h"
#include "compiler/Forms/Rewritings/UnrollRunning.h"
#include "compiler/Forms/Rewritings/ViewInputs.h"
#include "compiler/Forms/Rewritings/WidenWindows.h"
#include "compiler/Forms/ShareSums.h"
#include "compiler/Forms/Simplify.h"
#include "compiler/Layouts/AppendParts.h"
#include "compiler/Layouts/Assign.h"
#include "compiler/Layouts/LayoutProblem.h"
#include "compiler/Layouts/SplitParts.h"

#include <algorithm>

namespace millrace::forms {

using Lines = std::vector<std::string>;
using Done = Expected<Lines>;

static const Rewriting table[] = {
    {"fold-operands", "computes once what operations make of constants alone",
     [](KernelGraph &graph, const Machine &, const RewriteOptions &) -> Done {
       foldOperands(graph);
       return Lines();
     }},
    {"join-lanes", "makes one loop of two along the lanes, in copies of what is installed",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       joinLanes(graph, machine);
       return Lines();
     }},
    {"merge-heads", "lets the heads of an attention lie side by side in a row",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       mergeHeads(graph, machine);
       return Lines();
     }},
    {"keep-heads", "lets heads stay side by side through what is done to each of them",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       keepHeads(graph, machine);
       return Lines();
     }},
    {"pack-heads", "computes scores of several heads of an attention in one vector",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       packHeads(graph, machine);
       return Lines();
     }},
    {"space-heads", "begins heads of an attention where a part of a vector does",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       spaceHeads(graph, machine);
       return Lines();
     }},
    {"subtract-in-sums", "subtracts maxima of scores within the sums that the scores are",
     [](KernelGraph &graph, const Machine &, const RewriteOptions &) -> Done {
       subtractInSums(graph);
       return Lines();
     }},
    {"hoist-rows", "computes once what is the same for all rows of a map",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       hoistRows(graph, machine);
       return Lines();
     }},
    {"split-sums", "sums tensors of few lanes in steps that may have any layout",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       splitSums(graph, machine);
       return Lines();
     }},
    {"unroll-running", "reads every step of short reductions as an operand of its own",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       unrollRunning(graph, machine);
       return Lines();
     }},
    {"append-parts", "collects what many concatenations share in vectors of lanes",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       layouts::appendParts(graph, machine);
       return Lines();
     }},
    {"keep-whole", "moves parts and slices of lanes where they would tear what meets them apart",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &options) -> Done {
       if (options.room < Room::Spare)
         keepWhole(graph, machine, [&](KernelGraph kept) {
           layouts::splitParts(kept, machine);
           forwardCopies(kept, &machine);
           mergeMaps(kept, longestChain(machine));
           alignRanks(kept);
           alignOrders(kept);
           return layouts::solvedCost(layouts::LayoutProblem(kept, machine, options.costs)) +
                  tornCycles(kept, machine);
         });
       return Lines();
     }},
    {"split-parts",
     "cuts concatenations of few lanes, or across vectors, into a tensor for each part",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       layouts::splitParts(graph, machine);
       return Lines();
     }},
    {"forward-copies", "lets the readers of a copy read what was copied",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       forwardCopies(graph, &machine);
       return Lines();
     }},
    {"merge-maps", "lets who makes a part do what the one map that reads it does",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       mergeMaps(graph, longestChain(machine));
       return Lines();
     }},
    {"align-ranks",
     "gives rows that maps meet, and results of one kernel, the dimensions that they meet",
     [](KernelGraph &graph, const Machine &, const RewriteOptions &) -> Done {
       alignRanks(graph);
       alignOrders(graph);
       return Lines();
     }},
    {"view-inputs", "lets the host write what maps read of an input as tensors of their own",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &options) -> Done {
       if (options.room < Room::Spare)
         viewInputs(graph, machine);
       return Lines();
     }},
    {"assign-layouts", "chooses rows and lanes for every tensor, and lays constants out for them",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &options) -> Done {
       return layouts::assignLayouts(graph, machine, options.layouts, options.layoutSeed,
                                     options.layoutsChosen, options.costs,
                                     options.room >= Room::Least);
     }},
    {"split-windows", "cuts two-dimensional windows into a pass along each dimension",
     [](KernelGraph &graph, const Machine &, const RewriteOptions &) -> Done {
       splitWindows(graph);
       return Lines();
     }},
    {"clip-running", "cuts running loops down to what lies inside the tensors",
     [](KernelGraph &graph, const Machine &, const RewriteOptions &) -> Done {
       clipRunning(graph);
       return Lines();
     }},
    {"split-running", "reduces running loops that step unevenly, or far, one after the other",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       splitRunning(graph, machine.mxm.accumulatorRows);
       return Lines();
     }},
    {"late-values", "computes again, once, what a running reduction used per element",
     [](KernelGraph &graph, const Machine &, const RewriteOptions &) -> Done {
       repeatLateValues(graph);
       return Lines();
     }},
    {"split-tables", "cuts tables of more rows than one Gather reaches",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       splitTables(graph,
                   std::min<int64_t>(machine.rowsPerSlice(), 0xffff)); // two bytes of address
       return Lines();
     }},
    {"uniform-rows", "keeps one vector of constant rows that are the same in all lanes",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       shortenUniformRows(graph, machine);
       return Lines();
     }},
    {"stream-bias", "lets a bias along rows stream with the sum where memory is short",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       streamBias(graph, machine);
       return Lines();
     }},
    {"fold-tiles", "adds the vectors of a long row to each other before its lanes are summed",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       foldTiles(graph, machine);
       return Lines();
     }},
    {"share-sums", "makes a sum that all lanes of a long result share once",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       shareSums(graph, machine);
       return Lines();
     }},
    {"widen-windows", "stores in fp32 what windows would convert at each tap",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &options) -> Done {
       widenWindows(graph, longestChain(machine), machine, options.room);
       return Lines();
     }},
    {"split-epilogues", "cuts epilogues of more operations than the machine can chain",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &options) -> Done {
       splitEpilogues(graph, longestChain(machine), machine, options.room);
       if (splitResults(graph, machine)) // one result may be cut where several may not
         splitEpilogues(graph, longestChain(machine), machine, options.room);
       // A window beside a sum of products, which a kernel of its own reduces now.
       splitRunning(graph, machine.mxm.accumulatorRows);
       return Lines();
     }},
    {"pair-running", "combines neighbours before a reduction runs over many rows",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &options) -> Done {
       if (options.room < Room::Spare)
         pairRunning(graph, machine);
       return Lines();
     }},
    {"interleave-running", "deals the steps of a running reduction of sums to several accumulators",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       interleaveRunning(graph, machine);
       return Lines();
     }},
    {"cut-selections", "picks lanes of two parts of a vector in a kernel for each",
     [](KernelGraph &graph, const Machine &machine, const RewriteOptions &) -> Done {
       cutSelections(graph, machine);
       return Lines();
     }},
    {"pad-operands",
     "copies what is installed together with the padding that a window of it reaches",
     [](KernelGraph &graph, const Machine &, const RewriteOptions &) -> Done {
       padOperands(graph);
       return Lines();
     }},
    {"split-columns", "copies what is installed with columns in more than one order",
     [](KernelGraph &graph, const Machine &, const RewriteOptions &) -> Done {
       splitColumns(graph);
       return Lines();
     }},
};

unsigned longestChain(const Machine &machine) { return std::max(2u, machine.vxm.alus * 3 / 4); }

std::span<const Rewriting> rewritings() { return table; }

Expected<std::vector<std::string>> rewrite(KernelGraph &graph, const Machine &machine,
                                           const RewriteOptions &options) {
  Lines lines;
  for (const Rewriting &rewriting : table) {
    Done done = rewriting.run(graph, machine, options);
    if (!done)
      return Error{std::string(rewriting.name) + ": " + done.error()};
    if (const std::string wrong = graph.verify(); !wrong.empty())
      return Error{"after " + std::string(rewriting.name) + ": " + wrong};
    std::move(done->begin(), done->end(), std::back_inserter(lines));
  }
  return lines;
}

} // namespace millrace::forms
