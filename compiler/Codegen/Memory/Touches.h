// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When a schedule touches which rows, so that another one finds them in places where little else
// happens meanwhile.
#pragma once

#include "compiler/Codegen/Memory/Layout.h"
#include "compiler/Schedule/Program.h"

#include <compare>
#include <map>
#include <vector>

namespace millrace::grid {

/// Cycles of a step in which a row is read, or written, after another.
struct Window {
  unsigned step = 0;
  Cycle from = 0, to = 0;
  bool writes = false;
  auto operator<=>(const Window &) const = default; ///< by step and begin
};

/// A lane tile of one of the copies that a hemisphere has of a tensor: of its row copies, or its
/// column copies, in their order.
struct CopyTile {
  unsigned tensor = 0, pe = 0;
  Hemisphere hemisphere = Hemisphere::West;
  bool columns = false;
  unsigned number = 0, tile = 0;
  auto operator<=>(const CopyTile &) const = default;
};

/// The windows of a finished schedule. As many bytes as it has bursts, some times over.
class Touches {
public:
  Touches(const Machine &machine, const std::vector<TensorLayout> &layouts,
          const schedule::Program &program);
  /// When rows [row, end) are touched (of column copies: places); of a burst that goes on to other
  /// rows, its part.
  std::vector<Window> of(const CopyTile &copy, int64_t row, int64_t end) const;
  /// Of what is there from the start, per (PE, hemisphere), slice and bank.
  const std::vector<std::vector<Window>> &ofConstants() const { return constants; }

private:
  struct Burst {
    Window window;
    int64_t first = 0, last = 0; ///< rows
    bool down = false;           ///< from the last to the first
  };
  std::map<CopyTile, std::vector<Burst>> bursts;
  std::vector<std::vector<Window>> constants;
};

/// What is touched in each bank of a machine's slices, as far as it has a place.
class Meetings {
public:
  Meetings(const Machine &machine, const std::vector<std::vector<Window>> &constants);
  /// Adds to the cost of each (slice, bank) of a hemisphere the cycles in which these windows would
  /// meet others there, at most `most`: reads others' reads of the slice, writes others' writes,
  /// and either the other in one bank.
  void addTo(std::vector<unsigned> &cost, size_t hemisphere, const std::vector<Window> &its,
             unsigned most) const;
  void note(size_t hemisphere, unsigned slice, unsigned bank, const std::vector<Window> &its);

private:
  const unsigned slices, banks;
  struct Bank {
    std::vector<Window> windows; ///< by step and begin
    Cycle longest = 0;           ///< from the begin of one to its end
  };
  static void add(Bank &bank, const std::vector<Window> &its);
  std::vector<Bank> all; ///< per (PE, hemisphere), slice and bank
  size_t numberOf(size_t hemisphere, unsigned slice, unsigned bank) const {
    return (hemisphere * slices + slice) * banks + bank;
  }
};

} // namespace millrace::grid
