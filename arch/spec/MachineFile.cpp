// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/MachineFile.h"

#include "arch/operations/AluOp.h"
#include "arch/spec/Fabric.h"
#include "arch/spec/Nearest.h"
#include "arch/spec/Quantity.h"
#include "arch/spec/Schema.h"
#include "arch/spec/Settings.h"
#include "arch/spec/Verify.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace millrace {
namespace {

namespace fs = std::filesystem;

/// Where NAME.yaml may lie: beside the program once installed, else in the tree it was built from.
std::vector<fs::path> machineFolders() {
  std::vector<fs::path> folders;
  std::error_code code;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", code); !code)
    folders.push_back(program.parent_path().parent_path() / "share/millrace/machines");
  folders.emplace_back(MILLRACE_MACHINES_FOLDER);
  return folders;
}

bool isPath(const std::string &nameOrPath) {
  return nameOrPath.find('/') != std::string::npos || nameOrPath.ends_with(".yaml");
}

/// False also for what no file can be named.
bool isFile(const fs::path &path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// The one name of a file, to compare files by.
std::string realName(const fs::path &path) {
  std::error_code failed;
  const fs::path name = fs::weakly_canonical(path, failed);
  return failed ? path.string() : name.string();
}

/// The file of a machine; a variant looks for its base in its own folder first.
Expected<fs::path> findFile(const std::string &nameOrPath, const fs::path &folder) {
  if (isPath(nameOrPath)) {
    const fs::path path = folder / nameOrPath;
    return isFile(path) ? Expected<fs::path>(path)
                        : Error{"there is no machine file '" + path.string() + "'; check the path"};
  }
  std::vector<fs::path> folders = machineFolders();
  if (!folder.empty())
    folders.insert(folders.begin(), folder);
  for (const fs::path &candidate : folders)
    if (const fs::path path = candidate / (nameOrPath + ".yaml"); isFile(path))
      return path;
  const std::vector<std::string> names = machineNames();
  std::string known;
  for (const std::string &name : names)
    known += (known.empty() ? "" : ", ") + name;
  return Error{"unknown machine '" + nameOrPath + "'" + didYouMean(nameOrPath, names, "there are") +
               (isNear(nameOrPath, nearest(nameOrPath, names)) ? " known: " : " ") + known +
               "; or give the path of a .yaml file"};
}

Expected<std::string> readFile(const fs::path &path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream)
    return Error{"cannot read machine file '" + path.string() + "'; check its permissions"};
  return text.str();
}

/// The outermost layer that some setting is of.
unsigned layerOf(const std::vector<Setting> &settings) {
  unsigned layer = 0;
  for (const Setting &setting : settings)
    layer = std::max(layer, setting.layer);
  return layer;
}

bool isLink(const Setting &setting) { return setting.path.starts_with("fabric.links."); }

/// Puts a variant's settings on those of its base. A list of links replaces the base's list as a
/// whole, and so does a topology that makes its own links.
void overlay(std::vector<Setting> &under, const std::vector<Setting> &over) {
  auto replacesLinks = [](const Setting &setting) {
    return isLink(setting) || (setting.path == "fabric.topology" && setting.text != "list");
  };
  if (std::any_of(over.begin(), over.end(), replacesLinks))
    std::erase_if(under, isLink);
  for (const Setting &setting : over) {
    auto same = [&setting](const Setting &other) { return other.path == setting.path; };
    if (auto found = std::find_if(under.begin(), under.end(), same); found != under.end())
      *found = setting;
    else
      under.push_back(setting);
  }
}

/// The settings of `yaml` on those of its bases. `chain`: the files from the first variant to this
/// one.
Expected<std::vector<Setting>> resolveBases(const std::string &yaml, const fs::path &file,
                                            std::vector<std::string> chain) {
  Expected<Settings> own = readSettings(yaml, file.string());
  if (!own)
    return own.takeError();
  if (!own->base)
    return std::move(own->list);

  Expected<fs::path> baseFile = findFile(*own->base, file.parent_path());
  if (!baseFile)
    return Error{own->baseWhere + ": base: " + baseFile.error()};
  chain.push_back(realName(file));
  if (std::find(chain.begin(), chain.end(), realName(*baseFile)) != chain.end()) {
    std::string ring;
    for (const std::string &link : chain)
      ring += fs::path(link).stem().string() + " -> ";
    return Error{own->baseWhere + ": bases form a cycle: " + ring + *own->base +
                 "; let one of them stand alone"};
  }
  Expected<std::string> baseText = readFile(*baseFile);
  if (!baseText)
    return baseText.takeError();
  Expected<std::vector<Setting>> settings = resolveBases(*baseText, *baseFile, chain);
  if (!settings)
    return settings;
  // A variant is another machine: what its base is called does not carry over.
  std::erase_if(*settings,
                [](const Setting &s) { return s.path == "name" || s.path == "description"; });
  const unsigned layer = layerOf(*settings) + 1;
  for (Setting &setting : own->list)
    setting.layer = layer;
  overlay(*settings, own->list);
  return settings;
}

std::string shortNumber(double number) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

/// Lines of errors, each of them whole.
class Errors {
public:
  void add(const std::string &line) { text += (text.empty() ? "" : "\n") + line; }
  void add(const Status &status) {
    if (!status)
      add(status.error());
  }
  bool none() const { return text.empty(); }
  Error take() { return Error{std::move(text)}; }

private:
  std::string text;
};

/// Turns settings into the members of a machine. Errors name all settings that are wrong.
class Builder {
public:
  explicit Builder(const std::string &file) : file(file) {}

