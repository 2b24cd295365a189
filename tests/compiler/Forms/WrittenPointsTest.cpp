// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/WrittenPoints.h"

#include "compiler/Forms/KernelBuilder.h"

#include <gtest/gtest.h>

#include <random>

using namespace millrace::forms;

namespace {

/// What add() says, of points one by one.
std::string addOneByOne(const Kernel &kernel, const Tensor &tensor, const Access &access,
                        std::vector<bool> &bits) {
  std::vector<unsigned> loops;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    loops.push_back(l);
  std::string error;
  forEachPoint(kernel, loops, [&](const std::vector<int64_t> &point) {
    const int64_t element = linearOffset(tensor, access, point);
    if (element < 0)
      error = "outside its shape";
    else if (bits[size_t(element)])
      error = "twice at element " + std::to_string(element);
    else
      bits[size_t(element)] = true;
    return error.empty();
  });
  return error;
}

/// Writes that are often right: a dimension whole, a half of it, every second index, two digits.
Access randomWrite(std::mt19937_64 &random, const Tensor &tensor, Kernel &kernel) {
  const auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  Access access{0, {}, 0};
  const auto loop = [&](int64_t extent) {
    kernel.loops.push_back({extent, LoopKind::Parallel});
    return unsigned(kernel.loops.size() - 1);
  };
  for (int64_t extent : tensor.shape) {
    AffineIndex index;
    switch (below(6)) {
    case 0:
      index = at(loop((extent + 1) / 2), 2, below(2));
      break;
    case 1:
      index = at(loop(std::max<int64_t>(1, extent / 2)), 1, below(2) * (extent / 2));
      break;
    case 2:
      index = {0, {{loop(2), extent / 2}, {loop(std::max<int64_t>(1, extent / 2)), 1}}};
      break;
    case 3:
      index = {below(2), {{loop(2), 1 + below(3)}, {loop(2), 1 + below(3)}}};
      break;
    default:
      index = at(loop(extent));
    }
    std::erase_if(index.terms, [](auto term) { return term.second == 0; });
    access.index.push_back(index);
  }
  return access;
}

TEST(WrittenPoints, SaysWhatPointsOneByOneSay) {
  unsigned right = 0, wrong = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    std::mt19937_64 random(seed);
    Tensor tensor;
    for (uint64_t d = 0; d < 1 + seed % 3; ++d)
      tensor.shape.push_back(int64_t(1 + random() % 7));
    WrittenPoints written;
    std::vector<bool> bits(size_t(elementCount(tensor)));
    for (int i = 0; i < 5; ++i) {
      Kernel kernel;
      const Access access = randomWrite(random, tensor, kernel);
      const std::string expected = addOneByOne(kernel, tensor, access, bits);
      ASSERT_EQ(written.add(kernel, tensor, access), expected) << seed;
      if (!expected.empty()) {
        ++wrong;
        break;
      }
      ++right;
      const auto missing = std::find(bits.begin(), bits.end(), false);
      ASSERT_EQ(written.firstMissing(tensor).value_or(-1),
                missing == bits.end() ? -1 : missing - bits.begin())
          << seed;
    }
  }
  EXPECT_GT(right, 1000u);
  EXPECT_GT(wrong, 1000u);
}

} // namespace
