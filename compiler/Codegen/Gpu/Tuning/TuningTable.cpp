// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Tuning/TuningTable.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <tuple>

namespace millrace::gpu {

using nlohmann::json;

namespace {

constexpr const char *kText =
#include "compiler/Codegen/Gpu/Tuning/Table.inc"
    ;
constexpr const char *kAny = "any";

/// The part of a schedule that kernels take: multiples of a step from it up to a bound.
struct Part {
  const char *op, *name;
  int64_t step, most;
};
constexpr Part kParts[] = {
    {"product", "rows", 32, 256},   {"product", "columns", 8, 256}, {"product", "depth", 16, 256},
    {"attention", "rows", 32, 256}, {"attention", "keys", 16, 128},
};

std::string checkSchedule(const TuningEntry &entry) {
  std::map<std::string, int64_t> left = entry.schedule;
  for (const Part &part : kParts) {
    if (part.op != entry.of.op)
      continue;
    const auto own = left.find(part.name);
    if (own == left.end())
      return std::string("its schedule has no '") + part.name + "'";
    if (own->second < part.step || own->second > part.most || own->second % part.step)
      return std::string("its schedule's '") + part.name + "' is " + std::to_string(own->second) +
             "; use a multiple of " + std::to_string(part.step) + " up to " +
             std::to_string(part.most);
    left.erase(own);
  }
  return left.empty() ? ""
                      : "kernels '" + entry.of.op + "' have no '" + left.begin()->first +
                            "' in their schedule";
}

TuningEntry readEntry(const json &text) {
  TuningEntry entry;
  text.at("op").get_to(entry.of.op);
  text.at("type").get_to(entry.of.type);
  text.at("chip").get_to(entry.chip);
  for (const auto &[name, bounds] : text.at("sizes").items())
    entry.bounds[name] = {bounds.at(0).get<int64_t>(), bounds.at(1).get<int64_t>()};
  if (!text.at("schedule").is_null())
    text.at("schedule").get_to(entry.schedule);
  text.at("roofline_share").get_to(entry.rooflineShare);
  entry.isMeasured = text.at("provenance").at("kind").get<std::string>() == "measured";
  return entry;
}

std::string checkEntry(const TuningEntry &entry) {
  if (!(entry.rooflineShare > 0 && entry.rooflineShare <= 1))
    return "its roofline_share is " + std::to_string(entry.rooflineShare) +
           "; it is more than 0 and at most 1";
  for (const auto &[name, bounds] : entry.bounds)
    if (bounds.first > bounds.second)
      return "its '" + name + "' is from " + std::to_string(bounds.first) + " to " +
             std::to_string(bounds.second);
  return entry.schedule.empty() ? "" : checkSchedule(entry);
}

GpuChip readChip(const json &text) {
  return {text.at("name").get<std::string>(),
          text.at("bytes_per_second").get<double>(),
          text.at("matrix_flops_per_second").get<double>(),
          text.at("other_flops_per_second").get<double>(),
          text.at("processors").get<unsigned>(),
          text.at("launch_seconds").get<double>()};
}

bool isOf(const std::string &entry, std::string_view kernel) {
  return entry == kAny || entry == kernel;
}

/// Greater is better.
auto rankOf(const TuningEntry &entry) {
  double width = 1;
  for (const auto &[name, bounds] : entry.bounds)
    width *= double(bounds.second - bounds.first + 1);
  return std::tuple(entry.isMeasured, entry.chip != kAny, entry.of.op != kAny,
                    entry.of.type != kAny, entry.bounds.size(), -width);
}

} // namespace

Expected<TuningTable> TuningTable::parse(std::string_view text) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::string at = "the table";
  TuningTable table;
  try {
    if (all.at("schema_version") != 1)
      return Error{"the tuning table's schema_version is not 1; this version reads no other"};
    for (const json &chip : all.at("chips"))
      table.chips.push_back(readChip(chip));
    const auto wanted = all.at("estimated_chip").get<std::string>();
    const auto chip = std::find_if(table.chips.begin(), table.chips.end(),
                                   [&](const GpuChip &own) { return own.name == wanted; });
    if (chip == table.chips.end())
      return Error{"the tuning table's estimated_chip '" + wanted + "' is none of its chips"};
    table.estimated = size_t(chip - table.chips.begin());
    for (const json &entry : all.at("entries")) {
      at = "entry " + std::to_string(table.all.size());
      table.all.push_back(readEntry(entry));
      if (const std::string why = checkEntry(table.all.back()); !why.empty())
        return Error{"the tuning table's " + at + ": " + why};
    }
  } catch (const json::exception &error) { // of what is missing or of another type
    return Error{"the tuning table's " + at + ": " + error.what()};
  }
  return table;
}

const TuningTable &TuningTable::builtIn() {
  static const TuningTable table = [] {
    Expected<TuningTable> parsed = parse(kText);
    if (!parsed) { // a test reads it, so that this is seen before it is committed
      std::fprintf(stderr, "millrace: error: %s\n", parsed.error().c_str());
      std::abort();
    }
    return std::move(*parsed);
  }();
  return table;
}

const TuningEntry *TuningTable::find(const KernelKind &kind, std::string_view chip,
                                     bool hasSchedule) const {
  const TuningEntry *best = nullptr;
  for (const TuningEntry &entry : all) {
    const bool holds = std::all_of(entry.bounds.begin(), entry.bounds.end(), [&](const auto &b) {
      const auto own = kind.sizes.find(b.first);
      return own != kind.sizes.end() && b.second.first <= own->second &&
             own->second <= b.second.second;
    });
    if (holds && isOf(entry.of.op, kind.op) && isOf(entry.of.type, kind.type) &&
        isOf(entry.chip, chip) && !(hasSchedule && entry.schedule.empty()) &&
        (!best || rankOf(*best) <= rankOf(entry)))
      best = &entry;
  }
  return best;
}

std::map<std::string, int64_t>
TuningTable::scheduleFor(const KernelKind &kind,
                         const std::map<std::string, int64_t> &fallback) const {
  const TuningEntry *entry = find(kind, estimatedChip().name, /*hasSchedule=*/true);
  return entry && entry->of.op == kind.op ? entry->schedule : fallback;
}

} // namespace millrace::gpu
