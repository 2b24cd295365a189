// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Layouts/LayoutProblem.h"

#include "arch/spec/Expected.h"
#include "arch/spec/Machine.h"

namespace millrace::layouts {

/// Is shown the problem and the choice that was made, before the graph changes.
using Chosen = std::function<void(const LayoutProblem &problem, const Choice &choice)>;

/// Splits the taps of poolings where that pays (SplitTaps.h; not for `plain`), chooses a layout for
/// every tensor by the named solver, checks the choice, shows it to `chosen`, and rewrites the
/// graph to rows and lanes of it. `seed`: of solvers that draw. Returns a line per tensor that is
/// not plain. `cache`: of other graphs for the same machine. `sparesRoom`: no second copy of a
/// tensor (CopyInputs.h, ChangeLayouts.h), and layouts in which weights and values have room
/// together, where there are such. Errors: an unknown solver; a choice that the check refuses.
Expected<std::vector<std::string>> assignLayouts(KernelGraph &graph, const Machine &machine,
                                                 const std::string &solver, uint64_t seed = 0,
                                                 const Chosen &chosen = nullptr,
                                                 std::shared_ptr<CostCache> cache = nullptr,
                                                 bool sparesRoom = false);

} // namespace millrace::layouts
