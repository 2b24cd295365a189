// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Inference.h"

#include "compiler/Import/Onnx/NodeImporter.h"

#include <onnx/defs/schema.h>
#include <onnx/shape_inference/implementation.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::onnx_import {
namespace {

constexpr int64_t mostDims = 1024; ///< of a tensor; far more than any operation knows

/// ONNX's inference (1.23.2) never ends on what stands where a letter is expected.
bool isEquation(std::string_view text) {
  static constexpr std::string_view letters =
      " .,abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const size_t arrow = text.find("->");
  auto isSide = [](std::string_view side) {
    return side.find_first_not_of(letters) == std::string_view::npos;
  };
  return isSide(text.substr(0, arrow)) &&
         (arrow == std::string_view::npos || isSide(text.substr(arrow + 2)));
}

Status checkAttribute(const onnx::NodeProto &node, const onnx::AttributeProto &attribute,
                      const std::string &name) {
  if (node.op_type() == "Einsum" && attribute.name() == "equation" && !isEquation(attribute.s()))
    return Error{"Einsum '" + name +
                 "': its equation holds something besides letters, '.', ',', spaces and one '->'; "
                 "correct it"};
  if (attribute.name() == "axis" && (attribute.i() < -mostDims || attribute.i() >= mostDims))
    return Error{node.op_type() + " '" + name + "': axis " + std::to_string(attribute.i()) +
                 " is beyond the rank of any tensor; correct it"};
  if (attribute.name() == "num_outputs" && attribute.i() != node.output_size())
    return Error{node.op_type() + " '" + name + "': num_outputs is " +
                 std::to_string(attribute.i()) + ", but the node has " +
                 std::to_string(node.output_size()) + "; correct it"};
  return Success{};
}

template <class Nodes> void checkNodes(const Nodes &nodes, std::vector<std::string> &wrong) {
  size_t index = 0;
  for (const onnx::NodeProto &node : nodes) {
    const std::string name = nodeName(node, index++);
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      if (Status s = checkAttribute(node, attribute, name); !s)
        wrong.push_back(s.error());
      checkNodes(attribute.g().node(), wrong);
      for (const onnx::GraphProto &graph : attribute.graphs())
        checkNodes(graph.node(), wrong);
    }
  }
}

/// The numbers that ONNX follows are those of shapes, a vector with an entry per dimension. It
/// takes every vector for one, and makes an object of 40 bytes of each element: of weights, too.
bool mayBeAShape(const onnx::TypeProto *type) {
  if (!type || !type->tensor_type().has_shape())
    return true;
  const onnx::TensorShapeProto &shape = type->tensor_type().shape();
  return shape.dim_size() != 1 || shape.dim(0).dim_value() <= mostDims;
}

/// What an output of an operation of com.microsoft, or of `newerDomain`, is like: bodies of ONNX's
/// functions are chosen by the types of what they read, which may come from there.
struct Likeness {
  int output = 0;
  size_t type = 0;             ///< the input whose element type it has
  std::optional<size_t> shape; ///< the input whose shape it has
};

const std::map<std::string, std::vector<Likeness>> &likenesses() {
  static const std::vector<Likeness> same = {{0, 0, 0}}, sums = {{0, 0, 0}, {3, 0, 0}},
                                     type = {{0, 0, std::nullopt}};
  static const std::map<std::string, std::vector<Likeness>> all = {
      {"Gelu", same},
      {"BiasGelu", same},
      {"FastGelu", same},
      {"QuickGelu", same},
      {"LayerNormalization", same},
      {"SimplifiedLayerNormalization", same},
      {"SkipLayerNormalization", sums},
      {"SkipSimplifiedLayerNormalization", sums},
      {"EmbedLayerNormalization", {{0, 2, std::nullopt}}},
      {"Attention", {{0, 0, std::nullopt}, {1, 0, std::nullopt}}},
      {"QAttention", {{0, 3, std::nullopt}, {1, 3, std::nullopt}}},
      {"GroupNorm", same},
      {"SkipGroupNorm", {{0, 0, 0}, {1, 0, 0}}},
      {"MultiHeadAttention", {{0, 0, 0}, {1, 0, std::nullopt}, {2, 0, std::nullopt}}},
      {"GroupQueryAttention", {{0, 0, std::nullopt}, {1, 0, std::nullopt}, {2, 0, std::nullopt}}},
      {"RotaryEmbedding", same},
      {"QuantizeLinear", {{0, 2, 0}}},
      {"DequantizeLinear", {{0, 1, 0}}},
      {"QGemm", type},
      {"QLinearAdd", type},
      {"QLinearMul", type},
      {"QLinearConv", type},
      {"QLinearAveragePool", type},
      {"QLinearGlobalAveragePool", type},
      {"QLinearConcat", {{0, 2, std::nullopt}}},
      {"QLinearSigmoid", same},
      {"QLinearLeakyRelu", same},
      {"QLinearSoftmax", same},
      {"QLinearWhere", {{0, 1, std::nullopt}}},
      {"FusedConv", type},
      {"FusedGemm", type},
      {"FusedMatMul", type},
      {"MatMulNBits", type},
      {"GatherBlockQuantized", {{0, 2, std::nullopt}}},
      {"MatMulIntegerToFloat", {{0, 2, std::nullopt}}},
      {"DynamicQuantizeMatMul", {{0, 0, std::nullopt}}},
  };
  return all;
}

