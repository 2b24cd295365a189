// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/isa/Instruction.h"
#include "arch/operations/AluOp.h"
#include "arch/spec/MachineFile.h"
#include "arch/spec/Schema.h"
#include "arch/tools/IsaDocument.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace millrace {
namespace {

std::string read(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr const char *kRemedy = "write it anew: build/bin/write-spec-tables docs/spec";

TEST(MachineKeysDocument, IsWhatTheSchemaSays) {
  EXPECT_EQ(read("docs/spec/machine-keys.md"), machineKeysMarkdown()) << kRemedy;
}

TEST(IsaDocument, IsWhatTheInstructionTablesSay) {
  EXPECT_EQ(read("docs/spec/isa.md"), isaMarkdown()) << kRemedy;
}

TEST(IsaDocument, NamesEveryInstructionAndAluOperation) {
  const std::string text = isaMarkdown();
  for (const OpcodeInfo &opcode : opcodes())
    EXPECT_NE(text.find("| `" + std::string(opcode.mnemonic) + "` |"), text.npos) << opcode.name;
  for (const AluOpInfo &op : aluOpTable)
    EXPECT_NE(text.find("| `" + std::string(op.mnemonic) + "` |"), text.npos) << op.name;
}

TEST(Schema, DescribesEveryKeyOnce) {
  std::vector<std::string> paths;
  for (const Key &key : machineKeys()) {
    EXPECT_FALSE(key.doc.empty()) << key.path;
    EXPECT_EQ(std::count(paths.begin(), paths.end(), key.path), 0) << key.path;
    paths.emplace_back(key.path);
    EXPECT_LE(key.least, key.most) << key.path;
  }
}

} // namespace
} // namespace millrace
