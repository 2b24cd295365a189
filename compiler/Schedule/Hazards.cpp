// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Hazards.h"

namespace millrace::schedule {

PeState::PeState(const Machine &machine) : machine(machine) {
  rows.resize(size_t(kHemispheres) * machine.memory.slices * machine.rowsPerSlice());
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
  for (RowState &row : rows)
    row.writeSlot = row.lastRead = kNever;
  clearUnits();
}

} // namespace millrace::schedule
