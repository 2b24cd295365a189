// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of a graph's nodes. ONNX asks for one in which values are computed before they are
// used; ONNX Runtime accepts others, and its float16 converter writes them.
#pragma once

#include "arch/spec/Expected.h"

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace millrace::onnx_import {

/// What was wrong with an order.
struct NodeOrder {
  std::vector<std::string> early;   ///< nodes that stood before one whose value they use
  std::vector<std::string> unknown; ///< values that nothing computes, each in a sentence
  std::string cycle;                ///< nodes that use each other's values; empty: there are none
  /// An error if the nodes have no order at all, with all reasons.
  Status status() const;
};

/// Sorts the nodes: each comes as early as the values that it uses allow, nodes that need not move
/// stay in their order. Where there is no such order the graph is left as it is.
NodeOrder sortNodes(onnx::GraphProto &graph);

} // namespace millrace::onnx_import
