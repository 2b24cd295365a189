// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The checksum of image files: 64 bits at the speed of memory. It guards against damage, not
// against intent: everything behind it is checked again (ImageCheck.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millrace {

/// Eight lanes of 64 bits, each a chain of xor, multiplication by an odd number and rotation. Every
/// step is a bijection of the lane's state, so any change within one aligned word changes the
/// result.
class Checksum {
public:
  /// `seed` numbers count as if they stood before the bytes.
  explicit Checksum(std::span<const uint64_t> seed);
  /// Adds bytes, padded with zeros to a multiple of 64.
  void add(std::span<const uint8_t> bytes);
  uint64_t result() const;

private:
  void addBlocks(const uint8_t *bytes, size_t blocks);
  std::array<uint64_t, 8> lanes{};
};

} // namespace millrace
