// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Prepare.h"

#include "compiler/Import/Onnx/External.h"
#include "compiler/Import/Onnx/Inference.h"
#include "compiler/Import/Onnx/Macs.h"
#include "compiler/Import/Onnx/Narrow.h"
#include "compiler/Import/Onnx/NodeImporter.h"
#include "compiler/Import/Onnx/Order.h"

#include <onnx/checker.h>
#include <onnx/common/file_utils.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/version_converter/convert.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <set>
#include <unordered_map>

namespace millrace::onnx_import {
namespace {

constexpr int oldestOpset = 7;
constexpr const char *standardInput = "-";

} // namespace

Expected<onnx::ModelProto> readModel(const std::filesystem::path &path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return Error{"is a folder; name the .onnx file in it"};
  std::ifstream file;
  if (path != standardInput)
    file.open(path, std::ios::binary);
  std::istream &in = path == standardInput ? std::cin : file;
  if (!in)
    return Error{std::string("cannot be read: ") + std::strerror(errno) + "; check the path"};
  onnx::ModelProto model;
  if (!model.ParseFromIstream(&in))
    return Error{
        "not an ONNX model, or cut off (protobuf cannot parse it); copy or export it again"};
  if (!model.has_graph() || model.graph().node_size() == 0)
    return Error{"not an ONNX model (it has no graph); export it again"};
  if (model.graph().output_size() == 0)
    return Error{"the graph has no outputs; export it with at least one"};
  return model;
}

namespace {

std::set<std::string> initializerNames(const onnx::GraphProto &graph) {
  std::set<std::string> names;
  for (const onnx::TensorProto &tensor : graph.initializer())
    names.insert(tensor.name());
  return names;
}

} // namespace

/// The checker wants a shape of every output, which nothing needs and some exporters leave out.
void checkModel(onnx::ModelProto &model) {
  std::vector<onnx::TypeProto::Tensor *> shapeless;
  for (onnx::ValueInfoProto &output : *model.mutable_graph()->mutable_output())
    if (output.type().has_tensor_type() && !output.type().tensor_type().has_shape())
      shapeless.push_back(output.mutable_type()->mutable_tensor_type());
  for (onnx::TypeProto::Tensor *type : shapeless)
    type->mutable_shape();
  onnx::checker::check_model(model);
  for (onnx::TypeProto::Tensor *type : shapeless)
    type->clear_shape();
}

/// What a dimension is called by its place: input.0, input.1, ...
static std::string placeOf(const std::string &input, int axis) {
  return input + "." + std::to_string(axis);
}

std::vector<SymbolicDim> symbolicDims(const onnx::GraphProto &graph) {
  const std::set<std::string> constants = initializerNames(graph);
  std::vector<SymbolicDim> dims;
  for (const onnx::ValueInfoProto &input : graph.input()) {
    if (constants.contains(input.name()))
      continue;
    const auto &shape = input.type().tensor_type().shape();
    for (int i = 0; i < shape.dim_size(); ++i)
      if (const auto &dim = shape.dim(i); !dim.has_dim_value() || dim.dim_value() < 0) {
        const std::string &name = dim.dim_param(); // "?" names nothing, though Paddle writes it
        dims.push_back({name.empty() || name == "?" ? placeOf(input.name(), i) : name, input.name(),
                        i});
      }
  }
  return dims;
}

/// Gives symbolic dimensions their values. Shapes that follow (outputs, intermediate values) are
/// forgotten instead: shape inference finds them again.
Status bindDims(onnx::GraphProto &graph, const std::map<std::string, int64_t> &dims) {
  const std::set<std::string> constants = initializerNames(graph);
  std::map<std::string, onnx::ValueInfoProto *> inputs;
  for (onnx::ValueInfoProto &input : *graph.mutable_input()) {
    if (constants.contains(input.name()))
      continue;
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
      return Error{"input '" + input.name() + "' is not a tensor of known rank"};
    inputs[input.name()] = &input;
  }
  std::set<std::string> missing, known;
  for (const SymbolicDim &dim : symbolicDims(graph)) {
    known.insert(dim.name);
    known.insert(placeOf(dim.input, dim.axis));
    auto &shape = *inputs[dim.input]->mutable_type()->mutable_tensor_type()->mutable_shape();
    auto found = dims.find(placeOf(dim.input, dim.axis));
    if (found == dims.end())
      found = dims.find(dim.name);
    if (found != dims.end())
      shape.mutable_dim(dim.axis)->set_dim_value(found->second);
    else
      missing.insert(dim.name);
  }
  if (!missing.empty()) {
    std::string list;
    for (const std::string &name : missing)
      list += (list.empty() ? "" : ", ") + name;
    return Error{"symbolic dimensions without a value: " + list + "; give each by --dim name=n"};
  }
  for (const auto &[name, value] : dims) {
    if (!known.contains(name))
      return Error{"--dim " + name + "=" + std::to_string(value) +
                   ": no input has a dimension of that name"};
    if (value < 0)
      return Error{"--dim " + name + "=" + std::to_string(value) + ": a dimension is at least 0"};
  }
  if (dims.empty())
    return Success{};
  graph.clear_value_info();
  for (onnx::ValueInfoProto &output : *graph.mutable_output())
    output.mutable_type()->mutable_tensor_type()->clear_shape();
  return Success{};
}

namespace {

/// Keeps large weights aside while the model is rewritten: nothing there reads them, everything
/// would copy them.
class LiftedWeights {
public:
  explicit LiftedWeights(onnx::GraphProto &graph) {
    for (onnx::TensorProto &tensor : *graph.mutable_initializer())
      if (tensor.raw_data().size() > smallestLifted)
        bytes[tensor.name()].swap(*tensor.mutable_raw_data());
  }
  void putBack(onnx::GraphProto &graph) {
    for (onnx::TensorProto &tensor : *graph.mutable_initializer())
      if (auto found = bytes.find(tensor.name()); found != bytes.end())
        tensor.mutable_raw_data()->swap(found->second);
  }

private:
  static constexpr size_t smallestLifted = 4096;
  std::unordered_map<std::string, std::string> bytes;
};

} // namespace

int64_t opsetOf(const onnx::ModelProto &model) {
  for (const auto &opset : model.opset_import())
    if (opset.domain().empty() || opset.domain() == "ai.onnx")
      return opset.version();
  return 0;
}

static int newestOpset() {
  return onnx::OpSchemaRegistry::DomainToVersionRange::Instance()
      .Map()
      .at(onnx::ONNX_DOMAIN)
      .second;
}

Status checkOpset(const onnx::ModelProto &model) {
  const int64_t opset = opsetOf(model);
  if (opset == 0 || (opset >= oldestOpset && opset <= newestOpset()))
    return Success{};
  return Error{"opset " + std::to_string(opset) + " is not supported; opsets " +
               std::to_string(oldestOpset) + " to " + std::to_string(newestOpset()) +
               " are; convert it with onnx.version_converter"};
}

void adoptNewer(onnx::ModelProto &model, const IsSupported &isSupported) {
  if (opsetOf(model) == 0) // which the model's check names
    return;
  bool adopted = false;
  for (onnx::NodeProto &node : *model.mutable_graph()->mutable_node()) {
    if (!normalDomain(node).empty() || !isSupported("", node.op_type()) ||
        onnx::OpSchemaRegistry::Schema(node.op_type(), int(opsetOf(model)), ""))
      continue;
    // The model's check knows nothing of that domain: its inputs are counted here.
    if (const onnx::OpSchema *newest = onnx::OpSchemaRegistry::Schema(node.op_type(), ""))
      newest->Verify(node);
    node.set_domain(newerDomain);
    adopted = true;
  }
  if (!adopted)
    return;
  onnx::OperatorSetIdProto &opset = *model.add_opset_import();
  opset.set_domain(newerDomain);
  opset.set_version(1);
}

namespace {

/// The inliner looks types up in the graph's inputs and value infos, and attributes in the node:
/// constants and attributes with default values must be spelled out for it.
void spellOut(onnx::GraphProto &graph, const IsSupported &isSupported, int opset) {
  std::set<std::string> known;
  for (const auto *list : {&graph.input(), &graph.value_info()})
    for (const onnx::ValueInfoProto &info : *list)
      known.insert(info.name());
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    if (known.contains(tensor.name()))
      continue;
    onnx::ValueInfoProto &info = *graph.add_value_info();
    info.set_name(tensor.name());
    auto &type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(tensor.data_type());
    for (int64_t extent : tensor.dims())
      type.mutable_shape()->add_dim()->set_dim_value(extent);
  }
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    const onnx::OpSchema *schema =
        onnx::OpSchemaRegistry::Schema(node.op_type(), opset, node.domain());
    if (!schema || isSupported(normalDomain(node), node.op_type()))
      continue;
    std::set<std::string> given;
    for (const onnx::AttributeProto &attribute : node.attribute())
      given.insert(attribute.name());
    for (const auto &[name, attribute] : schema->attributes())
      if (!given.contains(name) && attribute.default_value.has_type())
        *node.add_attribute() = attribute.default_value;
  }
}

