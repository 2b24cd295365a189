// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Layouts/Layout.h"

#include "arch/spec/Expected.h"
#include "arch/spec/Machine.h"

namespace millrace::layouts {

/// Splits the taps of poolings where that pays (SplitTaps.h; not for `plain`), chooses a layout for
/// every tensor by the named solver, checks the choice, and rewrites the graph
/// to rows and lanes of it. `seed`: of solvers that draw. Returns a line per tensor that is not
/// plain. Errors: an unknown solver; a choice that the check refuses.
Expected<std::vector<std::string>> assignLayouts(KernelGraph &graph, const Machine &machine,
                                                 const std::string &solver, uint64_t seed = 0);

} // namespace millrace::layouts
