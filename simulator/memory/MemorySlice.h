// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One MEM slice: rows, their shadow tags, a read port and a write port. Most rows hold weights,
// which lie in the image: such a row costs the four bytes that name its block.
#pragma once

#include "simulator/base/UnitModule.h"

#include <deque>
#include <vector>

namespace millrace::sim {

class MemorySlice : public UnitModule {
public:
  MemorySlice(const sc_core::sc_module_name &name, PeContext &context, Hemisphere hemisphere,
              unsigned index);

  void dispatch(Burst &burst) override;           ///< S10
  void element(Burst &burst, Cycle now) override; ///< S4, S5, S6
  void endStep() override;

  /// The rows of image block `index`, of this slice, hold what it says from now on.
  void load(uint32_t index);
  /// Host access between steps. Reading gives zeros for a row never written.
  void readRow(uint32_t row, uint8_t *out) const;
  uint8_t *hostRow(uint32_t row, std::optional<Tag> tag); ///< to be filled; keeps what the row held

private:
  /// Who made what a row holds, and when.
  struct Made {
    Tag tag;
    Cycle at = INT64_MIN / 2; ///< bank slot of the last write, on the clock that never restarts
    VectorRef value = 0;      ///< of a written row, with values: narrow, one reference is the row's
  };
  /// Where a row's contents lie: the first `bytes` of them, the rest are 0.
  struct Contents {
    const uint8_t *data = nullptr;
    uint32_t bytes = 0;
  };
  /// What a row holds: nothing, a row of a block, or, with kMade set, what `made` names.
  static constexpr uint32_t kMade = Tag::kInitial, kNothing = kMade - 1;
  struct PendingWrite {
    Cycle slot;
    uint32_t row, lastRow; ///< whose banks are held; a Scatter may write any row in between
    Tag tag;               ///< of the element that writes
    VectorRef value, map;
    bool scatters;
  };
  void fetchAhead(const Burst &burst, int64_t address) const;
  void read(Burst &burst, uint32_t row, Cycle now);
  void write(Burst &burst, uint32_t row, Cycle now);
  void gather(Burst &burst, uint32_t row, Cycle now);
  void scatter(Burst &burst, uint32_t row, Cycle now);
  void checkMeant(Burst &burst, Tag tag, uint32_t address, Cycle now) {
    if (context.checks(burst) &&
        !isMeant(burst, ProducerOf::Memory, slot::Memory, 0, tag, context.pe)) [[unlikely]]
      notMeant(burst, tag, address, now);
  }
  void notMeant(Burst &burst, Tag tag, uint32_t address, Cycle now);
  void checkGathered(Burst &burst, Tag tag, uint32_t address, Cycle now);
  void checkWritten(const Burst &burst, const Made &row, uint32_t address, Cycle now) {
    if (row.tag.empty() ||
        row.at + Cycle(context.machine.latency.readAfterWrite) > context.base + now) [[unlikely]]
      notWritten(burst, row, address, now);
  }
  void notWritten(const Burst &burst, const Made &row, uint32_t address, Cycle now);
  void beginRead(const Burst &burst, uint32_t row, uint32_t lastRow, Cycle now);
  void checkBanks(const Burst &burst, uint32_t row, uint32_t lastRow, Cycle now);
  void applyWrites(Cycle before);
  void apply(PendingWrite &pending);
  void post(Burst &burst, Cycle now, uint32_t row, uint32_t lastRow, VectorRef value,
            VectorRef map);
  const Region *regionOf(const Instruction &instruction) const;
  unsigned bankOf(uint32_t row) const { return row / context.machine.memory.rowsPerBank; }
  uint32_t holds(uint32_t row) const {
    const std::unique_ptr<uint32_t[]> &chunk = held[row / kChunkRows];
    return chunk ? chunk[row % kChunkRows] : kNothing;
  }
  uint32_t &hold(uint32_t row); ///< to be changed
  Tag initialTag(uint32_t block, uint32_t row) const {
    return Tag::initial(block, row - context.image.blocks[block].row);
  }
  Made madeBy(uint32_t row) const {
    const uint32_t what = holds(row);
    if (what & kMade)
      return made[what & ~kMade];
    if (what == kNothing)
      return {};
    return {.tag = initialTag(what, row)};
  }
  Made &makeAt(uint32_t row); ///< for a row that is written from now on
  Contents contentsOf(uint32_t row) const;
  VectorRef valueOf(uint32_t row);
  void keep(Made &row, VectorRef value);
  uint32_t addressOf(const uint8_t *map, unsigned superlane) const;
  uint32_t lastRowOf(const Instruction &instruction, uint32_t row) const;
  Cycle slotDelay(const Instruction &instruction) const;

  Hemisphere hemisphere;
  unsigned index, position, rowCount;
  static constexpr uint32_t kChunkRows = 256;
  std::vector<std::unique_ptr<uint32_t[]>> held; ///< chunks with rows that were touched
  std::vector<Made> made;                        ///< of written rows
  std::vector<uint32_t> freeMade;                ///< of rows that hold a block again
  std::deque<PendingWrite> writes;               ///< by slot; a constant delay keeps them in order
  Cycle lastRead = -1;
  uint32_t lastReadRows[2] = {0, 0};               ///< whose banks it held, with all in between
  std::vector<uint8_t> mapBytes, valueBytes, line; ///< scratch of one row each
};

} // namespace millrace::sim
