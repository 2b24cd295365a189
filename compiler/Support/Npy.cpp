// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Support/Npy.h"

#include "arch/files/NewFile.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>

namespace millrace {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct DescriptorRow {
  HostType type;
  std::string_view descriptor;
};

constexpr std::array<DescriptorRow, 13> descriptorRows = {{{HostType::Bool, "|b1"},
                                                           {HostType::Int8, "|i1"},
                                                           {HostType::UInt8, "|u1"},
                                                           {HostType::Int16, "<i2"},
                                                           {HostType::UInt16, "<u2"},
                                                           {HostType::Int32, "<i4"},
                                                           {HostType::UInt32, "<u4"},
                                                           {HostType::Int64, "<i8"},
                                                           {HostType::UInt64, "<u8"},
                                                           {HostType::Float16, "<f2"},
                                                           {HostType::BFloat16, "|V2"},
                                                           {HostType::Float32, "<f4"},
                                                           {HostType::Float64, "<f8"}}};

std::string_view descriptorOf(HostType type) {
  return descriptorRows[static_cast<size_t>(type)].descriptor;
}

std::optional<HostType> typeFromDescriptor(std::string_view descriptor) {
  for (const DescriptorRow &row : descriptorRows)
    if (row.descriptor.substr(1) == descriptor.substr(1) && descriptor[0] != '>')
      return row.type;
  return std::nullopt;
}

/// The text after `'key':` in the header's dictionary, without leading blanks; empty if the key is
/// missing.
std::string_view valueOf(std::string_view header, std::string_view key) {
  size_t at = header.find("'" + std::string(key) + "'");
  if (at == std::string_view::npos)
    return {};
  at = header.find(':', at);
  if (at == std::string_view::npos)
    return {};
  at = header.find_first_not_of(' ', at + 1);
  return at == std::string_view::npos ? std::string_view() : header.substr(at);
}

std::optional<std::vector<int64_t>> parseShape(std::string_view text) {
  size_t close = text.find(')');
  if (text.empty() || text[0] != '(' || close == std::string_view::npos)
    return std::nullopt;
  constexpr int64_t limit = std::numeric_limits<int64_t>::max() / 16;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  int64_t number = 0;
  bool hasDigits = false;
  for (char c : text.substr(1, close - 1)) {
    if (c >= '0' && c <= '9') {
      number = number * 10 + (c - '0');
      hasDigits = true;
      if (number > limit)
        return std::nullopt;
    } else if (c == ',' && hasDigits) {
      shape.push_back(number);
      number = 0;
      hasDigits = false;
    } else if (c != ' ') {
      return std::nullopt;
    }
  }
  if (hasDigits)
    shape.push_back(number);
  for (int64_t extent : shape) {
    if (extent != 0 && elements > limit / extent)
      return std::nullopt;
    elements *= extent;
  }
  return shape;
}

Expected<HostTensor> parseHeader(const std::string &name, std::string_view header) {
  std::string_view descriptor = valueOf(header, "descr");
  if (descriptor.size() < 5 || descriptor[0] != '\'')
    return Error{name + ": the npy header names no element type; save it with numpy.save"};
  descriptor = descriptor.substr(1, descriptor.find('\'', 1) - 1);
  std::optional<HostType> type =
      descriptor.size() >= 3 ? typeFromDescriptor(descriptor) : std::optional<HostType>();
  if (!type)
    return Error{name + ": element type '" + std::string(descriptor) +
                 "' is not supported; save little-endian bool, integer or float arrays"};
  if (!valueOf(header, "fortran_order").starts_with("False"))
    return Error{name + ": the array is in Fortran order; save it with numpy.ascontiguousarray"};
  std::optional<std::vector<int64_t>> shape = parseShape(valueOf(header, "shape"));
  if (!shape)
    return Error{name + ": the npy header has no valid shape; save it with numpy.save"};
  return HostTensor{*type, std::move(*shape), {}};
}

std::string makeHeader(const HostTensor &tensor) {
  std::string shape;
  for (int64_t extent : tensor.shape)
    shape += std::to_string(extent) + ",";
  std::string header = "{'descr': '" + std::string(descriptorOf(tensor.type)) +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The data begins at a multiple of 64 bytes; ten bytes precede the dictionary.
  header.append(63 - (magic.size() + 4 + header.size()) % 64, ' ');
  return header + "\n";
}

} // namespace

Expected<HostTensor> readNpy(const std::filesystem::path &path) {
  std::string name = path.string();
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{name + ": cannot be opened: " + std::strerror(errno) + "; check the path"};
  std::array<char, 8> start{};
  if (!file.read(start.data(), start.size()) ||
      std::string_view(start.data(), magic.size()) != magic)
    return Error{name + ": no npy file (the first six bytes are wrong); save it with numpy.save"};
  int lengthBytes = start[6] == 1 ? 2 : 4;
  std::array<unsigned char, 4> raw{};
  file.read(reinterpret_cast<char *>(raw.data()), lengthBytes);
  uint32_t length = raw[0] | raw[1] << 8 | raw[2] << 16 | static_cast<uint32_t>(raw[3]) << 24;
  constexpr uint32_t longestHeader = 1 << 20;
  if (!file || length > longestHeader)
    return Error{name + ": the npy header is broken (length " + std::to_string(length) + ")"};
  std::string header(length, ' ');
  if (!file.read(header.data(), length))
    return Error{name + ": the npy header has " + std::to_string(length) +
                 " bytes, but the file ends before; copy it again"};
  Expected<HostTensor> tensor = parseHeader(name, header);
  if (!tensor)
    return tensor;
  auto wanted = static_cast<uintmax_t>(tensor->elementCount()) * byteSize(tensor->type);
  std::error_code failed;
  uintmax_t size = std::filesystem::file_size(path, failed);
  auto offset = static_cast<uintmax_t>(file.tellg());
  if (failed || size < offset + wanted)
    return Error{name + ": the array needs " + std::to_string(wanted) + " bytes, the file holds " +
                 std::to_string(size < offset ? 0 : size - offset) + "; copy it again"};
  tensor->data.resize(wanted);
  if (!file.read(reinterpret_cast<char *>(tensor->data.data()),
                 static_cast<std::streamsize>(wanted)))
    return Error{name + ": cannot read"};
  return tensor;
}

Status writeNpy(const std::filesystem::path &path, const HostTensor &tensor) {
  Expected<NewFile> file = NewFile::create(path.string());
  if (!file)
    return file.takeError();
  const std::string header = makeHeader(tensor);
  const char length[] = {static_cast<char>(header.size() & 0xff),
                         static_cast<char>(header.size() >> 8)};
  file->write(magic);
  file->write(std::string_view("\1\0", 2)); // format 1.0
  file->write(std::string_view(length, 2));
  file->write(header);
  file->write(std::span<const uint8_t>(reinterpret_cast<const uint8_t *>(tensor.data.data()),
                                       tensor.data.size()));
  return file->replace();
}

} // namespace millrace
