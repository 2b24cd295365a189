// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/Timing.h"

#include <algorithm>

namespace millrace::sim {

Timing::Timing(const Machine &machine) {
  const LatencySpec &l = machine.latency;
  for (const AluOpInfo &op : aluOpTable) {
    unsigned cycles = l.aluLatency(std::string(op.mnemonic));
    aluOp[unsigned(op.op)] = cycles;
    longestAluOp = std::max(longestAluOp, cycles);
  }
  read = l.memRead;
  gather = l.memGather;
  write = l.memWrite;
  receive = l.memRead;
  aluToStream = l.aluEntry + l.aluExit;
  aluChain = l.aluChain;
  auto result = [&](UnitKind kind) -> unsigned & { return switchResult[unsigned(kind)]; };
  result(UnitKind::Transposer) = l.sxmEntry + l.transposer + l.transposerExit;
  result(UnitKind::Permutor) = l.sxmEntry + l.permutor;
  result(UnitKind::Distributor) = l.sxmEntry + l.distributor;
  result(UnitKind::Shifter) = l.sxmEntry + l.shifter;
  result(UnitKind::Selector) = l.sxmEntry + l.selector;
  result(UnitKind::Rotator) = l.sxmEntry + l.rotator;
  product = l.mxmEntry + l.mxmMultiply;
  emit = l.mxmAccumulate + l.mxmExit;
  hop = l.hop;
  last = machine.lastPosition();
  weightWave =
      machine.mxm.columnsPerInstall ? machine.mxm.columns / machine.mxm.columnsPerInstall : 0;
  longestDelay = std::max({read, gather, receive, aluToStream + longestAluOp, emit});
  for (unsigned cycles : switchResult)
    longestDelay = std::max(longestDelay, cycles);
  horizon = longestDelay + last * hop + weightWave + product + write + 8;
}

} // namespace millrace::sim
