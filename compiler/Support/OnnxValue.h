// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace millrace {

/// Discardable attribute of an operation of the tensor level, after equal ones were merged: the
/// name of the ONNX value that its result is. Whoever replaces an operation by one that computes
/// something else leaves it out.
inline constexpr char kOnnxValue[] = "onnx.value";

/// Unit attribute of an operation, or an argument of @main, whose value lies in memory as fp32
/// whatever the precision.
inline constexpr char kKeepFp32[] = "millrace.keep_fp32";
/// On a generic operation: it sums all elements of its operand up to each along a dimension, which
/// the attribute's integers name, then whether the element itself is left out, and whether from the
/// end.
inline constexpr char kCumulative[] = "millrace.cumulative";

} // namespace millrace
