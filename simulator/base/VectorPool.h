// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Storage of the vectors that are under way in one PE. A stream register holds a handle, not 320
// bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace millrace::sim {

/// Names a byte vector: a narrow one, or byte 0 to 3 of every lane of a wide (32-bit) one. 0 is the
/// zero vector.
using VectorRef = uint32_t;

/// Where a wide vector's value comes from when it is not yet there: the MXM computes products in
/// batches, on demand.
struct PendingValues {
  virtual ~PendingValues() = default;
  virtual void computeNow() = 0; ///< fills every wide vector that names this object as its source
};

/// Reference counted: acquire gives count 1, retain adds, release subtracts and frees at 0.
class VectorPool {
public:
  explicit VectorPool(unsigned lanes);

  /// Its bytes are to be written at narrow().
  VectorRef acquireNarrow() {
    if (freeNarrow.empty())
      growNarrow();
    const VectorRef v = freeNarrow.back();
    freeNarrow.pop_back();
    narrowCounts[v] = 1;
    shown[v] = narrow(v);
    return v;
  }
  /// A vector whose bytes lie elsewhere and do not change while it is in use.
  VectorRef acquireShown(const uint8_t *bytes) {
    const VectorRef v = acquireNarrow();
    shown[v] = bytes;
    return v;
  }
  VectorRef acquireWide() {
    if (freeWide.empty())
      growWide();
    const uint32_t v = freeWide.back();
    freeWide.pop_back();
    wideCounts[v] = 1;
    return v | 1u << 31;
  }
  static VectorRef byteOf(VectorRef wide, unsigned byte) { return wide | byte << kByteShift; }
  static bool isWide(VectorRef v) { return v >> 31; }
  static unsigned byteIndex(VectorRef v) { return v >> kByteShift & 3; }
  /// The same wide vector whatever the byte.
  static VectorRef wideOf(VectorRef v) { return v & ~(3u << kByteShift); }

  void retain(VectorRef v, unsigned times = 1) {
    if (v)
      counts(v)[slot(v)] += times;
  }
  void release(VectorRef v) {
    if (v && --counts(v)[slot(v)] == 0)
      free(v);
  }

  uint8_t *narrow(VectorRef v) {
    return narrowChunks[slot(v) / kChunk].get() + size_t(slot(v) % kChunk) * stride;
  }
  uint32_t *wideStorage(VectorRef v) {
    return wideChunks[slot(v) / kChunk].get() + size_t(slot(v) % kChunk) * stride;
  }
  /// The 32-bit lanes of a wide vector, computed if need be.
  const uint32_t *wide(VectorRef v) {
    if (PendingValues *source = sources[slot(v)])
      source->computeNow();
    return wideStorage(v);
  }
  /// A narrow vector with the bytes of `v`, for one reference of `v`.
  VectorRef narrowed(VectorRef v);
  /// Whether a narrow vector has one reference and bytes of its own, which may be changed then.
  bool isSole(VectorRef v) { return v && narrowCounts[v] == 1 && shown[v] == narrow(v); }
  void setSource(VectorRef v, PendingValues *source) { sources[slot(v)] = source; }
  /// The bytes of any vector; those of a wide one are cut out into `scratch` (lanes bytes).
  const uint8_t *bytes(VectorRef v, uint8_t *scratch) {
    return isWide(v) ? cutOut(v, scratch) : shown[v];
  }
  /// Joins `width` byte vectors (1, 2 or 4) to 32-bit lanes, zero-extended; may point into the pool
  /// or to `scratch`.
  const uint32_t *lanesOf(const VectorRef *group, unsigned width, uint32_t *scratch);
  unsigned lanes() const { return laneCount; }
  /// Vectors in use, and references to them; the zero vector is not counted. Tests look for leaks.
  size_t live() const;
  size_t references() const;

private:
  static constexpr unsigned kByteShift = 29;
  static constexpr uint32_t kIndexMask = (1u << kByteShift) - 1;
  static constexpr unsigned kChunk = 64;
  static uint32_t slot(VectorRef v) { return v & kIndexMask; }
  std::vector<uint32_t> &counts(VectorRef v) { return isWide(v) ? wideCounts : narrowCounts; }
  void growNarrow();
  void growWide();
  const uint8_t *cutOut(VectorRef wide, uint8_t *to);
  void free(VectorRef v) {
    // A wide vector that nobody sampled may still be owed a value: its storage stays valid, and the
    // batch that owes it holds a reference until it is computed.
    (isWide(v) ? freeWide : freeNarrow).push_back(slot(v));
  }

  unsigned laneCount, stride;
  std::vector<std::unique_ptr<uint8_t[]>> narrowChunks;
  std::vector<std::unique_ptr<uint32_t[]>> wideChunks;
  std::vector<const uint8_t *> shown; ///< where each narrow vector's bytes lie
  std::vector<uint32_t> narrowCounts, wideCounts, freeNarrow, freeWide;
  std::vector<PendingValues *> sources;
  std::vector<uint8_t> cut; ///< bytes cut out of wide vectors while joining
};

} // namespace millrace::sim
