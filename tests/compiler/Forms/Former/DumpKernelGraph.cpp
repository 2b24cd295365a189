// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Developer's tool: `dump-kernel-graph MODEL.onnx [fp16|bf16|int8] [exact-qdq] [tensor] [name=n]...
// [DIR]` prints the kernel graph (or the tensor level) of a model. With DIR it evaluates the graph
// on DIR/inputs/*.npy instead, and prints each output's relative L2 distance from
// DIR/expected/*.npy.
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/Former/Build.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"
#include "compiler/Support/Npy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <cmath>
#include <iostream>

using namespace millrace;
using namespace millrace::forms;

namespace {

template <class T> std::vector<double> widen(const HostTensor &tensor) {
  return {tensor.as<T>(), tensor.as<T>() + tensor.elementCount()};
}

std::vector<double> valuesOf(const HostTensor &tensor) {
  switch (tensor.type) {
  case HostType::Float32:
    return widen<float>(tensor);
  case HostType::Float64:
    return widen<double>(tensor);
  case HostType::Int64:
    return widen<int64_t>(tensor);
  case HostType::Int32:
    return widen<int32_t>(tensor);
  case HostType::Int8:
    return widen<int8_t>(tensor);
  default:
    return widen<uint8_t>(tensor);
  }
}

std::vector<double> valuesOf(const Tensor &tensor, const TensorBytes &bytes) {
  unsigned width = byteWidth(tensor.type);
  std::vector<double> values;
  for (size_t i = 0; i < bytes.size(); i += width) {
    uint32_t bits = 0;
    std::memcpy(&bits, &bytes[i], width);
    values.push_back(tensor.type == ElementType::Int32 ? double(int32_t(bits))
                                                       : double(decode(tensor.type, bits)));
  }
  return values;
}

TensorBytes toStored(const Tensor &tensor, const HostTensor &host) {
  std::vector<double> values = valuesOf(host);
  if (tensor.hostScale != 0)
    for (double &value : values)
      value = std::nearbyint(value / tensor.hostScale) + double(tensor.hostZero);
  if (tensor.type != ElementType::Int32)
    return encodeAll(tensor.type, {values.begin(), values.end()});
  TensorBytes bytes;
  for (double value : values) {
    auto integer = int32_t(value);
    bytes.insert(bytes.end(), reinterpret_cast<uint8_t *>(&integer),
                 reinterpret_cast<uint8_t *>(&integer) + 4);
  }
  return bytes;
}

std::string fileName(std::string name) {
  for (char &c : name)
    if (c == '/' || c == ':')
      c = '_';
  return name + ".npy";
}

/// A host call through Reference: values as the function's types.
Status runHost(const KernelGraph &graph, mlir::ModuleOp functions, const HostCall &call,
               std::vector<TensorBytes> &tensors) {
  auto function = functions.lookupSymbol<mlir::func::FuncOp>(call.function);
  auto convert = [](const std::vector<double> &values, mlir::Type type) {
    auto tensor = mlir::cast<mlir::RankedTensorType>(type);
    bool isFloat = mlir::isa<mlir::FloatType>(tensor.getElementType());
    unsigned bits = tensor.getElementType().getIntOrFloatBitWidth();
    HostTensor host = HostTensor::zeros(isFloat      ? HostType::Float32
                                        : bits == 64 ? HostType::Int64
                                        : bits == 32 ? HostType::Int32
                                        : bits == 1  ? HostType::Bool
                                                     : HostType::Int8,
                                        tensor.getShape().vec());
    for (size_t i = 0; i < values.size(); ++i)
      if (isFloat)
        host.as<float>()[i] = float(values[i]);
      else if (bits == 64)
        host.as<int64_t>()[i] = int64_t(values[i]);
      else if (bits == 32)
        host.as<int32_t>()[i] = int32_t(values[i]);
      else
        host.as<int8_t>()[i] = int8_t(values[i]);
    return host;
  };
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    inputs.push_back(convert(
        valuesOf(graph.tensors[call.inputs[i]],
                 graph.tensors[call.inputs[i]].splat ? TensorBytes() : tensors[call.inputs[i]]),
        function.getArgumentTypes()[unsigned(i)]));
  auto reference = Reference::create(functions, call.function);
  if (!reference)
    return reference.takeError();
  auto outputs = reference->run(inputs);
  if (!outputs)
    return outputs.takeError();
  for (size_t i = 0; i < call.outputs.size(); ++i)
    tensors[call.outputs[i]] = toStored(graph.tensors[call.outputs[i]], (*outputs)[i]);
  return Success{};
}

int check(const KernelGraph &graph, const std::filesystem::path &folder,
          mlir::MLIRContext &context) {
  auto functions = mlir::parseSourceString<mlir::ModuleOp>(graph.hostModule, &context);
  std::map<unsigned, TensorBytes> inputs;
  for (unsigned i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].role == TensorRole::Input) {
      auto host = readNpy(folder / "inputs" / fileName(graph.tensors[i].hostName));
      if (!host) {
        std::cerr << host.error() << "\n";
        return 1;
      }
      inputs[i] = toStored(graph.tensors[i], *host);
    }
  EvaluateOptions options;
  options.host = [&](const HostCall &call, std::vector<TensorBytes> &tensors) {
    return runHost(graph, *functions, call, tensors);
  };
  auto result = evaluate(graph, inputs, options);
  if (!result) {
    std::cerr << result.error() << "\n";
    return 1;
  }
  for (unsigned i = 0; i < graph.tensors.size(); ++i) {
    const Tensor &tensor = graph.tensors[i];
    if (tensor.role != TensorRole::Output)
      continue;
    auto expected = readNpy(folder / "expected" / fileName(tensor.hostName));
    if (!expected)
      expected = readNpy(folder / "expected" / "before_softmax.npy");
    std::vector<double> got = valuesOf(tensor, (*result)[i]), want;
    if (expected)
      want = valuesOf(*expected);
    double error = 0, norm = 0, greatest = 0;
    size_t top = 0, wantedTop = 0;
    for (size_t j = 0; j < want.size(); ++j) {
      error += (got[j] - want[j]) * (got[j] - want[j]), norm += want[j] * want[j];
      greatest = std::max(greatest, std::abs(got[j] - want[j]));
      top = got[j] > got[top] ? j : top, wantedTop = want[j] > want[wantedTop] ? j : wantedTop;
    }
    std::cout << tensor.hostName << ": relative L2 " << std::sqrt(error / norm)
              << ", greatest difference " << greatest << ", top " << top << " of " << wantedTop
              << ", " << want.size() << " values\n";
  }
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  mlir::MLIRContext context;
  loadImportDialects(context);
  registerReferenceDialects(context);
  ImportOptions import;
  PrecisionOptions options;
  bool tensorLevel = false;
  std::string folder;
  for (int i = 2; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "bf16")
      options.precision = Precision::Bf16;
    else if (argument == "int8")
      options.precision = Precision::Int8;
    else if (argument == "exact-qdq")
      options.exactQdq = true;
    else if (argument == "tensor")
      tensorLevel = true;
    else if (size_t equals = argument.find('='); equals != std::string::npos)
      import.dims[argument.substr(0, equals)] = std::stoll(argument.substr(equals + 1));
    else if (argument != "fp16")
      folder = argument;
  }
  auto module = importOnnx(argv[1], import, context);
  if (!module) {
    std::cerr << module.error() << "\n";
    return 1;
  }
  if (tensorLevel) {
    mlir::OpPrintingFlags flags;
    (*module)->print(llvm::outs(), flags.elideLargeElementsAttrs(16).elideLargeResourceString(16));
    return 0;
  }
  auto graph = buildKernelGraph(**module, options);
  if (mlir::failed(graph))
    return 1;
  if (!folder.empty())
    return check(*graph, folder, context);
  std::cout << print(*graph);
  if (!graph->hostModule.empty())
    std::cout << graph->hostModule.substr(0, 20000);
}
