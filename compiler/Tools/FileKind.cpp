// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/FileKind.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace millrace::driver {
namespace {

constexpr size_t kLooked = 1 << 16; ///< bytes from the beginning

bool isText(std::string_view bytes) {
  return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](unsigned char c) {
    return c >= ' ' || c == '\n' || c == '\r' || c == '\t';
  });
}

/// The first word of the first line that is no comment of MLIR or of assembly, nor an alias of
/// MLIR.
std::string firstWord(std::string_view text) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (words >> word && !word.starts_with("//") && word[0] != '#' && word[0] != ';')
      return word;
  }
  return {};
}

} // namespace

std::optional<FileKind> kindOfFile(const std::string &path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string bytes(kLooked, '\0');
  file.read(bytes.data(), std::streamsize(bytes.size()));
  bytes.resize(size_t(file.gcount()));
  if (bytes.starts_with("MRACEIMG"))
    return FileKind::Image;
  if (!isText(bytes))
    // An ONNX model is a protobuf message: it begins with its first field, the IR version, or with
    // one of the others.
    return bytes.starts_with('\x08') ? std::optional(FileKind::Onnx) : std::nullopt;
  if (bytes.find("spatial.graph") != bytes.npos)
    return FileKind::Spatial;
  const std::string word = firstWord(bytes);
  if (word == "module" || word == "func.func" || word == "builtin.module")
    return FileKind::Tensor;
  if (word == "machine")
    return FileKind::Assembly;
  return std::nullopt;
}

Status expectImage(const std::string &path) {
  const std::optional<FileKind> kind = kindOfFile(path);
  const auto is = [&path](const std::string &what) { return Error{path + ": is " + what}; };
  if (!kind || *kind == FileKind::Image)
    return Success{};
  if (*kind == FileKind::Onnx)
    return is("an ONNX model, no program image; `millrace run` compiles and executes it");
  if (*kind == FileKind::Assembly)
    return is("assembly, no program image; `millrace assemble` makes one of it");
  const std::string level = *kind == FileKind::Tensor ? "tensor" : "spatial";
  return is("text of the level " + level + ", no program image; `millrace run --from " + level +
            "` compiles and executes it");
}

} // namespace millrace::driver
