// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Quantity.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace millrace {
namespace {

/// A unit is `times / per` base units; two factors keep small units exact (10 us = 10 / 1e6 s).
struct UnitName {
  std::string_view name;
  double times = 1, per = 1;
};

constexpr UnitName kHertz[] = {{"GHz", 1e9}, {"MHz", 1e6}, {"kHz", 1e3}, {"Hz"}};
constexpr UnitName kSeconds[] = {{"s"}, {"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9}};
constexpr UnitName kRates[] = {
    {"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s"}};
constexpr UnitName kEnergies[] = {{"pJ"}, {"nJ", 1e3}, {"fJ", 1, 1e3}};
constexpr UnitName kBytes[] = {{"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"B"}};

/// Multiples of a base unit itself.
std::vector<UnitName> multiples(std::string_view unit) {
  if (unit == "Hz")
    return {std::begin(kHertz), std::end(kHertz)};
  if (unit == "s")
    return {std::begin(kSeconds), std::end(kSeconds)};
  if (unit == "B/s")
    return {std::begin(kRates), std::end(kRates)};
  if (unit == "pJ")
    return {std::begin(kEnergies), std::end(kEnergies)};
  return {{unit}};
}

/// Units of another dimension that the machine's numbers turn into the base unit.
std::vector<UnitName> convertibles(std::string_view unit) {
  if (unit == "cycles")
    return {std::begin(kSeconds), std::end(kSeconds)};
  if (unit == "rows")
    return {std::begin(kBytes), std::end(kBytes)};
  return {};
}

bool mustNameUnit(std::string_view unit) {
  return unit == "Hz" || unit == "s" || unit == "B/s" || unit == "pJ";
}

std::optional<UnitName> find(const std::vector<UnitName> &units, std::string_view name) {
  for (const UnitName &candidate : units)
    if (candidate.name == name)
      return candidate;
  return std::nullopt;
}

std::string shortest(double number) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  return {buffer, end};
}

struct Written {
  double number = 0;
  std::string_view unit;
};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ')
    text.remove_suffix(1);
  return text;
}

/// Splits number and unit; a noun in the singular ("1 cycle") names the plural unit of the key.
bool split(std::string_view text, std::string_view unit, Written &written) {
  text = trim(text);
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), written.number);
  if (code != std::errc() || !std::isfinite(written.number))
    return false;
  written.unit = trim(text.substr(size_t(end - text.data())));
  if (unit.ends_with('s') && written.unit == unit.substr(0, unit.size() - 1) && unit.size() > 1)
    written.unit = unit;
  return true;
}

/// Base units per one `name` of another dimension, applied to `number`.
Expected<double> convert(double number, const UnitName &from, std::string_view unit,
                         const UnitContext &context) {
  const bool isTime = unit == "cycles";
  const double base = number * from.times / from.per; // seconds or bytes
  // Divide last: 350 ns x 1.5 GHz is exactly 525 only when no rounded factor such as 1e-9 takes
  // part.
  const double exact =
      isTime ? number * from.times * context.clockHz / from.per : base / context.bytesPerRow;
  if (exact == std::floor(exact))
    return exact;
  const std::string why = isTime ? " cycles at " + printQuantity(context.clockHz, "Hz")
                                 : " rows of " + std::to_string(context.bytesPerRow) + " B";
  return Error{"is " + shortest(exact) + why + ", no whole number; write it in " +
               std::string(unit)};
}

} // namespace

bool needsContext(std::string_view text, std::string_view unit) {
  Written written;
  return split(text, unit, written) && find(convertibles(unit), written.unit).has_value();
}

Expected<double> parseQuantity(std::string_view text, std::string_view unit,
                               const UnitContext &context) {
  Written written;
  if (!split(text, unit, written))
    return Error{"is no number; write a number of " + std::string(unit)};
  if (written.unit.empty()) {
    if (mustNameUnit(unit))
      return Error{"has no unit; write one of " + acceptedUnits(unit)};
    return written.number;
  }
  if (std::optional<UnitName> known = find(multiples(unit), written.unit))
    return written.number * known->times / known->per;
  if (std::optional<UnitName> known = find(convertibles(unit), written.unit))
    return convert(written.number, *known, unit, context);
  return Error{"has the unknown unit '" + std::string(written.unit) + "'; write one of " +
               acceptedUnits(unit)};
}

std::string printQuantity(double number, std::string_view unit) {
  std::string best;
  size_t bestCost = 0;
  for (const UnitName &candidate : multiples(unit)) {
    const std::string digits = shortest(number * candidate.per / candidate.times);
    const std::string text = digits + " " + std::string(candidate.name);
    // Whole numbers read best: 900 MHz rather than 0.9 GHz.
    const size_t cost = text.size() + (digits.find_first_of(".e") == digits.npos ? 0 : 100);
    auto back = parseQuantity(text, unit, {});
    if (back && *back == number && (best.empty() || cost < bestCost)) {
      best = text;
      bestCost = cost;
    }
  }
  return best.empty() ? shortest(number) + " " + std::string(unit) : best;
}

std::string acceptedUnits(std::string_view unit) {
  std::string text;
  auto list = [&text](const std::vector<UnitName> &units) {
    for (const UnitName &candidate : units)
      text += (text.empty() ? "" : ", ") + std::string(candidate.name);
  };
  list(multiples(unit));
  list(convertibles(unit));
  return text;
}

} // namespace millrace
