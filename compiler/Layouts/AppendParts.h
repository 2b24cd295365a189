// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What many concatenations share, as the layers of a dense block do: parts of few lanes, of which
// each concatenation maps all that there are so far. Read part by part they take a sweep each, and
// a vector of rows of few lanes each. Here each part is added, once, to a vector of the parts
// before it, in lanes of its own (x + part * E, E of 0 and 1), and a concatenation is one map of
// each such vector.
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::layouts {

/// Collects the parts that enough concatenations read for it to take fewer sweeps. Returns how many
/// were appended. Before splitParts().
unsigned appendParts(forms::KernelGraph &graph, const Machine &machine);

} // namespace millrace::layouts
