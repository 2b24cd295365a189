// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All operations that are imported. Each file Ops*.cpp adds one family to the table.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

#include <initializer_list>

namespace millrace::onnx_import {

void addArithmeticOps(HandlerTable &table);
void addActivationOps(HandlerTable &table);
void addConvolutionOps(HandlerTable &table);
void addConvTransposeOps(HandlerTable &table);
void addPoolingOps(HandlerTable &table);
void addMatMulOps(HandlerTable &table);
void addReductionOps(HandlerTable &table);
void addNormalizationOps(HandlerTable &table);
void addShapeOps(HandlerTable &table);
void addSliceOps(HandlerTable &table);
void addGatherOps(HandlerTable &table);
void addBlockQuantizedOps(HandlerTable &table);
void addFusedOps(HandlerTable &table);
void addConstantOps(HandlerTable &table);
void addQuantizationOps(HandlerTable &table);
void addAttentionOps(HandlerTable &table);
void addEmbeddingOps(HandlerTable &table);
void addEinsumOps(HandlerTable &table);
void addResizeOps(HandlerTable &table);
void addScatterOps(HandlerTable &table);
void addTopKOps(HandlerTable &table);
void addRecurrentOps(HandlerTable &table);
void addFourierOps(HandlerTable &table);
void addGridSampleOps(HandlerTable &table);
void addDeformConvOps(HandlerTable &table);
void addRoiAlignOps(HandlerTable &table);

/// "domain:type".
std::string handlerKey(std::string_view domain, std::string_view type);

/// The handler, after a check that these inputs are given: the ONNX library knows no schemas of
/// com.microsoft.
Handler needing(std::initializer_list<size_t> inputs, Handler handler);

/// What an operation of com.microsoft takes as an input, if that is given.
struct InputType {
  enum class Kind { Real, Byte, Index, Like };
  size_t input;
  Kind kind;
  std::optional<int64_t> rank;
  size_t other = 0; ///< Like: an input of the same type
};
inline InputType reals(size_t input, std::optional<int64_t> rank = std::nullopt) {
  return {input, InputType::Kind::Real, rank};
}
inline InputType bytes(size_t input, std::optional<int64_t> rank = std::nullopt) {
  return {input, InputType::Kind::Byte, rank};
}
inline InputType indices(size_t input, std::optional<int64_t> rank = std::nullopt) {
  return {input, InputType::Kind::Index, rank};
}
inline InputType like(size_t input, size_t other) {
  return {input, InputType::Kind::Like, std::nullopt, other};
}
/// The handler, after a check that inputs are of these types and ranks.
Handler typed(std::initializer_list<InputType> inputs, Handler handler);
/// That check by itself.
Status checkTypes(const NodeImporter &node, llvm::ArrayRef<InputType> inputs);

/// Axes that may be negative, counted from `rank`, as ascending non-negative ones; nothing if one
/// is out of range.
std::optional<Shape> normalAxes(llvm::ArrayRef<int64_t> axes, int64_t rank);
/// One axis; nothing if out of range.
std::optional<int64_t> normalAxis(int64_t axis, int64_t rank);
/// 0, 1, ..., rank - 1.
Shape allAxes(int64_t rank);

} // namespace millrace::onnx_import
