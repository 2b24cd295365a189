// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One MEM slice: rows, their shadow tags, a read port and a write port.
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

  /// A row's contents as loaded: `bytes` bytes at `data`, which stays valid; the rest of the row is
  /// 0. `data` may be null (contents come later, or cycles only).
  void load(uint32_t row, Tag tag, const uint8_t *data, uint32_t bytes);
  /// Host access between steps. Reading gives zeros for a row never written.
  void readRow(uint32_t row, uint8_t *out) const;
  uint8_t *hostRow(uint32_t row, std::optional<Tag> tag); ///< to be filled; keeps what the row held

private:
  struct Row {
    Tag tag;
    Cycle written =
        INT64_MIN / 2; ///< bank slot of the last write, on the clock that never restarts
    const uint8_t *data = nullptr; ///< into the image or into `storage`
    uint32_t bytes = 0;
  };
  struct PendingWrite {
    Cycle slot;
    uint32_t row, lastRow; ///< whose banks are held; a Scatter may write any row in between
    Tag tag;               ///< of the element that writes
    VectorRef value, map;
    bool scatters;
  };
  void fetchAhead(const Burst &burst, int64_t address) const;
  void read(Burst &burst, Cycle now);
  void write(Burst &burst, Cycle now);
  void gather(Burst &burst, Cycle now);
  void scatter(Burst &burst, Cycle now);
  void checkMeant(Burst &burst, const Row &row, uint32_t address, Cycle now);
  void checkWritten(const Burst &burst, const Row &row, uint32_t address, Cycle now);
  void checkBanks(const Burst &burst, unsigned firstBank, unsigned lastBank, Cycle now);
  void applyWrites(Cycle before);
  void apply(PendingWrite &pending);
  void post(Burst &burst, Cycle now, uint32_t row, uint32_t lastRow, VectorRef value,
            VectorRef map);
  const Region *regionOf(const Instruction &instruction) const;
  unsigned bankOf(uint32_t row) const { return row / context.machine.memory.rowsPerBank; }
  Row &rowAt(uint32_t row); ///< to be changed
  const Row &seen(uint32_t row) const;
  uint8_t *storageOf(uint32_t row);
  uint32_t addressOf(const uint8_t *map, unsigned superlane) const;
  uint32_t lastRowOf(const Instruction &instruction, uint32_t row) const;
  Cycle slotDelay(const Instruction &instruction) const;

  Hemisphere hemisphere;
  unsigned index, position, rowCount;
  std::vector<std::unique_ptr<Row[]>> rows;        ///< chunks of rows that were touched
  std::vector<std::unique_ptr<uint8_t[]>> storage; ///< chunks of rows that were written
  std::deque<PendingWrite> writes; ///< by slot; a constant delay keeps them in order
  Cycle lastRead = -1;
  unsigned lastReadBank[2] = {0, 0};
  std::vector<uint8_t> mapBytes, valueBytes, line; ///< scratch of one row each
};

} // namespace millrace::sim
