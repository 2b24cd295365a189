// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who produced a vector: carried beside every row, stream register and weight column group, and
// compared with what the image's annotation says was meant (S4, S6, S7).
#pragma once

#include "arch/isa/Instruction.h"

#include <cstdint>

namespace millrace::sim {

/// Element `element` of instruction `instruction` of the same PE; or, with kInitial set, row
/// `element` of image block `instruction & ~kInitial`.
struct Tag {
  uint32_t instruction = kNone;
  uint32_t element = 0;

  static constexpr uint32_t kNone = 0xffffffff, kInitial = 0x80000000;
  static constexpr uint32_t kAnyElement =
      0xffffffff; ///< a Scatter wrote here, which of its elements depends on data
  static Tag initial(uint32_t block, uint32_t row) { return {block | kInitial, row}; }
  bool empty() const { return instruction == kNone; }
  bool isInitial() const { return !empty() && (instruction & kInitial); }
  bool operator==(const Tag &) const = default;
  bool meets(const Tag &expected) const {
    return instruction == expected.instruction &&
           (element == expected.element || element == kAnyElement);
  }
};

} // namespace millrace::sim
