// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RandomImage.h"

#include "arch/program/ImageCheck.h"
#include "arch/program/ImageFile.h"

#include <gmock/gmock.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>

namespace millrace::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class ImageFile : public testing::Test {
protected:
  void SetUp() override {
    folder =
        fs::temp_directory_path() /
        ("millrace-image-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
         "-" + std::to_string(reinterpret_cast<uintptr_t>(this)));
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string path(const char *name = "program.img") const { return (folder / name).string(); }
  size_t files() const {
    return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  fs::path folder;
};

TEST_F(ImageFile, every_part_of_a_random_image_survives_the_file) {
  for (const char *name : {"tsp-small", "mesh-4x4", "lp30"}) {
    const Machine machine = machineNamed(name);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Image image = RandomImage(machine, seed).make();
      ASSERT_TRUE(writeImage(image, path()));
      Expected<Image> read = readImage(path());
      ASSERT_TRUE(read) << read.error();
      // The encoding holds every part, so equal bytes mean equal images; spot checks keep it
      // honest.
      ASSERT_EQ(encodeImage(*read), encodeImage(image));
      ASSERT_EQ(read->instructions.size(), machine.pes());
      ASSERT_EQ(read->bindings[1].placements[1].loops[0].rowStep,
                image.bindings[1].placements[1].loops[0].rowStep);
      ASSERT_EQ(read->notes, image.notes);
      ASSERT_EQ(read->data, image.data);
      ASSERT_EQ(read->steps[1].outputs, (std::vector<uint32_t>{0, 1}));
      ASSERT_EQ(read->strings, image.strings);
    }
  }
}

TEST_F(ImageFile, an_empty_image_survives_too) {
  ASSERT_TRUE(writeImage(Image(), path()));
  Expected<Image> read = readImage(path());
  ASSERT_TRUE(read) << read.error();
  EXPECT_TRUE(read->instructions.empty());
  EXPECT_TRUE(read->data.empty());
}

TEST_F(ImageFile, an_image_whose_producers_nobody_gave_has_none) {
  Image image;
  image.instructions.resize(2);
  image.producers.resize(1);
  Image full = image;
  full.producers.resize(2);
  EXPECT_EQ(encodeImage(image), encodeImage(full));
  image.producers.clear();
  EXPECT_EQ(encodeImage(image), encodeImage(full));
}

TEST_F(ImageFile, large_tables_are_views_of_the_file_until_they_are_edited) {
  Image image;
  image.data = std::vector<uint8_t>{1, 2, 3};
  image.instructions.push_back(std::vector<Instruction>(2));
  image.producers.push_back(std::vector<Producer>(1));
  ASSERT_TRUE(writeImage(image, path()));
  Expected<Image> read = readImage(path());
  ASSERT_TRUE(read) << read.error();
  Image copy = *read;
  EXPECT_TRUE(read->data.isView());
  EXPECT_TRUE(read->instructions[0].isView());
  EXPECT_TRUE(read->producers[0].isView());
  copy.data.edit()[0] = 9;
  copy.instructions[0].edit()[1].cycle = 5;
  EXPECT_FALSE(copy.data.isView());
  EXPECT_FALSE(copy.instructions[0].isView());
  EXPECT_EQ(copy.data[0], 9);
  EXPECT_EQ(copy.instructions[0][1].cycle, 5u);
  EXPECT_EQ(read->data[0], 1) << "the file's bytes changed with the copy's";
  EXPECT_EQ(read->instructions[0][1].cycle, 0u);
  fs::remove(path());
  EXPECT_EQ(read->data[2], 3) << "the view must outlive the file's name";
  EXPECT_EQ(read->instructions[0].size(), 2u);
}

TEST_F(ImageFile, equal_images_give_equal_bytes_whatever_lies_in_padding) {
  const Machine machine = machineNamed("tsp-small");
  const Image image = RandomImage(machine, 3).make();
  Image other = image;
  for (Instruction &i : other.instructions[0].edit())
    reinterpret_cast<uint8_t *>(&i)[sizeof(Instruction) - 1] = 0xaa;
  EXPECT_EQ(encodeImage(image), encodeImage(other));
}

TEST_F(ImageFile, writing_replaces_the_old_file_and_leaves_nothing_beside_it) {
  std::ofstream(path()) << "old";
  ASSERT_TRUE(writeImage(Image(), path()));
  EXPECT_TRUE(readImage(path()));
  EXPECT_EQ(files(), 1u);
}

TEST_F(ImageFile, an_image_opens_without_its_data_which_are_checked_when_they_are_read) {
  Image image;
  image.instructions.resize(1);
  image.producers.resize(1);
  image.data = std::vector<uint8_t>(1000, 7);
  std::vector<uint8_t> bytes = encodeImage(image);
  const auto write = [&] {
    std::ofstream(path(), std::ios::binary)
        .write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
  };
  write();
  Expected<OpenedImage> opened = openImage(path());
  ASSERT_TRUE(opened) << opened.error();
  EXPECT_EQ(opened->image.data.size(), 1000u);
  EXPECT_TRUE(opened->readData());
  EXPECT_EQ(opened->image.data, image.data);

  bytes[bytes.size() - 500] ^= 4;
  write();
  Expected<OpenedImage> damaged = openImage(path());
  ASSERT_TRUE(damaged) << damaged.error();
  EXPECT_THAT(damaged->readData().error(), HasSubstr("the checksum of its data does not fit"));
  EXPECT_THAT(readImage(path()).error(), HasSubstr("the checksum of its data does not fit"));
}

TEST_F(ImageFile, a_missing_folder_is_an_error_that_names_path_and_reason) {
  Status s = writeImage(Image(), path("no/such/place.img"));
  ASSERT_FALSE(s);
  EXPECT_THAT(s.error(), HasSubstr("no/such/place.img"));
  EXPECT_THAT(s.error(), HasSubstr("No such file or directory"));
}

TEST_F(ImageFile, a_folder_or_device_is_never_replaced) {
  fs::create_directories(folder / "sub");
  EXPECT_THAT(writeImage(Image(), path("sub")).error(), HasSubstr("not a regular file"));
  EXPECT_THAT(writeImage(Image(), "/dev/full").error(), HasSubstr("not a regular file"));
  EXPECT_EQ(files(), 1u);
}

TEST_F(ImageFile, reading_what_is_missing_or_no_file_is_an_error) {
  EXPECT_THAT(readImage(path("nothing")).error(), HasSubstr("No such file or directory"));
  EXPECT_THAT(readImage(folder.string()).error(), HasSubstr("not a regular file"));
  std::ofstream(path("empty"));
  EXPECT_THAT(readImage(path("empty")).error(), HasSubstr("is not a Millrace image: it has 0 bytes"));
}

/// Least CPU time of some runs, in seconds.
static double leastTime(const std::function<void()> &work) {
  double best = 1e9;
  for (int k = 0; k < 5; ++k) {
    const std::clock_t start = std::clock();
    work();
    best = std::min(best, double(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

TEST_F(ImageFile, a_hundred_thousand_instructions_are_read_beside_100_MB_of_data_without_copying_them_for_each) {
  Image image;
  image.instructions.resize(1);
  image.producers.resize(1);
  image.instructions[0].edit().resize(100000);
  image.data = std::vector<uint8_t>(100'000'000, 7);
  ASSERT_TRUE(writeImage(image, path()));
  const double read = leastTime([&] { ASSERT_TRUE(readImage(path())); });
  const std::span<const uint8_t> bytes(image.data);
  std::vector<uint8_t> copy(bytes.size());
  const double once = leastTime([&] { std::copy(bytes.begin(), bytes.end(), copy.begin()); });
  EXPECT_LT(read, 100 * once) << read << " s, copying the data takes " << once << " s";
}

} // namespace
} // namespace millrace::test
