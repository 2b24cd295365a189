// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "simulator/kernels/PlaneWeights.h"
#include "simulator/kernels/PackedWeights.h"
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <mutex>

namespace millrace {

/// The packings made last. A buffer is used with few ranges at a time: usually one, two halves for
/// 16-bit formats.
struct PlaneWeights::Cache {
  struct Entry {
    const PlaneWeights *high;
    ElementType format;
    ProductRange range;
    semantics::CpuLevel level;
    uint64_t lowStamp, highStamp;
    std::shared_ptr<PackedWeights> weights;
  };
  static constexpr size_t capacity = 4;
  std::mutex mutex;
  std::vector<Entry> entries; ///< oldest first

  /// Forgets an entry; its memory, if nobody multiplies by those weights any more.
  AlignedBuffer drop(std::vector<Entry>::iterator entry) {
    const std::shared_ptr<PackedWeights> weights = std::move(entry->weights);
    entries.erase(entry);
    if (weights.use_count() > 1)
      return {};
    std::atomic_thread_fence(std::memory_order_acquire); // the last other holder is done with it
    return std::move(*weights).release();
  }
};

void PlaneWeights::Deleter::operator()(uint8_t *pointer) const {
  ::operator delete[](pointer, std::align_val_t(AlignedBuffer::alignment));
}

PlaneWeights::PlaneWeights(unsigned lanes, unsigned columns)
    : laneCount(lanes), columnCount(columns), columnStride(AlignedBuffer::roundUp(lanes)),
      bytes(static_cast<uint8_t *>(::operator new[](std::max<size_t>(columnStride *columns, 1),
                                                    std::align_val_t(AlignedBuffer::alignment)))),
      groupStamps(columns / columnsPerGroup), cache(std::make_unique<Cache>()) {
  assert(columns % columnsPerGroup == 0 && "columns come in groups of 16");
  std::memset(bytes.get(), 0, columnStride * columns);
}

PlaneWeights::PlaneWeights(PlaneWeights &&) noexcept = default;
PlaneWeights &PlaneWeights::operator=(PlaneWeights &&) noexcept = default;
PlaneWeights::~PlaneWeights() = default;

void PlaneWeights::installColumns(unsigned first, unsigned count, const uint8_t *columnBytes,
                                  size_t stride) {
  assert(first + count <= columnCount && "columns beyond the plane");
  if (count == 0)
    return;
  for (unsigned i = 0; i < count; ++i)
    std::memcpy(bytes.get() + (first + i) * columnStride, columnBytes + i * stride, laneCount);
  for (unsigned g = first / columnsPerGroup; g <= (first + count - 1) / columnsPerGroup; ++g)
    ++groupStamps[g];
}

void PlaneWeights::clear() {
  std::memset(bytes.get(), 0, columnStride * columnCount);
  for (uint64_t &stamp : groupStamps)
    ++stamp;
}

uint64_t PlaneWeights::stamp(const ProductRange &range) const {
  // Stamps only grow, so their sum changes with any of them.
  uint64_t sum = 0;
  unsigned first = range.firstColumn / columnsPerGroup;
  for (unsigned g = first; g < first + range.columnCount / columnsPerGroup; ++g)
    sum += groupStamps[g];
  return sum;
}

std::shared_ptr<const PackedWeights> PlaneWeights::packed(const PlaneWeights *high,
                                                          ElementType format,
                                                          const ProductRange &range,
                                                          semantics::CpuLevel level) const {
  uint64_t lowStamp = stamp(range), highStamp = high ? high->stamp(range) : 0;
  std::lock_guard lock(cache->mutex);
  auto &entries = cache->entries;
  auto found = std::find_if(entries.begin(), entries.end(), [&](const Cache::Entry &entry) {
    return entry.high == high && entry.format == format && entry.range == range &&
           entry.level == level;
  });
  AlignedBuffer spare;
  if (found != entries.end()) {
    if (found->lowStamp == lowStamp && found->highStamp == highStamp)
      return found->weights;
    spare = cache->drop(found);
  } else if (entries.size() == Cache::capacity) {
    spare = cache->drop(entries.begin());
  }
  auto weights =
      std::make_shared<PackedWeights>(*this, high, format, range, level, std::move(spare));
  entries.push_back({high, format, range, level, lowStamp, highStamp, weights});
  return weights;
}

} // namespace millrace
