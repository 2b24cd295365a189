// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Problem/Text.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <limits>

namespace millrace::schedule {
namespace {

using nlohmann::json;

constexpr const char *kProblemFormat = "millrace-schedule-problem";
constexpr const char *kScheduleFormat = "millrace-schedule";
constexpr int64_t kVersion = 1;

/// What the numbers of a row are: said in the text, and expected there.
struct Columns {
  const char *key, *names;
};
constexpr Columns kInstructions{"instruction_columns", R"(["pe","instruction","at_cycles"])"};
constexpr Columns kHolds{
    "hold_columns",
    R"(["resource","at_cycles","length_cycles","count","every_cycles","low_part","high_part"])"};
constexpr Columns kPrecedence{"precedence_columns",
                              R"(["before","after","distance_cycles","kind"])"};
constexpr Columns kMoments{"moment_columns", R"(["bundle","at_cycles"])"};

// ---- Writing: by hand, a line each, as a tree of millions of numbers would take seconds ---------

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// A string, whatever bytes a model's names have.
std::string quoted(const std::string &text) {
  return json(text).dump(-1, ' ', true, json::error_handler_t::replace);
}

void addNumbers(std::string &out, std::initializer_list<int64_t> numbers) {
  out += '[';
  for (const int64_t n : numbers) {
    if (out.back() != '[')
      out += ',';
    out += std::to_string(n);
  }
  out += ']';
}

template <class T, class F> void addList(std::string &out, const T &list, const char *gap, F f) {
  out += '[';
  bool isFirst = true;
  for (const auto &entry : list) {
    out += isFirst ? (*gap == '\n' ? "\n" : "") : gap == std::string("\n") ? ",\n" : ",";
    isFirst = false;
    f(entry);
  }
  out += ']';
}

void addMoments(std::string &out, const std::vector<Moment> &moments) {
  addList(out, moments, "", [&](const Moment &m) { addNumbers(out, {m.bundle, m.at}); });
}

void addBundle(std::string &out, const Bundle &b) {
  out += "{\"step\":" + std::to_string(b.step) + ",\"start_cycle\":" + std::to_string(b.start) +
         ",\"last_write_cycles\":" + (b.lastWrite ? std::to_string(*b.lastWrite) : "null") +
         ",\"name\":" + quoted(b.name) + ",\"instructions\":";
  addList(out, b.members, "", [&](const Member &m) {
    addNumbers(out, {m.pe, m.instruction, m.at});
  });
  out += ",\"holds\":";
  addList(out, b.holds, "", [&](const Hold &h) {
    addNumbers(out, {h.resource, h.at, h.length, h.count, h.every, h.low, h.high});
  });
  out += '}';
}

/// All but the head.
std::string bodyOf(const ScheduleProblem &p) {
  std::string out = "\"machine\":" + quoted(p.machine) + ",\n\"machine_hash\":\"" +
                    hex(p.machineHash) + "\",\n\"steps\":";
  const auto addColumns = [&](const Columns &columns) {
    out += std::string(",\n\"") + columns.key + "\":" + columns.names;
  };
  addList(out, p.steps, "\n", [&](const GridStep &s) {
    out += "{\"step\":" + std::to_string(s.step) + ",\"fixed_cycles\":" + std::to_string(s.fixed) +
           ",\"fewest_cycles\":" + std::to_string(s.fewest) + "}";
  });
  out += ",\n\"resources\":";
  addList(out, p.resources, "\n", [&](const Resource &r) {
    out += "{\"name\":" + quoted(r.name) + ",\"kind\":\"" + std::string(nameOf(r.kind)) +
           "\",\"cycles_per_part\":" + std::to_string(r.cyclesPerPart) + "}";
  });
  addColumns(kInstructions);
  addColumns(kHolds);
  out += ",\n\"bundles\":";
  addList(out, p.bundles, "\n", [&](const Bundle &b) { addBundle(out, b); });
  addColumns(kPrecedence);
  out += ",\n\"precedence\":";
  addList(out, p.precedence, "\n", [&](const Precedence &e) {
    out += "[" + std::to_string(e.before) + "," + std::to_string(e.after) + "," +
           std::to_string(e.distance) + ",\"" + std::string(nameOf(e.kind)) + "\"]";
  });
  addColumns(kMoments);
  out += ",\n\"spans\":";
  addList(out, p.spans, "\n", [&](const Span &s) {
    out += "{\"step\":" + std::to_string(s.step) + ",\"resource\":" + std::to_string(s.resource) +
           ",\"low_part\":" + std::to_string(s.low) + ",\"high_part\":" + std::to_string(s.high) +
           ",\"begins\":";
    addMoments(out, s.begins);
    out += ",\"ends\":";
    addMoments(out, s.ends);
    out += "}";
  });
  return out + "}\n";
}

std::string fingerprint(const std::string &body) {
  uint64_t hash = 0xcbf29ce484222325ull; // FNV-1a
  for (const char c : body)
    hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  return hex(hash);
}

std::string headOf(const char *format, const std::string &problem) {
  return std::string("{\"format\":\"") + format + "\",\n\"version\":" + std::to_string(kVersion) +
         ",\n\"problem\":\"" + problem + "\",\n";
}

// ---- Reading ------------------------------------------------------------------------------------

/// Thrown within this file alone: what is wrong, and where.
struct Damage {
  std::string what;
};

const json &at(const json &object, const char *key, const std::string &where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end())
    throw Damage{where + " has no '" + key + "'"};
  return *found;
}

/// An object with these keys and no others.
void expectKeys(const json &object, std::initializer_list<const char *> keys,
                const std::string &where) {
  for (const char *key : keys)
    at(object, key, where);
  for (const auto &[key, value] : object.items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      throw Damage{where + " has '" + key + "', which is not known"};
}

const json &listAt(const json &object, const char *key, const std::string &where) {
  const json &list = at(object, key, where);
  if (!list.is_array())
    throw Damage{where + ": '" + key + "' is not a list"};
  return list;
}

template <class T> void take(T &to, const json &value, const std::string &where) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() >> 62) ||
      value.get<int64_t>() < int64_t(std::numeric_limits<T>::min()) ||
      value.get<int64_t>() > int64_t(std::numeric_limits<T>::max()))
    throw Damage{where + ": " + value.dump() + " is no number that can stand there"};
  to = T(value.get<int64_t>());
}

