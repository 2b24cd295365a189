// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes that an image loads. Most programs are given up before they are complete (no room, or
// another one has fewer cycles), so places are handed out at once and bytes are written at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace millrace::grid {

class ConstantData {
public:
  using Writer = std::function<void(uint8_t *)>; ///< is given zeros

  /// The offset of `bytes` that `write` fills; zeros without it. What it refers to lives until
  /// `write()`.
  uint64_t add(uint64_t bytes, Writer write = nullptr) {
    const uint64_t offset = end;
    end += bytes;
    if (write)
      fill(offset, std::move(write));
    return offset;
  }
  /// `write` fills some more of the bytes that were added at the offset.
  void fill(uint64_t offset, Writer write) { writers.emplace_back(offset, std::move(write)); }

  std::vector<uint8_t> write() const {
    std::vector<uint8_t> bytes(end);
    for (const auto &[offset, write] : writers)
      write(bytes.data() + offset);
    return bytes;
  }

private:
  uint64_t end = 0;
  std::vector<std::pair<uint64_t, Writer>> writers;
};

} // namespace millrace::grid
