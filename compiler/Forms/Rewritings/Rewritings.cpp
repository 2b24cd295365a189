// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/Rewritings.h"

#include "compiler/Forms/Rewritings/ClipRunning.h"
#include "compiler/Forms/Rewritings/LateValues.h"
#include "compiler/Forms/Rewritings/MergeHeads.h"
#include "compiler/Forms/Rewritings/PackPixels.h"
#include "compiler/Forms/Rewritings/PackWindows.h"
#include "compiler/Forms/Rewritings/PadOperands.h"
#include "compiler/Forms/Rewritings/SplitColumns.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/SplitRunning.h"
#include "compiler/Forms/Rewritings/SplitTables.h"
#include "compiler/Forms/Rewritings/SplitWindows.h"
#include "compiler/Forms/Rewritings/StreamBias.h"
#include "compiler/Forms/Rewritings/WindowInputs.h"

#include <algorithm>

namespace millrace::forms {

using Lines = std::vector<std::string>;

static const Rewriting table[] = {
    {"pack-windows", "packs pixels into rows where a convolution of the input feeds a pooling",
     [](KernelGraph &graph, const Machine &machine) { return packWindows(graph, machine); }},
    {"pack-pixels", "packs neighbouring pixels of few channels into rows between contractions",
     [](KernelGraph &graph, const Machine &machine) { return packPixels(graph, machine); }},
    {"window-inputs", "lets the host write the windows of images with few channels",
     [](KernelGraph &graph, const Machine &machine) {
       windowInputs(graph, machine.lanes()); // stems that feed no pooling
       return Lines();
     }},
    {"merge-heads", "lets the heads of an attention lie side by side in a row",
     [](KernelGraph &graph, const Machine &machine) {
       mergeHeads(graph, machine);
       return Lines();
     }},
    {"split-windows", "cuts two-dimensional windows into a pass along each dimension",
     [](KernelGraph &graph, const Machine &) {
       splitWindows(graph);
       return Lines();
     }},
    {"clip-running", "cuts running loops down to what lies inside the tensors",
     [](KernelGraph &graph, const Machine &) {
       clipRunning(graph);
       return Lines();
     }},
    {"split-running", "reduces running loops that step unevenly one after the other",
     [](KernelGraph &graph, const Machine &) {
       splitRunning(graph);
       return Lines();
     }},
    {"late-values", "computes again, once, what a running reduction used per element",
     [](KernelGraph &graph, const Machine &) {
       repeatLateValues(graph);
       return Lines();
     }},
    {"split-tables", "cuts tables of more rows than one Gather reaches",
     [](KernelGraph &graph, const Machine &machine) {
       splitTables(graph,
                   std::min<int64_t>(machine.rowsPerSlice(), 0xffff)); // two bytes of address
       return Lines();
     }},
    {"stream-bias", "lets a bias along rows stream with the sum where memory is short",
     [](KernelGraph &graph, const Machine &machine) {
       streamBias(graph, machine);
       return Lines();
     }},
    {"split-epilogues", "cuts epilogues of more operations than the machine can chain",
     [](KernelGraph &graph, const Machine &machine) {
       splitEpilogues(graph, longestChain(machine), machine);
       return Lines();
     }},
    {"pad-operands",
     "copies what is installed together with the padding that a window of it reaches",
     [](KernelGraph &graph, const Machine &) {
       padOperands(graph);
       return Lines();
     }},
    {"split-columns", "copies what is installed with columns in more than one order",
     [](KernelGraph &graph, const Machine &) {
       splitColumns(graph);
       return Lines();
     }},
};

unsigned longestChain(const Machine &machine) { return std::max(2u, machine.vxm.alus * 3 / 4); }

std::span<const Rewriting> rewritings() { return table; }

std::vector<std::string> rewrite(KernelGraph &graph, const Machine &machine) {
  Lines lines;
  for (const Rewriting &rewriting : table)
    for (std::string &line : rewriting.run(graph, machine))
      lines.push_back(std::move(line));
  return lines;
}

} // namespace millrace::forms
