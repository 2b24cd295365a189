// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/FileKind.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace millrace::driver {
namespace {

std::optional<FileKind> kindOf(const std::string &bytes) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "millrace-kind";
  std::ofstream(path, std::ios::binary) << bytes;
  return kindOfFile(path.string());
}

TEST(FileKind, IsKnownByHowAFileBegins) {
  EXPECT_EQ(kindOf("MRACEIMG\x05"), FileKind::Image);
  EXPECT_EQ(kindOf(std::string("\x08\x08\x12\x00", 4)), FileKind::Onnx);
  EXPECT_EQ(kindOf("module {\n  func.func @main() {\n"), FileKind::Tensor);
  EXPECT_EQ(kindOf("#map = affine_map<(d0) -> (d0)>\n// a comment\nmodule attributes {\n"),
            FileKind::Tensor);
  EXPECT_EQ(kindOf("module {\n  spatial.graph \"g\" {\n"), FileKind::Spatial);
  EXPECT_EQ(kindOf("; a comment\nmachine tsp-small\n"), FileKind::Assembly);
}

TEST(FileKind, IsUnknownOfEverythingElse) {
  EXPECT_EQ(kindOf(""), std::nullopt);
  EXPECT_EQ(kindOf("name: tsp-small\n"), std::nullopt);
  EXPECT_EQ(kindOf(std::string("\x93NUMPY\x01\x00", 8)), std::nullopt);
  EXPECT_EQ(kindOfFile("/nowhere/at/all"), std::nullopt);
  EXPECT_EQ(kindOfFile("."), std::nullopt);
}

TEST(FileKind, OfTheFixturesIsOnnx) {
  for (const auto &file : std::filesystem::directory_iterator("models/fixtures"))
    if (file.path().extension() == ".onnx") {
      EXPECT_EQ(kindOfFile(file.path().string()), FileKind::Onnx) << file.path();
    }
}

TEST(FileKind, ThatIsNoImageIsAnsweredWithTheCommandForIt) {
  const Status status = expectImage("models/fixtures/mnist.onnx");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().find("millrace run"), std::string::npos) << status.error();
}

} // namespace
} // namespace millrace::driver
