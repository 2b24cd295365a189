// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Judges.h"

#include "compiler/Reference/Reference.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <deque>
#include <set>

namespace millrace::driver {

using namespace mlir;

static std::string onnxValueOf(Operation &op) {
  auto name = op.getAttrOfType<StringAttr>(kOnnxValue);
  return name ? name.str() : std::string();
}

/// Makes results of the function of the operations that are wanted; returns their names.
static std::vector<std::string> addResults(func::FuncOp function,
                                           const std::set<std::string> &wanted) {
  Operation *terminator = function.getBody().front().getTerminator();
  SmallVector<Value> results(terminator->getOperands());
  SmallVector<Attribute> attributes;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    attributes.push_back(DictionaryAttr::get(function.getContext(), function.getResultAttrs(i)));
  std::vector<std::string> names;
  for (Operation &op : function.getBody().front()) {
    const std::string name = onnxValueOf(op);
    if (!wanted.contains(name) || !getElementTypeOrSelf(op.getResult(0).getType()).isF32())
      continue;
    names.push_back(name);
    results.push_back(op.getResult(0));
    attributes.push_back(DictionaryAttr::get(function.getContext()));
  }
  terminator->setOperands(results);
  function.setType(FunctionType::get(function.getContext(), function.getArgumentTypes(),
                                     ValueRange(results).getTypes()));
  function.setResAttrsAttr(ArrayAttr::get(function.getContext(), attributes));
  return names;
}

Expected<Values> referenceValues(ModuleOp module, const Values &inputs,
                                 const std::vector<std::string> &wanted) {
  OwningOpRef<ModuleOp> copy = module.clone();
  auto function = copy->lookupSymbol<func::FuncOp>("main");
  const unsigned outputs = function.getNumResults();
  const std::vector<std::string> names = addResults(function, {wanted.begin(), wanted.end()});
  std::vector<HostView> arguments;
  std::deque<HostTensor> unread; // inputs of which the model takes the shape alone, or nothing
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    const auto name = function.getArgAttrOfType<StringAttr>(i, "onnx.name");
    const auto input = inputs.find(name ? name.str() : std::string());
    auto type = dyn_cast<RankedTensorType>(function.getArgument(i).getType());
    const std::optional<HostType> element =
        type ? hostTypeOfElement(type.getElementType()) : std::nullopt;
    if (input == inputs.end() && function.getArgument(i).use_empty() && element) {
      arguments.emplace_back(unread.emplace_back(
          HostTensor::zeros(*element, {type.getShape().begin(), type.getShape().end()})));
      continue;
    }
    if (input == inputs.end())
      return Error{"the reference needs the input '" + (name ? name.str() : std::to_string(i)) +
                   "', which the program does not take"};
    arguments.emplace_back(input->second);
  }
  Expected<Reference> reference = Reference::create(*copy);
  if (!reference)
    return Error{"the reference: " + reference.error()};
  Expected<std::vector<HostTensor>> results = reference->run(arguments);
  if (!results)
    return Error{"the reference: " + results.error()};
  Values values;
  for (unsigned i = 0; i < outputs; ++i)
    if (auto name = function.getResultAttrOfType<StringAttr>(i, "onnx.name"))
      values[name.str()] = std::move((*results)[i]);
  for (size_t k = 0; k < names.size(); ++k)
    values.emplace(names[k], std::move((*results)[outputs + k]));
  return values;
}

std::optional<Departure> firstDeparture(ModuleOp module, const Values &values, const Values &judged,
                                        double least, uint64_t &compared) {
  constexpr double kGrowth = 8;
  auto function = module.lookupSymbol<func::FuncOp>("main");
  llvm::DenseMap<Value, double> errors; // of what nobody compared: the largest before it
  for (Operation &op : function.getBody().front()) {
    double before = 0;
    for (Value operand : op.getOperands())
      before = std::max(before, errors.lookup(operand));
    double error = before;
    const std::string name = onnxValueOf(op);
    const auto value = values.find(name), other = judged.find(name);
    if (value != values.end() && other != judged.end() &&
        value->second.shape == other->second.shape) {
      ++compared;
      error = distance(value->second, other->second).relativeL2;
      if (!(error <= std::max(kGrowth * before, least)))
        return Departure{name, error, before};
    }
    for (Value result : op.getResults())
      errors[result] = error;
  }
  return std::nullopt;
}

} // namespace millrace::driver
