// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/HostData.h"

#include "arch/program/ImageCheck.h"
#include "tests/arch/program/Placements.h"
#include "tests/arch/program/Rows.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace millrace::test {
namespace {
using ::testing::HasSubstr;

void writeNaively(const Binding &b, const std::vector<uint8_t> &grid, Rows &memory) {
  const unsigned width = byteWidth(b.gridType);
  for (const Placement &p : b.placements)
    forEachElement(b, p, [&](int64_t element, uint32_t row, size_t lane) {
      const unsigned bytes = p.bytesInLanes ? width - p.firstByte : unsigned(p.slices.size());
      for (unsigned k = 0; k < bytes; ++k)
        memory.write(p.pe, p.hemisphere, p.slices[p.bytesInLanes ? 0 : k],
                     row)[lane + (p.bytesInLanes ? k : 0)] =
            element < 0 ? uint8_t(p.fill >> 8 * (p.firstByte + k))
                        : grid[size_t(element) * width + p.firstByte + k];
    });
}

constexpr unsigned kLanes = 64;

/// A placement that puts no two elements to one place: lanes are a mixed radix of the lane loops,
/// rows of the others; steps, strides and starts at random, often outside the shape.
Placement randomPlacement(const Binding &b, std::mt19937 &random) {
  auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const unsigned width = byteWidth(b.gridType);
  Placement p;
  p.pe = uint16_t(draw(0, 1));
  p.hemisphere = Hemisphere(draw(0, 1));
  p.bytesInLanes = draw(0, 3) == 0;
  p.firstByte = uint8_t(draw(0, int(width) - 1));
  const unsigned bytes = width - p.firstByte;
  for (unsigned k = 0; k < (p.bytesInLanes ? 1 : bytes); ++k)
    p.slices.push_back(uint16_t(k * 3 + unsigned(draw(0, 2))));
  p.fill = random();
  for (int64_t extent : b.shape)
    p.start.push_back(draw(-3, int(extent)));
  int32_t rowPitch = draw(1, 3), lanePitch = p.bytesInLanes ? int32_t(bytes) : draw(1, 2);
  int64_t lowestRow = 0, lowestLane = 0;
  for (int l = draw(0, 4); l > 0; --l) {
    BindingLoop loop;
    loop.count = uint32_t(draw(1, 5));
    loop.dim = draw(0, 4) ? uint32_t(draw(0, int(b.shape.size()) - 1)) : kNoDim;
    loop.step = draw(-2, 2);
    const bool lanes = draw(0, 1) && lanePitch * int(loop.count) <= int(kLanes) / 2;
    int32_t &pitch = lanes ? lanePitch : rowPitch;
    (lanes ? loop.laneStep : loop.rowStep) = draw(0, 3) ? pitch : -pitch;
    pitch *= int32_t(loop.count);
    lowestRow += std::min<int64_t>(0, int64_t(loop.rowStep) * (loop.count - 1));
    lowestLane += std::min<int64_t>(0, int64_t(loop.laneStep) * (loop.count - 1));
    p.loops.push_back(loop);
  }
  std::shuffle(p.loops.begin(), p.loops.end(), random);
  p.row = uint32_t(draw(0, 9) - lowestRow);
  p.lane = uint32_t(-lowestLane);
  return p;
}

TEST(HostData, AThousandRandomPlacementsWriteAndReadWhatTheRulesSay) {
  std::mt19937 random(1);
  auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const std::pair<const char *, ElementType> types[] = {{"uint8", ElementType::UInt8},
                                                        {"float16", ElementType::Fp16},
                                                        {"float32", ElementType::Fp32},
                                                        {"int32", ElementType::Int32},
                                                        {"bfloat16", ElementType::Bf16}};
  int compared = 0;
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(round);
    Binding b;
    b.name = "x";
    auto [host, grid] = types[round % std::size(types)];
    b.hostType = host, b.gridType = grid;
    size_t elements = 1;
    for (int d = draw(1, 4); d > 0; --d)
      b.shape.push_back(draw(1, 5)), elements *= size_t(b.shape.back());
    for (int k = draw(1, 3); k > 0; --k)
      b.placements.push_back(randomPlacement(b, random));
    std::vector<uint8_t> tensor(elements * byteWidth(grid)); // as many bytes as on the host
    std::generate(tensor.begin(), tensor.end(), [&] { return uint8_t(random()); });
    Rows fast(kLanes), slow(kLanes);
    Status written = writeTensor(b, tensor.data(), fast);
    ASSERT_TRUE(written) << written.error();
    writeNaively(b, tensor, slow);
    ASSERT_EQ(fast.rows, slow.rows);

    uint64_t places = 0;
    for (const Placement &p : b.placements)
      forEachElement(b, p, [&](int64_t, uint32_t, size_t) { ++places; });
    EXPECT_EQ(elementsWritten(b), places);
    EXPECT_EQ(hostBytes(b), tensor.size());

    // One more placement holds the whole tensor, so that reading is defined; it comes first.
    Placement whole;
    for (unsigned k = 0; k < byteWidth(grid); ++k)
      whole.slices.push_back(uint16_t(40 + k));
    whole.start.assign(b.shape.size(), 0);
    int32_t pitch = 1;
    for (size_t d = b.shape.size(); d-- > 0; pitch *= int32_t(b.shape[d]))
      whole.loops.push_back({uint32_t(b.shape[d]), pitch, 0, uint32_t(d), 1});
    b.placements.insert(b.placements.begin(), whole);
    ASSERT_TRUE(writeTensor(b, tensor.data(), fast));
    b.role = Binding::Role::Output;
    // Placements may overlap each other in memory: what is read is then not what was written.
    std::vector<uint8_t> expected(tensor.size(), 0xcd), read(tensor.size(), 0xee);
    for (const Placement &p : b.placements)
      forEachElement(b, p, [&](int64_t element, uint32_t row, size_t lane) {
        const unsigned bytes =
            p.bytesInLanes ? byteWidth(grid) - p.firstByte : unsigned(p.slices.size());
        for (unsigned k = 0; k < bytes && element >= 0; ++k)
          expected[size_t(element) * byteWidth(grid) + p.firstByte + k] =
              fast.write(p.pe, p.hemisphere, p.slices[p.bytesInLanes ? 0 : k],
                         row)[lane + (p.bytesInLanes ? k : 0)];
      });
    // A repetition reads one element from several places; which wins is not fixed unless they
    // agree.
    const bool repeats =
        std::any_of(b.placements.begin(), b.placements.end(), [&](const Placement &p) {
          std::vector<int64_t> seen;
          bool twice = false;
          forEachElement(b, p, [&](int64_t e, uint32_t, size_t) {
            twice |= e >= 0 && std::find(seen.begin(), seen.end(), e) != seen.end();
            seen.push_back(e);
          });
          return twice;
        });
    Status got = readTensor(b, read.data(), fast);
    ASSERT_TRUE(got) << got.error();
    if (!repeats) {
      ASSERT_EQ(read, expected);
      ++compared;
    }
  }
  EXPECT_GT(compared, 100) << "too few rounds in which every element is read from one place";
}

