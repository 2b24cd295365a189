// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of numbers, and scalar operations on whole rows: the arithmetic of folding. Each result is
// that of the operation in the element's own type, rounded once, to nearest even.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace millrace::onnx_import {

/// How a number is held while it is computed with, and how it is stored.
struct NumberType {
  enum class Kind : uint8_t {
    Integer, ///< int64_t, sign-extended from `width` bits; an index has 64, a flag 1
    Single,  ///< float: f32, and f16 and bf16, rounded to these after every operation
    Double
  };
  Kind kind;
  unsigned width;                                    ///< bits
  bool isBf16 = false;                               ///< 16 bits: which
  unsigned bytes() const { return (width + 7) / 8; } ///< in memory; a flag takes one, 0 or 1

  /// Nothing for types that are neither an integer of up to 64 bits, nor index, f16, bf16, f32,
  /// f64.
  static std::optional<NumberType> of(mlir::Type type);
};

/// Numbers of one type, in the vector of its kind. Some may have no value, as a quotient by 0; what
/// stands in their place is of no interest.
struct Row {
  NumberType type;
  std::vector<char> isUnknown; ///< 1 for numbers without a value; valid if `hasUnknown`
  bool hasUnknown = false;
  size_t capacity;
  std::vector<int64_t> integers;
  std::vector<float> singles;
  std::vector<double> doubles;

  Row(NumberType type, size_t capacity);
  /// Makes all numbers an integer's or a float's attribute.
  void set(mlir::Attribute constant);
  /// Where the elements of a part of a row, beginning at number `at`, lie in memory.
  struct Part {
    size_t at, count;
    int64_t first, step; ///< elements
  };
  /// Reads and writes elements as `type` is stored.
  void load(const char *elements, const Part &part);
  void store(char *elements, const Part &part) const;
  void setUnknown(size_t i);
};

/// One operation on rows: rows[result][i] = f(rows[arguments][i]...).
struct RowStep {
  using Function = void (*)(const RowStep &, std::vector<Row> &, size_t count);
  Function apply = nullptr;
  std::vector<unsigned> arguments;
  unsigned result = 0;
  int64_t predicate = 0; ///< of a comparison

  /// A result is unknown if an argument is, but for what a select does not choose.
  void run(std::vector<Row> &rows, size_t count) const;
};

/// The function of a scalar operation of `arith` or `math`, with its predicate; nothing if it has
/// none here.
std::optional<RowStep> rowStepOf(mlir::Operation *op);

} // namespace millrace::onnx_import
