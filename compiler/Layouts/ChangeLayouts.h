// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Layouts/LayoutProblem.h"

namespace millrace::layouts {

/// Tensors whose lanes meet in maps have one layout between them, whatever each of them is good
/// for elsewhere (a pooling's result that is a residual operand, too). Where the layouts that
/// follow cost less, moves included, a tensor is moved: by a product with ones and zeros to a
/// tensor with a layout of its own, which some of its readers take instead. The same values, but
/// for zeros' signs. `cache`: what kernels cost, for the solver that comes after. Returns a line
/// per tensor.
std::vector<std::string>
changeLayouts(KernelGraph &graph, const Machine &machine,
              const std::shared_ptr<CostCache> &cache = std::make_shared<CostCache>());

} // namespace millrace::layouts