/// An image of 3 x side x side fp32, its channels on lanes, as the first layer of a network reads
/// it.
Binding imageBinding(int64_t side, unsigned copies) {
  Binding b;
  b.name = "image";
  b.hostType = "float32";
  b.shape = {1, 3, side, side};
  for (unsigned c = 0; c < copies; ++c) {
    Placement p;
    p.slices = {uint16_t(2 * c), uint16_t(2 * c + 1)};
    p.start = {0, 0, -3, -3};
    const auto padded = uint32_t(side + 6);
    p.loops = {{padded, int32_t(padded), 0, 2, 1}, {padded, 1, 0, 3, 1}, {3, 0, 1, 1, 1}};
    b.placements.push_back(p);
  }
  return b;
}

TEST(HostData, AnImageIsPaddedWithTheFillAndTransposedToChannelsOnLanes) {
  Binding b = imageBinding(4, 2);
  for (Placement &p : b.placements)
    p.fill = 0xbeef;
  std::vector<float> host(3 * 4 * 4);
  for (size_t k = 0; k < host.size(); ++k)
    host[k] = float(k);
  Rows memory(32);
  ASSERT_TRUE(writeTensor(b, host.data(), memory));
  // Row 3 * 10 + 3 is pixel (0, 0); its channels are 0, 16 and 32: fp16 0x0000, 0x4c00, 0x5000.
  for (unsigned slice : {0u, 2u}) {
    EXPECT_EQ(memory.write(0, Hemisphere::West, slice + 1, 33)[0], 0x00);
    EXPECT_EQ(memory.write(0, Hemisphere::West, slice + 1, 33)[1], 0x4c);
    EXPECT_EQ(memory.write(0, Hemisphere::West, slice + 1, 33)[2], 0x50);
    EXPECT_EQ(memory.write(0, Hemisphere::West, slice, 0)[0], 0xef);
    EXPECT_EQ(memory.write(0, Hemisphere::West, slice + 1, 99)[2], 0xbe);
    EXPECT_EQ(memory.write(0, Hemisphere::West, slice + 1, 0)[3], 0) << "lane 3 holds no channel";
  }
}

