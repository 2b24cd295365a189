// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One ONNX node while it is imported: what a handler reads (inputs, attributes) and writes
// (results).
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Import/Onnx/Arithmetic.h"
#include "compiler/Import/Onnx/Fold.h"
#include "compiler/Import/Onnx/TensorBuilder.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/HostTensor.h"

#include "llvm/ADT/StringMap.h"

#include <onnx/onnx_pb.h>

#include <functional>
#include <string_view>

namespace millrace::onnx_import {

/// A tensor of the graph: its value at the tensor level and its ONNX element type (which alone
/// knows signedness).
struct GraphValue {
  mlir::Value value; ///< null: an optional input that is absent
  HostType type = HostType::Float32;
};

/// The type that computes with `type`: 16-bit floats compute in f32, unsigned integers are
/// signless.
mlir::Type computeType(HostType type, mlir::MLIRContext *context);
/// The type as stored at the edges of the model.
mlir::Type storageType(HostType type, mlir::MLIRContext *context);
bool isUnsigned(HostType type);
bool isFloat(HostType type);
/// ONNX's element type number; nothing for types that Millrace does not store.
std::optional<HostType> hostTypeOf(int onnxType);
/// The tensor's elements as a constant of its compute type; an error for broken data.
Expected<mlir::ElementsAttr> importTensor(const onnx::TensorProto &tensor,
                                          mlir::MLIRContext *context);

class NodeImporter {
public:
  NodeImporter(const onnx::NodeProto &node, llvm::SmallVector<GraphValue> inputs,
               TensorBuilder &builder)
      : t(builder), node(node), inputs(std::move(inputs)), outputs(node.output_size()) {}

  TensorBuilder &t;

  size_t inputCount() const { return inputs.size(); }
  bool has(size_t i) const { return i < inputs.size() && inputs[i].value; }
  mlir::Value in(size_t i) const { return inputs[i].value; }
  HostType inType(size_t i) const { return inputs[i].type; }
  llvm::ArrayRef<int64_t> shape(size_t i) const { return shapeOf(inputs[i].value); }
  int64_t rank(size_t i) const { return static_cast<int64_t>(shape(i).size()); }
  /// The elements of a constant integer input (computed now if it follows from constants and has no
  /// more than `most`); nothing if not constant.
  std::optional<Shape> constantIntegers(size_t i, int64_t most = smallFoldedElements) const;
  std::optional<double> constantReal(size_t i) const;

  std::string_view type() const { return node.op_type(); }
  const onnx::AttributeProto *attribute(std::string_view name) const;
  int64_t getInt(std::string_view name, int64_t otherwise) const;
  double getFloat(std::string_view name, double otherwise) const;
  std::string getString(std::string_view name, std::string_view otherwise) const;
  Shape getInts(std::string_view name, llvm::ArrayRef<int64_t> otherwise = {}) const;

  size_t outputCount() const { return outputs.size(); }
  bool wants(size_t i) const {
    return i < outputs.size() && !node.output(static_cast<int>(i)).empty();
  }
  void set(size_t i, mlir::Value value, HostType type) { outputs[i] = {value, type}; }
  /// Sets result 0 to a value of the type of input 0.
  Status done(mlir::Value value) { return done(value, inputs[0].type); }
  Status done(mlir::Value value, HostType type) {
    set(0, value, type);
    return Success{};
  }
  const llvm::SmallVector<GraphValue> &results() const { return outputs; }

  /// "<op type> '<node>': <text>"
  Error error(const std::string &text) const;

private:
  const onnx::NodeProto &node;
  llvm::SmallVector<GraphValue> inputs, outputs;
};

/// A node's name, or `<type>_<index>` where it has none.
std::string nodeName(const onnx::NodeProto &node, size_t index);

using Handler = std::function<Status(NodeImporter &)>;
/// Handlers by "domain:type"; ai.onnx is the empty domain, so "Conv" is ":Conv".
using HandlerTable = llvm::StringMap<Handler>;

} // namespace millrace::onnx_import
