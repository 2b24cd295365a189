// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What lookups need in memory: the rows of a table that Gathers address, and the map vectors that
// the host makes of indices.
#pragma once

#include "compiler/Codegen/Memory/Layout.h"

namespace millrace::grid {

/// One lookup of a kernel, as memory sees it. Lookups of one table in one kernel need copies of
/// their own: a slice has one read port.
struct LookupKey {
  unsigned table = 0, indices = 0; ///< tensors
  int64_t offset = 0;              ///< added to every index
  unsigned use = 0;                ///< which of the kernel's lookups of this table
  uint32_t pad = 0;                ///< what an index outside the table reads
  bool operator==(const LookupKey &) const = default;
};
LookupKey lookupKey(const Kernel &kernel, unsigned operand);

/// Can an index lie outside the table? Then a row of pads stands behind its last row.
bool needsPadRow(const KernelGraph &graph, const LookupKey &key);

/// One lane tile of a table on one hemisphere: byte b of row r at addresses[b] + r of slices[b].
struct TableCopy {
  unsigned table = 0, use = 0, pe = 0, tile = 0;
  uint32_t pad = 0;
  Hemisphere hemisphere = Hemisphere::West;
  std::vector<unsigned> slices, addresses;
  std::vector<uint32_t> regions;
};

/// Map vectors of one lookup on one hemisphere, a row per element of the index tensor: the address
/// of the table's row, in the first lanes of every superlane. The slice lies at least as far out as
/// the table's, so that one vector flows past all of them.
struct IndexMap {
  LookupKey key;
  unsigned pe = 0;
  Hemisphere hemisphere = Hemisphere::West;
  unsigned slice = 0, address = 0;
  uint32_t region = 0;
  int64_t tableRows = 0;
};

} // namespace millrace::grid