std::string stringAt(const json &object, const char *key, const std::string &where) {
  const json &value = at(object, key, where);
  if (!value.is_string())
    throw Damage{where + ": '" + key + "' is not a text"};
  return value.get<std::string>();
}

/// The numbers of a row, in their order.
template <class... T> void takeRow(const json &row, const std::string &where, T &...to) {
  if (!row.is_array() || row.size() != sizeof...(to))
    throw Damage{where + ": " + row.dump().substr(0, 80) + " is not a list of " +
                 std::to_string(sizeof...(to))};
  size_t k = 0;
  (take(to, row[k++], where), ...);
}

template <class Kind>
Kind kindOf(const std::string &name, unsigned count, const std::string &where) {
  for (unsigned k = 0; k < count; ++k)
    if (nameOf(Kind(k)) == name)
      return Kind(k);
  throw Damage{where + ": no kind is called '" + name + "'"};
}

template <class F> void forEachEntry(const json &object, const char *key, F f) {
  size_t k = 0;
  for (const json &entry : listAt(object, key, "the text")) {
    f(entry, std::string(key) + " " + std::to_string(k));
    ++k;
  }
}

Bundle bundleOf(const json &entry, const std::string &where) {
  expectKeys(entry, {"step", "start_cycle", "last_write_cycles", "name", "instructions", "holds"},
             where);
  Bundle b;
  take(b.step, entry["step"], where);
  take(b.start, entry["start_cycle"], where);
  if (!entry["last_write_cycles"].is_null())
    take(b.lastWrite.emplace(), entry["last_write_cycles"], where);
  b.name = stringAt(entry, "name", where);
  for (const json &row : listAt(entry, "instructions", where)) {
    Member &m = b.members.emplace_back();
    takeRow(row, where, m.pe, m.instruction, m.at);
  }
  for (const json &row : listAt(entry, "holds", where)) {
    Hold &h = b.holds.emplace_back();
    takeRow(row, where, h.resource, h.at, h.length, h.count, h.every, h.low, h.high);
  }
  return b;
}

Span spanOf(const json &entry, const std::string &where) {
  expectKeys(entry, {"step", "resource", "low_part", "high_part", "begins", "ends"}, where);
  Span s;
  take(s.step, entry["step"], where);
  take(s.resource, entry["resource"], where);
  take(s.low, entry["low_part"], where);
  take(s.high, entry["high_part"], where);
  for (const auto &[key, moments] : {std::pair("begins", &s.begins), std::pair("ends", &s.ends)})
    for (const json &row : listAt(entry, key, where)) {
      Moment &m = moments->emplace_back();
      takeRow(row, where, m.bundle, m.at);
    }
  return s;
}

