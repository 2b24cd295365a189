// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shape inference by the ONNX library, kept from what it does not survive.
#pragma once

#include "arch/spec/Expected.h"

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace millrace::onnx_import {

/// Of operations that ONNX Runtime knew in the standard domain before ONNX did, or knows there
/// alone: LayerNormalization before opset 17, SimplifiedLayerNormalization.
inline constexpr const char *newerDomain = "ai.onnx.newer";

/// Refuses attributes that ONNX 1.23.2 neither checks nor survives, in the graph, its subgraphs and
/// the model's functions: an Einsum equation with anything but what equations are made of (a zero
/// byte is never got past), and an axis beyond any rank (it is narrowed, then used as an index).
Status checkAttributes(const onnx::ModelProto &model);
/// All of them, a line each.
std::vector<std::string> attributeErrors(const onnx::ModelProto &model);

/// Infers types and shapes, following the numbers in shape computations. Throws what ONNX throws.
void inferShapes(onnx::ModelProto &model);

} // namespace millrace::onnx_import
