// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which copies of a tensor its readers need on a PE, and which of them is the reason.
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

#include <optional>
#include <vector>

namespace millrace::grid {

struct Copies {
  unsigned rows[kHemispheres] = {0, 0}; ///< row copies, by hemisphere
  bool columns = false;                 ///< laid out for Install; not of constants
  // Kernels: the first that needs as many row copies, the first that installs it.
  std::optional<unsigned> rowsFor, columnsFor;
};

/// Per tensor. A swept tensor has a row copy for each plane of a hemisphere that its format uses,
/// and more for operands of the sweeping kernel that are the same tensor. Of several operands of a
/// map that are one tensor, each has a row copy of its own: in each hemisphere if the rows of both
/// find ALUs at once, of those that are read there; else the two share them, and each does its rows
/// while the other waits. What maps alone read, one row at a time, has a copy in either hemisphere.
/// With `sparing`, no copies are added for what happens at once, and those have one in one of them.
/// `planes` of a hemisphere are used, and `pes` compute; 0: all.
std::vector<Copies> copiesOf(const forms::KernelGraph &graph, const Machine &machine,
                             bool sparing = false, unsigned planes = 0, unsigned pes = 0);

} // namespace millrace::grid
