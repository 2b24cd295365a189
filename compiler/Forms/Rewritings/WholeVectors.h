// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include <vector>

namespace millrace::forms {

/// Which tensors' rows are taken vector by vector, wherever only some of their lanes are. Where one
/// is not (a concatenation of rows of other lengths), its vectors, once added to each other, would be
/// cut where any of them is, and so would all rows that meet them lane by lane, back to where they
/// come from: products then sweep many short tiles. Of the graph as it is at construction; what is
/// added to it later counts as taken so.
class WholeVectors {
public:
  /// Of `vector` lanes each.
  WholeVectors(const KernelGraph &graph, int64_t vector);
  /// Are the tensor's rows, and those of all that it is mapped from?
  bool areIn(unsigned tensor) const;

private:
  std::vector<bool> isCut;
  std::vector<std::vector<unsigned>> sources; ///< what kernels that write a tensor map
};

} // namespace millrace::forms
