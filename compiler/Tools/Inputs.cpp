// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Inputs.h"

#include "compiler/Support/Npy.h"
#include "compiler/Tools/Build.h"

#include "arch/isa/semantics/Convert.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <nlohmann/json.hpp>

#include <random>
#include <set>

namespace millrace::driver {

std::map<std::string, int64_t> integerBounds(mlir::ModuleOp module) {
  std::map<std::string, int64_t> bounds;
  auto main = module.lookupSymbol<mlir::func::FuncOp>("main");
  if (!main)
    return bounds;
  for (mlir::BlockArgument argument : main.getArguments()) {
    auto type = mlir::dyn_cast<mlir::RankedTensorType>(argument.getType());
    auto name = main.getArgAttrOfType<mlir::StringAttr>(argument.getArgNumber(), "onnx.name");
    if (!type || !name || !type.getElementType().isInteger())
      continue;
    // Follow the values made of it until one picks elements of another tensor.
    std::vector<mlir::Value> work{argument};
    std::set<mlir::Operation *> seen;
    while (!work.empty()) {
      mlir::Value value = work.back();
      work.pop_back();
      for (mlir::Operation *user : value.getUsers()) {
        if (!seen.insert(user).second)
          continue;
        bool picks = false;
        user->walk([&](mlir::tensor::ExtractOp extract) {
          auto from = mlir::cast<mlir::RankedTensorType>(extract.getTensor().getType());
          if (from.getRank() == 0 || extract.getTensor() == value)
            return;
          picks = true;
          auto [it, fresh] = bounds.emplace(name.str(), from.getDimSize(0));
          it->second = std::min(it->second, from.getDimSize(0));
        });
        if (!picks)
          for (mlir::Value result : user->getResults())
            if (auto t = mlir::dyn_cast<mlir::RankedTensorType>(result.getType());
                t && t.getElementType().isInteger())
              work.push_back(result);
      }
    }
  }
  return bounds;
}

std::vector<std::string> inputNames(mlir::ModuleOp module) {
  std::vector<std::string> names;
  if (auto main = module.lookupSymbol<mlir::func::FuncOp>("main"))
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      if (auto name = main.getArgAttrOfType<mlir::StringAttr>(i, "onnx.name"))
        names.push_back(name.str());
  return names;
}

namespace {

HostTensor randomTensor(HostType type, const std::vector<int64_t> &shape, std::mt19937_64 &random,
                        int64_t bound) {
  HostTensor t = HostTensor::zeros(type, shape);
  std::normal_distribution<float> normal;
  const int64_t count = t.elementCount();
  for (int64_t i = 0; i < count; ++i)
    switch (type) {
    case HostType::Float32:
      t.as<float>()[i] = normal(random);
      break;
    case HostType::Float64:
      t.as<double>()[i] = normal(random);
      break;
    case HostType::Float16:
      t.as<uint16_t>()[i] = semantics::fp32ToFp16(normal(random));
      break;
    case HostType::BFloat16:
      t.as<uint16_t>()[i] = semantics::fp32ToBf16(normal(random));
      break;
    case HostType::Int64:
      t.as<int64_t>()[i] = int64_t(random() % uint64_t(bound));
      break;
    case HostType::Int32:
      t.as<int32_t>()[i] = int32_t(random() % uint64_t(bound));
      break;
    default:
      t.as<uint8_t>()[i] = uint8_t(random() % uint64_t(std::min<int64_t>(bound, 128)));
      break;
    }
  return t;
}

} // namespace

Expected<std::map<std::string, HostTensor>>
makeInputs(const Image &image, const std::vector<std::string> &files, uint64_t seed) {
  std::map<std::string, std::string> given;
  for (const std::string &file : files) {
    const size_t equals = file.find('=');
    if (equals == std::string::npos)
      return Error{"--input '" + file + "' is not name=file.npy"};
    given[file.substr(0, equals)] = file.substr(equals + 1);
  }
  const auto bounds = nlohmann::json::parse(noteOf(image, "integer_input_bounds", "{}"));
  std::map<std::string, HostTensor> inputs;
  std::mt19937_64 random(seed);
  std::string known;
  for (const Binding &b : image.bindings) {
    if (b.role != Binding::Role::Input)
      continue;
    known += (known.empty() ? "" : ", ") + b.name;
    std::optional<HostType> type =
        hostTypeFromOnnxName(b.hostType == "float32" ? "float" : b.hostType);
    if (!type)
      return Error{"input '" + b.name + "' has element type '" + b.hostType +
                   "', which the host does not know"};
    auto file = given.find(b.name);
    if (file == given.end()) {
      inputs[b.name] = randomTensor(*type, b.shape, random, bounds.value(b.name, int64_t(2)));
      continue;
    }
    Expected<HostTensor> tensor = readNpy(file->second);
    if (!tensor)
      return tensor.takeError();
    int64_t count = 1;
    for (int64_t d : b.shape)
      count *= d;
    if (tensor->type != *type || tensor->elementCount() != count)
      return Error{"input '" + b.name + "' is " + std::string(onnxName(*type)) + " " +
                   shapeText(b.shape) + ", '" + file->second + "' holds " +
                   std::string(onnxName(tensor->type)) + " " + shapeText(tensor->shape)};
    inputs[b.name] = std::move(*tensor);
    given.erase(file);
  }
  const auto all = nlohmann::json::parse(noteOf(image, "model_inputs", "[]"));
  for (const auto &[name, file] : given)
    if (!inputs.count(name) && std::find(all.begin(), all.end(), name) == all.end())
      return Error{"the program has no input '" + name + "'; its inputs are " + known};
  return inputs;
}

} // namespace millrace::driver
