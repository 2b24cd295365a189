// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Codegen/Grid/Partition.h"

namespace millrace::grid {

/// For every source PE, the link by which each other PE is reached first (a tree of shortest
/// routes, links in their order).
class Routes {
public:
  explicit Routes(const Machine &machine);
  /// Links of the tree from `from` that lead to the given PEs, sources before targets. Empty if one
  /// cannot be reached.
  std::vector<const Link *> tree(unsigned from, const std::vector<unsigned> &to) const;

private:
  const Machine &machine;
  std::vector<std::vector<const Link *>> into; ///< [from][pe]: last link on the way
};

/// Moves rows of a tensor from one PE to the copies on others: read, sent along the tree, passed
/// through the VXM, written.
Status moveRows(Context &c, const Routes &routes, unsigned tensor, const Transfer &transfer,
                uint32_t provenance);

} // namespace millrace::grid
