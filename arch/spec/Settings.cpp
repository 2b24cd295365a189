// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Settings.h"

#include "arch/spec/Nearest.h"
#include "arch/spec/Schema.h"

#include <set>
#include <yaml-cpp/yaml.h>

namespace millrace {
namespace {

std::optional<Trust> trustNamed(const std::string &name) {
  for (unsigned trust = 0; trust < kTrusts; ++trust)
    if (name == nameOf(Trust(trust)))
      return Trust(trust);
  return std::nullopt;
}

/// What a section says of the numbers in it that say nothing themselves.
struct Origin {
  std::string source;
  std::optional<Trust> trust;
};

std::string firstKeyOf(const std::string &section) {
  for (const Key &key : machineKeys())
    if (key.path.starts_with(section + "."))
      return std::string(key.path);
  return section;
}

class Reader {
public:
  explicit Reader(std::string file) : file(std::move(file)) {}

  Expected<Settings> read(const YAML::Node &root) {
    if (!root.IsMap())
      return Error{file + ": holds no keys; begin with 'name: ...'"};
    if (Status status = section(root, "", {}); !status)
      return status.takeError();
    return std::move(settings);
  }

private:
  std::string where(const YAML::Node &node) const {
    return file + ":" + std::to_string(node.Mark().line + 1);
  }

  Error givenTwice(const YAML::Node &key, const std::string &path) const {
    return Error{where(key) + ": '" + path + "' is given twice; keep one"};
  }

  /// `source` and `trust` of a section or of a value.
  Status readOrigin(const YAML::Node &map, Origin &origin) {
    if (const YAML::Node source = map["source"]) {
      if (!source.IsScalar())
        return Error{where(source) + ": 'source' is one text; put it in quotes"};
      origin.source = source.Scalar();
    }
    if (const YAML::Node trust = map["trust"]) {
      origin.trust = trustNamed(trust.Scalar());
      if (!origin.trust)
        return Error{where(trust) + ": 'trust: " + trust.Scalar() +
                     "' is none of published, quoted, public, derived, inferred; choose one"};
    }
    return Success{};
  }

  Status section(const YAML::Node &map, const std::string &prefix, Origin origin) {
    if (Status status = readOrigin(map, origin); !status)
      return status;
    std::set<std::string> seen;
    for (const auto &entry : map) {
      if (!entry.first.IsScalar())
        return Error{where(entry.first) + ": a key must be a word"};
      const std::string &word = entry.first.Scalar();
      if (!seen.insert(word).second)
        return givenTwice(entry.first, prefix + word);
      if (word == "source" || word == "trust")
        continue;
      if (Status status = member(entry.first, entry.second, prefix + word, origin); !status)
        return status;
    }
    return Success{};
  }

  Status member(const YAML::Node &key, const YAML::Node &value, const std::string &path,
                const Origin &origin) {
    if (path == "base")
      return readBase(value);
    if (findKey(path).key)
      return leaf(value, path, origin);
    if (!isSection(path))
      return Error{where(key) + ": unknown key '" + path + "'" + suggestKey(path)};
    if (value.IsMap())
      return section(value, path + ".", origin);
    if (value.IsSequence() && path == "fabric.links")
      return links(value, path, origin);
    return Error{where(key) + ": '" + path + "' is a section; give it keys, such as '" +
                 firstKeyOf(path) + "'"};
  }

  Status links(const YAML::Node &list, const std::string &path, const Origin &origin) {
    if (!list.size())
      return Error{where(list) + ": '" + path +
                   "' is empty; name a topology instead: single, mesh, torus, ring or full"};
    for (size_t index = 0; index < list.size(); ++index) {
      if (!list[index].IsMap())
        return Error{where(list[index]) +
                     ": a link is written { from: 0, to: 1, port: 0, to_port: 0 }"};
      if (Status status = section(list[index], path + "." + std::to_string(index) + ".", origin);
          !status)
        return status;
    }
    return Success{};
  }

  Status readBase(const YAML::Node &value) {
    if (!value.IsScalar())
      return Error{where(value) + ": 'base' names one machine, such as 'base: tsp-v1'"};
    settings.base = value.Scalar();
    settings.baseWhere = where(value);
    return Success{};
  }

  /// A value alone, or { value: ..., source: ..., trust: ... }.
  Status leaf(const YAML::Node &node, const std::string &path, Origin origin) {
    YAML::Node value = node;
    if (node.IsMap()) {
      std::set<std::string> seen;
      for (const auto &entry : node) {
        const std::string &word = entry.first.Scalar();
        if (word != "value" && word != "source" && word != "trust")
          return Error{where(entry.first) + ": unknown key '" + path + "." + word +
                       "'" +
                       didYouMean(word, {"value", "source", "trust"},
                                  "a value has value, source and trust")};
        if (!seen.insert(word).second)
          return givenTwice(entry.first, path + "." + word);
      }
      if (Status status = readOrigin(node, origin); !status)
        return status;
      const YAML::Node inner = node["value"];
      value.reset(inner ? inner : YAML::Node());
    }
    if (!value.IsScalar())
      return Error{where(node) + ": '" + path +
                   "' needs one value, alone or as { value: ..., source: ..., trust: ... }"};
    settings.list.push_back({path, value.Scalar(), where(value), origin.source, origin.trust});
    return Success{};
  }

  std::string file;
  Settings settings;
};

} // namespace

Expected<Settings> readSettings(const std::string &text, const std::string &file) {
  try {
    return Reader(file).read(YAML::Load(text));
  } catch (const YAML::Exception &exception) {
    return Error{file + ":" + std::to_string(exception.mark.line + 1) + ":" +
                 std::to_string(exception.mark.column + 1) + ": is no YAML: " + exception.msg};
  }
}

Expected<Setting> readOverride(const std::string &text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    return Error{"--set " + text + ": has no '='; write key=value, such as memory.slices=16"};
  std::string path = text.substr(0, equals);
  if (!findKey(path).key)
    return Error{"--set " + text + ": unknown key '" + path + "'" + suggestKey(path)};
  return Setting{path, text.substr(equals + 1), "--set " + text, "--set", Trust::Inferred};
}

} // namespace millrace
