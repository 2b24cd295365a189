// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Emulator/TensorMap.h"

namespace millrace::gpu {

Status verifyTensorMap(const TensorMap &map) {
  if (map.rows < 1 || map.columns < 1)
    return Error{"a matrix of " + std::to_string(map.rows) + " x " + std::to_string(map.columns) +
                 " elements is empty; launch nothing for it"};
  if (reinterpret_cast<uintptr_t>(map.base) % 16)
    return Error{"a matrix for TMA begins at a multiple of 16 bytes; align its memory"};
  if (map.rowBytes % 16)
    return Error{"the rows of a matrix for TMA lie " + std::to_string(map.rowBytes) +
                 " bytes apart, which is no multiple of 16; pad the rows to " +
                 std::to_string((map.rowBytes + 15) / 16 * 16)};
  for (const TensorMap::Outer &outer : map.outer)
    if (outer.size < 1 || outer.bytes % 16)
      return Error{"an outer dimension of a tensor for TMA has " + std::to_string(outer.size) +
                   " matrices, " + std::to_string(outer.bytes) +
                   " bytes apart; give one or more, at multiples of 16 bytes"};
  if (map.rowBytes < map.columns * int64_t(map.elementBytes))
    return Error{"the rows of a matrix overlap: " + std::to_string(map.columns) + " columns of " +
                 std::to_string(map.elementBytes) + " bytes in " + std::to_string(map.rowBytes)};
  return Success{};
}

} // namespace millrace::gpu
