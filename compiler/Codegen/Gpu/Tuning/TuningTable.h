// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known of kernels on chips: how a kernel is best cut, and how far from the roofline it
// runs. table.json beside this is a part of the program; docs/spec/gpu-tuning.schema.json has its
// form. Each entry says where its numbers are from.
#pragma once

#include "arch/spec/Expected.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::gpu {

/// A GPU as a roofline sees it.
struct GpuChip {
  std::string name;
  double bytesPerSecond = 0, matrixFlops = 0, otherFlops = 0; ///< per second, at its peak
  unsigned processors = 0;                                    ///< programs that run side by side
  double launchSeconds = 0;                                   ///< of a kernel, whatever it does
};

/// What a kernel is, as entries are found by it.
struct KernelKind {
  std::string op;   ///< product, attention, rows, map, top_k ...
  std::string type; ///< of what it multiplies, or of its result: f16, bf16, f32, i8 ...
  /// Of a product rows, columns and depth; of attention rows, keys and depth_and_values; of
  /// both whether TMA loads their operands for warpgroups (staged: 1); of any
  /// launch the bytes of its tensors, where they are known.
  std::map<std::string, int64_t> sizes;
};

struct TuningEntry {
  KernelKind of;    ///< op and type, of which each may be "any"; no sizes
  std::string chip; ///< a chip's name, or "any"
  std::map<std::string, std::pair<int64_t, int64_t>> bounds; ///< of sizes, from and to
  std::map<std::string, int64_t> schedule;                   ///< empty: it says nothing of that
  double rooflineShare = 1; ///< the roofline's time over the kernel's; more than 0, at most 1
  bool isMeasured = false;  ///< else an estimate
};

class TuningTable {
public:
  /// Reads the text of a table. Errors name the entry, by its number from 0, and what is wrong.
  static Expected<TuningTable> parse(std::string_view text);
  /// That of this program.
  static const TuningTable &builtIn();

  /// The entry for a kernel on a chip: of those that are of its op, type and chip and whose bounds
  /// hold its sizes, a measured one before an estimate, then the chip's before any chip's, the op's
  /// before any op's, the type's before any type's, the one with most bounds, the narrowest, the
  /// last. With `hasSchedule` only those that have one. None: there is no such entry.
  const TuningEntry *find(const KernelKind &kind, std::string_view chip, bool hasSchedule) const;
  /// The schedule of the entry; `fallback` where there is none.
  std::map<std::string, int64_t> scheduleFor(const KernelKind &kind,
                                             const std::map<std::string, int64_t> &fallback) const;

  const std::vector<TuningEntry> &entries() const { return all; }
  /// The chip that kernels are cut for and times are estimated of.
  const GpuChip &estimatedChip() const { return chips[estimated]; }
  /// Whether kernels may be cut for warpgroups: a schedule of theirs spills where there are none.
  bool hasWarpgroups() const { return warpgroups; }
  /// The same table, for chips without warpgroups: all but sm_90a.
  TuningTable withoutWarpgroups() const {
    TuningTable other = *this;
    other.warpgroups = false;
    return other;
  }

private:
  std::vector<GpuChip> chips;
  std::vector<TuningEntry> all;
  size_t estimated = 0; ///< of the chips
  bool warpgroups = true;
};

} // namespace millrace::gpu
