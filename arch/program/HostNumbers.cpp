// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/HostNumbers.h"

#include "arch/isa/semantics/Convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace millrace {

namespace {
using namespace semantics;

struct HostRow {
  std::string_view name;
  unsigned bytes;
};
// In the order of HostElement.
constexpr HostRow hostRows[] = {{"bool", 1},   {"int8", 1},    {"uint8", 1},    {"int16", 2},
                                {"uint16", 2}, {"int32", 4},   {"uint32", 4},   {"int64", 8},
                                {"uint64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4},
                                {"float64", 8}};

constexpr size_t kChunk = 1024; ///< elements converted at a time, to stay in the first cache

bool isFloat(HostElement t) { return t >= HostElement::Float16; }
bool isInteger(ElementType t) {
  return t == ElementType::Int8 || t == ElementType::UInt8 || t == ElementType::Int32;
}
Error wrong(size_t element, const std::string &value, const std::string &why) {
  return Error{"element " + std::to_string(element) + " is " + value + ", " + why};
}
std::string textOf(float value) {
  char text[32];
  snprintf(text, sizeof text, "%g", double(value));
  return text;
}
Error needsScale(std::string_view from, std::string_view to) {
  return Error{std::string(from) + " does not become " + std::string(to) +
               " without a scale; quantise in the model"};
}

/// Nearest fp32, except that an inexact result has its last bit set: rounding it again, to a format
/// with at least two bits fewer, rounds the original value once (Boldo and Melquiond, 2008).
float roundedToOdd(double value) {
  float nearest = float(value);
  if (std::isnan(value) || double(nearest) == value)
    return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(double(nearest)) > std::fabs(value))
    --bits;
  return std::bit_cast<float>(bits | 1);
}

void toFp32(HostElement from, const uint8_t *host, bool onlyStep, float *out, size_t count) {
  if (from == HostElement::Float16)
    return fp16ToFp32(reinterpret_cast<const uint16_t *>(host), out, count);
  if (from == HostElement::Bfloat16)
    return bf16ToFp32(reinterpret_cast<const uint16_t *>(host), out, count);
  if (from == HostElement::Float32) {
    std::memcpy(out, host, count * sizeof(float));
    return;
  }
  const auto *wide = reinterpret_cast<const double *>(host);
  for (size_t k = 0; k < count; ++k)
    out[k] = onlyStep ? canonicalized(float(wide[k])) : roundedToOdd(wide[k]);
}

void fp32ToGrid(const float *in, ElementType to, uint8_t *grid, size_t count) {
  switch (to) {
  case ElementType::Fp16:
    return fp32ToFp16Finite(in, reinterpret_cast<uint16_t *>(grid), count);
  case ElementType::Bf16:
    return fp32ToBf16Finite(in, reinterpret_cast<uint16_t *>(grid), count);
  case ElementType::E4M3:
    return fp32ToE4m3(in, grid, count);
  case ElementType::E5M2:
    return fp32ToE5m2(in, grid, count);
  default:
    std::memcpy(grid, in, count * sizeof(float));
  }
}

void gridToFp32(ElementType from, const uint8_t *grid, float *out, size_t count) {
  switch (from) {
  case ElementType::Fp16:
    return fp16ToFp32(reinterpret_cast<const uint16_t *>(grid), out, count);
  case ElementType::Bf16:
    return bf16ToFp32(reinterpret_cast<const uint16_t *>(grid), out, count);
  case ElementType::E4M3:
    return e4m3ToFp32(grid, out, count);
  case ElementType::E5M2:
    return e5m2ToFp32(grid, out, count);
  default:
    std::memcpy(out, grid, count * sizeof(float));
  }
}

/// Calls f with a null pointer of the C++ type of an integer (or bool) of the host.
template <class F> auto withHostType(HostElement type, F f) {
  switch (type) {
  case HostElement::Int8:
    return f((int8_t *)nullptr);
  case HostElement::Int16:
    return f((int16_t *)nullptr);
  case HostElement::UInt16:
    return f((uint16_t *)nullptr);
  case HostElement::Int32:
    return f((int32_t *)nullptr);
  case HostElement::UInt32:
    return f((uint32_t *)nullptr);
  case HostElement::Int64:
    return f((int64_t *)nullptr);
  case HostElement::UInt64:
    return f((uint64_t *)nullptr);
  default: // bool lies as one byte
    return f((uint8_t *)nullptr);
  }
}
template <class F> auto withGridType(ElementType type, F f) {
  if (type == ElementType::Int8)
    return f((int8_t *)nullptr);
  if (type == ElementType::UInt8)
    return f((uint8_t *)nullptr);
  return f((int32_t *)nullptr);
}

template <class T> T load(const uint8_t *from, size_t k) {
  T value;
  std::memcpy(&value, from + k * sizeof(T), sizeof(T));
  return value;
}
template <class T> void store(uint8_t *to, size_t k, T value) {
  std::memcpy(to + k * sizeof(T), &value, sizeof(T));
}

template <class From, class To>
Status integers(const uint8_t *in, uint8_t *out, bool isBool, std::string_view name, size_t count) {
  for (size_t k = 0; k < count; ++k) {
    From value = load<From>(in, k);
    if (isBool)
      value = value != 0;
    if (!std::in_range<To>(value))
      return wrong(k, std::to_string(value),
                   "outside " + std::string(name) + " [" +
                       std::to_string(std::numeric_limits<To>::min()) + ", " +
                       std::to_string(std::numeric_limits<To>::max()) + "]");
    store<To>(out, k, To(value));
  }
  return Success{};
}

template <class From>
Status integersToFloats(const uint8_t *in, bool isBool, ElementType to, uint8_t *grid,
                        size_t count) {
  float values[kChunk], back[kChunk];
  for (size_t done = 0; done < count; done += kChunk) {
    const size_t n = std::min(kChunk, count - done);
    for (size_t k = 0; k < n; ++k) {
      const From value = load<From>(in, done + k);
      values[k] = float(isBool ? value != 0 : value);
    }
    uint8_t *out = grid + done * byteWidth(to);
    fp32ToGrid(values, to, out, n);
    gridToFp32(to, out, back, n);
    for (size_t k = 0; k < n; ++k) {
      const From value = load<From>(in, done + k);
      // A long double has at least 64 bits of significand: both sides are exact.
      const bool exact =
          isBool || (back[k] == values[k] && (long double)back[k] == (long double)value);
      if (!exact)
        return wrong(done + k, std::to_string(value),
                     std::string("which ") + nameOf(to) +
                         " does not hold exactly; use a wider type on the grid");
    }
  }
  return Success{};
}

template <class To>
Status floatsToIntegers(const float *in, uint8_t *out, size_t first, std::string_view name,
                        size_t count) {
  // The limits as floats: max + 1 is a power of two, thus exact.
  const float low = float(std::numeric_limits<To>::min()),
              end = std::ldexp(1.0f, std::numeric_limits<To>::digits);
  for (size_t k = 0; k < count; ++k) {
    if (!(in[k] >= low && in[k] < end) || in[k] != std::trunc(in[k]))
      return wrong(first + k, textOf(in[k]), "which is no " + std::string(name));
    store<To>(out, k, To(in[k]));
  }
  return Success{};
}

Status fp32ToHost(const float *in, HostElement to, uint8_t *host, size_t first, size_t count) {
  switch (to) {
  case HostElement::Float16:
    fp32ToFp16(in, reinterpret_cast<uint16_t *>(host), count);
    break;
  case HostElement::Bfloat16:
    fp32ToBf16(in, reinterpret_cast<uint16_t *>(host), count);
    break;
  case HostElement::Float32:
    std::memcpy(host, in, count * sizeof(float));
    break;
  case HostElement::Float64:
    std::copy(in, in + count, reinterpret_cast<double *>(host));
    break;
  case HostElement::Bool:
    std::transform(in, in + count, host, [](float value) { return uint8_t(value != 0); });
    break;
  default:
    return withHostType(to, [&]<class To>(To *) {
      return floatsToIntegers<To>(in, host, first, hostRows[unsigned(to)].name, count);
    });
  }
  return Success{};
}

} // namespace

