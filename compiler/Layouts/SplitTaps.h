// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Layouts/LayoutProblem.h"

namespace millrace::layouts {

/// Where a map combines neighbours of a tensor, a step of several apart for neighbouring results (a
/// pooling), lanes that lie side by side would have to move. Instead the contraction that makes the
/// tensor computes one for each neighbour, of those elements alone, so that the map works lane by
/// lane and all of them may be packed; or one is moved to be the other, a whole number of steps
/// away; or all are moved from the tensor. Done where the layouts that follow cost less, elements
/// that are computed twice and moves included. The same values, but for zeros' signs where they are
/// moved. `cache`: what kernels cost, for the solver that comes after. Returns a line per tensor.
std::vector<std::string>
splitTaps(KernelGraph &graph, const Machine &machine,
          const std::shared_ptr<CostCache> &cache = std::make_shared<CostCache>());

} // namespace millrace::layouts