/// A node before functions are inlined.
struct Called {
  std::string name, type;
  std::vector<std::string> outputs;
  bool isInlined = false;
};

std::vector<Called> calledOf(const onnx::GraphProto &graph, const IsSupported &isSupported) {
  std::vector<Called> all;
  for (const onnx::NodeProto &node : graph.node())
    all.push_back({nodeName(node, all.size()),
                   operatorOf(node),
                   {node.output().begin(), node.output().end()},
                   !isSupported(normalDomain(node), node.op_type())});
  return all;
}

/// The nodes of a function body have no names. They get their caller's, with their place in the
/// body, and remember its operator: reports name what is in the model. A body stands where its
/// caller stood, and makes its outputs under their names.
void nameInlined(onnx::GraphProto &graph, const std::vector<Called> &before) {
  size_t at = 0, place = 0;
  std::set<std::string> missing; ///< outputs of the caller at `at` that its body is yet to make
  const auto advance = [&](size_t to) {
    at = to, place = 0, missing.clear();
    if (at < before.size())
      missing.insert(before[at].outputs.begin(), before[at].outputs.end());
    missing.erase("");
  };
  advance(0);
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    const auto isSame = [&](const Called &called) {
      return !called.isInlined && std::equal(called.outputs.begin(), called.outputs.end(),
                                             node.output().begin(), node.output().end());
    };
    // What follows the last output belongs to the body if it is not the next node.
    if (at + 1 < before.size() && before[at].isInlined && missing.empty() &&
        (isSame(before[at + 1]) || before[at + 1].isInlined))
      advance(at + 1);
    if (at >= before.size())
      return;
    if (isSame(before[at])) {
      advance(at + 1);
      continue;
    }
    if (node.name().empty())
      node.set_name(before[at].name + "/" + nodeName(node, place));
    setOperator(node, before[at].type);
    ++place;
    for (const std::string &output : node.output())
      missing.erase(output);
  }
}

