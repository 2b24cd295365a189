// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/NodeImporter.h"

#include "compiler/Import/Onnx/Fold.h"

namespace millrace::onnx_import {

const onnx::AttributeProto *NodeImporter::attribute(std::string_view name) const {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

int64_t NodeImporter::getInt(std::string_view name, int64_t otherwise) const {
  const onnx::AttributeProto *found = attribute(name);
  return found ? found->i() : otherwise;
}

double NodeImporter::getFloat(std::string_view name, double otherwise) const {
  const onnx::AttributeProto *found = attribute(name);
  return found ? found->f() : otherwise;
}

std::string NodeImporter::getString(std::string_view name, std::string_view otherwise) const {
  const onnx::AttributeProto *found = attribute(name);
  return found ? found->s() : std::string(otherwise);
}

Shape NodeImporter::getInts(std::string_view name, llvm::ArrayRef<int64_t> otherwise) const {
  const onnx::AttributeProto *found = attribute(name);
  return found ? Shape(found->ints().begin(), found->ints().end()) : Shape(otherwise);
}

std::optional<Shape> NodeImporter::constantIntegers(size_t i, int64_t most) const {
  std::optional<ConstantView> view = viewConstant(foldValue(in(i), most));
  if (!view || !view->type.getElementType().isInteger())
    return std::nullopt;
  Shape values;
  for (int64_t k = 0; k < view->type.getNumElements(); ++k)
    values.push_back(view->integer(k));
  return values;
}

std::optional<double> NodeImporter::constantReal(size_t i) const {
  std::optional<ConstantView> view = viewConstant(foldValue(in(i)));
  if (!view || view->type.getNumElements() != 1)
    return std::nullopt;
  return mlir::isa<mlir::FloatType>(view->type.getElementType())
             ? view->real(0)
             : static_cast<double>(view->integer(0));
}

Error NodeImporter::error(const std::string &text) const {
  const std::string &name =
      node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  return Error{node.op_type() + " '" + name + "': " + text};
}

std::string nodeName(const onnx::NodeProto &node, size_t index) {
  return node.name().empty() ? node.op_type() + "_" + std::to_string(index) : node.name();
}

} // namespace millrace::onnx_import
