// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Layouts/LayoutProblem.h"

namespace millrace::layouts {

/// Where several kernels sum over windows of one input, its rows hold what all of them reach. The
/// host may as well write the input more than once, each time as fewer of them want it. Readers are
/// dealt to copies in the order of what they reach, where the layouts that follow cost less; all
/// copies together repeat an element as often as one of them might (R15). The same values. `cache`:
/// what kernels cost, for the solver that comes after. Returns a line per input.
std::vector<std::string>
copyInputs(KernelGraph &graph, const Machine &machine,
           const std::shared_ptr<CostCache> &cache = std::make_shared<CostCache>());

} // namespace millrace::layouts
