// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/isa/semantics/Losses.h"

#include <bit>

namespace millrace::semantics {

/// A number halfway between the largest and what would come next is rounded to the even one of the
/// two: that is the next one, but for e4m3, whose largest is even.
std::optional<RangeEnd> rangeEndOf(AluOp op) {
  const auto end = [](float first, std::string_view format, float largest,
                      std::string_view becomes) {
    return RangeEnd{std::bit_cast<uint32_t>(first), format, largest, becomes};
  };
  const float fp16 = 65520.0f, bf16 = 0x1.ffp127f, e5m2 = 61440.0f;
  const float e4m3 = std::bit_cast<float>(std::bit_cast<uint32_t>(464.0f) + 1);
  switch (op) {
  case AluOp::CvtF32F16:
    return end(fp16, "fp16", 65504, "infinite");
  case AluOp::CvtF32F16Fin:
    return end(fp16, "fp16", 65504, "saturated");
  case AluOp::CvtF32Bf16:
    return end(bf16, "bf16", 0x1.fep127f, "infinite");
  case AluOp::CvtF32Bf16Fin:
    return end(bf16, "bf16", 0x1.fep127f, "saturated");
  case AluOp::CvtF32E4m3:
    return end(e4m3, "e4m3", 448, "nan");
  case AluOp::CvtF32E4m3Sat:
    return end(e4m3, "e4m3", 448, "saturated");
  case AluOp::CvtF32E5m2:
    return end(e5m2, "e5m2", 57344, "infinite");
  case AluOp::CvtF32E5m2Sat:
    return end(e5m2, "e5m2", 57344, "saturated");
  default:
    return std::nullopt;
  }
}

size_t countBeyond(const RangeEnd &end, const uint32_t *a, size_t lanes) {
  constexpr uint32_t kMagnitude = 0x7fffffff, kLargest = 0x7f7fffff;
  // Magnitudes from `bits` to below the largest finite one, as one unsigned comparison.
  const uint32_t width = kLargest - end.bits;
  size_t count = 0;
  for (size_t l = 0; l < lanes; ++l)
    count += (a[l] & kMagnitude) - end.bits < width;
  return count;
}

} // namespace millrace::semantics