  Expected<Machine> build(const std::vector<Setting> &settings) {
    Errors errors;
    // Lengths of time and sizes in bytes wait for the clock and the vector length.
    for (bool late : {false, true}) {
      for (const Setting &setting : settings)
        if (needsContext(setting.text, findKey(setting.path).key->unit) == late)
          errors.add(apply(setting));
      context = {machine.clockHz, machine.lanes()};
    }
    errors.add(checkGiven());
    if (errors.none())
      errors.add(checkLinks(settings));
    if (!errors.none())
      return errors.take();
    return std::move(machine);
  }

private:
  Status checkGiven() const {
    std::vector<const Key *> missing;
    for (const Key &key : machineKeys())
      if (key.required && !given.count(std::string(key.path)))
        missing.push_back(&key);
    const auto isMissing = [this](const Key &key) {
      return file + ": '" + std::string(key.path) + "' is missing (" + std::string(key.doc) + ")";
    };
    if (missing.empty())
      return Success{};
    if (missing.size() == 1)
      return Error{isMissing(*missing[0]) + "; give it or name a base that does"};
    return Error{isMissing(*missing[0]) + ", and so are " + std::to_string(missing.size() - 1) +
                 " other keys; give them or name a base that does"};
  }

  /// Links that would be left out, or lead to PE 0 because they do not say where to.
  Status checkLinks(const std::vector<Setting> &settings) const {
    const std::string &topology = machine.fabric.topology;
    for (const Setting &setting : settings)
      if (isLink(setting) && topology != "list")
        return Error{setting.where + ": '" + setting.path +
                     "' is given, but 'fabric.topology' is " + topology +
                     ", which makes its own links; set it to list or remove the links"};
    for (size_t link = 0; link < machine.links.size(); ++link)
      for (const char *end : {"from", "to"})
        if (const std::string path = "fabric.links." + std::to_string(link) + "." + end;
            !given.count(path))
          return Error{file + ": '" + path +
                       "' is missing; a link names the two PEs that it joins"};
    return Success{};
  }

  Status apply(const Setting &setting) {
    const KeyMatch match = findKey(setting.path);
    given.insert(setting.path);
    const bool isNumber = match.key->unit != "text";
    if (isNumber && setting.trust)
      machine.trust[setting.path] = *setting.trust;
    if (isNumber && !setting.source.empty())
      machine.source[setting.path] = setting.source;
    Status status =
        std::visit([&](auto member) { return store(member(machine, match.name), setting, match); },
                   match.key->member);
    return status ? std::move(status)
                  : Error{setting.where + ": '" + setting.path + "' " + status.error()};
  }

  static Status store(std::string *member, const Setting &setting, const KeyMatch &) {
    *member = setting.text;
    return Success{};
  }

  template <class Number>
  Status store(Number *member, const Setting &setting, const KeyMatch &match) {
    const Key &key = *match.key;
    if (!member)
      return notMember(match);
    Expected<double> number = parseQuantity(setting.text, key.unit, context);
    if (!number)
      return Error{"= '" + setting.text + "' " + number.error()};
    if (std::is_integral_v<Number> && *number != std::floor(*number))
      return Error{"= " + shortNumber(*number) + " is no whole number of " + std::string(key.unit) +
                   "; round it"};
    if (*number < key.least || *number > key.most)
      return Error{"= " + shortNumber(*number) + " lies outside " + shortNumber(key.least) +
                   " to " + shortNumber(key.most) + " " + std::string(key.unit) + " (" +
                   std::string(key.doc) + "); choose a value in that range"};
    *member = Number(*number);
    return Success{};
  }

