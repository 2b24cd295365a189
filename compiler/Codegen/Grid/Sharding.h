// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On how many PEs the weights of each kernel lie, where those of all have no room on every PE that
// could do a part of them.
#pragma once

#include "compiler/Codegen/Grid/WeightRows.h"

namespace millrace::grid {

/// How a kernel's work is cut for several PEs.
enum class Cut {
  Strips, ///< some strips of every lane tile: each PE stores all weights
  Units,  ///< units one after the other, evenly: a PE stores the lane tiles that it begins or ends
  Tiles   ///< whole lane tiles, or strips of one of them: a PE stores no tile that it could do
          ///< without
};
/// The shares of each of `pes` PEs. Strips need one for each PE, and no running reduction.
std::vector<std::vector<Share>> cutWork(const Work &work, size_t pes, Cut cut);

/// Deals kernels of a partition to fewer PEs, or stores each of their weights in one hemisphere
/// only, until none stores more rows than `most` has for it, by (PE, hemisphere): those first that
/// lose the fewest cycles for each row that they free. Where nothing is enough, until hardly any
/// rows are left to free. `order`: of PEs, neighbours in it are near each other.
void shard(const WeightRows &weights, Partition &partition, const std::vector<unsigned> &order,
           const std::vector<uint64_t> &most);

} // namespace millrace::grid
