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

/// What copies are there for.
enum class CopiesFor {
  Least, ///< every read has one, in either hemisphere
  Reads, ///< reads of one piece do not wait for each other
  Speed, ///< nor do pieces of the two hemispheres
};

/// Per tensor. A swept tensor has a row copy for each plane of a hemisphere that its format uses.
/// Of several operands of one kernel that are one tensor, each has a row copy of its own. With
/// `Speed`, for operands of a map that no kernel sweeps, each hemisphere has as many, of the rows
/// that are read there, if the rows of both find ALUs at once (twoRowsFit) and the copies find
/// slices (mostBytesApart): else the two share them, and each does its rows while the other waits;
/// and operands that the kernel sweeps, too, have a copy each beside one for the sweep. What maps
/// alone read, one row at a time, has a copy in either hemisphere; with `Least`, in one of them.
/// `planes` of a hemisphere are used, and `pes` compute; 0: all.
std::vector<Copies> copiesOf(const forms::KernelGraph &graph, const Machine &machine,
                             CopiesFor what = CopiesFor::Speed, unsigned planes = 0,
                             unsigned pes = 0);

} // namespace millrace::grid
