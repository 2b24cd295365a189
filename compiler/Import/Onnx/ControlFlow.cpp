// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// If, Loop and Scan: a program has no branches, so that what decides must follow from constants. A
// branch that is taken, and each turn of a loop, is imported where it stands.
#include "compiler/Import/Onnx/Fold.h"
#include "compiler/Import/Onnx/GraphImporter.h"
#include "compiler/Support/Constants.h"

#include <algorithm>
#include <limits>

using namespace mlir;

namespace millrace::onnx_import {

Expected<GraphImporter::Values>
GraphImporter::importBody(const onnx::GraphProto &body, ArrayRef<GraphValue> inputs, bool varies) {
  constexpr int64_t kMostNodes = 100'000;
  if (int64_t(inputs.size()) != body.input_size())
    return Error{"its body '" + body.name() + "' has " + std::to_string(body.input_size()) +
                 " inputs for " + std::to_string(inputs.size()) + " values"};
  if ((nodesInBodies += body.node_size()) > kMostNodes)
    return Error{"its turns have more than " + std::to_string(kMostNodes) +
                 " nodes; export it with fewer, or without a loop"};
  for (const onnx::TensorProto &tensor : body.initializer())
    initializers[tensor.name()] = &tensor;
  for (auto [input, value] : llvm::zip_equal(body.input(), inputs)) {
    values[input.name()] = value;
    if (varies)
      varying.insert(input.name());
  }
  for (const auto &[index, node] : llvm::enumerate(body.node())) {
    if (!handlers.contains(handlerKey(normalDomain(node), node.op_type())))
      return Error{"its body holds " + node.op_type() + ", which is not supported there"};
    if (Status imported = importNode(node, index); !imported)
      return imported.takeError();
  }
  Values outputs;
  for (const onnx::ValueInfoProto &output : body.output()) {
    Expected<GraphValue> value = lookUp(output.name());
    if (!value)
      return value.takeError();
    outputs.push_back(*value);
  }
  return outputs;
}

/// The one number that a value is, if it follows from constants.
static std::optional<int64_t> constantNumber(const GraphValue &value) {
  const std::optional<ConstantView> view =
      value.value ? viewConstant(foldValue(value.value)) : std::nullopt;
  if (!view || view->type.getNumElements() != 1 || !view->type.getElementType().isInteger())
    return std::nullopt;
  return view->integer(0);
}

/// The branch that a constant names.
Expected<GraphImporter::Values> GraphImporter::importIf(NodeImporter &node) {
  const std::optional<int64_t> condition = constantNumber({node.in(0), node.inType(0)});
  if (!condition)
    return Error{"its condition is known at run time, but a program has no branches; export the "
                 "branch that is meant"};
  const onnx::AttributeProto *branch = node.attribute(*condition ? "then_branch" : "else_branch");
  if (!branch)
    return Error{"the branch that is meant is missing"};
  return importBody(branch->g(), {}, false);
}

/// A slice per turn, stacked in the order of turns or against it along a new dimension.
static Value stacked(TensorBuilder &t, ArrayRef<GraphValue> slices, int64_t axis, bool isReversed) {
  SmallVector<Value> parts;
  for (const GraphValue &slice : slices) {
    Shape shape(shapeOf(slice.value));
    shape.insert(shape.begin() + axis, 1);
    parts.push_back(t.reshape(slice.value, shape));
  }
  if (isReversed)
    std::reverse(parts.begin(), parts.end());
  return t.concat(parts, axis);
}

/// Turn by turn. Inputs: how often at most, whether at all, and what is carried from turn to turn.
Expected<GraphImporter::Values> GraphImporter::importLoop(NodeImporter &node, bool varies) {
  if (!node.attribute("body"))
    return Error{"its body is missing"};
  const onnx::GraphProto &body = node.attribute("body")->g();
  const Type i64 = builder.getI64Type();
  std::optional<int64_t> most = std::numeric_limits<int64_t>::max(), goesOn = 1;
  if (node.has(0))
    most = constantNumber({node.in(0), node.inType(0)});
  if (node.has(1))
    goesOn = constantNumber({node.in(1), node.inType(1)});
  Values carried;
  for (size_t i = 2; i < node.inputCount(); ++i)
    carried.push_back({node.in(i), node.inType(i)});
  const size_t states = carried.size();
  std::vector<Values> collected(
      size_t(std::max<int64_t>(0, body.output_size() - 1 - int64_t(states))));
  for (int64_t turn = 0;; ++turn) {
    if (!most || !goesOn)
      return Error{"how often it turns is known at run time; export it with constants"};
    if (turn >= *most || !*goesOn)
      break;
    Values inputs{{tensors.splat({}, i64, double(turn)), HostType::Int64},
                  {tensors.splat({}, builder.getI1Type(), 1), HostType::Bool}};
    inputs.append(carried);
    Expected<Values> outputs = importBody(body, inputs, varies);
    if (!outputs)
      return outputs;
    if (outputs->size() != 1 + states + collected.size())
      return Error{"its body has " + std::to_string(outputs->size()) + " outputs"};
    goesOn = constantNumber(outputs->front());
    carried.assign(outputs->begin() + 1, outputs->begin() + 1 + std::ptrdiff_t(states));
    for (size_t k = 0; k < collected.size(); ++k)
      collected[k].push_back((*outputs)[1 + states + k]);
  }
  for (const Values &slices : collected) {
    if (slices.empty())
      return Error{"it never turns, but collects slices; export it without"};
    carried.push_back({stacked(tensors, slices, 0, false), slices.front().type});
  }
  return carried;
}

/// Turn by turn, over slices of the last inputs.
Expected<GraphImporter::Values> GraphImporter::importScan(NodeImporter &node, bool varies) {
  if (!node.attribute("body"))
    return Error{"its body is missing"};
  const onnx::GraphProto &body = node.attribute("body")->g();
  const int64_t scanned = node.getInt("num_scan_inputs", 0);
  if (scanned < 1 || size_t(scanned) > node.inputCount())
    return Error{"it scans " + std::to_string(scanned) + " inputs"};
  const size_t states = node.inputCount() - size_t(scanned);
  const auto listed = [&](const char *name, size_t at) {
    const Shape list = node.getInts(name);
    return at < list.size() ? list[at] : 0;
  };
  Values carried;
  for (size_t i = 0; i < states; ++i)
    carried.push_back({node.in(i), node.inType(i)});
  std::optional<int64_t> turns;
  SmallVector<int64_t> axes;
  for (size_t k = 0; k < size_t(scanned); ++k) {
    const size_t i = states + k;
    const auto axis = normalAxis(listed("scan_input_axes", k), node.rank(i));
    if (!axis || (turns && *turns != node.shape(i)[*axis]))
      return Error{"its inputs have no dimension of one length to scan"};
    axes.push_back(*axis);
    turns = node.shape(i)[*axis];
  }
  std::vector<Values> collected(size_t(std::max<int64_t>(0, body.output_size() - int64_t(states))));
  for (int64_t turn = 0; turn < *turns; ++turn) {
    Values inputs(carried);
    for (size_t k = 0; k < size_t(scanned); ++k) {
      const size_t i = states + k;
      const int64_t at = listed("scan_input_directions", k) ? *turns - 1 - turn : turn;
      Shape shape(node.shape(i));
      shape.erase(shape.begin() + axes[k]);
      inputs.push_back(
          {tensors.reshape(tensors.sliceAxis(node.in(i), axes[k], at, 1), shape), node.inType(i)});
    }
    Expected<Values> outputs = importBody(body, inputs, varies);
    if (!outputs)
      return outputs;
    if (outputs->size() != states + collected.size())
      return Error{"its body has " + std::to_string(outputs->size()) + " outputs"};
    carried.assign(outputs->begin(), outputs->begin() + std::ptrdiff_t(states));
    for (size_t k = 0; k < collected.size(); ++k)
      collected[k].push_back((*outputs)[states + k]);
  }
  for (const auto &[k, slices] : llvm::enumerate(collected)) {
    const auto axis = slices.empty()
                          ? std::nullopt
                          : normalAxis(listed("scan_output_axes", k),
                                       int64_t(shapeOf(slices.front().value).size()) + 1);
    if (!axis)
      return Error{"it collects no slices, or along no dimension of theirs"};
    carried.push_back({stacked(tensors, slices, *axis, listed("scan_output_directions", k) != 0),
                       slices.front().type});
  }
  return carried;
}

Status GraphImporter::importControlFlow(const onnx::NodeProto &node, NodeImporter &importer) {
  const bool varies =
      llvm::any_of(node.input(), [&](const std::string &input) { return varying.contains(input); });
  Expected<Values> outputs = node.op_type() == "If"     ? importIf(importer)
                             : node.op_type() == "Loop" ? importLoop(importer, varies)
                                                        : importScan(importer, varies);
  if (!outputs)
    return importer.error(outputs.error());
  if (!tensors.failure().empty())
    return importer.error(tensors.failure());
  for (auto [i, output] : llvm::enumerate(node.output())) {
    if (output.empty())
      continue;
    if (i >= outputs->size() || !(*outputs)[i].value)
      return importer.error("output " + std::to_string(i) + " is not supported");
    values[output] = (*outputs)[i];
    varying.insert(output); // a body reads values that are no inputs
  }
  return Success{};
}

} // namespace millrace::onnx_import
