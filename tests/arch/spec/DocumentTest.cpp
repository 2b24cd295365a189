// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Schema.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace millrace {
namespace {

TEST(MachineKeysDocument, IsWhatTheSchemaSays) {
  std::ifstream file("docs/spec/machine-keys.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), machineKeysMarkdown())
      << "write it anew: build/bin/write-spec-tables docs/spec";
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
