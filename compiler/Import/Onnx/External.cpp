// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/External.h"

#include "arch/spec/Expected.h"

#include <charconv>
#include <fstream>
#include <optional>

namespace millrace::onnx_import {
namespace {

/// A number of external data's keys.
std::optional<uint64_t> parseCount(const std::string &text) {
  uint64_t number = 0;
  const char *end = text.data() + text.size();
  auto [stop, code] = std::from_chars(text.data(), end, number);
  return code == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

Status readExternal(onnx::TensorProto &tensor, const std::filesystem::path &folder) {
  std::string location;
  uint64_t offset = 0, length = 0;
  bool hasLength = false;
  const std::string name = "tensor '" + tensor.name() + "'";
  for (const auto &entry : tensor.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length")
      continue;
    std::optional<uint64_t> count = parseCount(entry.value());
    if (!count)
      return Error{name + ": external data " + entry.key() + " '" + entry.value() +
                   "' is no number of bytes; export the model again"};
    hasLength |= entry.key() == "length";
    (entry.key() == "length" ? length : offset) = *count;
  }
  std::filesystem::path relative = std::filesystem::path(location).lexically_normal();
  bool leaves = relative.is_absolute() || (!relative.empty() && *relative.begin() == "..");
  if (location.empty() || leaves)
    return Error{name + ": external data '" + location +
                 "' must be a file beside the model; put it there and export again"};
  std::filesystem::path path = folder / relative;
  std::error_code failed;
  uint64_t size = std::filesystem::file_size(path, failed);
  if (failed)
    return Error{name + ": external data file '" + path.string() +
                 "' is missing; copy it beside the model"};
  if (offset > size || (hasLength && length > size - offset))
    return Error{name + ": external data file '" + path.string() + "' ends before byte " +
                 std::to_string(offset + length) + ", it has " + std::to_string(size) +
                 "; copy it again"};
  if (!hasLength)
    length = size - offset;
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  std::string &raw = *tensor.mutable_raw_data();
  raw.resize(length);
  if (!file.read(raw.data(), static_cast<std::streamsize>(length)))
    return Error{name + ": cannot read external data file '" + path.string() + "'"};
  tensor.clear_external_data();
  tensor.clear_data_location();
  return Success{};
}

} // namespace

std::vector<std::string> readAllExternal(onnx::ModelProto &model,
                                         const std::filesystem::path &folder) {
  std::vector<std::string> wrong;
  for (onnx::TensorProto &tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL)
      continue;
    if (Status read = readExternal(tensor, folder); !read)
      wrong.push_back(read.error());
  }
  return wrong;
}

} // namespace millrace::onnx_import