std::optional<HostElement> hostElementNamed(std::string_view name) {
  if (name == "float")
    return HostElement::Float32;
  if (name == "double")
    return HostElement::Float64;
  for (unsigned k = 0; k < std::size(hostRows); ++k)
    if (hostRows[k].name == name)
      return HostElement(k);
  return std::nullopt;
}

bool sameBits(HostElement h, ElementType g) {
  return (h == HostElement::Float16 && g == ElementType::Fp16) ||
         (h == HostElement::Bfloat16 && g == ElementType::Bf16) ||
         (h == HostElement::Float32 && g == ElementType::Fp32) ||
         (h == HostElement::Int8 && g == ElementType::Int8) ||
         (h == HostElement::UInt8 && g == ElementType::UInt8) ||
         (h == HostElement::Int32 && g == ElementType::Int32);
}

unsigned byteWidth(HostElement type) { return hostRows[unsigned(type)].bytes; }

Status toGrid(HostElement from, const void *host, ElementType to, uint8_t *grid, size_t count) {
  const auto *in = static_cast<const uint8_t *>(host);
  const std::string_view name = hostRows[unsigned(from)].name;
  if (sameBits(from, to)) {
    if (count)
      std::memcpy(grid, in, count * byteWidth(to));
    return Success{};
  }
  const bool isBool = from == HostElement::Bool;
  if (!isFloat(from))
    return withHostType(from, [&]<class From>(From *) -> Status {
      if (!isInteger(to))
        return integersToFloats<From>(in, isBool, to, grid, count);
      return withGridType(to, [&]<class To>(To *) {
        return integers<From, To>(in, grid, isBool, nameOf(to), count);
      });
    });
  if (isInteger(to) || byteWidth(to) == 1)
    return needsScale(name, nameOf(to));
  float values[kChunk];
  for (size_t done = 0; done < count; done += kChunk) {
    const size_t n = std::min(kChunk, count - done);
    toFp32(from, in + done * byteWidth(from), to == ElementType::Fp32, values, n);
    fp32ToGrid(values, to, grid + done * byteWidth(to), n);
  }
  return Success{};
}

