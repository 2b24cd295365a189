// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers that a conversion to a narrower float format changes by more than a rounding.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_LOSSES_H
#define MILLRACE_ARCH_ISA_SEMANTICS_LOSSES_H

#include "arch/operations/AluOp.h"
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace::semantics {

/// How a format ends: finite numbers from `bits` (of |fp32|) on do not fit.
struct RangeEnd {
  uint32_t bits;
  std::string_view format;  ///< "fp16"
  float largest;            ///< finite value of the format
  std::string_view becomes; ///< "infinite", "saturated" or "nan": what becomes of them
};
/// Nothing for operations that do not convert fp32 to a narrower float format.
std::optional<RangeEnd> rangeEndOf(AluOp op);

/// Lanes of `a` (fp32) that are finite and beyond the format's range. The largest finite fp32 of
/// either sign does not count: models write it for "no limit" or "hidden", which the largest number
/// of any format is as well.
size_t countBeyond(const RangeEnd &end, const uint32_t *a, size_t lanes);

} // namespace millrace::semantics

#endif // MILLRACE_ARCH_ISA_SEMANTICS_LOSSES_H