/// Replaces the operations by their function bodies. The inliner asks for the type of every input
/// of a node, and an optional input that is left out before another has no name: that name gets a
/// type meanwhile.
void inlineFunctions(onnx::ModelProto &model, const onnx::inliner::FunctionIdSet &functions) {
  auto &types = *model.mutable_graph()->mutable_value_info();
  types.Add()->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  onnx::inliner::InlineSelectedFunctions(model, functions, onnx::OpSchemaRegistry::Instance());
  for (int i = types.size() - 1; i >= 0; --i)
    if (types[i].name().empty())
      types.DeleteSubrange(i, 1);
}

/// Replaces operations without a handler by their function bodies, which may again hold such
/// operations.
void inlineUnsupported(onnx::ModelProto &model, const IsSupported &isSupported) {
  constexpr int deepestNesting = 8;
  for (int depth = 0; depth < deepestNesting; ++depth) {
    std::set<onnx::inliner::FunctionId> unsupported;
    for (const onnx::NodeProto &node : model.graph().node())
      if (!isSupported(normalDomain(node), node.op_type()))
        unsupported.insert({node.domain(), node.op_type()});
    if (unsupported.empty())
      return;
    spellOut(*model.mutable_graph(), isSupported, newestOpset());
    inferShapes(model);
    const std::vector<Called> before = calledOf(model.graph(), isSupported);
    auto selected = onnx::inliner::FunctionIdSet::Create({unsupported.begin(), unsupported.end()});
    inlineFunctions(model, *selected);
    nameInlined(*model.mutable_graph(), before);
    if (size_t(model.graph().node_size()) == before.size())
      return;
  }
}

