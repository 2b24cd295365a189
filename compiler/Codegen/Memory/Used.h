// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many of a machine's units a program uses.
#pragma once

#include <compare>

namespace millrace::grid {

/// The first ones of the machine's; 0: all. Choices that count on more units than help may lose by
/// them: work that is dealt to all planes waits for ports of memory, rows in more banks are found
/// later. Distances, queues and the account are those of the whole machine.
struct Used {
  unsigned planes = 0;            ///< MXM planes per hemisphere; whole ones of each format
  unsigned alus = 0;              ///< per PE
  unsigned slicesPerRegister = 0; ///< MEM slices at each stream register
  unsigned banks = 0;             ///< per slice
  auto operator<=>(const Used &) const = default;
};

} // namespace millrace::grid