TEST(HostData, BytesThatAPlacementDoesNotNameKeepTheirValue) {
  Rows memory(8);
  for (uint8_t &byte : memory.write(0, Hemisphere::West, 0, 5))
    byte = 7;
  Binding b;
  b.hostType = "uint8", b.gridType = ElementType::UInt8, b.shape = {2};
  Placement p;
  p.slices = {0}, p.start = {0}, p.row = 5, p.lane = 3, p.loops = {{2, 0, 2, 0, 1}};
  b.placements = {p};
  const uint8_t host[] = {1, 2};
  ASSERT_TRUE(writeTensor(b, host, memory));
  EXPECT_THAT(memory.write(0, Hemisphere::West, 0, 5),
              ::testing::ElementsAre(7, 7, 7, 1, 7, 2, 7, 7));
}

TEST(HostData, AFloatInputWithAScaleIsQuantisedToTheNearestEvenAndClamped) {
  Binding b;
  b.name = "x", b.hostType = "float32", b.gridType = ElementType::Int8, b.shape = {5};
  b.scale = 0.5, b.zero = 3;
  Placement p;
  p.slices = {0}, p.start = {0}, p.loops = {{5, 0, 1, 0, 1}};
  b.placements = {p};
  const float x[] = {1.25f, 1.75f, -0.25f, 1000, -1000}; // 2.5, 3.5, -0.5 units: ties
  Rows memory(kLanes);
  Status written = writeTensor(b, x, memory);
  ASSERT_TRUE(written) << written.error();
  std::vector<uint8_t> row(kLanes);
  memory.read(0, Hemisphere::West, 0, 0, row);
  const int8_t want[] = {2 + 3, 4 + 3, 0 + 3, 127, -128};
  for (int k = 0; k < 5; ++k)
    EXPECT_EQ(int8_t(row[size_t(k)]), want[k]);
}

/// Three indices of a table of 10 rows in parts of 6 and 4, two superlanes of 4 lanes.
Binding indexBinding() {
  Binding b;
  b.name = "ids", b.hostType = "int64", b.gridType = ElementType::Int32, b.shape = {3};
  b.extent = 10;
  Placement p;
  p.bytesInLanes = true, p.slices = {0}, p.start = {0};
  p.loops = {{3, 1, 0, 0, 1}, {2, 0, 4, kNoDim, 0}};
  p.rows = 6;
  Placement rest = p;
  rest.slices = {1}, rest.first = 6, rest.rows = 4;
  b.placements = {p, rest};
  return b;
}

TEST(HostData, IndicesBecomeAddressesWithinEachPartOrThatOfTheRowBehindIt) {
  const int64_t ids[] = {5, -1, 6};
  Rows memory(8);
  ASSERT_TRUE(writeTensor(indexBinding(), ids, memory));
  const uint8_t first[] = {5, 6, 6}, rest[] = {4, 3, 0}; // index 9 is row 3 of the second part
  for (uint32_t row = 0; row < 3; ++row)
    for (unsigned slice : {0u, 1u}) {
      const uint8_t want = slice ? rest[row] : first[row];
      EXPECT_THAT(memory.write(0, Hemisphere::West, slice, row),
                  ::testing::ElementsAre(want, 0, 0, 0, want, 0, 0, 0));
    }
}