/// Forgets the shapes of all that is computed: another opset may infer others (pooling with
/// ceil_mode does since 22). Element types stay, the inliner reads them.
void forgetShapes(onnx::GraphProto &graph) {
  for (auto *list : {graph.mutable_value_info(), graph.mutable_output()})
    for (onnx::ValueInfoProto &value : *list)
      if (value.type().has_tensor_type())
        value.mutable_type()->mutable_tensor_type()->clear_shape();
}

/// Until opset 10 Resize (and Upsample, which became Resize) knew one rule of coordinates. The
/// library's converter does not write it down, and the defaults since opset 11 are others. "simple"
/// is no mode of ONNX: the handler knows it.
void spellOutResize(onnx::GraphProto &graph) {
  constexpr std::pair<const char *, const char *> rule[] = {
      {"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "simple"}};
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    if (node.op_type() != "Resize" || !normalDomain(node).empty())
      continue;
    for (const auto &[name, value] : rule) {
      onnx::AttributeProto &attribute = *node.add_attribute();
      attribute.set_name(name);
      attribute.set_type(onnx::AttributeProto::STRING);
      attribute.set_s(value);
    }
  }
}

/// The library's inference takes what STFT leaves out for 0, and its default is 1.
void spellOutOneSided(onnx::GraphProto &graph) {
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    const auto isOneSided = [](const onnx::AttributeProto &a) { return a.name() == "onesided"; };
    if (node.op_type() != "STFT" || std::ranges::any_of(node.attribute(), isOneSided))
      continue;
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name("onesided");
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(1);
  }
}

} // namespace

void rewrite(onnx::ModelProto &model, const IsSupported &isSupported) {
  onnx::inliner::InlineLocalFunctions(model, /*convert_version=*/true);
  int target = newestOpset();
  if (int64_t opset = opsetOf(model); opset != 0 && opset != target) {
    model = onnx::version_conversion::ConvertVersion(model, target);
    forgetShapes(*model.mutable_graph());
    if (opset <= 10)
      spellOutResize(*model.mutable_graph());
  }
  inlineUnsupported(model, isSupported);
  spellOutOneSided(*model.mutable_graph());
  inferShapes(model);
}

namespace {

/// Whether ONNX may replace the operation: by its function body, or because newer opsets dropped
/// it.
bool mayBecomeOthers(const std::string &type, const std::string &domain, int64_t opset) {
  using Registry = onnx::OpSchemaRegistry;
  const onnx::OpSchema *schema = Registry::Schema(type, newestOpset(), domain);
  if (!schema || schema->Deprecated())
    return Registry::Schema(type, int(opset), domain) != nullptr;
  return schema->HasFunction() || schema->HasContextDependentFunction();
}

} // namespace

std::vector<UnknownOperation> unknownOperations(const onnx::ModelProto &model,
                                                const IsSupported &isSupported) {
  std::set<std::pair<std::string, std::string>> functions;
  for (const onnx::FunctionProto &function : model.functions())
    functions.insert({function.domain(), function.name()});
  std::vector<UnknownOperation> unknown;
  size_t index = 0;
  for (const onnx::NodeProto &node : model.graph().node()) {
    const std::string domain(normalDomain(node));
    const std::string name = nodeName(node, index++);
    if (isSupported(domain, node.op_type()) ||
        functions.contains({node.domain(), node.op_type()}) ||
        mayBecomeOthers(node.op_type(), domain, opsetOf(model)))
      continue;
    unknown.push_back({(domain.empty() ? "" : domain + ".") + node.op_type(), name});
  }
  return unknown;
}

