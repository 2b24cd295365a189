// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rewritings of kernel graphs in the order in which they run: what follows forming, written
// once for the driver and for whoever runs a single one.
#pragma once

#include "compiler/Forms/Kernel.h"
#include "compiler/Forms/Room.h"
#include "compiler/Layouts/Assign.h"

#include "arch/spec/Expected.h"
#include "arch/spec/Machine.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace millrace::forms {

/// Most operations that one kernel may chain on this machine; the other ALUs hold values back until
/// their use.
unsigned longestChain(const Machine &machine);

struct RewriteOptions {
  std::string layouts = "exact";           ///< the layout solver (compiler/Layouts/LayoutProblem.h)
  uint64_t layoutSeed = 0;                 ///< of those that draw
  layouts::Chosen layoutsChosen = nullptr; ///< is shown what they chose
  std::shared_ptr<layouts::CostCache> costs = nullptr; ///< of other graphs for the same machine
  Room room = Room::Ample; ///< how the memory is shared out
};

struct Rewriting {
  const char *name;    ///< assign-layouts
  const char *summary; ///< one line
  /// Rewrites the graph for the machine. Returns what it did, a line per tensor or kernel, where
  /// the report wants to know.
  Expected<std::vector<std::string>> (*run)(KernelGraph &graph, const Machine &machine,
                                            const RewriteOptions &options);
};

/// All of them, in order.
std::span<const Rewriting> rewritings();

/// Runs all of them. Returns their lines. Errors: one that fails, or leaves a graph that does not
/// verify, by name.
Expected<std::vector<std::string>> rewrite(KernelGraph &graph, const Machine &machine,
                                           const RewriteOptions &options = {});

} // namespace millrace::forms
