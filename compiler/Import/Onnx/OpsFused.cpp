// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// com.microsoft: what ONNX Runtime's optimizer makes of several operations.
// Source: the page ContribOperators of ONNX Runtime.
#include "compiler/Import/Onnx/Activation.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/MatMul.h"
#include "compiler/Import/Onnx/Quantization.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// The function that the attribute `activation` names, if there is one, with parameters from
/// `activation_params` or `activation_alpha` and `activation_beta`.
Expected<Value> activated(NodeImporter &node, Value x) {
  const std::string name = node.getString("activation", "");
  if (name.empty())
    return x;
  SmallVector<double> given;
  if (const onnx::AttributeProto *list = node.attribute("activation_params"))
    given.append(list->floats().begin(), list->floats().end());
  for (const char *one : {"activation_alpha", "activation_beta"})
    if (node.attribute(one))
      given.push_back(node.getFloat(one, 0));
  if (name == "Clip" && given.size() == 2)
    return node.t.map({x}, elementTypeOf(x), [&](Scalars &s, ValueRange v) {
      return Arithmetic(s).clamp(v[0], given[0], given[1]);
    });
  const std::optional<Activation> known = activationNamed(name);
  if (!known)
    return node.error("its activation '" + name + "' is not supported");
  Parameters parameters = known->parameters;
  if (!given.empty())
    parameters.alpha = given[0];
  if (given.size() > 1)
    parameters.beta = given[1];
  return node.t.map({x}, elementTypeOf(x), [&](Scalars &s, ValueRange v) {
    Arithmetic a(s);
    return known->body(a, v[0], parameters);
  });
}

Value sumOf(TensorBuilder &t, Value x, Value y) {
  return t.map({x, y}, elementTypeOf(x),
               [](Scalars &s, ValueRange v) { return Arithmetic(s).add(v[0], v[1]); });
}

/// What `plain` makes, plus input `addedAt`, if that is given, through the activation.
Handler fused(Handler plain, size_t addedAt) {
  return needing({0, 1}, [plain, addedAt](NodeImporter &node) -> Status {
    if (Status made = plain(node); !made)
      return made;
    Value result = node.results()[0].value;
    if (node.has(addedAt)) {
      if (node.shape(addedAt) != shapeOf(result))
        return node.error("what is added does not have the shape of its result");
      result = sumOf(node.t, result, node.in(addedAt));
    }
    Expected<Value> value = activated(node, result);
    return value ? node.done(*value) : Status(value.takeError());
  });
}

/// alpha * op(A) op(B), op transposing the last two dimensions.
Status importFusedMatMul(NodeImporter &node) {
  if (node.getInt("transBatchA", 0) != 0 || node.getInt("transBatchB", 0) != 0)
    return node.error("transBatchA and transBatchB are not supported");
  TensorBuilder &t = node.t;
  const auto operand = [&](size_t i, const char *transposes) {
    const Value x = node.in(i);
    const size_t rank = shapeOf(x).size();
    if (node.getInt(transposes, 0) == 0 || rank < 2)
      return x;
    Shape order = allAxes(int64_t(rank));
    std::swap(order[rank - 1], order[rank - 2]);
    return t.transpose(x, order);
  };
  Expected<Value> product = multiply(node, operand(0, "transA"), operand(1, "transB"));
  if (!product)
    return product.takeError();
  const double alpha = node.getFloat("alpha", 1);
  if (alpha == 1)
    return node.done(*product);
  return node.done(t.map({*product}, elementTypeOf(*product), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    return a.mul(x[0], a.like(x[0], alpha));
  }));
}

/// Inputs: a, b, a scale, b scale, a zero, b zero, bias.
Status importMatMulIntegerToFloat(NodeImporter &node) {
  Expected<Value> result = scaledProduct(node, signedBytes(node, 0, 4), 1, 5, node.in(2),
                                         node.in(3), node.has(6) ? node.in(6) : Value());
  return result ? node.done(*result, HostType::Float32) : Status(result.takeError());
}

/// Inputs: a (reals, quantised by their own range), b, b scale, b zero, bias.
Status importDynamicQuantizeMatMul(NodeImporter &node) {
  const QuantizedByRange a = quantizeByRange(node.t, node.in(0));
  Expected<Value> result =
      scaledProduct(node, {flipSign(node.t, a.bytes), flipSign(node.t, a.zeroPoint)}, 1, 3, a.scale,
                    node.in(2), node.has(4) ? node.in(4) : Value());
  return result ? node.done(*result, HostType::Float32) : Status(result.takeError());
}

} // namespace

void addFusedOps(HandlerTable &table) {
  table["com.microsoft:FusedConv"] =
      typed({reals(0), reals(1), reals(2), reals(3)}, fused(table.lookup(":Conv"), 3));
  table["com.microsoft:FusedGemm"] =
      typed({reals(0, 2), reals(1, 2), reals(2)}, fused(table.lookup(":Gemm"), SIZE_MAX));
  table["com.microsoft:FusedMatMul"] =
      needing({0, 1}, typed({reals(0), reals(1)}, importFusedMatMul));
  table["com.microsoft:MatMulIntegerToFloat"] =
      needing({0, 1, 2, 3}, typed({bytes(0), bytes(1), reals(2), reals(3), like(4, 0), like(5, 1)},
                                  importMatMulIntegerToFloat));
  table["com.microsoft:DynamicQuantizeMatMul"] = needing(
      {0, 1, 2}, typed({reals(0), bytes(1), reals(2), like(3, 1)}, importDynamicQuantizeMatMul));
}

} // namespace millrace::onnx_import