std::optional<int64_t> integerAt(HostElement type, const void *host, size_t k) {
  if (isFloat(type))
    return std::nullopt;
  return withHostType(type, [&]<class From>(From *) {
    const From value = load<From>(static_cast<const uint8_t *>(host), k);
    return std::in_range<int64_t>(value) ? int64_t(value) : INT64_MAX;
  });
}

Status fromGrid(ElementType from, const uint8_t *grid, HostElement to, void *host, size_t count) {
  auto *out = static_cast<uint8_t *>(host);
  const std::string_view name = hostRows[unsigned(to)].name;
  if (sameBits(to, from)) {
    if (count)
      std::memcpy(out, grid, count * byteWidth(from));
    return Success{};
  }
  if (isInteger(from)) {
    if (isFloat(to))
      return needsScale(nameOf(from), name);
    return withGridType(from, [&]<class From>(From *) {
      return withHostType(to, [&]<class To>(To *) {
        return integers<From, To>(grid, out, to == HostElement::Bool, name, count);
      });
    });
  }
  float values[kChunk];
  for (size_t done = 0; done < count; done += kChunk) {
    const size_t n = std::min(kChunk, count - done);
    gridToFp32(from, grid + done * byteWidth(from), values, n);
    if (Status s = fp32ToHost(values, to, out + done * byteWidth(to), done, n); !s)
      return s;
  }
  return Success{};
}

} // namespace millrace
