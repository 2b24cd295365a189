// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Lets heads that are made side by side stay so through what is done to each of them: maps, and
/// products with constants within a head (a norm's sums, a rotation of positions). A tensor
/// [.., heads, .., d] with lanes d becomes [.., heads / g, .., g * d], of as many heads g as a
/// vector has room for; a constant [d, d] becomes g such blocks along a diagonal, with zeros
/// elsewhere. Heads that lie apart and are mapped several times each (keys that queries share) are
/// brought side by side by such a product as well. What sums over a head of two such tensors reads
/// its lanes among the others; who else reads one gets the heads apart, by one product with a
/// constant where the heads were all apart before. Exact, but that a zero may lose its sign: zeros
/// are added. Only where it takes fewer vectors; what may be infinite or NaN is left. Returns how
/// many tensors lie side by side now.
unsigned keepHeads(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
