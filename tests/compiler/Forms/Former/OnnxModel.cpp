// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/compiler/Forms/Former/OnnxModel.h"

#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"
#include "tests/contract/Distance.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <fstream>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>

namespace millrace::test {

using namespace forms;

namespace {

std::vector<double> valuesOf(const HostTensor &tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.elementCount(); ++i)
    switch (tensor.type) {
    case HostType::Float32:
      values.push_back(tensor.as<float>()[i]);
      break;
    case HostType::Float64:
      values.push_back(tensor.as<double>()[i]);
      break;
    case HostType::Int64:
      values.push_back(double(tensor.as<int64_t>()[i]));
      break;
    case HostType::Int32:
      values.push_back(tensor.as<int32_t>()[i]);
      break;
    default:
      values.push_back(tensor.as<int8_t>()[i]);
    }
  return values;
}

void fill(HostTensor &tensor, const std::vector<double> &values) {
  for (size_t i = 0; i < values.size(); ++i)
    switch (tensor.type) {
    case HostType::Float32:
      tensor.as<float>()[i] = float(values[i]);
      break;
    case HostType::Float64:
      tensor.as<double>()[i] = values[i];
      break;
    case HostType::Int64:
      tensor.as<int64_t>()[i] = int64_t(values[i]);
      break;
    case HostType::Int32:
      tensor.as<int32_t>()[i] = int32_t(values[i]);
      break;
    default:
      tensor.as<int8_t>()[i] = int8_t(values[i]);
    }
}

std::vector<double> storedValues(const Tensor &tensor, const TensorBytes &bytes) {
  const unsigned width = byteWidth(tensor.type);
  std::vector<double> values;
  for (size_t i = 0; i < bytes.size(); i += width) {
    uint32_t bits = 0;
    std::memcpy(&bits, &bytes[i], width);
    values.push_back(tensor.type == ElementType::Int32 ? double(int32_t(bits)) : double(decode(tensor.type, bits)));
  }
  return values;
}

TensorBytes stored(const Tensor &tensor, std::vector<double> values) {
  if (tensor.hostScale != 0)
    for (double &value : values)
      value = std::clamp(std::nearbyint(value / tensor.hostScale) + double(tensor.hostZero), -128., 127.);
  if (tensor.type != ElementType::Int32)
    return encodeAll(tensor.type, {values.begin(), values.end()});
  TensorBytes bytes(4 * values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto integer = int32_t(values[i]);
    std::memcpy(&bytes[4 * i], &integer, 4);
  }
  return bytes;
}

HostType hostTypeOf(mlir::Type type) {
  const mlir::Type element = mlir::cast<mlir::RankedTensorType>(type).getElementType();
  if (element.isF64())
    return HostType::Float64;
  if (mlir::isa<mlir::FloatType>(element))
    return HostType::Float32;
  const unsigned bits = element.getIntOrFloatBitWidth();
  return bits == 64 ? HostType::Int64 : bits == 32 ? HostType::Int32 : bits == 1 ? HostType::Bool : HostType::Int8;
}

HostTensor hostTensor(mlir::Type type, const std::vector<double> &values) {
  HostTensor tensor = HostTensor::zeros(hostTypeOf(type), mlir::cast<mlir::RankedTensorType>(type).getShape().vec());
  EXPECT_EQ(size_t(tensor.elementCount()), values.size());
  fill(tensor, values);
  return tensor;
}

/// Runs a host step on what the tensors hold, and on the model's inputs as they are.
Status runHost(const KernelGraph &graph, mlir::ModuleOp functions, const HostCall &call,
               const std::map<std::string, std::vector<double>> &given, std::vector<TensorBytes> &tensors) {
  auto function = functions.lookupSymbol<mlir::func::FuncOp>(call.function);
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor &tensor = graph.tensors[call.inputs[i]];
    inputs.push_back(hostTensor(function.getArgumentTypes()[unsigned(i)], tensor.role == TensorRole::Input
                                                                              ? given.at(tensor.hostName)
                                                                              : storedValues(tensor, tensors[call.inputs[i]])));
  }
  auto reference = Reference::create(functions, call.function);
  if (!reference)
    return reference.takeError();
  auto outputs = reference->run(inputs);
  if (!outputs)
    return outputs.takeError();
  for (size_t i = 0; i < call.outputs.size(); ++i)
    tensors[call.outputs[i]] = stored(graph.tensors[call.outputs[i]], valuesOf((*outputs)[i]));
  return Success{};
}

} // namespace

