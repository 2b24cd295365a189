// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What scalar operations make of ranges. All are conservative: the result holds every value that
// operands in their ranges can give in fp32, rounding included.
#pragma once

#include "compiler/Forms/Former/Ranges.h"

#include <optional>

namespace millrace::forms::intervals {

Range either(const Range &x, const Range &y);
/// A sum of `terms` numbers of this range.
Range times(const Range &x, double terms);
/// A finite range cut to magnitudes up to `bound`.
Range clamped(Range range, double bound);
/// Bounds that the type cannot hold are infinite (reals), or wrap around to anything (integers).
Range withinType(Range range, mlir::Type type);
/// The result of a scalar operation on `x`; nothing for operations without a rule. `isSame`: both
/// operands are one value.
std::optional<Range> resultOf(mlir::Operation *op, llvm::ArrayRef<Range> x, bool isSame);

} // namespace millrace::forms::intervals
