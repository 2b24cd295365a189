// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a kernel graph gives, by its evaluation.
#pragma once

#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

namespace millrace::forms {

/// The elements of all outputs, one after the other.
inline std::vector<float> outputsOf(const KernelGraph &graph,
                                    const std::map<unsigned, TensorBytes> &inputs) {
  const Expected<std::vector<TensorBytes>> tensors = evaluate(graph, inputs);
  EXPECT_TRUE(tensors) << (tensors ? "" : tensors.error());
  std::vector<float> values;
  for (unsigned t = 0; tensors && t < graph.tensors.size(); ++t)
    if (const Tensor &tensor = graph.tensors[t]; tensor.role == TensorRole::Output)
      for (size_t i = 0; i < (*tensors)[t].size(); i += byteWidth(tensor.type)) {
        uint32_t bits = 0;
        std::memcpy(&bits, &(*tensors)[t][i], byteWidth(tensor.type));
        values.push_back(decode(tensor.type, bits));
      }
  return values;
}

} // namespace millrace::forms
