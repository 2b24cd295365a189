// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scheduler's distances: when a value put somewhere can be sampled elsewhere. Written from
// docs/spec/machine.md alone; the simulator has its own formulas, and tests/contract holds the two
// against each other.
#pragma once

#include "arch/isa/Instruction.h"
#include "arch/operations/AluOp.h"
#include "arch/spec/Machine.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace millrace::schedule {

/// Distances in cycles on one machine. Positions are stream registers: 0 at the VXM, lastPosition()
/// at the MXM.
class Timing {
public:
  explicit Timing(const Machine &machine) : m(machine), l(machine.latency) {
    for (size_t op = 0; op < aluOpCount; ++op)
      opCycles[op] = l.aluLatency(std::string(aluOpTable[op].mnemonic));
    leastOpCycles = *std::min_element(std::begin(opCycles), std::end(opCycles));
  }

  Cycle hops(unsigned from, unsigned to) const {
    return Cycle(from > to ? from - to : to - from) * l.hop;
  }
  /// Read dispatch to sampling at a position.
  Cycle readTo(unsigned slice, unsigned position) const {
    return l.memRead + hops(m.position(slice), position);
  }
  /// Injection at a slice's own position, for any opcode that puts MEM data on a stream.
  Cycle readInjects() const { return l.memRead; }
  /// Gather dispatch to sampling its data at a position.
  Cycle gatherTo(unsigned slice, unsigned position) const {
    return l.memGather + hops(m.position(slice), position);
  }
  /// Gather dispatch (which samples its map) to injection at the slice's own position.
  Cycle gatherInjects() const { return l.memGather; }
  /// SXM dispatch (which samples) to its result at the last position.
  Cycle switchToStream(UnitKind kind) const {
    switch (kind) {
    case UnitKind::Transposer:
      return l.sxmEntry + l.transposer + l.transposerExit;
    case UnitKind::Permutor:
      return l.sxmEntry + l.permutor;
    case UnitKind::Distributor:
      return l.sxmEntry + l.distributor;
    case UnitKind::Shifter:
      return l.sxmEntry + l.shifter;
    case UnitKind::Selector:
      return l.sxmEntry + l.selector;
    case UnitKind::Rotator:
      return l.sxmEntry + l.rotator;
    default:
      assert(false && "not a unit of the SXM");
      return 0;
    }
  }
  /// Write dispatch (which samples) to its bank slot.
  Cycle writeSlot() const { return l.memWrite; }
  /// Bank slot of a write to the earliest dispatch of a Read of that row.
  Cycle readAfterWrite() const { return l.readAfterWrite; }
  Cycle aluOp(AluOp op) const { return opCycles[size_t(op)]; }
  /// Of the fastest operation.
  Cycle leastOp() const { return leastOpCycles; }
  /// ALU dispatch to its result on stream position 0.
  Cycle aluToStream(AluOp op) const { return l.aluEntry + aluOp(op) + l.aluExit; }
  /// ALU dispatch to the dispatch of an ALU chained behind it.
  Cycle aluToChained(AluOp op) const { return aluOp(op) + l.aluChain; }
  Cycle activateToAccumulate() const { return l.mxmEntry + l.mxmMultiply; }
  /// Accumulate dispatch to its result at the last position, inward.
  Cycle accumulateToStream() const { return l.mxmAccumulate + l.mxmExit; }
  Cycle accumulateInterval() const { return l.accumulateInterval; }
  Cycle installToActivate() const { return l.installToActivate; }
  Cycle receiveInjects() const { return l.memRead; }
  /// Activate dispatch to the ALU dispatch that samples its result at position 0.
  Cycle activateToAlu() const {
    return activateToAccumulate() + accumulateToStream() + hops(m.lastPosition(), 0);
  }
  /// Last bank write slot to the program's cycle count (S11).
  Cycle countFrom(Cycle lastWriteSlot) const {
    return 1 + lastWriteSlot + l.startBarrier + l.superlaneStagger;
  }

  const Machine &machine() const { return m; }

private:
  const Machine &m;
  const LatencySpec &l;
  unsigned opCycles[aluOpCount] = {}, leastOpCycles = 0;
};

} // namespace millrace::schedule
