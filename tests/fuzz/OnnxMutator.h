// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mutates ONNX models field by field, so that most mutants are models again.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::fuzz {

/// libFuzzer's LLVMFuzzerCustomMutator for ONNX models: changes `data` of `size` bytes in place, to
/// at most `most` bytes; returns the new size.
size_t mutateModel(uint8_t *data, size_t size, size_t most, unsigned seed);

} // namespace millrace::fuzz
