// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/fuzz/ImageMutator.h"

#include "tests/fuzz/Target.h"

#include "arch/program/ImageFile.h"
#include "arch/program/ImageLayout.h"

#include <algorithm>
#include <random>
#include <vector>

/// libFuzzer's own mutator; absent in a replay, which mutates nothing.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace millrace::fuzz {
namespace {

using namespace layout;

struct Section {
  SectionEntry entry;
  std::vector<uint8_t> bytes;
};

/// The sections of a file whose table leads nowhere outside; nothing otherwise.
std::vector<Section> sectionsOf(std::span<const uint8_t> file, const Header &header) {
  std::vector<Section> sections;
  if (header.sections > (file.size() - sizeof(Header)) / sizeof(SectionEntry))
    return {};
  for (size_t k = 0; k < header.sections; ++k) {
    SectionEntry e;
    std::memcpy(&e, file.data() + sizeof(Header) + k * sizeof(e), sizeof(e));
    if (e.offset > file.size() || e.bytes > file.size() - e.offset)
      return {};
    const auto bytes = file.subspan(e.offset, e.bytes);
    sections.push_back({e, {bytes.begin(), bytes.end()}});
  }
  return sections;
}

std::vector<uint8_t> joined(Header header, const std::vector<Section> &sections) {
  std::vector<uint8_t> file(bodyOffset(sections.size()));
  for (size_t k = 0; k < sections.size(); ++k) {
    SectionEntry e = sections[k].entry;
    e.offset = file.size();
    e.bytes = sections[k].bytes.size();
    std::memcpy(file.data() + sizeof(Header) + k * sizeof(e), &e, sizeof(e));
    file.insert(file.end(), sections[k].bytes.begin(), sections[k].bytes.end());
    file.resize(aligned(file.size()));
  }
  header.fileBytes = file.size();
  std::memcpy(file.data(), &header, sizeof(header));
  return file;
}

/// Bytes of a record, where the section is a table of records.
size_t recordOf(SectionKind kind) {
  switch (kind) {
  case SectionKind::Instructions:
    return sizeof(Instruction);
  case SectionKind::Producers:
    return sizeof(Producer);
  case SectionKind::Blocks:
    return sizeof(Block);
  case SectionKind::Regions:
    return sizeof(Region);
  default:
    return 0;
  }
}

class Mutator {
public:
  explicit Mutator(unsigned seed) : random(seed) {}

  size_t below(size_t limit) { return limit ? random() % limit : 0; }

  /// Drops, repeats or swaps records.
  void shuffle(Section &s, size_t record) {
    const size_t count = s.bytes.size() / record, a = below(count), b = below(count);
    const auto at = [&](size_t k) { return s.bytes.begin() + ptrdiff_t(k * record); };
    if (!count)
      return;
    switch (below(3)) {
    case 0:
      s.bytes.erase(at(a), at(a + 1));
      s.entry.count -= 1;
      break;
    case 1: {
      const std::vector<uint8_t> copy(at(a), at(a + 1));
      s.bytes.insert(at(b), copy.begin(), copy.end());
      s.entry.count += 1;
      break;
    }
    default:
      std::swap_ranges(at(a), at(a + 1), at(b));
    }
  }

  /// One field of a record (1, 2, 4 or 8 bytes) takes a small number, a neighbour's, or a limit.
  void change(Section &s) {
    static constexpr int64_t edges[] = {0,  1,   2,   3,   4,   15,    16, 31,
                                        32, 127, 128, 255, 256, 65535, -1};
    const size_t width = size_t(1) << below(4);
    if (s.bytes.size() < width)
      return;
    uint8_t *at = s.bytes.data() + below(s.bytes.size() / width) * width;
    int64_t value = 0;
    std::memcpy(&value, at, width);
    value = below(2) ? int64_t(uint64_t(value) + below(9) - 4) : edges[below(std::size(edges))];
    std::memcpy(at, &value, width);
  }

  /// libFuzzer's mutations of the whole section.
  void rewrite(Section &s) {
    const size_t size = s.bytes.size(), most = size + 64;
    s.bytes.resize(most);
    s.bytes.resize(LLVMFuzzerMutate(s.bytes.data(), size, most));
    const size_t record = recordOf(s.entry.kind);
    if (record) {
      s.bytes.resize(s.bytes.size() / record * record);
      s.entry.count = s.bytes.size() / record;
    } else if (s.entry.kind == SectionKind::Data || s.entry.kind == SectionKind::HostModule) {
      s.entry.count = s.bytes.size();
    }
  }

  void mutate(std::vector<Section> &sections) {
    for (size_t k = 0, changes = 1 + below(3); k < changes; ++k) {
      Section &s = sections[below(sections.size())];
      const size_t record = recordOf(s.entry.kind);
      const size_t kind = below(8);
      if (kind == 0)
        rewrite(s);
      else if (kind <= 2 && record)
        shuffle(s, record);
      else if (kind == 3 && below(4) == 0)
        s.entry.count += below(3) - 1;
      else
        change(s);
    }
  }

private:
  std::minstd_rand random;
};

} // namespace

bool canSeal(std::span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(Header) && bytes.size() % kAlignment == 0;
}

size_t mutateImage(uint8_t *data, size_t size, size_t most, unsigned seed) {
  Mutator mutator(seed);
  std::vector<Section> sections;
  Header header{};
  if (canSeal({data, size})) {
    std::memcpy(&header, data, sizeof(header));
    sections = sectionsOf({data, size}, header);
  }
  if (sections.empty() || mutator.below(16) == 0)
    return LLVMFuzzerMutate(data, size, most);
  mutator.mutate(sections);
  std::vector<uint8_t> file = joined(header, sections);
  if (file.size() > most)
    return LLVMFuzzerMutate(data, size, most);
  sealImage(file);
  std::copy(file.begin(), file.end(), data);
  return file.size();
}

} // namespace millrace::fuzz
