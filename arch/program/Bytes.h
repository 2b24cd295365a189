// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bytes that are either owned or lie in a mapped file: weights are used where they lie, never
// copied.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace millrace {

/// A sequence of bytes. Reading never copies; edit() makes the bytes the object's own first. Copies
/// of a view share the mapping and keep it alive.
class Bytes {
public:
  Bytes() = default;
  Bytes(std::vector<uint8_t> bytes) : owned(std::move(bytes)) {}
  /// A view; `owner` keeps what it shows alive.
  Bytes(std::span<const uint8_t> bytes, std::shared_ptr<const void> owner)
      : shown(bytes), owner(std::move(owner)) {}

  const uint8_t *data() const { return owner ? shown.data() : owned.data(); }
  size_t size() const { return owner ? shown.size() : owned.size(); }
  bool empty() const { return size() == 0; }
  const uint8_t *begin() const { return data(); }
  const uint8_t *end() const { return data() + size(); }
  uint8_t operator[](size_t index) const { return data()[index]; }
  operator std::span<const uint8_t>() const { return {data(), size()}; }
  bool isView() const { return owner != nullptr; }

  /// The bytes, to be changed; a view is copied first.
  std::vector<uint8_t> &edit() {
    if (owner) {
      owned.assign(shown.begin(), shown.end());
      shown = {};
      owner.reset();
    }
    return owned;
  }
  template <class Iterator> void append(Iterator first, Iterator last) {
    std::vector<uint8_t> &bytes = edit();
    bytes.insert(bytes.end(), first, last);
  }

  friend bool operator==(const Bytes &a, const Bytes &b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
  }

private:
  std::vector<uint8_t> owned;
  std::span<const uint8_t> shown;
  std::shared_ptr<const void> owner;
};

} // namespace millrace
