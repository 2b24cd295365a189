// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which points of a tensor were written, each once. What kernels write is nearly always a product
// of arithmetic progressions, one a dimension, so that the writes of a tensor are a few such boxes:
// time and room grow with their number, not with that of the points. Where boxes meet, or an index
// is no progression, points are looked at one by one.
#pragma once

#include "compiler/Forms/Kernel.h"

#include <optional>
#include <string>
#include <vector>

namespace millrace::forms {

class WrittenPoints {
public:
  /// Adds what the kernel's parallel loops write through `access`. Empty, or what is wrong:
  /// "outside its shape", "twice at element 3".
  std::string add(const Kernel &kernel, const Tensor &tensor, const Access &access);
  /// The first element, row major, that nobody wrote; none if nobody wrote any.
  std::optional<int64_t> firstMissing(const Tensor &tensor) const;

private:
  /// start, start + step, ... `count` of them.
  struct Progression {
    int64_t start = 0, step = 1, count = 1;
    bool contains(int64_t index) const {
      return index >= start && (index - start) % step == 0 && (index - start) / step < count;
    }
  };
  using Box = std::vector<Progression>; ///< per dimension

  std::vector<Box> boxes; ///< no two of them meet
  std::vector<bool> bits; ///< by element; where it is not empty, it stands for all

  static std::optional<Box> boxOf(const Kernel &kernel, const Tensor &tensor, const Access &access);
  static bool meet(const Progression &a, const Progression &b);
  static bool meet(const Box &a, const Box &b);
  static void mark(const Tensor &tensor, const Box &box, std::vector<bool> &bits);
  std::vector<bool> allBits(const Tensor &tensor) const;
};

} // namespace millrace::forms
