// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mutates programs by words and lines, so that many mutants parse.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::fuzz {

/// libFuzzer's LLVMFuzzerCustomMutator for text: changes `data` of `size` bytes in place, to at
/// most `most` bytes; returns the new size. Every fourth mutant is libFuzzer's own, of bytes.
size_t mutateText(uint8_t *data, size_t size, size_t most, unsigned seed);

} // namespace millrace::fuzz
