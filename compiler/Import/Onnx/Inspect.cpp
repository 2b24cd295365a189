// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Inspect.h"
#include "compiler/Import/Onnx/Narrow.h"

#include "compiler/Import/Onnx/External.h"
#include "compiler/Import/Onnx/GraphImporter.h"
#include "compiler/Import/Onnx/Inference.h"
#include "compiler/Import/Onnx/Order.h"
#include "compiler/Import/Onnx/Prepare.h"

#include <onnx/checker.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace millrace {

bool Inspection::hasErrors() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const ModelFinding &finding) { return finding.isError; });
}

namespace onnx_import {
namespace {

std::string shapeOf(const onnx::ValueInfoProto &value) {
  const auto &type = value.type().tensor_type();
  std::string text = value.name() + ": ";
  text += hostTypeOf(type.elem_type()) || type.elem_type()
              ? onnx::TensorProto_DataType_Name(type.elem_type())
              : std::string("unknown type");
  if (!type.has_shape())
    return text + " of unknown shape";
  text += " [";
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    const auto &dim = type.shape().dim(i);
    text += (i ? ", " : "") + (dim.has_dim_value()       ? std::to_string(dim.dim_value())
                               : dim.dim_param().empty() ? std::string("?")
                                                         : dim.dim_param());
  }
  return text + "]";
}

ModelSummary summaryOf(const onnx::ModelProto &model) {
  ModelSummary summary;
  summary.opset = opsetOf(model);
  summary.producer = model.producer_name();
  if (!model.producer_version().empty())
    summary.producer += " " + model.producer_version();
  summary.nodes = size_t(model.graph().node_size());
  for (const onnx::NodeProto &node : model.graph().node()) {
    const std::string domain(normalDomain(node));
    ++summary.operators[(domain.empty() ? "" : domain + ".") + node.op_type()];
  }
  std::set<std::string> constants;
  for (const onnx::TensorProto &tensor : model.graph().initializer()) {
    constants.insert(tensor.name());
    uint64_t elements = 1;
    for (int64_t extent : tensor.dims())
      elements *= uint64_t(std::max<int64_t>(extent, 0));
    summary.parameters += elements;
  }
  for (const onnx::ValueInfoProto &input : model.graph().input())
    if (!constants.contains(input.name()))
      summary.inputs.push_back(shapeOf(input));
  for (const onnx::ValueInfoProto &output : model.graph().output())
    summary.outputs.push_back(shapeOf(output));
  return summary;
}

class Inspector {
public:
  Inspector(const std::filesystem::path &path, const ImportOptions &options,
            mlir::MLIRContext &context)
      : path(path), options(options), context(context), handlers(makeHandlers()) {}

  Inspection run() {
    Expected<onnx::ModelProto> read = readModel(path);
    if (!read) {
      error("file", "", read.error());
      return std::move(result);
    }
    model = std::move(*read);
    result.summary = summaryOf(model);
    if (Status opset = checkOpset(model); !opset) {
      error("opset", "", opset.error());
      return std::move(result);
    }
    try {
      files();
      operators();
      attributes();
      order();
      types();
      adoptNewer(model, isSupported());
      checkEach();
      dimensions();
    } catch (const std::exception &failure) {
      error("file", "", oneLine(failure.what()) + "; correct the model or export it again");
    }
    if (!result.hasErrors())
      importAll();
    return std::move(result);
  }

private:
  void error(const char *kind, const std::string &node, const std::string &text) {
    for (const ModelFinding &known : result.findings)
      if (known.isError && known.text == text)
        return;
    result.findings.push_back({true, kind, node, text});
  }
  void error(const char *kind, const std::string &node, const Status &status) {
    if (!status)
      error(kind, node, status.error());
  }

  IsSupported isSupported() const {
    return [this](std::string_view domain, std::string_view type) {
      return handlers.contains(handlerKey(domain, type));
    };
  }

  void files() {
    for (const std::string &wrong : readAllExternal(model, path.parent_path()))
      error("data", "", wrong);
    if (!result.hasErrors())
      for (const std::string &wrong : widenConstants(*model.mutable_graph()))
        error("data", "", wrong);
  }

  void operators() {
    for (const UnknownOperation &unknown : unknownOperations(model, isSupported())) {
      isUnknown.insert(unknown.node);
      error("operator", unknown.node,
            unknown.type + " '" + unknown.node +
                "': the operation is not supported; rewrite the model without it");
    }
  }

  void attributes() {
    for (const std::string &wrong : attributeErrors(model))
      error("attribute", "", wrong);
  }