ScheduleProblem problemIn(const json &text) {
  expectKeys(text,
             {"format", "version", "problem", "machine", "machine_hash", "steps", "resources",
              "instruction_columns", "hold_columns", "bundles", "precedence_columns", "precedence",
              "moment_columns", "spans"},
             "the text");
  for (const Columns &columns : {kInstructions, kHolds, kPrecedence, kMoments})
    if (text[columns.key] != json::parse(columns.names))
      throw Damage{std::string("'") + columns.key + "' is not " + columns.names};
  ScheduleProblem p;
  p.machine = stringAt(text, "machine", "the text");
  const std::string hash = stringAt(text, "machine_hash", "the text");
  if (hash.size() != 16 || hash.find_first_not_of("0123456789abcdef") != hash.npos)
    throw Damage{"'machine_hash' is not 16 hexadecimal digits"};
  p.machineHash = std::stoull(hash, nullptr, 16);
  forEachEntry(text, "steps", [&](const json &entry, const std::string &where) {
    expectKeys(entry, {"step", "fixed_cycles", "fewest_cycles"}, where);
    GridStep &s = p.steps.emplace_back();
    take(s.step, entry["step"], where);
    take(s.fixed, entry["fixed_cycles"], where);
    take(s.fewest, entry["fewest_cycles"], where);
  });
  forEachEntry(text, "resources", [&](const json &entry, const std::string &where) {
    expectKeys(entry, {"name", "kind", "cycles_per_part"}, where);
    Resource &r = p.resources.emplace_back();
    r.name = stringAt(entry, "name", where);
    r.kind = kindOf<ResourceKind>(stringAt(entry, "kind", where), kResourceKinds, where);
    take(r.cyclesPerPart, entry["cycles_per_part"], where);
  });
  forEachEntry(text, "bundles", [&](const json &entry, const std::string &where) {
    p.bundles.push_back(bundleOf(entry, where));
  });
  forEachEntry(text, "precedence", [&](const json &entry, const std::string &where) {
    if (!entry.is_array() || entry.size() != 4 || !entry[3].is_string())
      throw Damage{where + " is not [before, after, distance, kind]"};
    Precedence &e = p.precedence.emplace_back();
    take(e.before, entry[0], where);
    take(e.after, entry[1], where);
    take(e.distance, entry[2], where);
    e.kind = kindOf<PrecedenceKind>(entry[3].get<std::string>(), kPrecedenceKinds, where);
  });
  forEachEntry(text, "spans", [&](const json &entry, const std::string &where) {
    p.spans.push_back(spanOf(entry, where));
  });
  return p;
}

/// The tree of a text of this format.
json parse(const std::string &text, const char *format) {
  json tree;
  try {
    tree = json::parse(text);
  } catch (const json::exception &e) {
    throw Damage{std::string("it is no JSON (") + e.what() + ")"};
  }
  if (stringAt(tree, "format", "the text") != format)
    throw Damage{"its format is '" + stringAt(tree, "format", "the text") + "', not '" + format +
                 "'"};
  int64_t version = 0;
  take(version, at(tree, "version", "the text"), "version");
  if (version != kVersion)
    throw Damage{"it has version " + std::to_string(version) + "; this program reads version " +
                 std::to_string(kVersion)};
  return tree;
}

Starts startsIn(const json &tree, const ScheduleProblem &problem) {
  expectKeys(tree, {"format", "version", "problem", "starts_cycle"}, "the text");
  const std::string its = stringAt(tree, "problem", "the text"), ours = fingerprintOf(problem);
  if (its != ours)
    throw Damage{"it solves the problem " + its + "; this model on this machine is " + ours +
                 "; write the problem again with --to schedule-problem"};
  Starts starts(problem.bundles.size(), -1);
  forEachEntry(tree, "starts_cycle", [&](const json &row, const std::string &where) {
    uint32_t bundle = 0;
    Cycle start = 0;
    takeRow(row, where, bundle, start);
    if (bundle >= starts.size())
      throw Damage{where + " starts bundle " + std::to_string(bundle) + "; the problem has " +
                   std::to_string(starts.size())};
    if (starts[bundle] >= 0)
      throw Damage{where + " starts bundle " + std::to_string(bundle) + " again"};
    if (start < 0)
      throw Damage{where + " starts bundle " + std::to_string(bundle) + " in cycle " +
                   std::to_string(start) + ", before its step"};
    starts[bundle] = start;
  });
  for (size_t b = 0; b < starts.size(); ++b)
    if (starts[b] < 0)
      throw Damage{"it does not start bundle " + std::to_string(b) + " ('" +
                   problem.bundles[b].name + "')"};
  return starts;
}

} // namespace

std::string fingerprintOf(const ScheduleProblem &problem) { return fingerprint(bodyOf(problem)); }

std::string writeProblem(const ScheduleProblem &problem) {
  const std::string body = bodyOf(problem);
  return headOf(kProblemFormat, fingerprint(body)) + body;
}

Expected<ScheduleProblem> readProblem(const std::string &text) {
  try {
    const json tree = parse(text, kProblemFormat);
    ScheduleProblem problem = problemIn(tree);
    if (stringAt(tree, "problem", "the text") != fingerprintOf(problem))
      throw Damage{"its numbers are not those of the problem that it names"};
    if (Status s = check(problem); !s)
      return s.takeError();
    return problem;
  } catch (const Damage &damage) {
    return Error{"not a schedule problem: " + damage.what};
  }
}

std::string writeSchedule(const ScheduleProblem &problem, const Starts &starts) {
  std::string out = headOf(kScheduleFormat, fingerprintOf(problem)) + "\"starts_cycle\":";
  int64_t bundle = 0;
  addList(out, starts, "\n", [&](Cycle start) { addNumbers(out, {bundle++, start}); });
  return out + "}\n";
}

Expected<Starts> readSchedule(const std::string &text, const ScheduleProblem &problem) {
  try {
    return startsIn(parse(text, kScheduleFormat), problem);
  } catch (const Damage &damage) {
    return Error{"not a schedule of this problem: " + damage.what};
  }
}

} // namespace millrace::schedule
