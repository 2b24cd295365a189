// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Multiply-accumulates of ONNX operators, from the shapes of the model alone: whatever later stages
// make of a node, these are what the model asks for.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

namespace millrace::onnx_import {

/// Multiply-accumulates of `proto` once it is imported (results are set), dense and without padding
/// to any machine's sizes; 0 for an operator that contracts nothing. Saturates.
///
///   convolution  outputs x taps of one output, taps on the zero border included
///   transposed   inputs x taps of one channel's kernels
///   matmul       outputs x common extent
///   einsum       product of all extents, if an index of both operands is summed
///   attention    the projection where the operator holds one, then Q K^T and P V over all queries
///                and all keys, past ones included; a causal mask takes nothing off
///
/// Element-wise work, pooling, normalisation, interpolation and look-ups count nothing.
int64_t macsOf(const onnx::NodeProto &proto, const NodeImporter &node);

/// The operator as reports name it: "Conv", "com.microsoft.Attention"; of a node that ONNX made of
/// another operator's function body, that operator.
std::string operatorOf(const onnx::NodeProto &node);

/// Remembers that `node` is part of the function body of `operatorName`, for operatorOf().
void setOperator(onnx::NodeProto &node, const std::string &operatorName);

/// Whether the node's results depend on numbers, and not on shapes, of its inputs.
bool readsNumbers(const onnx::NodeProto &node);

} // namespace millrace::onnx_import
