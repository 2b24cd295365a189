// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Records that are either owned or lie in a mapped file: what makes an image large (weights,
// instructions, annotations) is used where it lies, never copied.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace millrace {

/// A sequence of plain records. Reading never copies; edit() makes the records the object's own
/// first. Copies of a view share the mapping and keep it alive.
template <class T> class Records {
  static_assert(std::is_trivially_copyable_v<T>);

public:
  Records() = default;
  Records(std::vector<T> records) : owned(std::move(records)) {}
  /// A view; `owner` keeps what it shows alive.
  Records(std::span<const T> records, std::shared_ptr<const void> owner)
      : shown(records), owner(std::move(owner)) {}

  const T *data() const { return owner ? shown.data() : owned.data(); }
  size_t size() const { return owner ? shown.size() : owned.size(); }
  bool empty() const { return size() == 0; }
  const T *begin() const { return data(); }
  const T *end() const { return data() + size(); }
  const T &operator[](size_t index) const { return data()[index]; }
  operator std::span<const T>() const { return {data(), size()}; }
  bool isView() const { return owner != nullptr; }

  /// The records, to be changed; a view is copied first.
  std::vector<T> &edit() {
    if (owner) {
      owned.assign(shown.begin(), shown.end());
      shown = {};
      owner.reset();
    }
    return owned;
  }
  template <class Iterator> void append(Iterator first, Iterator last) {
    std::vector<T> &records = edit();
    records.insert(records.end(), first, last);
  }

  friend bool operator==(const Records &a, const Records &b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
  }

private:
  std::vector<T> owned;
  std::span<const T> shown;
  std::shared_ptr<const void> owner;
};

/// Weights and other contents of memory.
using Bytes = Records<uint8_t>;

} // namespace millrace
