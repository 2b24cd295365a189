// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The SXM of one hemisphere: transposers, permutors, distributors, shifters, selectors, rotators.
// Each samples the last position and gives its result there, by one formula over (lane, stream).
#pragma once

#include "simulator/base/UnitModule.h"

#include <vector>

namespace millrace::sim {

class SwitchUnit : public UnitModule {
public:
  SwitchUnit(const sc_core::sc_module_name &name, PeContext &context, Hemisphere hemisphere);

  void element(Burst &burst, Cycle now) override; ///< S4
  void endStep() override;

private:
  static constexpr unsigned kSquare =
      16; ///< a transposer works on 16 lanes x 16 streams of every superlane
  void transpose(const std::vector<VectorRef> &in, std::vector<VectorRef> &out);
  void moveLanes(const Instruction &i, const std::vector<VectorRef> &in, uint8_t *out,
                 const uint16_t *map);
  unsigned inputs(const Instruction &i) const;

  std::vector<std::optional<uint32_t>> map; ///< by queue: the lane map that Config loaded
  std::vector<uint8_t> scratch[2];
};

} // namespace millrace::sim
