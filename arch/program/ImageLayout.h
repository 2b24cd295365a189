// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How an image lies in a file, for the writer and the reader alone. docs/spec/image.md in C++.
#pragma once

#include "arch/program/Checksum.h"
#include "arch/program/Image.h"

#include <cstddef>
#include <cstring>
#include <span>

namespace millrace::layout {

constexpr size_t kAlignment = 64; ///< of every section; one cache line
constexpr char kMagic[8] = {'M', 'R', 'A', 'C', 'E', 'I', 'M', 'G'};

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t sections;
  uint64_t fileBytes;
  uint64_t checksum; ///< of the numbers before it, dataChecksum, and all between header and data
  uint64_t dataChecksum; ///< of the data section, which is the rest of the file
  uint8_t reserved[24];
};
static_assert(sizeof(Header) == kAlignment);

enum class SectionKind : uint32_t {
  Program,      ///< machine, numbers of things
  Instructions, ///< of PE `index`: Instruction records
  Producers,    ///< of PE `index`: Producer records
  Steps,
  Blocks,  ///< Block records
  Regions, ///< Region records
  Bindings,
  LaneMaps,
  Strings,
  HostModule, ///< text
  Notes,
  Data, ///< bytes
};
constexpr const char *kSectionNames[] = {"program", "instructions", "producers", "steps",
                                         "blocks",  "regions",      "bindings",  "lane maps",
                                         "strings", "host module",  "notes",     "data"};

/// Sections stand in this order: Program, then per PE Instructions and Producers, then the others.
constexpr SectionKind kTail[] = {
    SectionKind::Steps,      SectionKind::Blocks,   SectionKind::Regions,
    SectionKind::Bindings,   SectionKind::LaneMaps, SectionKind::Strings,
    SectionKind::HostModule, SectionKind::Notes,    SectionKind::Data};
constexpr size_t kTailSections = sizeof(kTail) / sizeof(kTail[0]);

struct SectionEntry {
  SectionKind kind;
  uint32_t index; ///< the PE, or 0
  uint64_t offset, bytes;
  uint64_t count; ///< records, entries or bytes
};
static_assert(sizeof(SectionEntry) == 32);

constexpr size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
/// Of the first section, behind header and table.
constexpr size_t bodyOffset(size_t sections) {
  return aligned(sizeof(Header) + sections * sizeof(SectionEntry));
}

/// Where the data section begins, as the last entry of the section table says; the end of the file
/// where that cannot be. `file` holds at least a header.
inline size_t dataOffset(std::span<const uint8_t> file) {
  Header header;
  std::memcpy(&header, file.data(), sizeof(header));
  if (!header.sections || header.sections > (file.size() - sizeof(Header)) / sizeof(SectionEntry))
    return file.size();
  SectionEntry last;
  std::memcpy(&last, file.data() + sizeof(Header) + (header.sections - 1) * sizeof(last),
              sizeof(last));
  const bool possible = last.offset >= bodyOffset(header.sections) && last.offset <= file.size() &&
                        last.offset % kAlignment == 0;
  return possible ? size_t(last.offset) : file.size();
}

inline uint64_t dataChecksum(std::span<const uint8_t> data) {
  Checksum sum({});
  sum.add(data);
  return sum.result();
}
/// Begins Header::checksum; what lies between header and data follows.
inline Checksum beginChecksum(const Header &header) {
  const uint64_t seed[] = {header.version, header.sections, header.fileBytes, header.dataChecksum};
  return Checksum(seed);
}

/// Compilers may leave anything between and behind the members of a record; in a file that is zero.
inline void clearPadding(Instruction &i) {
  constexpr size_t end = offsetof(Instruction, provenance) + sizeof(i.provenance);
  std::memset(reinterpret_cast<char *>(&i) + end, 0, sizeof(i) - end);
}
inline void clearPadding(Producer &) {
  static_assert(offsetof(Producer, step1) + sizeof(int32_t) == sizeof(Producer));
}
inline void clearPadding(Block &b) {
  constexpr size_t end = offsetof(Block, tensor) + sizeof(b.tensor);
  std::memset(reinterpret_cast<char *>(&b) + end, 0, offsetof(Block, offset) - end);
}
inline void clearPadding(Region &r) {
  constexpr size_t end = offsetof(Region, step1) + sizeof(r.step1);
  std::memset(reinterpret_cast<char *>(&r) + end, 0, offsetof(Region, row) - end);
}
static_assert(sizeof(Block) == 32 && sizeof(Region) == 40);

} // namespace millrace::layout
