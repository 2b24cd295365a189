// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Support/Npy.h"

#include <gtest/gtest.h>

#include <fstream>

namespace {

using millrace::HostTensor;
using millrace::HostType;

class NpyTest : public ::testing::Test {
protected:
  NpyTest()
      : folder(std::filesystem::path(::testing::TempDir()) /
               ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder);
  }
  ~NpyTest() override { std::filesystem::remove_all(folder); }

  std::filesystem::path write(const std::string &bytes) {
    std::filesystem::path path = folder / "broken.npy";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  std::filesystem::path folder;
};

std::string withHeader(const std::string &header, const std::string &data) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  return bytes + header + data;
}

TEST_F(NpyTest, what_is_written_is_read_again_for_every_type_and_rank) {
  for (unsigned type = 0; type <= static_cast<unsigned>(HostType::Float64); ++type)
    for (const std::vector<int64_t> &shape : {std::vector<int64_t>{}, {3}, {2, 3}, {2, 0, 4}}) {
      HostTensor tensor = HostTensor::zeros(static_cast<HostType>(type), shape);
      for (size_t i = 0; i < tensor.data.size(); ++i)
        tensor.data[i] = static_cast<std::byte>(i % 2);
      auto written = millrace::writeNpy(folder / "tensor.npy", tensor);
      ASSERT_TRUE(written) << written.error();
      auto again = millrace::readNpy(folder / "tensor.npy");
      ASSERT_TRUE(again) << again.error();
      EXPECT_EQ(again->type, tensor.type);
      EXPECT_EQ(again->shape, tensor.shape);
      EXPECT_EQ(again->data, tensor.data);
    }
}

TEST_F(NpyTest, a_file_of_another_kind_is_rejected) {
  auto read = millrace::readNpy(write("PNG..........."));
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().find("no npy file"), std::string::npos);
}

TEST_F(NpyTest, missing_bytes_are_counted) {
  auto read = millrace::readNpy(write(
      withHeader("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", "0123456789")));
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().find("needs 24 bytes, the file holds 10"), std::string::npos);
}

TEST_F(NpyTest, big_endian_and_fortran_arrays_are_rejected_with_a_remedy) {
  auto big = millrace::readNpy(
      write(withHeader("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }\n", "0123")));
  ASSERT_FALSE(big);
  EXPECT_NE(big.error().find("element type '>f4' is not supported"), std::string::npos);
  auto fortran = millrace::readNpy(
      write(withHeader("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }\n", "0123")));
  ASSERT_FALSE(fortran);
  EXPECT_NE(fortran.error().find("numpy.ascontiguousarray"), std::string::npos);
}

TEST_F(NpyTest, a_shape_whose_size_overflows_is_rejected) {
  auto read = millrace::readNpy(write(withHeader(
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n", "0123")));
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().find("no valid shape"), std::string::npos);
}

TEST_F(NpyTest, a_failed_write_leaves_nothing_behind) {
  auto written =
      millrace::writeNpy(folder / "missing" / "tensor.npy", HostTensor::zeros(HostType::Int8, {1}));
  ASSERT_FALSE(written);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

} // namespace
