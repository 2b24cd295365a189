// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elements of a host tensor (ONNX types) to elements as the grid stores them, and back. Numbers
// keep their value, at most rounded once by a float format; what would need a scale is an error,
// because quantisation is a part of the program.
#pragma once

#include "arch/spec/Expected.h"
#include "arch/spec/Types.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

/// ONNX element types that a host tensor may have.
enum class HostElement : uint8_t {
  Bool,
  Int8,
  UInt8,
  Int16,
  UInt16,
  Int32,
  UInt32,
  Int64,
  UInt64,
  Float16,
  Bfloat16,
  Float32,
  Float64
};

/// The type with this ONNX name; float32 and float64 are also spelled float and double.
std::optional<HostElement> hostElementNamed(std::string_view name);
unsigned byteWidth(HostElement type);
/// Whether an element has the same bits in both.
bool sameBits(HostElement host, ElementType grid);

/// Converts `count` elements at `host` to little-endian elements of `type` at `grid`.
/// - Float to float rounds once, to nearest even; infinities stay, and what is finite but too large
///   becomes the largest finite value (an fp8 target is an error).
/// - Integer to integer: a value out of range is an error; a bool is 0 or 1.
/// - Integer to float: a value that the format does not hold exactly is an error.
/// - Float to integer is an error.
/// Errors name the element's number and its value.
Status toGrid(HostElement from, const void *host, ElementType to, uint8_t *grid, size_t count);

/// Element `k` of an integer or bool host type; nothing for floats. Values beyond int64 become its
/// largest.
std::optional<int64_t> integerAt(HostElement type, const void *host, size_t k);

/// The reverse. Floats to integers must be integers in range; integers to floats are an error; a
/// bool is whether the element differs from 0.
Status fromGrid(ElementType from, const uint8_t *grid, HostElement to, void *host, size_t count);

} // namespace millrace
