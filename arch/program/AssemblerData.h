// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contents of memory as words of assembly.
#pragma once

#include "arch/program/Tokens.h"
#include "arch/spec/Machine.h"

#include <cstdint>
#include <optional>
#include <span>

namespace millrace {

/// Fills `bytes` (zeros at first) by what the words say:
///   hex 00ff...            bytes, in any number of words
///   iota                   0 1 2 ... modulo 256
///   random SEED            bytes of SplitMix64 from the seed
///   TYPE value value ...   elements (int8 uint8 int32 fp16 bf16 fp32 e4m3 e5m2), lowest byte first
///   all TYPE value         the same element everywhere
/// With `byte` set, only that byte of each element is stored (wide elements lie in several slices).
/// Fewer values than bytes leave zeros; more are an error.
std::optional<LineError> fillData(std::span<const Token> words, std::optional<unsigned> byte,
                                  std::span<uint8_t> bytes);

} // namespace millrace