Model formed(const std::string &graph, const PrecisionOptions &options,
             const std::map<std::string, std::vector<double>> &given) {
  Model result;
  onnx::ModelProto model;
  const std::string text = "<ir_version: 8, opset_import: [\"\" : 18]>\n" + graph;
  const auto parsed = onnx::OnnxParser::Parse(model, text.c_str());
  if (!parsed.IsOK()) {
    ADD_FAILURE() << parsed.ErrorMessage();
    return result;
  }
  const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("millrace-former-" + name + ".onnx");
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  loadImportDialects(context);
  registerReferenceDialects(context);
  auto module = importOnnx(path, {}, context);
  std::filesystem::remove(path);
  if (!module) {
    ADD_FAILURE() << module.error();
    return result;
  }
  auto reference = Reference::create(**module);
  auto main = (**module).lookupSymbol<mlir::func::FuncOp>("main");
  std::vector<HostTensor> inputs;
  std::map<std::string, std::vector<double>> byName;
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    const std::string input = main.getArgAttrOfType<mlir::StringAttr>(i, "onnx.name").str();
    const mlir::Type type = main.getArgumentTypes()[i];
    std::vector<double> values(size_t(mlir::cast<mlir::RankedTensorType>(type).getNumElements()));
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = hostTypeOf(type) == HostType::Bool                          ? double(k * k % 3 == 1)
                  : mlir::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(type)) ? double(int((7 * k + 3 * i + k * k / 5) % 17) - 8) / 8
                                                                              : double(k % 4);
    if (auto found = given.find(input); found != given.end())
      values = found->second;
    inputs.push_back(hostTensor(type, values));
    byName[input] = values;
  }
  std::vector<std::string> results;
  for (unsigned i = 0; i < main.getNumResults(); ++i)
    results.push_back(main.getResultAttrOfType<mlir::StringAttr>(i, "onnx.name").str());
  auto want = reference ? reference->run(inputs) : Expected<std::vector<HostTensor>>(Error{reference.error()});
  auto built = buildKernelGraph(**module, options, &result.remarks, &result.points);
  if (!want || mlir::failed(built)) {
    ADD_FAILURE() << (want ? "no kernel graph" : want.error());
    return result;
  }
  result.graph = std::move(*built);
  std::map<unsigned, TensorBytes> bytes;
  for (unsigned i = 0; i < result.graph.tensors.size(); ++i)
    if (const Tensor &tensor = result.graph.tensors[i]; tensor.role == TensorRole::Input)
      bytes[i] = stored(tensor, byName.at(tensor.hostName));
  mlir::OwningOpRef<mlir::ModuleOp> functions = mlir::parseSourceString<mlir::ModuleOp>(result.graph.hostModule, &context);
  EvaluateOptions evaluation;
  evaluation.threads = 1;
  evaluation.host = [&](const HostCall &call, std::vector<TensorBytes> &tensors) {
    return runHost(result.graph, *functions, call, byName, tensors);
  };
  auto found = evaluate(result.graph, bytes, evaluation);
  if (!found) {
    ADD_FAILURE() << found.error();
    return result;
  }
  result.error = 0;
  for (size_t n = 0; n < results.size(); ++n) {
    std::vector<double> is;
    for (unsigned i = 0; i < result.graph.tensors.size(); ++i)
      if (const Tensor &tensor = result.graph.tensors[i]; tensor.role == TensorRole::Output && tensor.hostName == results[n])
        is = storedValues(tensor, (*found)[i]);
    const std::vector<double> must = valuesOf((*want)[n]);
    if (is.size() != must.size()) {
      ADD_FAILURE() << results[n] << " has " << is.size() << " values";
      continue;
    }
    Distance distance;
    for (size_t k = 0; k < must.size(); ++k)
      distance.add(is[k], must[k]);
    result.error = std::max(result.error, distance.relative());
  }
  return result;
}

double onGrid(const std::string &graph, const PrecisionOptions &options) {
  const Model model = formed(graph, options);
  EXPECT_TRUE(model.graph.hostCalls.empty()) << graph;
  return model.error;
}

std::string numbers(int count, int modulo, double scale) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += (i ? ", " : "") + std::to_string(double((5 * i + i * i / 3) % modulo - modulo / 2) * scale);
  return out;
}
std::string integers(int count, int modulo) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += (i ? ", " : "") + std::to_string((5 * i + i * i / 3) % modulo - modulo / 2);
  return out;
}

} // namespace millrace::test
