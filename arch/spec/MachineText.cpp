// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Machine to YAML: the schema's keys in their order, nested as their paths are.

#include "arch/spec/MachineFile.h"
#include "arch/spec/Quantity.h"
#include "arch/spec/Schema.h"

namespace millrace {
namespace {

std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + "\"";
}

std::vector<std::string> sectionsOf(const std::string &path) {
  // The name of an operation contains dots of its own: alu_ops.exp.f32 is alu_ops, then exp.f32.
  const bool isOperation = path.starts_with("latency.alu_ops.");
  std::vector<std::string> parts(1);
  for (char c : path)
    if (c == '.' && !(isOperation && parts.size() == 3))
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

class Printer {
public:
  explicit Printer(const Machine &machine) : machine(machine) {}

  std::string print() {
    // Members of one format (or link) belong together though the schema lists them key by key.
    std::vector<std::pair<const Key *, std::string>> lines;
    for (const Key &key : machineKeys())
      for (const std::string &path : pathsOf(key, machine)) {
        auto at = lines.end();
        for (auto line = lines.begin(); line != lines.end(); ++line)
          if (parentOf(line->second) == parentOf(path))
            at = line + 1;
        lines.insert(at, {&key, path});
      }
    for (auto &[key, path] : lines)
      add(*key, path);
    return std::move(text);
  }

private:
  static std::string parentOf(const std::string &path) {
    const std::vector<std::string> parts = sectionsOf(path);
    std::string parent;
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      parent += parts[i] + ".";
    return parent;
  }

  void add(const Key &key, const std::string &path) {
    const std::vector<std::string> parts = sectionsOf(path);
    size_t depth = 0;
    while (depth + 1 < parts.size() && depth < open.size() && open[depth] == parts[depth])
      ++depth;
    open.resize(depth);
    for (; depth + 1 < parts.size(); ++depth) {
      text += std::string(2 * depth, ' ') + parts[depth] + ":\n";
      open.push_back(parts[depth]);
    }
    text += std::string(2 * depth, ' ') + parts.back() + ": " + valueOf(key, path) + "\n";
  }

  std::string valueOf(const Key &key, const std::string &path) {
    auto print = [&](const auto *member) {
      if constexpr (std::is_same_v<std::decay_t<decltype(*member)>, std::string>)
        return quoted(*member);
      else
        return printQuantity(*member, key.unit);
    };
    const std::string name = findKey(path).name;
    // Members that exist are only read; the accessors take a machine that may grow.
    const std::string value =
        std::visit([&](auto member) { return print(member(const_cast<Machine &>(machine), name)); },
                   key.member);
    auto source = machine.source.find(path);
    auto trust = machine.trust.find(path);
    if (source == machine.source.end() && trust == machine.trust.end())
      return value;
    std::string map = "{ value: " + value;
    if (source != machine.source.end())
      map += ", source: " + quoted(source->second);
    if (trust != machine.trust.end())
      map += std::string(", trust: ") + nameOf(trust->second);
    return map + " }";
  }

  const Machine &machine;
  std::string text;
  std::vector<std::string> open;
};

} // namespace

std::string toYaml(const Machine &machine) { return Printer(machine).print(); }

} // namespace millrace
