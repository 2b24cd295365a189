// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Free rows of one hemisphere of one PE. Rows come back when their tensor's last reader is
// scheduled; what then reuses them may not be written before that last use.
#pragma once

#include "arch/spec/Machine.h"

#include <vector>

namespace millrace::memory {

/// The same rows of several slices of one hemisphere.
struct Span {
  std::vector<unsigned> slices;
  unsigned address = 0;
  unsigned rows = 0;
  Cycle notBefore = INT64_MIN / 4; ///< last use of what these rows held before
};

class HemisphereAllocator {
public:
  /// Of the first slices at each stream register and the first banks alone, if not 0.
  explicit HemisphereAllocator(const Machine &machine, unsigned slicesPerRegister = 0,
                               unsigned banks = 0);

  /// `width` different slices with a common run of up to `rows` free rows in one bank (as many as
  /// the best bank has, at least one), taken from slices [first, last). `avoid[slice]` is a cost
  /// that keeps bursts which run at the same time apart; slices that cost `most` or more are not
  /// used. With `fresh`, only rows that nothing has used before. Empty `slices` if nothing is free.
  Span take(unsigned width, unsigned rows, unsigned first, unsigned last,
            const std::vector<unsigned> &avoid, unsigned most = kForbidden, bool fresh = false);
  /// `width` different slices of [first, last), the cheapest ones, each with a run of its own of
  /// `rows` rows, with `fresh` of those that nothing has used; spans of one slice each, by slice.
  /// Empty, and nothing taken, if fewer slices have room.
  std::vector<Span> takeApart(unsigned width, unsigned rows, unsigned first, unsigned last,
                              const std::vector<unsigned> &avoid = {}, bool fresh = true);
  /// The same with as many rows, up to `rows`, as `width` slices have in a run; as few as one.
  std::vector<Span> takeLongest(unsigned width, unsigned rows, unsigned first, unsigned last,
                                const std::vector<unsigned> &avoid, bool fresh);
  /// As takeApart for more rows than a bank has: slices of which all banks are free, from row 0 on.
  /// The spans of a slice stand together, one per bank.
  std::vector<Span> takeAcross(unsigned width, unsigned rows, unsigned first, unsigned last,
                               const std::vector<unsigned> &avoid = {});
  /// `fresh`: nothing was ever put there.
  void give(const Span &span, bool fresh = false);
  /// A new step begins: whatever was used before is over.
  void forgetTimes();
  /// Rows free in slices [first, last), over all banks.
  uint64_t freeRows(unsigned first, unsigned last) const;
  /// The longest run of rows that are free in a slice.
  unsigned longestRun(unsigned slice) const;

  static constexpr unsigned kForbidden = 1u << 20;

private:
  struct Run {
    unsigned address, rows;
    Cycle notBefore;
    bool fresh = true;
  };
  const MemorySpec &spec;
  const unsigned banks;               ///< that are used, of each slice
  std::vector<std::vector<Run>> free; ///< per (slice, bank), by address
  std::vector<Run> &runs(unsigned slice, unsigned bank) { return free[slice * spec.banks + bank]; }
  /// The longest run of up to `rows` rows common to all slices, of those the one that is free
  /// first; rows 0 if none. Slices x runs x slices steps.
  Run common(const std::vector<unsigned> &slices, unsigned bank, unsigned rows, bool fresh);
  /// Of the runs of `rows` rows that neighbouring free runs make together, the one that is free
  /// first; rows 0 if none.
  Run joined(unsigned slice, unsigned bank, unsigned rows) const;
  struct Range { ///< rows [begin, end)
    unsigned begin, end;
  };
  std::vector<Range> rangesOf(unsigned slice, unsigned bank, bool fresh) const;
  static std::vector<Range> intersection(const std::vector<Range> &x, const std::vector<Range> &y);
  void remove(unsigned slice, unsigned bank, unsigned address, unsigned rows);
};

} // namespace millrace::memory
