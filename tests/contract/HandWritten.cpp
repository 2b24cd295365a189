// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/HandWritten.h"

#include "arch/program/Assembler.h"
#include "arch/program/ImageCheck.h"
#include "arch/spec/MachineFile.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace millrace::test {

static const std::string kFolder = "tests/contract/programs";

std::vector<std::string> handWrittenNames() {
  std::vector<std::string> names;
  std::error_code none; // a missing folder gives no names, which a test notices
  for (const auto &entry : std::filesystem::directory_iterator(kFolder, none))
    if (entry.path().extension() == ".mas")
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// `[pe N] mem.w.4 row R lane L = byte...`; false when it is something else.
static bool readBytes(std::istringstream words, HandWritten::Bytes &bytes) {
  std::string word, row, lane, equals;
  words >> word;
  if (word == "pe")
    words >> bytes.pe >> word;
  bytes.slice = word;
  words >> row >> bytes.row >> lane >> bytes.lane >> equals;
  for (unsigned value; words >> value;)
    bytes.values.push_back(uint8_t(value));
  return row == "row" && lane == "lane" && equals == "=" && words.eof() && !bytes.values.empty();
}

static bool readExpectation(const std::string &text, HandWritten &program) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  if (word == "cycles") {
    uint64_t count = 0;
    words >> count;
    program.cycles = count;
    return bool(words) && words.peek() == EOF;
  }
  if (word == "refused:") {
    std::getline(words >> std::ws, program.refusal);
    return !program.refusal.empty();
  }
  if (word.size() > 1 && word[0] == 'S' && std::isdigit(word[1])) {
    program.violation = text;
    return true;
  }
  return readBytes(std::istringstream(text), program.bytes.emplace_back());
}

Expected<HandWritten> readHandWritten(const std::string &name) {
  const std::string path = kFolder + "/" + name + ".mas";
  std::ifstream file(path);
  if (!file)
    return Error{path + " cannot be read"};
  HandWritten program;
  program.name = name;
  std::vector<std::string> overrides;
  std::string text, machine, line;
  for (unsigned number = 1; std::getline(file, line); ++number) {
    text += line + "\n";
    const auto after = [&](const std::string &key) {
      return line.starts_with(key) ? line.substr(key.size()) : std::string();
    };
    program.valuesOnly |= line == "; values only";
    if (std::string set = after("; set: "); !set.empty())
      overrides.push_back(set);
    else if (std::string named = after("machine "); !named.empty())
      machine = named;
    else if (std::string expected = after("; expect: ");
             !expected.empty() && !readExpectation(expected, program))
      return Error{path + ":" + std::to_string(number) + ": '" + expected +
                   "' is no expectation; HandWritten.h lists them"};
  }
  Expected<Machine> loaded = loadMachine(machine, overrides);
  if (!loaded)
    return Error{path + ": " + loaded.error()};
  program.machine = *loaded;
  Expected<Image> image = assemble(text, path, &program.machine);
  if (!image && program.refusal.empty())
    return image.takeError();
  if (!image)
    program.error = image.error();
  else if (Status s = verifyImage(*image, program.machine, {.schedule = false}); !s)
    program.error = s.error();
  if (image)
    program.image = std::move(*image);
  if (program.cycles.has_value() + !program.violation.empty() + !program.refusal.empty() != 1)
    return Error{path + ": expects one of cycles, a violation and a refusal"};
  return program;
}

} // namespace millrace::test