  static Error notMember(const KeyMatch &match) {
    if (match.key->path.starts_with("mxm.formats.")) {
      std::vector<std::string> names;
      for (unsigned type = 0; type < kElementTypes; ++type)
        names.push_back(nameOf(ElementType(type)));
      return Error{"names no element type" +
                   didYouMean(match.name, names, "there are " + listOf(names))};
    }
    if (match.key->path.starts_with("latency.alu_ops.")) {
      std::vector<std::string> names;
      for (const AluOpInfo &operation : aluOpTable)
        names.emplace_back(operation.mnemonic);
      return Error{"names no operation" +
                   didYouMean(match.name, names, "docs/spec/isa.md lists the mnemonics")};
    }
    return Error{"skips a link; number links from 0 without gaps"};
  }

  const std::string &file;
  Machine machine;
  UnitContext context;
  std::set<std::string> given;
};

/// A link that states no latency or slot has those of the link class.
void completeLinks(Machine &machine) {
  for (Link &link : machine.links) {
    link.latency = link.latency ? link.latency : machine.fabric.link.latency;
    link.slot = link.slot ? link.slot : machine.fabric.link.slot;
  }
}

/// Who is to blame for a contradiction: of the settings that it names, those written last. Options
/// of the command line come before lines of a file, and those of a variant before those of its
/// base.
std::string whereOf(const Contradiction &wrong, const std::vector<Setting> &settings,
                    const std::string &file) {
  std::vector<const Setting *> last;
  for (const std::string &key : wrong.keys)
    for (const Setting &setting : settings) {
      if (setting.path != key || (!last.empty() && setting.layer < last[0]->layer))
        continue;
      if (!last.empty() && setting.layer > last[0]->layer)
        last.clear();
      last.push_back(&setting);
    }
  if (last.empty())
    return file;
  std::string where = last[0]->where;
  if (last[0]->layer == layerOf(settings) && where.starts_with("--set "))
    for (size_t k = 1; k < last.size(); ++k)
      where += ", " + last[k]->where;
  return where;
}

Expected<std::vector<Setting>> readOverrides(const std::vector<std::string> &overrides,
                                             unsigned layer) {
  std::vector<Setting> changes;
  Errors errors;
  for (const std::string &text : overrides) {
    Expected<Setting> change = readOverride(text);
    if (!change) {
      errors.add(change.error());
      continue;
    }
    change->layer = layer;
    changes.push_back(*change);
  }
  if (!errors.none())
    return errors.take();
  return changes;
}

Expected<Machine> finish(std::vector<Setting> settings, const std::string &file,
                         const std::vector<std::string> &overrides) {
  Expected<std::vector<Setting>> changes = readOverrides(overrides, layerOf(settings) + 1);
  if (!changes)
    return changes.takeError();
  overlay(settings, *changes);
  Expected<Machine> machine = Builder(file).build(settings);
  if (!machine)
    return machine.takeError();
  std::vector<Contradiction> wrong;
  if (Status status = deriveLinks(*machine); !status)
    wrong.push_back(
        {{"fabric.topology", "fabric.rows", "fabric.columns", "c2c.ports"}, status.error()});
  completeLinks(*machine);
  for (Contradiction &each : contradictionsOf(*machine))
    wrong.push_back(std::move(each));
  Errors errors;
  for (const Contradiction &each : wrong)
    errors.add(whereOf(each, settings, file) + ": " + each.text);
  if (!errors.none())
    return errors.take();
  return machine;
}

} // namespace

std::vector<std::string> machineNames() {
  std::set<std::string> names;
  for (const fs::path &folder : machineFolders()) {
    std::error_code code;
    for (const fs::directory_entry &entry : fs::directory_iterator(folder, code))
      if (entry.path().extension() == ".yaml")
        names.insert(entry.path().stem().string());
  }
  return {names.begin(), names.end()};
}

Expected<Machine> parseMachine(const std::string &yaml, const std::string &file,
                               const std::vector<std::string> &overrides) {
  Expected<std::vector<Setting>> settings = resolveBases(yaml, file, {});
  if (!settings)
    return settings.takeError();
  return finish(std::move(*settings), file, overrides);
}

Expected<Machine> loadMachine(const std::string &nameOrPath,
                              const std::vector<std::string> &overrides) {
  Expected<fs::path> file = findFile(nameOrPath, "");
  if (!file)
    return file.takeError();
  Expected<std::string> text = readFile(*file);
  if (!text)
    return text.takeError();
  return parseMachine(*text, file->string(), overrides);
}

} // namespace millrace
