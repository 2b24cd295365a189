// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulator's own reading of the machine's timing rules (docs/spec/machine.md, "Timing"). The
// scheduler has another one; neither includes the other, so that agreement means something.
//
// t is the dispatch cycle of an element. Every delay is from t.
// - Read: bank at t; its vector is in the register of the slice's position at t + memRead.
// - Gather: map sampled at t, bank at t; vector at t + memGather.
// - Write: samples at t; bank at t + memWrite.
// - ALU: stream operands sampled at position 0 at t; takes a chained result whose ALU was
// dispatched
//   at t - op' - aluChain; result on outward position 0 at t + aluEntry + op + aluExit.
// - SXM: samples the last position at t; result there at t + sxmEntry + unit (+ transposerExit).
// - Install: samples the last position at t; Activate at t' uses group c as it stands at t' + c.
// - Accumulate: takes the product of the Activate dispatched at t - mxmEntry - mxmMultiply; an
//   emitted result is at the last position, inward, at t + mxmAccumulate + mxmExit.
// - Send: samples the C2C position at t; Receive at t + link latency, vector there at its t +
//   memRead.
#pragma once

#include "arch/operations/AluOp.h"
#include "arch/spec/Machine.h"

#include <array>

namespace millrace::sim {

struct Timing {
  explicit Timing(const Machine &machine);

  std::array<unsigned, aluOpCount> aluOp; ///< latency of each operation
  unsigned longestAluOp = 0;
  unsigned read, gather, write, receive;
  unsigned aluToStream; ///< without the operation
  unsigned aluChain;
  std::array<unsigned, kUnitKinds> switchResult{}; ///< by UnitKind, for SXM units
  unsigned product;                                ///< Activate to its Accumulate
  unsigned emit;                                   ///< Accumulate to the result's register
  unsigned hop;
  unsigned last;         ///< last position
  unsigned longestDelay; ///< of any injection
  unsigned weightWave;   ///< column groups: the last group of an Activate at t is used at t +
                         ///< weightWave - 1
  unsigned horizon;      ///< how long after a cycle something wrong in it can still be noticed

  unsigned aluResult(AluOp op) const { return aluToStream + aluOp[unsigned(op)]; }
  /// Registers from where a stream starts to `position`.
  unsigned along(Direction d, unsigned position) const {
    return d == Direction::Outward ? position : last - position;
  }
};

} // namespace millrace::sim
