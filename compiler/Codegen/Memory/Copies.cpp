// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Memory/Copies.h"

#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace::grid {

using forms::TensorRole;

namespace {

unsigned sum(const Copies &copies) { return copies.rows[0] + copies.rows[1]; }

void addReader(const forms::KernelGraph &graph, const Machine &machine, unsigned k, unsigned planes,
               CopiesFor what, const std::vector<bool> &isSwept, std::vector<Copies> &all) {
  const forms::Kernel &kernel = graph.kernels[k];
  const auto grow = [&](unsigned tensor, auto change) {
    const unsigned before = sum(all[tensor]);
    change(all[tensor].rows);
    if (sum(all[tensor]) > before)
      all[tensor].rowsFor = k;
  };
  for (const forms::Term &t : kernel.terms) {
    const MxmFormatSpec *format = machine.mxm.format(graph.tensors[t.a.tensor].type);
    const unsigned its = format ? format->planes : planes;
    grow(t.a.tensor, [&](unsigned(&counts)[kHemispheres]) {
      for (unsigned &rows : counts)
        rows = std::max(rows, std::max(1u, planes / its));
    });
    if (Copies &w = all[t.w.tensor];
        graph.tensors[t.w.tensor].role != TensorRole::Constant && !w.columns)
      w.columns = true, w.columnsFor = k;
  }
  // A map does two rows a cycle if either hemisphere reads copies of its own.
  const bool apart = kernel.terms.empty() && forms::twoRowsFit(kernel, graph, machine);
  struct Reads {
    unsigned all = 0, ofTile = 0; ///< those of a lane tile alone, at most
  };
  std::map<unsigned, Reads> reads; // of one tensor in one piece
  for (const forms::Access &o : kernel.operands)
    if (!o.lookup) { // tables have copies of their own
      Reads &its = reads[o.tensor];
      ++its.all;
      its.ofTile = std::max(its.ofTile, forms::readsOfTile(kernel, graph, o));
    }
  for (const auto &[t, its] : reads) {
    const bool isMade =
        graph.tensors[t].role == TensorRole::Intermediate && what == CopiesFor::Speed;
    // What is swept meanwhile has a copy for that.
    const bool isSweptHere =
        isMade && std::any_of(kernel.terms.begin(), kernel.terms.end(),
                              [t = t](const forms::Term &term) { return term.a.tensor == t; });
    const bool isApart = apart && isMade && !isSwept[t];
    const unsigned here = isSweptHere ? 1 + its.all : isApart ? its.ofTile : 1;
    grow(t, [all = its.all, here](unsigned(&rows)[kHemispheres]) {
      unsigned h = 0;
      for (unsigned &own : rows)
        own = std::max(own, here);
      while (rows[0] + rows[1] < all)
        ++rows[h++ % kHemispheres];
    });
  }
}

/// One copy, in the hemisphere that has less, of what has one in either for its readers' sake: a
/// stream from the other hemisphere takes as long for every row.
void spare(const forms::KernelGraph &graph, const Machine &machine,
           const std::vector<bool> &isSwept, std::vector<Copies> &all) {
  const int64_t lanes = machine.lanes();
  uint64_t rows[kHemispheres] = {0, 0};
  for (unsigned t = 0; t < all.size(); ++t) {
    const forms::Tensor &tensor = graph.tensors[t];
    if (isSwept[t] || all[t].rows[0] != 1 || all[t].rows[1] != 1)
      continue;
    const unsigned h = rows[0] <= rows[1] ? 0 : 1;
    all[t].rows[1 - h] = 0;
    const int64_t width = tensor.shape[tensor.laneDim];
    rows[h] += uint64_t(forms::elementCount(tensor) / width * ((width + lanes - 1) / lanes)) *
               byteWidth(tensor.type);
  }
}

} // namespace

std::vector<Copies> copiesOf(const forms::KernelGraph &graph, const Machine &machine,
                             CopiesFor what, unsigned planes, unsigned pes) {
  std::vector<Copies> all(graph.tensors.size());
  std::vector<bool> isSwept(graph.tensors.size(), false);
  for (const forms::Kernel &kernel : graph.kernels)
    for (const forms::Term &t : kernel.terms)
      isSwept[t.a.tensor] = true;
  for (unsigned k = 0; k < graph.kernels.size(); ++k)
    addReader(graph, machine, k, planes ? planes : machine.mxm.planes, what, isSwept, all);
  if (what == CopiesFor::Least)
    spare(graph, machine, isSwept, all);
  std::set<unsigned> byHost;
  for (const forms::HostCall &call : graph.hostCalls) {
    byHost.insert(call.inputs.begin(), call.inputs.end());
    byHost.insert(call.outputs.begin(), call.outputs.end());
  }
  for (unsigned t = 0; t < all.size(); ++t) {
    const TensorRole role = graph.tensors[t].role;
    const bool read = (byHost.count(t) && role != TensorRole::Constant) ||
                      role == TensorRole::Output ||
                      (all[t].columns && (pes ? pes : machine.pes()) > 1); // or to travel
    if (sum(all[t]) == 0 && read)
      all[t].rows[0] = 1;
  }
  return all;
}

} // namespace millrace::grid
