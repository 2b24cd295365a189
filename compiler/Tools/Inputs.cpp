// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Inputs.h"

#include "compiler/Support/Npy.h"
#include "compiler/Tools/HostSteps.h"
#include "compiler/Tools/Notes.h"

#include "arch/isa/semantics/Convert.h"
#include "arch/spec/Nearest.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <random>
#include <set>
#include <unistd.h>

namespace millrace::driver {

namespace {

/// The array of a file, if it is what the binding wants.
Expected<HostTensor> readInput(const Binding &b, HostType type, const std::string &file) {
  Expected<HostTensor> tensor = readNpy(file);
  if (!tensor)
    return tensor.takeError();
  const auto describe = [](HostType t, const std::vector<int64_t> &shape) {
    return std::string(onnxName(t)) + " " + shapeText(shape);
  };
  if (tensor->type != type || tensor->shape != b.shape)
    return Error{"input '" + b.name + "' is " + describe(type, b.shape) + ", but '" + file +
                 "' holds " + describe(tensor->type, tensor->shape) + "; " +
                 (tensor->type != type ? "convert it with numpy's astype"
                                       : "reshape it, or compile with other --dim values")};
  return tensor;
}

Error unknownInput(const std::string &name, const std::vector<std::string> &known) {
  std::string list;
  for (const std::string &k : known)
    list += (list.empty() ? "" : ", ") + k;
  const bool near = isNear(name, nearest(name, known));
  return Error{
      "the program has no input '" + name + "'" +
      (known.empty() ? "; it has none" : didYouMean(name, known, "its inputs are " + list)) +
      (near ? " its inputs are " + list : "")};
}

} // namespace

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

std::optional<Failure> checkInputFiles(const std::vector<std::string> &files) {
  std::set<std::string> names;
  for (const std::string &file : files) {
    const size_t equals = file.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == file.size())
      return Failure{Usage, "--input '" + file + "' is not name=file.npy"};
    if (!names.insert(file.substr(0, equals)).second)
      return Failure{Usage, "--input gives '" + file.substr(0, equals) + "' twice; keep one"};
    const std::string path = file.substr(equals + 1);
    if (::access(path.c_str(), R_OK) != 0)
      return Failure{BadInput, "cannot read '" + path + "' for input '" + file.substr(0, equals) +
                                   "': " + std::strerror(errno) + "; check the path"};
  }
  return std::nullopt;
}

Expected<std::map<std::string, HostTensor>> makeInputs(const Image &image,
                                                       const std::vector<std::string> &files,
                                                       std::optional<uint64_t> seed) {
  std::map<std::string, std::string> given;
  for (const std::string &file : files)
    given[file.substr(0, file.find('='))] = file.substr(file.find('=') + 1);
  const nlohmann::json bounds = jsonNote(image, "integer_input_bounds");
  std::map<std::string, HostTensor> inputs;
  std::mt19937_64 random(seed.value_or(0));
  std::vector<std::string> known;
  for (const Binding &b : image.bindings) {
    if (b.role != Binding::Role::Input || inputs.count(b.name))
      continue; // what is both looked up and computed with lies in memory twice
    known.push_back(b.name);
    const std::optional<HostType> type = hostTypeOf(b);
    if (!type)
      return Error{"input '" + b.name + "' has element type '" + b.hostType +
                   "', which the host does not know"};
    if (auto file = given.find(b.name); file != given.end()) {
      Expected<HostTensor> tensor = readInput(b, *type, file->second);
      if (!tensor)
        return tensor.takeError();
      inputs[b.name] = std::move(*tensor);
      given.erase(file);
    } else if (seed) {
      const bool bounded =
          bounds.is_object() && bounds.contains(b.name) && bounds[b.name].is_number_integer();
      const int64_t bound = bounded ? bounds[b.name].get<int64_t>() : 2;
      inputs[b.name] = randomTensor(*type, b.shape, random, std::max<int64_t>(bound, 1));
    }
  }
  // A model may have inputs that no result depends on; the program leaves them out.
  const nlohmann::json all = jsonNote(image, "model_inputs");
  for (const auto &[name, file] : given)
    if (!all.is_array() || std::find(all.begin(), all.end(), name) == all.end())
      return unknownInput(name, known);
  return inputs;
}

} // namespace millrace::driver
