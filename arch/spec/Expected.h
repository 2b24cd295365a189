// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A value or an error text. arch has no LLVM, and GCC 12 has no std::expected.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace millrace {

/// An error: one sentence, lower case, naming the thing, the number and the remedy.
struct Error {
  std::string message;
};

/// Either a valid T or an Error. Test with `if (!x)`, then read `*x` or `x.error()`.
template <class T> class [[nodiscard]] Expected {
public:
  Expected(T value) : state(std::move(value)) {}
  Expected(Error error) : state(std::move(error)) {}

  explicit operator bool() const { return state.index() == 0; }
  T &operator*() { return std::get<0>(state); }
  const T &operator*() const { return std::get<0>(state); }
  T *operator->() { return &std::get<0>(state); }
  const T *operator->() const { return &std::get<0>(state); }
  const std::string &error() const { return std::get<1>(state).message; }
  Error takeError() { return std::get<1>(std::move(state)); }

private:
  std::variant<T, Error> state;
};

/// Success carries nothing.
struct Success {};
using Status = Expected<Success>;

} // namespace millrace
