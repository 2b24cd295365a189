// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel's points as a list of equal rows of work, dealt out in contiguous shares.
#pragma once

#include "compiler/Codegen/Grid/Domain.h"

namespace millrace::grid {

/// How a kernel's row loops are walked: instances (batch and outer row loops) x lane tiles x
/// strips. A strip is one step of loop1 (all of loop0), or with `linear` one row. A running
/// reduction walks all its strips as one unit.
struct Work {
  LoopRoles roles;
  std::vector<std::vector<int64_t>> instances; ///< loop values, row loops of the flow at 0
  /// Lane tiles of the result for one instance: first lane loop value (with group), lanes.
  struct LaneRange {
    int64_t start = 0, count = 0; ///< start counts from the instance's first lane
  };
  std::vector<LaneRange> tiles;
  std::optional<unsigned> loop0, loop1;
  bool linear = false;
  int64_t strips = 1;    ///< extent of loop1, or rows if linear
  int64_t stripRows = 1; ///< extent of loop0, or 1 if linear
  /// Of a running reduction: cycles from one step to the next, and the row loop of which one
  /// instance reduces `together` values, each in an accumulator of its own.
  Cycle interval = 1;
  std::optional<unsigned> beside;
  int64_t together = 1;
  /// Most rows of a piece, so that pieces after each other fill the ALUs (forms::rowsOfBurst).
  std::optional<int64_t> burstRows;
  int64_t units() const { return int64_t(instances.size()) * int64_t(tiles.size()) * strips; }
};
/// Errors: loops that no address walk serves; more parts than kMostBundles.
Expected<Work> workOf(const Context &c, const Kernel &kernel);
/// Bundles that are scheduled at most, in all: each takes some 100 microseconds. BERT-base has
/// 30,000.
constexpr int64_t kMostBundles = 1'000'000;
/// What a kernel takes at least, before its rows are dealt.
int64_t leastBundlesOf(const Context &c, const Kernel &kernel, const Work &work);
/// `kernel` takes the most, `bundles`, of `all` or more.
Error tooManyBundles(const Kernel &kernel, int64_t bundles, int64_t all);

/// Columns [from, to) of a lane tile that belong to one step of the group loop.
struct Head {
  int64_t number = 0, from = 0, to = 0;
};
/// The heads of the result's lanes [start, start + count).
std::vector<Head> headsOf(const Kernel &kernel, const Work &work, int64_t start, int64_t count);

/// Vectors that a kernel sends through a PE's MXM or VXM, a measure of its cycles.
int64_t vectorsOf(const Context &c, const Kernel &kernel, const Work &work);

/// A run of strips of one instance and lane tile; all of them where a reduction runs.
struct Share {
  size_t instance = 0, tile = 0;
  int64_t strip = 0, strips = 0;
};
/// Units [from, to) as shares of at most `most` strips, cut evenly.
std::vector<Share> sharesOf(const Work &work, int64_t from, int64_t to, int64_t most);

Domain domainOf(const Work &work, const Kernel &kernel, const Share &share, unsigned pe,
                uint32_t provenance);

} // namespace millrace::grid
