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

} // namespace millrace
