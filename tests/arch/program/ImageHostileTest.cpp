// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RandomImage.h"

#include "arch/program/ImageFile.h"
#include "arch/program/ImageLayout.h"

#include <gmock/gmock.h>

namespace millrace::test {
namespace {

using testing::HasSubstr;
using Encoded = std::vector<uint8_t>;

class HostileImage : public testing::Test {
protected:
  const Machine machine = machineNamed("tsp-small");
  const Image image = RandomImage(machine, 1).make(20);
  const Encoded good = encodeImage(image);

  static Expected<Image> decode(const Encoded &bytes) { return decodeImage(bytes, "test.img"); }
  static std::string errorOf(const Encoded &bytes) {
    Expected<Image> read = decode(bytes);
    return read ? "no error" : read.error();
  }
  std::vector<layout::SectionEntry> sections() const {
    layout::Header header;
    std::memcpy(&header, good.data(), sizeof(header));
    std::vector<layout::SectionEntry> entries(header.sections);
    std::memcpy(entries.data(), good.data() + sizeof(header),
                entries.size() * sizeof(layout::SectionEntry));
    return entries;
  }
  /// The good image with other bytes at an offset, and a checksum that fits.
  template <class T> Encoded with(size_t offset, T value) const {
    Encoded bytes = good;
    std::memcpy(bytes.data() + offset, &value, sizeof(T));
    sealImage(bytes);
    return bytes;
  }
  size_t bodyOf(layout::SectionKind kind) const {
    for (const layout::SectionEntry &e : sections())
      if (e.kind == kind)
        return e.offset;
    return 0;
  }
  /// An image whose error, after encoding, is wanted.
  static std::string errorOf(const Image &bad) { return errorOf(encodeImage(bad)); }
};

TEST_F(HostileImage, cut_off_at_every_section_border_and_beside_it_is_an_error) {
  std::vector<size_t> borders = {0, 1, 8, 63, 64, good.size() - 1};
  for (const layout::SectionEntry &e : sections())
    for (size_t at : {e.offset, e.offset + e.bytes})
      for (size_t cut : {at - 1, at, at + 1})
        if (cut < good.size())
          borders.push_back(cut);
  for (size_t cut : borders)
    EXPECT_THAT(errorOf(Encoded(good.begin(), good.begin() + ptrdiff_t(cut))),
                HasSubstr("image 'test.img': "))
        << "cut to " << cut << " bytes";
  Encoded longer = good;
  longer.resize(good.size() + 64);
  EXPECT_THAT(errorOf(longer), HasSubstr("cut off or added to"));
}

TEST_F(HostileImage, each_damaged_header_field_has_its_own_error) {
  using layout::Header;
  EXPECT_THAT(errorOf(with(0, 'X')), HasSubstr("bad magic number"));
  EXPECT_THAT(errorOf(with(offsetof(Header, version), 7u)),
              HasSubstr("has version 7; this program reads version 6; compile the model again"));
  EXPECT_THAT(errorOf(with(offsetof(Header, fileBytes), uint64_t(1) << 60)),
              HasSubstr("should have 1152921504606846976 bytes"));
  EXPECT_THAT(errorOf(with(offsetof(Header, sections), 0xffffffffu)),
              HasSubstr("names 4294967295 sections; the file has room for"));
  EXPECT_THAT(errorOf(with(offsetof(Header, sections), 13u)),
              HasSubstr("13 sections are not those of a number of PEs"));
  EXPECT_THAT(errorOf(with(offsetof(Header, reserved) + 5, uint8_t(3))),
              HasSubstr("a reserved byte is 3"));
  Encoded bytes = good;
  bytes[offsetof(Header, checksum)] ^= 1;
  EXPECT_THAT(errorOf(bytes), HasSubstr("its checksum does not fit its contents"));
  bytes = good;
  bytes[offsetof(Header, dataChecksum)] ^= 1; // which the other one covers
  EXPECT_THAT(errorOf(bytes), HasSubstr("its checksum does not fit its contents"));
  bytes = good;
  bytes[bodyOf(layout::SectionKind::Data)] ^= 1;
  EXPECT_THAT(errorOf(bytes), HasSubstr("the checksum of its data does not fit"));
  bytes = good;
  bytes.back() ^= 1; // of the zeros that fill the file
  EXPECT_THAT(errorOf(bytes), HasSubstr("the checksum of its data does not fit"));
}

TEST_F(HostileImage, each_damaged_entry_of_the_section_table_has_its_own_error) {
  using layout::SectionEntry;
  const size_t entry = sizeof(layout::Header) + sizeof(SectionEntry);
  EXPECT_THAT(errorOf(with(entry + offsetof(SectionEntry, kind), 99u)),
              HasSubstr("entry 1 should be instructions of pe 0 but has kind 99"));
  EXPECT_THAT(errorOf(with(entry + offsetof(SectionEntry, index), 1u)),
              HasSubstr("entry 1 should be instructions of pe 0"));
  EXPECT_THAT(errorOf(with(entry + offsetof(SectionEntry, offset), uint64_t(-64))),
              HasSubstr("not where the one before it ends"));
  EXPECT_THAT(errorOf(with(entry + offsetof(SectionEntry, bytes), uint64_t(-1))),
              HasSubstr("(instructions of pe 0) has 18446744073709551615 bytes"));
  EXPECT_THAT(errorOf(with(entry + offsetof(SectionEntry, count), uint64_t(1) << 61)),
              HasSubstr("section instructions of pe 0: counts 2305843009213693952 records"));
}

TEST_F(HostileImage, a_huge_count_allocates_nothing_and_names_its_section) {
  const uint64_t huge = uint64_t(1) << 59;
  EXPECT_THAT(errorOf(with(bodyOf(layout::SectionKind::Strings), huge)),
              HasSubstr("section strings: entry 0: length is 576460752303423488; the rest"));
  EXPECT_THAT(errorOf(with(bodyOf(layout::SectionKind::LaneMaps), huge)),
              HasSubstr("section lane maps: entry 0: length is 576460752303423488"));
  EXPECT_THAT(errorOf(with(bodyOf(layout::SectionKind::Program), huge)),
              HasSubstr("section program: machine name is 576460752303423488"));
  EXPECT_THAT(errorOf(with(bodyOf(layout::SectionKind::Steps) + 10, huge)),
              HasSubstr("section steps: entry 0: number of ranges is 576460752303423488"));
}

TEST_F(HostileImage, every_index_is_checked_and_named_with_its_limit) {
  const auto damaged = [&](auto change) {
    Image bad = image;
    change(bad);
    return errorOf(bad);
  };
  const size_t n = image.instructions[0].size();
  EXPECT_THAT(damaged([](Image &i) { i.instructions[0].edit()[4].opcode = Opcode(200); }),
              HasSubstr("instructions of pe 0: instruction 4: its opcode is 200; the limit is " +
                        std::to_string(opcodes().size() - 1)));
  EXPECT_THAT(damaged([](Image &i) { i.instructions[0].edit()[4].format = ElementType(9); }),
              HasSubstr("instruction 4: its format is 9; the limit is 7"));
  EXPECT_THAT(damaged([](Image &i) { i.instructions[0].edit()[4].b.kind = OperandKind(5); }),
              HasSubstr("instruction 4: the kind of an operand is 5; the limit is 4"));
  EXPECT_THAT(damaged([](Image &i) { i.instructions[0].edit()[4].provenance = 5; }),
              HasSubstr("instruction 4: its provenance is 5; the limit is 4"));
  EXPECT_THAT(damaged([](Image &i) {
                i.instructions[0].edit()[4].producers = 0xffffffff;
                i.instructions[0].edit()[4].producerCount = 2;
              }),
              HasSubstr("instruction 4: the end of its producers is 4294967297"));
  EXPECT_THAT(damaged([](Image &i) { i.producers[0].edit()[1].pe = 1; }),
              HasSubstr("producer 1: its pe is 1; the limit is 0"));
  EXPECT_THAT(damaged([&](Image &i) { i.producers[0].edit()[1].instruction = uint32_t(n); }),
              HasSubstr("producer 1: its instruction is " + std::to_string(n)));
  EXPECT_THAT(damaged([](Image &i) { i.producers[0].edit()[1].of = ProducerOf(8); }),
              HasSubstr("producer 1: its operand is 8; the limit is 7"));
  EXPECT_THAT(damaged([&](Image &i) { i.steps[0].pes[0].end = uint32_t(n + 1); }),
              HasSubstr("steps: step 0: the end of a range is " + std::to_string(n + 1)));
  EXPECT_THAT(damaged([](Image &i) { i.steps[0].pes[0].begin = 0xffffffff; }),
              HasSubstr("steps: step 0: the begin of a range is 4294967295"));
  EXPECT_THAT(damaged([](Image &i) { i.steps[1].inputs[0] = 4; }),
              HasSubstr("steps: step 1: a binding is 4; the limit is 3"));
  EXPECT_THAT(damaged([](Image &i) { i.bindings[3].placements[1].rows = 0xffffffff; }),
              HasSubstr("placement 1: the end of its table rows is"));
  EXPECT_THAT(damaged([](Image &i) { i.steps[1].kind = Step::Kind(2); }),
              HasSubstr("steps: step 1: its kind is 2; the limit is 1"));
  EXPECT_THAT(damaged([](Image &i) {
                for (Step &s : i.steps)
                  if (s.kind == Step::Kind::Host)
                    s.device = StepDevice(3);
              }),
              HasSubstr("its device is 3; the limit is 2"));
  EXPECT_THAT(damaged([](Image &i) {
                for (Step &s : i.steps)
                  if (s.kind == Step::Kind::Grid)
                    s.device = StepDevice::Gpu;
              }),
              HasSubstr("its device is 2; the limit is 0"));
  EXPECT_THAT(damaged([](Image &i) { i.blocks[0].tensor = 6; }),
              HasSubstr("blocks: block 0: its tensor is 6; the limit is 5"));
  EXPECT_THAT(damaged([](Image &i) {
                i.blocks[0].bytes = 1;
                i.blocks[0].offset = UINT64_MAX;
              }),
              HasSubstr("blocks: block 0: its offset is 18446744073709551615"));
  EXPECT_THAT(damaged([](Image &i) { i.tensors[2].name = 77; }),
              HasSubstr("regions: region 2: its name is 77; the limit is 4"));
  EXPECT_THAT(damaged([](Image &i) { i.bindings[0].placements[0].loops[0].dim = 2; }),
              HasSubstr("placement 0: loop 0 names dimension 2; the tensor has rank 2"));
  EXPECT_THAT(damaged([](Image &i) { i.bindings[0].placements[0].loops[1].count = 0xffffffff; }),
              HasSubstr("placement 0: loop 1 puts more than 65536 elements into a row"));
  EXPECT_THAT(damaged([](Image &i) { i.bindings[0].placements[0].start[0] = INT64_MIN; }),
              HasSubstr("placement 0: start -9223372036854775808 is beyond 2^48"));
  EXPECT_THAT(damaged([](Image &i) { i.bindings[0].shape = {INT64_MAX, INT64_MAX}; }),
              HasSubstr("its shape has more than 2^32 elements"));
  EXPECT_THAT(damaged([](Image &i) { i.bindings[0].placements[0].slices.clear(); }),
              HasSubstr("placement 0: 0 slices from byte 0 do not hold elements of 1 bytes"));
  EXPECT_THAT(damaged([](Image &i) { i.bindings[0].gridType = ElementType(8); }),
              HasSubstr("its grid type is 8; the limit is 7"));
}

TEST_F(HostileImage, of_2000_random_bit_flips_each_is_an_error) {
  std::mt19937_64 random(7);
  for (int k = 0; k < 2000; ++k) {
    Encoded bytes = good;
    const size_t at = random() % bytes.size();
    bytes[at] ^= uint8_t(1u << random() % 8);
    ASSERT_FALSE(decode(bytes)) << "byte " << at;
  }
}

TEST_F(HostileImage, of_4000_random_damages_behind_a_fitting_checksum_none_crashes) {
  std::mt19937_64 random(8);
  unsigned accepted = 0;
  for (int k = 0; k < 4000; ++k) {
    Encoded bytes = good;
    for (uint64_t n = 1 + random() % 4; n-- > 0;) {
      const size_t at = random() % bytes.size();
      bytes[at] = random() % 2 ? uint8_t(random()) : uint8_t(random() % 2 ? 0xff : 0);
    }
    sealImage(bytes);
    Expected<Image> read = decode(bytes);
    if (!read)
      continue;
    // Whatever is accepted is an image in full: it can be written and read again.
    ++accepted;
    ASSERT_TRUE(decode(encodeImage(*read)));
  }
  EXPECT_GT(accepted, 100u) << "no damage got past the checks, so they were hardly tested";
  EXPECT_LT(accepted, 3900u);
}

TEST_F(HostileImage, random_bytes_behind_a_good_header_are_errors) {
  std::mt19937_64 random(9);
  for (int k = 0; k < 500; ++k) {
    Encoded bytes(good.begin(), good.begin() + 64);
    bytes.resize(64 * (2 + random() % 40));
    for (size_t b = 64; b < bytes.size(); ++b)
      bytes[b] = uint8_t(random());
    const uint64_t size = bytes.size();
    std::memcpy(bytes.data() + offsetof(layout::Header, fileBytes), &size, 8);
    sealImage(bytes);
    ASSERT_FALSE(decode(bytes));
  }
}

} // namespace
} // namespace millrace::test
