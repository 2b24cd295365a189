// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/AssemblerData.h"

#include "arch/isa/Print.h"
#include "arch/isa/semantics/Convert.h"

#include <bit>
#include <charconv>
#include <cmath>

namespace millrace {
namespace {

using Problem = std::optional<LineError>;

Problem hexBytes(std::span<const Token> words, std::span<uint8_t> bytes) {
  size_t digits = 0;
  for (const Token &word : words)
    for (size_t k = 0; k < word.text.size(); ++k, ++digits) {
      unsigned value = 0;
      const char *c = word.text.data() + k;
      if (std::from_chars(c, c + 1, value, 16).ec != std::errc())
        return LineError{word.column + unsigned(k), std::string("'") + *c + "' is no hex digit"};
      if (digits / 2 >= bytes.size())
        return LineError{word.column + unsigned(k),
                         "more than the " + std::to_string(bytes.size()) + " bytes that there are"};
      bytes[digits / 2] = uint8_t(bytes[digits / 2] << 4 | value);
    }
  if (digits % 2)
    return LineError{words.back().column, "half a byte is left over"};
  return std::nullopt;
}

void randomBytes(uint64_t state, std::span<uint8_t> bytes) {
  for (uint8_t &byte : bytes) { // SplitMix64, Steele et al. 2014
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    byte = uint8_t((z ^ z >> 31) >> 56);
  }
}

/// Bits of an element.
Expected<uint32_t> element(ElementType type, const std::string &text) {
  if (type == ElementType::Int8 || type == ElementType::UInt8 || type == ElementType::Int32) {
    Expected<int64_t> value = parseInteger(text);
    if (!value)
      return value.takeError();
    const int64_t bits = 8 * byteWidth(type), top = int64_t(1) << (bits - 1);
    const int64_t least = type == ElementType::UInt8 ? 0 : -top,
                  most = type == ElementType::UInt8 ? 2 * top - 1 : top - 1;
    if (*value < least || *value > most)
      return Error{text + " is outside [" + std::to_string(least) + ", " + std::to_string(most) +
                   "], what " + nameOf(type) + " holds"};
    return uint32_t(*value);
  }
  float value = 0;
  const char *end = text.data() + text.size();
  const auto [stop, wrong] = std::from_chars(text.data(), end, value);
  if (stop != end || wrong != std::errc())
    return Error{"'" + text + "' is no number that " + nameOf(type) + " can round"};
  switch (type) {
  case ElementType::Fp16:
    return semantics::fp32ToFp16(value);
  case ElementType::Bf16:
    return semantics::fp32ToBf16(value);
  case ElementType::E4M3:
    return semantics::fp32ToE4m3(value);
  case ElementType::E5M2:
    return semantics::fp32ToE5m2(value);
  default:
    return std::bit_cast<uint32_t>(value);
  }
}

Problem elements(ElementType type, std::span<const Token> words, bool all,
                 std::optional<unsigned> byte, std::span<uint8_t> bytes) {
  const unsigned stored = byte ? 1 : byteWidth(type);
  const size_t room = bytes.size() / stored;
  for (size_t k = 0; k < (all ? room : words.size()); ++k) {
    const Token &word = words[all ? 0 : k];
    if (k >= room)
      return LineError{word.column, "this is value " + std::to_string(k + 1) +
                                        "; there is room for " + std::to_string(room)};
    Expected<uint32_t> bits = element(type, word.text);
    if (!bits)
      return LineError{word.column, bits.error()};
    for (unsigned b = 0; b < stored; ++b)
      bytes[k * stored + b] = uint8_t(*bits >> 8 * (byte ? *byte : b));
  }
  return std::nullopt;
}

} // namespace

Problem fillData(std::span<const Token> words, std::optional<unsigned> byte,
                 std::span<uint8_t> bytes) {
  const Token &form = words[0];
  std::span<const Token> values = words.subspan(1);
  if (form.text == "iota" && values.empty()) {
    for (size_t k = 0; k < bytes.size(); ++k)
      bytes[k] = uint8_t(k);
    return std::nullopt;
  }
  if (values.empty())
    return LineError{form.column, "'" + form.text + "' needs values behind it"};
  if (form.text == "hex")
    return hexBytes(values, bytes);
  if (form.text == "random") {
    Expected<int64_t> seed = parseInteger(values[0].text);
    if (!seed || values.size() > 1)
      return LineError{values[0].column, "random takes one seed, a whole number"};
    randomBytes(uint64_t(*seed), bytes);
    return std::nullopt;
  }
  const bool all = form.text == "all";
  const Token &name = all ? values[0] : form;
  Expected<ElementType> type = parseElementType(name.text);
  if (!type)
    return LineError{name.column,
                     "'" + name.text +
                         "' is no form of data; there are hex, iota, random, all and the "
                         "element types int8 uint8 int32 fp16 bf16 fp32 e4m3 e5m2"};
  if (all)
    values = values.subspan(1);
  if (all && values.size() != 1)
    return LineError{name.column, "all takes a type and one value"};
  if (byte && *byte >= byteWidth(*type))
    return LineError{name.column,
                     std::string(nameOf(*type)) + " has no byte " + std::to_string(*byte)};
  return elements(*type, values, all, byte, bytes);
}

} // namespace millrace
