// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What has been decided so far about the state that values live in: memory rows, weight buffers,
// accumulator rows. It gives the earliest cycle at which a burst may touch them (S6, S7, S8, S10),
// and who made what a burst takes.
#pragma once

#include "arch/isa/Instruction.h"
#include "compiler/Schedule/Timing.h"

#include <array>
#include <memory>
#include <vector>

namespace millrace::schedule {

constexpr Cycle kNever = INT64_MIN / 4;

/// The `instruction` of an origin that does not exist.
constexpr uint32_t kNoOrigin = 0xfffffffe;

/// An element of a burst. `instruction` is a provisional number until the program is finished.
struct Origin {
  uint32_t instruction = kNoOrigin;
  uint32_t element = 0;
  uint32_t block = 0; ///< with instruction == kInitialContents: the image block; element is its row
  bool operator==(const Origin &) const = default;
};

/// One row of MEM.
struct RowState {
  Cycle writeSlot = kNever; ///< when its present value was written
  Cycle lastRead = kNever;
  Origin origin; ///< kept from step to step, as memory is
};

/// A range of rows of one slice that belongs to a tensor for a while; becomes an image Region.
struct RegionState {
  uint32_t name = 0;
  unsigned pe = 0;
  Hemisphere hemisphere = Hemisphere::West;
  unsigned slice = 0;
  unsigned row = 0, rows = 0;
  Cycle notBefore = kNever;    ///< last use of what these rows held before
  Cycle from = INT64_MAX / 4;  ///< first write slot; 0 if loaded with the program
  Cycle to = 0;                ///< last read or write slot
  unsigned step0 = UINT32_MAX; ///< step of `from`
  unsigned step1 = 0;          ///< step of `to`
  bool untilEnd = false;       ///< an output or constant
};

/// One weight buffer of a plane, per column group.
struct BufferState {
  std::vector<Cycle> installed;    ///< cycle of the element that filled the group
  std::vector<Cycle> lastActivate; ///< last activation element that used the group
};

/// State of one PE.
class PeState {
public:
  explicit PeState(const Machine &machine);
  /// A new step begins at cycle 0: memory keeps its values and their origins; weights and sums are
  /// gone.
  void beginStep();
  RowState &row(Hemisphere h, unsigned slice, unsigned address) {
    auto &chunk =
        rows[(size_t(h) * machine.memory.slices + slice) * chunksPerSlice + address / kChunkRows];
    if (!chunk)
      chunk = std::make_unique<Chunk>();
    return (*chunk)[address % kChunkRows];
  }
  BufferState &buffer(Hemisphere h, unsigned plane, unsigned b) {
    return buffers[(size_t(h) * machine.mxm.planes + plane) * machine.mxm.buffers + b];
  }
  /// Last cycle at which an Accumulate was dispatched on this row.
  Cycle &accumulator(Hemisphere h, unsigned plane, unsigned row) {
    return accumulators[(size_t(h) * machine.mxm.planes + plane) * machine.mxm.accumulatorRows +
                        row];
  }

private:
  void clearUnits();

  static constexpr unsigned kChunkRows = 256;
  using Chunk = std::array<RowState, kChunkRows>;

  const Machine &machine;
  const size_t chunksPerSlice;
  /// Per (hemisphere, slice, kChunkRows rows), of those that a burst touches: few programs use all
  /// of the memory of all PEs.
  std::vector<std::unique_ptr<Chunk>> rows;
  std::vector<BufferState> buffers;
  std::vector<Cycle> accumulators;
};

/// Cycle of element (i1, i0) relative to the dispatch.
inline Cycle elementCycle(const Instruction &i, unsigned i0, unsigned i1) {
  return Cycle(i1) * i.c1 + Cycle(i0) * i.c0;
}
inline Cycle lastElementCycle(const Instruction &i) {
  return elementCycle(i, i.n0 - 1u, i.n1 - 1u);
}
/// Address of element (i1, i0): a MEM row, an accumulator row or a column group.
inline unsigned elementAddress(const Instruction &i, unsigned i0, unsigned i1) {
  return unsigned(int64_t(i.address) + int64_t(i1) * i.s1 + int64_t(i0) * i.s0);
}
template <class F> void forEachElement(const Instruction &i, F f) {
  for (unsigned i1 = 0; i1 < i.n1; ++i1)
    for (unsigned i0 = 0; i0 < i.n0; ++i0)
      f(i0, i1);
}

} // namespace millrace::schedule
