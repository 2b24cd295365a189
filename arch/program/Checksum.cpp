// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/Checksum.h"

#include <bit>
#include <cstring>

namespace millrace {

static_assert(std::endian::native == std::endian::little, "image files are little endian");

// Odd, and with about half of their bits set; no other property is needed.
static constexpr uint64_t kFactor = 0x9e3779b97f4a7c15, kFold = 0xc2b2ae3d27d4eb4f;
static constexpr size_t kBlock = 64;

Checksum::Checksum(std::span<const uint64_t> seed) {
  for (size_t k = 0; k < lanes.size(); ++k)
    lanes[k] = kFactor * (k + 1);
  for (size_t k = 0; k < seed.size(); ++k)
    lanes[k % lanes.size()] = std::rotl((lanes[k % lanes.size()] ^ seed[k]) * kFactor, 29);
}

void Checksum::addBlocks(const uint8_t *bytes, size_t blocks) {
  std::array<uint64_t, 8> state = lanes;
  for (size_t b = 0; b < blocks; ++b, bytes += kBlock)
    for (size_t k = 0; k < state.size(); ++k) {
      uint64_t word;
      std::memcpy(&word, bytes + 8 * k, 8);
      state[k] = std::rotl((state[k] ^ word) * kFactor, 29);
    }
  lanes = state;
}

void Checksum::add(std::span<const uint8_t> bytes) {
  const size_t whole = bytes.size() / kBlock, rest = bytes.size() % kBlock;
  addBlocks(bytes.data(), whole);
  if (!rest)
    return;
  uint8_t last[kBlock] = {};
  std::memcpy(last, bytes.data() + whole * kBlock, rest);
  addBlocks(last, 1);
}

uint64_t Checksum::result() const {
  uint64_t sum = kFold;
  for (uint64_t lane : lanes) {
    sum = (sum ^ lane) * kFold;
    sum ^= sum >> 32;
  }
  return sum;
}

} // namespace millrace
