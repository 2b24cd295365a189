// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/VectorPool.h"

#include "arch/isa/semantics/Convert.h"

#include <numeric>

namespace millrace::sim {

VectorPool::VectorPool(unsigned lanes)
    : laneCount(lanes), stride((lanes + 63) / 64 * 64), cut(size_t(4) * lanes) {
  acquireNarrow(); // slot 0: the zero vector, never freed
  std::memset(narrow(0), 0, laneCount);
}

void VectorPool::growNarrow() {
  const uint32_t first = uint32_t(narrowCounts.size());
  narrowChunks.push_back(std::make_unique_for_overwrite<uint8_t[]>(size_t(kChunk) * stride));
  narrowCounts.resize(first + kChunk);
  shown.resize(first + kChunk);
  for (uint32_t i = first + kChunk; i-- > first;)
    freeNarrow.push_back(i);
}

void VectorPool::growWide() {
  const uint32_t first = uint32_t(wideCounts.size());
  wideChunks.push_back(std::make_unique_for_overwrite<uint32_t[]>(size_t(kChunk) * stride));
  wideCounts.resize(first + kChunk);
  sources.resize(first + kChunk, nullptr);
  for (uint32_t i = first + kChunk; i-- > first;)
    freeWide.push_back(i);
}

const uint8_t *VectorPool::cutOut(VectorRef v, uint8_t *to) {
  semantics::cutByte(wide(v), byteIndex(v), to, laneCount);
  return to;
}

VectorRef VectorPool::narrowed(VectorRef v) {
  if (!isWide(v))
    return v;
  const VectorRef own = acquireNarrow();
  bytes(v, narrow(own));
  release(v);
  return own;
}

const uint32_t *VectorPool::lanesOf(const VectorRef *group, unsigned width, uint32_t *scratch) {
  bool whole = isWide(group[0]);
  for (unsigned b = 0; b < width && whole; ++b)
    whole = wideOf(group[b]) == wideOf(group[0]) && isWide(group[b]) && byteIndex(group[b]) == b;
  if (whole) {
    const uint32_t *from = wide(group[0]);
    if (width == 4)
      return from;
    const uint32_t mask = (1u << 8 * width) - 1;
    for (unsigned l = 0; l < laneCount; ++l)
      scratch[l] = from[l] & mask;
    return scratch;
  }
  const uint8_t *bytes[4] = {};
  for (unsigned b = 0; b < width; ++b)
    bytes[b] = this->bytes(group[b], cut.data() + size_t(b) * laneCount);
  semantics::joinBytes(bytes, width, scratch, laneCount);
  return scratch;
}

size_t VectorPool::references() const {
  auto sum = [](const std::vector<uint32_t> &counts) {
    return std::accumulate(counts.begin(), counts.end(), size_t(0));
  };
  return sum(narrowCounts) - narrowCounts[0] + sum(wideCounts);
}

size_t VectorPool::live() const {
  return narrowCounts.size() - 1 - freeNarrow.size() + wideCounts.size() - freeWide.size();
}

} // namespace millrace::sim
