// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a program shares out the memory.
#pragma once

#include <cstdint>

namespace millrace::forms {

/// A model that finds no room in one way is formed in the next.
enum class Room : uint8_t {
  Ample,     ///< whatever is soonest done
  FewTables, ///< most tables stay with the host
  Spare,     ///< and no forms that are sooner done and take more memory
  Least,     ///< and no copies of tensors for speed; layouts in which values have room, too
};

} // namespace millrace::forms