TEST(HostData, AnIndexOutsideItsTableIsAnErrorThatNamesInputValueAndExtent) {
  Rows memory(8);
  const int64_t high[] = {0, 10, 0}, low[] = {0, 0, -11};
  EXPECT_THAT(writeTensor(indexBinding(), high, memory).error(),
              HasSubstr("input 'ids': element 1 is 10, but the table that it looks up has 10 rows: "
                        "give -10 to 9"));
  EXPECT_THAT(writeTensor(indexBinding(), low, memory).error(), HasSubstr("element 2 is -11"));
  Binding b = indexBinding();
  b.hostType = "uint64";
  const uint64_t huge[] = {0, UINT64_MAX, 0};
  EXPECT_THAT(writeTensor(b, huge, memory).error(), HasSubstr("element 1 is 9223372036854775807"));
  b.hostType = "float32";
  const float floats[] = {0, 1, 2};
  EXPECT_THAT(writeTensor(b, floats, memory).error(), HasSubstr("must be integers, not float32"));
}

/// What checkBinding says after a change.
std::string indexErrorAfter(const std::function<void(Binding &, Placement &)> &change) {
  Binding b = indexBinding();
  change(b, b.placements[1]);
  Status s = checkBinding(b, 1);
  return s ? "" : s.error();
}

TEST(HostData, ABindingOfIndicesThatCannotBeIsAnError) {
  EXPECT_EQ(indexErrorAfter([](Binding &, Placement &) {}), "");
  EXPECT_THAT(indexErrorAfter([](Binding &b, Placement &) { b.extent = -1; }),
              HasSubstr("its extent is for indices alone"));
  EXPECT_THAT(indexErrorAfter([](Binding &b, Placement &) { b.role = Binding::Role::Output; }),
              HasSubstr("its extent is for indices alone"));
  EXPECT_THAT(indexErrorAfter([](Binding &b, Placement &) { b.gridType = ElementType::Fp32; }),
              HasSubstr("its extent is for indices alone"));
  EXPECT_THAT(indexErrorAfter([](Binding &, Placement &p) { p.rows = 0; }),
              HasSubstr("placement 1: it names no rows of the table"));
  EXPECT_THAT(indexErrorAfter([](Binding &, Placement &p) { p.first = 7; }),
              HasSubstr("the end of its table rows is 11; the limit is 10"));
  EXPECT_THAT(indexErrorAfter([](Binding &, Placement &p) { p.first = p.rows = 0xffffffff; }),
              HasSubstr("the end of its table rows is 8589934590"));
  EXPECT_THAT(indexErrorAfter([](Binding &b, Placement &p) {
                b.extent = 1 << 20, p.first = 0, p.rows = 1 << 16;
              }),
              HasSubstr("its number of table rows is 65536; the limit is 65535"));
  EXPECT_THAT(indexErrorAfter([](Binding &b, Placement &) { b.extent = 0; }),
              HasSubstr("it names rows of a table, but its binding has no extent"));
}

TEST(HostData, AScalarNeedsNoLoop) {
  Binding b;
  b.hostType = "float", b.gridType = ElementType::Fp32;
  Placement p;
  p.slices = {4}, p.bytesInLanes = true, p.row = 2, p.lane = 4;
  b.placements = {p};
  Rows memory(8);
  float host = 1.5, back = 0;
  ASSERT_TRUE(writeTensor(b, &host, memory));
  EXPECT_THAT(memory.write(0, Hemisphere::West, 4, 2),
              ::testing::ElementsAre(0, 0, 0, 0, 0, 0, 0xc0, 0x3f));
  ASSERT_TRUE(readTensor(b, &back, memory));
  EXPECT_EQ(back, 1.5);
}

