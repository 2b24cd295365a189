// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Prepare.h"

#include "compiler/Import/Onnx/Inference.h"
#include "compiler/Import/Onnx/NodeImporter.h"

#include <onnx/checker.h>
#include <onnx/common/file_utils.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/version_converter/convert.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <unordered_map>

namespace millrace::onnx_import {
namespace {

constexpr int oldestOpset = 7;

Expected<onnx::ModelProto> readModel(const std::filesystem::path &path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return Error{"is a folder; name the .onnx file in it"};
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{std::string("cannot be read: ") + std::strerror(errno) + "; check the path"};
  onnx::ModelProto model;
  if (!model.ParseFromIstream(&file))
    return Error{
        "not an ONNX model, or cut off (protobuf cannot parse it); copy or export it again"};
  if (!model.has_graph() || model.graph().node_size() == 0)
    return Error{"not an ONNX model (it has no graph); export it again"};
  if (model.graph().output_size() == 0)
    return Error{"the graph has no outputs; export it with at least one"};
  return model;
}

/// A number of external data's keys.
std::optional<uint64_t> parseCount(const std::string &text) {
  uint64_t number = 0;
  const char *end = text.data() + text.size();
  auto [stop, code] = std::from_chars(text.data(), end, number);
  return code == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

Status readExternal(onnx::TensorProto &tensor, const std::filesystem::path &folder) {
  std::string location;
  uint64_t offset = 0, length = 0;
  bool hasLength = false;
  const std::string name = "tensor '" + tensor.name() + "'";
  for (const auto &entry : tensor.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length")
      continue;
    std::optional<uint64_t> count = parseCount(entry.value());
    if (!count)
      return Error{name + ": external data " + entry.key() + " '" + entry.value() +
                   "' is no number of bytes; export the model again"};
    hasLength |= entry.key() == "length";
    (entry.key() == "length" ? length : offset) = *count;
  }
  std::filesystem::path relative = std::filesystem::path(location).lexically_normal();
  bool leaves = relative.is_absolute() || (!relative.empty() && *relative.begin() == "..");
  if (location.empty() || leaves)
    return Error{name + ": external data '" + location +
                 "' must be a file beside the model; put it there and export again"};
  std::filesystem::path path = folder / relative;
  std::error_code failed;
  uint64_t size = std::filesystem::file_size(path, failed);
  if (failed)
    return Error{name + ": external data file '" + path.string() +
                 "' is missing; copy it beside the model"};
  if (offset > size || (hasLength && length > size - offset))
    return Error{name + ": external data file '" + path.string() + "' ends before byte " +
                 std::to_string(offset + length) + ", it has " + std::to_string(size) +
                 "; copy it again"};
  if (!hasLength)
    length = size - offset;
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  std::string &raw = *tensor.mutable_raw_data();
  raw.resize(length);
  if (!file.read(raw.data(), static_cast<std::streamsize>(length)))
    return Error{name + ": cannot read external data file '" + path.string() + "'"};
  tensor.clear_external_data();
  tensor.clear_data_location();
  return Success{};
}

Status readAllExternal(onnx::ModelProto &model, const std::filesystem::path &folder) {
  for (onnx::TensorProto &tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL)
      continue;
    if (Status read = readExternal(tensor, folder); !read)
      return read;
  }
  return Success{};
}

std::set<std::string> initializerNames(const onnx::GraphProto &graph) {
  std::set<std::string> names;
  for (const onnx::TensorProto &tensor : graph.initializer())
    names.insert(tensor.name());
  return names;
}

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

/// Gives symbolic dimensions their values. Shapes that follow (outputs, intermediate values) are
/// forgotten instead: shape inference finds them again.
Status bindDims(onnx::GraphProto &graph, const std::map<std::string, int64_t> &dims) {
  std::set<std::string> constants = initializerNames(graph), missing, known;
  for (onnx::ValueInfoProto &input : *graph.mutable_input()) {
    if (constants.contains(input.name()))
      continue;
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
      return Error{"input '" + input.name() + "' is not a tensor of known rank"};
    auto &shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int i = 0; i < shape.dim_size(); ++i) {
      auto &dim = *shape.mutable_dim(i);
      if (dim.has_dim_value())
        continue;
      std::string name = dim.has_dim_param() && !dim.dim_param().empty()
                             ? dim.dim_param()
                             : input.name() + "." + std::to_string(i);
      known.insert(name);
      if (auto found = dims.find(name); found != dims.end())
        dim.set_dim_value(found->second);
      else
        missing.insert(name);
    }
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

int64_t opsetOf(const onnx::ModelProto &model) {
  for (const auto &opset : model.opset_import())
    if (opset.domain().empty() || opset.domain() == "ai.onnx")
      return opset.version();
  return 0;
}

int newestOpset() {
  return onnx::OpSchemaRegistry::DomainToVersionRange::Instance()
      .Map()
      .at(onnx::ONNX_DOMAIN)
      .second;
}

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
    int before = model.graph().node_size();
    auto selected = onnx::inliner::FunctionIdSet::Create({unsupported.begin(), unsupported.end()});
    onnx::inliner::InlineSelectedFunctions(model, *selected, onnx::OpSchemaRegistry::Instance());
    if (model.graph().node_size() == before)
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
  inferShapes(model);
}

/// Whether ONNX may replace the operation: by its function body, or because newer opsets dropped
/// it.
bool mayBecomeOthers(const std::string &type, const std::string &domain, int64_t opset) {
  using Registry = onnx::OpSchemaRegistry;
  const onnx::OpSchema *schema = Registry::Schema(type, newestOpset(), domain);
  if (!schema || schema->Deprecated())
    return Registry::Schema(type, int(opset), domain) != nullptr;
  return schema->HasFunction() || schema->HasContextDependentFunction();
}

/// Operations that neither ONNX, nor the model's own functions, nor a handler know, all at once:
/// the checker would stop at the first one.
Status checkKnown(const onnx::ModelProto &model, const IsSupported &isSupported) {
  std::set<std::pair<std::string, std::string>> functions;
  for (const onnx::FunctionProto &function : model.functions())
    functions.insert({function.domain(), function.name()});
  std::string list;
  size_t index = 0;
  for (const onnx::NodeProto &node : model.graph().node()) {
    const std::string domain(normalDomain(node));
    const std::string name = nodeName(node, index++);
    if (isSupported(domain, node.op_type()) ||
        functions.contains({node.domain(), node.op_type()}) ||
        mayBecomeOthers(node.op_type(), domain, opsetOf(model)))
      continue;
    list += (list.empty() ? "" : ", ") + (domain.empty() ? "" : domain + ".") + node.op_type() +
            " (node '" + name + "')";
  }
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
      return Error{text + "; export it with a name, and give it by --dim name=n"};
    if (extent == 0)
      continue; // no element at all, but the other extents are computed with
    if (elements > kMostElements / extent)
      return Error{text + ", which makes more than 2^36 elements; use smaller extents"};
    elements *= extent;
  }
  return Success{};
}

Status checkAllExtents(const onnx::GraphProto &graph) {
  for (const auto &[values, what] :
       {std::pair(&graph.input(), "input"), std::pair(&graph.value_info(), "tensor"),
        std::pair(&graph.output(), "output")})
    for (const onnx::ValueInfoProto &value : *values)
      if (Status s = checkExtents(value, what); !s)
        return s;
  return Success{};
}

/// The ONNX library's words in one line.
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
  while (line.ends_with(' ') || line.ends_with('.'))
    line.pop_back();
  return line;
}

} // namespace

std::string_view normalDomain(const onnx::NodeProto &node) {
  return node.domain() == "ai.onnx" ? std::string_view() : std::string_view(node.domain());
}

Expected<onnx::ModelProto> prepareModel(const std::filesystem::path &path,
                                        const ImportOptions &options,
                                        const IsSupported &isSupported) {
  auto fail = [&](const std::string &text) { return Error{path.string() + ": " + text}; };
  Expected<onnx::ModelProto> model = readModel(path);
  if (!model)
    return fail(model.error());
  if (int64_t opset = opsetOf(*model); opset != 0 && (opset < oldestOpset || opset > newestOpset()))
    return fail("opset " + std::to_string(opset) + " is not supported; opsets " +
                std::to_string(oldestOpset) + " to " + std::to_string(newestOpset()) +
                " are; convert it with onnx.version_converter");
  // The ONNX library reports by exceptions; they end here.
  try {
    if (Status read = readAllExternal(*model, path.parent_path()); !read)
      return fail(read.error());
    if (Status known = checkKnown(*model, isSupported); !known)
      return fail(known.error());
    if (Status attributes = checkAttributes(*model); !attributes)
      return fail(attributes.error());
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
