// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The VXM: ALUs on every lane, chained without returning to a stream.
#pragma once

#include "arch/operations/AluOp.h"
#include "simulator/base/UnitModule.h"

#include <vector>

namespace millrace::sim {

class VectorUnit : public UnitModule {
public:
  VectorUnit(const sc_core::sc_module_name &name, PeContext &context);

  void dispatch(Burst &burst) override;           ///< S2, S8 of the whole burst
  void element(Burst &burst, Cycle now) override; ///< S4, S8
  void endStep() override;

private:
  /// A result on its way out, where a chained ALU may take it: at dispatch cycle `taken` of the
  /// consumer.
  struct Exit {
    Cycle taken = -1;
    Tag tag;
    VectorRef value = 0;
  };
  struct Running {
    Cycle at = -1; ///< last element
    std::vector<uint32_t> lanes;
  };
  struct AluState {
    std::vector<Exit> exits; ///< [cycle mod ring]
    std::vector<Running> running;
    std::vector<uint32_t> latch;
    Tag latchedBy;                   ///< empty: it was never loaded
    std::vector<uint32_t> immediate; ///< broadcast, of immediateBits
    uint32_t immediateBits = 0;
  };
  void latch(AluState &alu, Burst &burst, Cycle now);
  const uint32_t *operand(AluState &alu, Burst &burst, const Operand &o, ProducerOf of,
                          unsigned cursorSlot, std::vector<uint32_t> &scratch, Cycle now);
  const uint32_t *streamOperand(Burst &burst, const Operand &o, ProducerOf of, unsigned cursorSlot,
                                std::vector<uint32_t> &scratch, Cycle now);
  void checkLatch(const AluState &alu, Burst &burst, ProducerOf of, unsigned cursorSlot, Cycle now);
  const uint32_t *chained(Burst &burst, const Operand &o, ProducerOf of, unsigned cursorSlot,
                          Cycle now);
  bool run(AluState &alu, Burst &burst, const uint32_t *a, uint32_t *out, Cycle now);
  /// One vector, and how many of its numbers the operation could not keep.
  void compute(const Instruction &i, const uint32_t *a, const uint32_t *b, const uint32_t *c,
               uint32_t *out);
  void leave(AluState &alu, Burst &burst, VectorRef value, Cycle now);

  Cycle ring;
  std::vector<AluState> alus;
  std::vector<uint32_t> scratchA, scratchB, scratchC;
};

} // namespace millrace::sim
