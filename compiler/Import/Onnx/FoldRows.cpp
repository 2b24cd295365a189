// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/FoldRows.h"

#include "arch/isa/semantics/Convert.h"

#include <cstring>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

using Kind = NumberType::Kind;

template <class T> T read(const char *elements, int64_t index) {
  T value;
  std::memcpy(&value, elements + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T> void write(char *elements, int64_t index, T value) {
  std::memcpy(elements + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Reads elements of type T, each through `convert`, into `numbers`.
template <class T, class Number, class Convert>
void loadAs(std::vector<Number> &numbers, const char *elements, const Row::Part &part,
            Convert convert) {
  for (size_t i = 0; i < part.count; ++i)
    numbers[part.at + i] =
        convert(read<T>(elements, part.first + static_cast<int64_t>(i) * part.step));
}

template <class T, class Number, class Convert>
void storeAs(const std::vector<Number> &numbers, char *elements, const Row::Part &part,
             Convert convert) {
  for (size_t i = 0; i < part.count; ++i)
    write<T>(elements, part.first + static_cast<int64_t>(i) * part.step,
             convert(numbers[part.at + i]));
}

/// Calls `visit` with the integer type that holds `bytes`.
template <class Visit> void withInteger(unsigned bytes, Visit visit) {
  if (bytes == 1)
    visit(int8_t{});
  else if (bytes == 2)
    visit(int16_t{});
  else if (bytes == 4)
    visit(int32_t{});
  else
    visit(int64_t{});
}

constexpr auto same = [](auto value) { return value; };

} // namespace

std::optional<NumberType> NumberType::of(Type type) {
  if (type.isIndex())
    return NumberType{Kind::Integer, 64};
  if (auto integer = dyn_cast<IntegerType>(type)) {
    const unsigned width = integer.getWidth();
    if (width == 1 || width == 8 || width == 16 || width == 32 || width == 64)
      return NumberType{Kind::Integer, width};
  }
  if (type.isF16() || type.isBF16() || type.isF32())
    return NumberType{Kind::Single, type.getIntOrFloatBitWidth(), type.isBF16()};
  if (type.isF64())
    return NumberType{Kind::Double, 64};
  return std::nullopt;
}

Row::Row(NumberType type, size_t capacity) : type(type), capacity(capacity) {
  if (type.kind == Kind::Integer)
    integers.resize(capacity);
  else if (type.kind == Kind::Single)
    singles.resize(capacity);
  else
    doubles.resize(capacity);
}

void Row::set(Attribute constant) {
  if (auto integer = dyn_cast<IntegerAttr>(constant)) {
    std::fill(integers.begin(), integers.end(), integer.getValue().getSExtValue());
    return;
  }
  const double value = cast<FloatAttr>(constant).getValueAsDouble();
  std::fill(singles.begin(), singles.end(), static_cast<float>(value));
  std::fill(doubles.begin(), doubles.end(), value);
}

void Row::load(const char *elements, const Part &part) {
  if (type.kind == Kind::Double)
    loadAs<double>(doubles, elements, part, same);
  else if (type.kind == Kind::Single && type.width == 32)
    loadAs<float>(singles, elements, part, same);
  else if (type.kind == Kind::Single)
    loadAs<uint16_t>(singles, elements, part, [&](uint16_t bits) {
      return type.isBf16 ? semantics::bf16ToFp32(bits) : semantics::fp16ToFp32(bits);
    });
  else if (type.width == 1)
    loadAs<int8_t>(integers, elements, part,
                   [](int8_t byte) { return int64_t{byte & 1 ? -1 : 0}; });
  else
    withInteger(type.bytes(),
                [&](auto example) { loadAs<decltype(example)>(integers, elements, part, same); });
}

void Row::store(char *elements, const Part &part) const {
  if (type.kind == Kind::Double)
    storeAs<double>(doubles, elements, part, same);
  else if (type.kind == Kind::Single && type.width == 32)
    storeAs<float>(singles, elements, part, same);
  else if (type.kind == Kind::Single)
    storeAs<uint16_t>(singles, elements, part, [&](float value) {
      return type.isBf16 ? semantics::fp32ToBf16(value) : semantics::fp32ToFp16(value);
    });
  else
    withInteger(type.bytes(), [&](auto example) {
      using T = decltype(example);
      storeAs<T>(integers, elements, part, [&](int64_t value) {
        return static_cast<T>(type.width == 1 ? value & 1 : value);
      });
    });
}

void Row::setUnknown(size_t i) {
  if (!hasUnknown)
    isUnknown.assign(capacity, 0);
  hasUnknown = true;
  isUnknown[i] = 1;
}

} // namespace millrace::onnx_import