TEST(HostData, AnElementThatNoPlacementHoldsIsNamed) {
  Binding b;
  b.role = Binding::Role::Output;
  b.name = "y", b.hostType = "uint8", b.gridType = ElementType::UInt8, b.shape = {4};
  Placement p;
  p.slices = {0}, p.start = {0}, p.loops = {{3, 0, 1, 0, 1}};
  b.placements = {p};
  Rows memory(8);
  uint8_t host[4];
  EXPECT_THAT(readTensor(b, host, memory).error(),
              HasSubstr("output 'y': its placements hold 3 of 4"));
  b.placements.push_back(p);
  EXPECT_THAT(readTensor(b, host, memory).error(),
              HasSubstr("element 3 of 4 lies in no placement"));
}

/// What is wrong with a binding of a 4-element uint8 tensor after a change to its one placement.
std::string errorAfter(const std::function<void(Binding &, Placement &)> &change) {
  Binding b;
  b.name = "x", b.hostType = "uint8", b.gridType = ElementType::UInt8, b.shape = {4};
  Placement p;
  p.slices = {0}, p.start = {0}, p.loops = {{4, 0, 1, 0, 1}};
  change(b, p);
  b.placements = {p};
  Rows memory(8);
  const std::vector<uint8_t> host(64);
  Status s = writeTensor(b, host.data(), memory);
  return s ? "" : s.error();
}

TEST(HostData, APlacementThatCannotBeIsAnErrorThatNamesTheNumber) {
  EXPECT_EQ(errorAfter([](Binding &, Placement &) {}), "");
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.lane = 5; }), HasSubstr("reaches lane 8"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.loops[0].laneStep = -1; }),
              HasSubstr("lanes [-3, 0]"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.loops[0].rowStep = -1; }),
              HasSubstr("rows [-3, 0]"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.loops[0].dim = 1; }),
              HasSubstr("names dimension 1"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.loops[0].count = 0; }),
              HasSubstr("count 0"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.start.clear(); }), HasSubstr("rank 1"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.slices = {0, 1}; }), HasSubstr("1 bytes"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.slices.clear(); }), HasSubstr("0 slices"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) { p.firstByte = 1; }), HasSubstr("byte 1"));
  EXPECT_THAT(errorAfter([](Binding &, Placement &p) {
                p.loops.assign(5, {0xffffffff, 0, 1, 0, 0x7fffffff});
              }),
              HasSubstr("2^48"));
  EXPECT_THAT(errorAfter([](Binding &b, Placement &) { b.shape = {-1}; }), HasSubstr("-1"));
  EXPECT_THAT(errorAfter([](Binding &b, Placement &) { b.shape = {1 << 20, 1 << 20, 2}; }),
              HasSubstr("2^32"));
  EXPECT_THAT(errorAfter([](Binding &b, Placement &) { b.hostType = "string"; }),
              HasSubstr("host type 'string' is not supported"));
}

/// Counts how often rows are asked for, and how many there are.
class CountedRows : public RowAccess {
public:
  unsigned lanes() const override { return 320; }
  void read(unsigned, Hemisphere, unsigned, uint32_t, std::span<uint8_t>) override { ++reads; }
  std::span<uint8_t> write(unsigned, Hemisphere, unsigned slice, uint32_t row) override {
    ++writes;
    rows.insert({slice, row});
    return bytes;
  }
  size_t reads = 0, writes = 0;
  std::set<std::pair<unsigned, uint32_t>> rows;

private:
  std::vector<uint8_t> bytes = std::vector<uint8_t>(320);
};

TEST(HostData, AnImageAsksForEachRowOfItsCopiesOnce) {
  const Binding b = imageBinding(224, 4);
  const std::vector<float> host(3 * 224 * 224, 1.0f);
  CountedRows memory;
  ASSERT_TRUE(writeTensor(b, host.data(), memory));
  EXPECT_GE(memory.rows.size(), 4u * 224 * 224 / 16);
  EXPECT_EQ(memory.writes, memory.rows.size());
  EXPECT_EQ(memory.reads, 0u);
}

} // namespace
} // namespace millrace::test
