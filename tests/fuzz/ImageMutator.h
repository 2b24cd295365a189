// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mutates images section by section, so that tables, offsets and the checksum stay right and what
// lies behind them is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace::fuzz {

/// Whether `bytes` are as long as sealImage asks.
bool canSeal(std::span<const uint8_t> bytes);

/// libFuzzer's LLVMFuzzerCustomMutator for images: changes `data` of `size` bytes in place, to at
/// most `most` bytes; returns the new size.
size_t mutateImage(uint8_t *data, size_t size, size_t most, unsigned seed);

} // namespace millrace::fuzz