onnx::OpSchema schemaOf(const std::string &type, const std::vector<Likeness> &outputs) {
  onnx::OpSchema schema(type, __FILE__, __LINE__);
  const auto parameter = onnx::OpSchema::Variadic;
  schema.Input(0, "inputs", "", "T", parameter, /*is_homogeneous=*/false, /*min_arity=*/0)
      .Output(0, "outputs", "", "T", parameter, /*is_homogeneous=*/false, /*min_arity=*/0)
      .TypeConstraint("T", onnx::OpSchema::all_tensor_types_ir4(), "")
      .TypeAndShapeInferenceFunction([outputs](onnx::InferenceContext &context) {
        for (const Likeness &like : outputs) {
          if (size_t(like.output) >= context.getNumOutputs() ||
              like.type >= context.getNumInputs() || !context.getInputType(like.type))
            continue;
          onnx::propagateElemTypeFromInputToOutput(context, like.type, size_t(like.output));
          if (like.shape && onnx::hasInputShape(context, *like.shape))
            onnx::propagateShapeFromInputToOutput(context, *like.shape, size_t(like.output));
        }
      });
  schema.Finalize();
  return schema;
}

/// ONNX's own schemas, those that follow numbers doing so through shapes alone; and what is known
/// of ONNX Runtime's.
class ShapeSchemas : public onnx::ISchemaRegistry {
public:
  const onnx::OpSchema *GetSchema(const std::string &type, int newest,
                                  const std::string &domain) const override {
    if (domain == "com.microsoft" || domain == newerDomain) {
      const auto known = likenesses().find(type);
      if (known == likenesses().end())
        return nullptr;
      const auto [own, isNew] = microsoft.try_emplace(type);
      if (isNew)
        own->second = schemaOf(type, known->second);
      return &own->second;
    }
    const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(type, newest, domain);
    if (!schema || !schema->has_data_propagation_function())
      return schema;
    std::unique_ptr<onnx::OpSchema> &own = guarded[schema];
    if (!own) {
      own = std::make_unique<onnx::OpSchema>(*schema);
      own->PartialDataPropagationFunction([schema](onnx::DataPropagationContext &context) {
        for (size_t i = 0; i < context.getNumInputs(); ++i)
          if (!mayBeAShape(context.getInputType(i)))
            return;
        schema->GetDataPropagationFunction()(context);
      });
    }
    return own.get();
  }

private:
  mutable std::map<const onnx::OpSchema *, std::unique_ptr<onnx::OpSchema>> guarded;
  mutable std::map<std::string, onnx::OpSchema> microsoft;
};

} // namespace

std::vector<std::string> attributeErrors(const onnx::ModelProto &model) {
  std::vector<std::string> wrong;
  for (const onnx::FunctionProto &function : model.functions())
    checkNodes(function.node(), wrong);
  checkNodes(model.graph().node(), wrong);
  return wrong;
}

Status checkAttributes(const onnx::ModelProto &model) {
  const std::vector<std::string> wrong = attributeErrors(model);
  return wrong.empty() ? Status(Success{}) : Status(Error{wrong.front()});
}

void inferShapes(onnx::ModelProto &model) {
  const onnx::ShapeInferenceOptions options(/*check_type=*/true, /*strict_mode=*/1,
                                            /*data_prop=*/true);
  const ShapeSchemas schemas;
  onnx::shape_inference::InferShapes(model, &schemas, options);
}

} // namespace millrace::onnx_import