namespace {

/// All at once: the checker would stop at the first one.
Status checkKnown(const onnx::ModelProto &model, const IsSupported &isSupported) {
  std::string list;
  for (const UnknownOperation &unknown : unknownOperations(model, isSupported))
    list += (list.empty() ? "" : ", ") + unknown.type + " (node '" + unknown.node + "')";
  if (!list.empty())
    return Error{"operations that are not supported: " + list + "; rewrite the model without them"};
  return Success{};
}

/// A tensor that no memory could hold, or that cannot exist, is refused before loops run over it.
Status checkExtents(const onnx::ValueInfoProto &value, const char *what) {
  int64_t elements = 1;
  for (const auto &dim : value.type().tensor_type().shape().dim()) {
    if (!dim.has_dim_value())
      continue;
    const int64_t extent = dim.dim_value();
    const std::string text =
        std::string(what) + " '" + value.name() + "' has a dimension of " + std::to_string(extent);
    if (extent < 0)
      return Error{text + "; export the model again"};
    if (extent == 0)
      continue; // no element at all, but the other extents are computed with
    if (elements > kMostElements / extent)
      return Error{text + ", which makes more than 2^36 elements; use smaller extents"};
    elements *= extent;
  }
  return Success{};
}

} // namespace

Status checkAllExtents(const onnx::GraphProto &graph) {
  for (const auto &[values, what] :
       {std::pair(&graph.input(), "input"), std::pair(&graph.value_info(), "tensor"),
        std::pair(&graph.output(), "output")})
    for (const onnx::ValueInfoProto &value : *values)
      if (Status s = checkExtents(value, what); !s)
        return s;
  return Success{};
}

std::string oneLine(const std::string &text) {
  std::string line;
  for (char c : text)
    if (c != '\n' && c != ' ')
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  for (std::string_view noise :
       {"==> Context: ", "[ShapeInferenceError] ", "[TypeInferenceError] ", "Inference error(s): "})
    for (size_t at = line.find(noise); at != line.npos; at = line.find(noise))
      line.erase(at, noise.size());
  // "FILE:LINE: FUNCTION: Assertion `CONDITION` failed: TEXT" is about the library, not the model.
  if (const std::string_view end = "` failed: "; line.find(": Assertion `") != line.npos)
    if (const size_t at = line.find(end); at != line.npos)
      line.erase(0, at + end.size());
  while (line.ends_with(' ') || line.ends_with('.'))
    line.pop_back();
  return line;
}

std::string_view normalDomain(const onnx::NodeProto &node) {
  const bool isStandard = node.domain() == "ai.onnx" || node.domain() == newerDomain;
  return isStandard ? std::string_view() : std::string_view(node.domain());
}

Expected<onnx::ModelProto> prepareModel(const std::filesystem::path &path,
                                        const ImportOptions &options,
                                        const IsSupported &isSupported) {
  auto fail = [&](const std::string &text) { return Error{path.string() + ": " + text}; };
  Expected<onnx::ModelProto> model = readModel(path);
  if (!model)
    return fail(model.error());
  if (Status opset = checkOpset(*model); !opset)
    return fail(opset.error());
  // The ONNX library reports by exceptions; they end here.
  try {
    std::string missing;
    for (const std::string &wrong : readAllExternal(*model, path.parent_path()))
      missing += (missing.empty() ? "" : "\n" + path.string() + ": ") + wrong;
    if (missing.empty())
      for (const std::string &wrong : widenConstants(*model->mutable_graph()))
        missing += (missing.empty() ? "" : "\n" + path.string() + ": ") + wrong;
    if (!missing.empty())
      return fail(missing);
    if (Status known = checkKnown(*model, isSupported); !known)
      return fail(known.error());
    if (Status attributes = checkAttributes(*model); !attributes)
      return fail(attributes.error());
    adoptNewer(*model, isSupported);
    if (Status sorted = sortNodes(*model->mutable_graph()).status(); !sorted)
      return fail(sorted.error());
    checkModel(*model);
    if (Status bound = bindDims(*model->mutable_graph(), options.dims); !bound)
      return fail(bound.error());
    LiftedWeights weights(*model->mutable_graph());
    if (Status inputs = checkAllExtents(model->graph()); !inputs)
      return fail(inputs.error());
    rewrite(*model, isSupported);
    if (Status all = checkAllExtents(model->graph()); !all)
      return fail(all.error());
    weights.putBack(*model->mutable_graph());
  } catch (const std::exception &failure) {
    return fail(oneLine(failure.what()) + "; correct the model or export it again");
  }
  return model;
}

} // namespace millrace::onnx_import
