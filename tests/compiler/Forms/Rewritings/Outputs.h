// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Evaluate.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace millrace::forms {

/// Bytes of every output, by host or own name.
inline std::map<std::string, TensorBytes> outputsOf(const KernelGraph &graph,
                                                    const std::map<unsigned, TensorBytes> &inputs) {
  std::map<std::string, TensorBytes> outputs;
  EXPECT_EQ(graph.verify(), "");
  Expected<std::vector<TensorBytes>> all = evaluate(graph, inputs);
  EXPECT_TRUE(all) << (all ? "" : all.error());
  for (unsigned t = 0; all && t < graph.tensors.size(); ++t)
    if (graph.tensors[t].role == TensorRole::Output)
      outputs[graph.tensors[t].name] = (*all)[t];
  return outputs;
}

} // namespace millrace::forms
