// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Hazards.h"

namespace millrace::schedule {

PeState::PeState(const Machine &machine)
    : machine(machine), chunksPerSlice((machine.rowsPerSlice() + kChunkRows - 1) / kChunkRows),
      rows(size_t(kHemispheres) * machine.memory.slices * chunksPerSlice) {
  clearUnits();
}

void PeState::clearUnits() {
  const MxmSpec &mxm = machine.mxm;
  unsigned groups = (mxm.columns + mxm.columnsPerInstall - 1) / mxm.columnsPerInstall;
  BufferState empty;
  empty.installed.assign(groups, kNever);
  empty.lastActivate.assign(groups, kNever);
  buffers.assign(size_t(kHemispheres) * mxm.planes * mxm.buffers, empty);
  accumulators.assign(size_t(kHemispheres) * mxm.planes * mxm.accumulatorRows, kNever);
}

void PeState::beginStep() {
  for (const std::unique_ptr<Chunk> &chunk : rows)
    if (chunk)
      for (RowState &row : *chunk)
        row.writeSlot = row.lastRead = kNever;
  clearUnits();
}

} // namespace millrace::schedule