  void order() {
    const NodeOrder found = sortNodes(*model.mutable_graph());
    for (const std::string &value : found.unknown)
      error("order", "", value + "; correct the model or export it again");
    if (!found.cycle.empty())
      error("order", "",
            "nodes use each other's values: " + found.cycle +
                "; correct the model or export it again");
    else if (!found.early.empty())
      result.findings.push_back(
          {false, "order", found.early.front(),
           std::to_string(found.early.size()) +
               " nodes stand before one whose value they use, the first is '" +
               found.early.front() + "'; they are sorted when the model is compiled"});
  }

  void types() {
    const auto check = [this](const char *what, const std::string &name, int type) {
      if (!hostTypeOf(type))
        error("type", "",
              std::string(what) + " '" + name + "' has element type " +
                  onnx::TensorProto_DataType_Name(type) +
                  ", which is not supported; use floats, integers or bool");
    };
    std::set<std::string> constants;
    for (const onnx::TensorProto &tensor : model.graph().initializer()) {
      constants.insert(tensor.name());
      check("constant", tensor.name(), tensor.data_type());
    }
    for (const onnx::ValueInfoProto &input : model.graph().input()) {
      if (constants.contains(input.name()))
        continue;
      if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
        error("type", "",
              "input '" + input.name() +
                  "' is not a tensor of known rank; export it with its dimensions");
      else
        check("input", input.name(), input.type().tensor_type().elem_type());
    }
  }

  /// What the library's checker says of each node and constant by itself, then of the whole.
  void checkEach() {
    onnx::checker::CheckerContext checker;
    std::unordered_map<std::string, int> opsets;
    for (const auto &opset : model.opset_import())
      opsets[opset.domain() == "ai.onnx" ? "" : opset.domain()] = int(opset.version());
    checker.set_ir_version(int(model.ir_version()));
    checker.set_opset_imports(opsets);
    onnx::checker::LexicalScopeContext scope;
    const size_t before = result.findings.size();
    size_t index = 0;
    for (const onnx::NodeProto &node : model.graph().node()) {
      const std::string name = nodeName(node, index++);
      if (!isUnknown.contains(name))
        guarded("attribute", name, [&] { onnx::checker::check_node(node, checker, scope); });
    }
    for (const onnx::TensorProto &tensor : model.graph().initializer())
      if (tensor.data_location() != onnx::TensorProto::EXTERNAL)
        guarded("data", "", [&] { onnx::checker::check_tensor(tensor, checker); });
    if (result.findings.size() == before && !result.hasErrors())
      guarded("file", "", [&] { checkModel(model); });
  }

  template <class Check> void guarded(const char *kind, const std::string &node, Check check) {
    try {
      check();
    } catch (const std::exception &failure) {
      error(kind, node, oneLine(failure.what()) + "; correct the model or export it again");
    }
  }

  void dimensions() {
    for (const SymbolicDim &dim : symbolicDims(model.graph()))
      if (!options.dims.contains(dim.name))
        error("dimension", "",
              "dimension " + std::to_string(dim.axis) + " of input '" + dim.input +
                  "' is symbolic and has no value; give it by --dim " + dim.name + "=N");
    if (!result.hasErrors())
      error("dimension", "", bindDims(*model.mutable_graph(), options.dims));
    error("dimension", "", checkAllExtents(model.graph()));
  }

  /// Shapes of all nodes, then the nodes themselves.
  void importAll() {
    try {
      rewrite(model, isSupported());
    } catch (const std::exception &failure) {
      inferenceErrors(failure.what());
      return;
    }
    error("dimension", "", checkAllExtents(model.graph()));
    if (result.hasErrors())
      return;
    for (const NodeError &wrong : importErrors(model.graph(), handlers, context))
      error("node", wrong.node, wrong.text);
    result.isComplete = true;
  }

  /// Strict inference throws the errors of all nodes at once, a line each.
  void inferenceErrors(const std::string &text) {
    std::istringstream lines(text);
    std::string pending;
    const auto flush = [&] {
      if (const std::string line = oneLine(pending); !line.empty())
        error("type", "", line + "; correct the model or export it again");
      pending.clear();
    };
    for (std::string line; std::getline(lines, line);) {
      if (line.find("(op_type:") != line.npos)
        flush();
      pending += line + " ";
    }
    flush();
  }

  const std::filesystem::path &path;
  const ImportOptions &options;
  mlir::MLIRContext &context;
  const HandlerTable handlers;
  onnx::ModelProto model;
  std::set<std::string> isUnknown;
  Inspection result;
};

} // namespace
} // namespace onnx_import

Inspection inspectOnnx(const std::filesystem::path &path, const ImportOptions &options,
                       mlir::MLIRContext &context) {
  loadImportDialects(context);
  return onnx_import::Inspector(path, options, context).run();
}

} // namespace millrace
