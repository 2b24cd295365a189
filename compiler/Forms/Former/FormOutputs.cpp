// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results of the function: computed in place, or copied from where consumers find them.
#include "compiler/Forms/Former/Former.h"

namespace millrace::forms {

using namespace mlir;

/// Makes the tensor result `number` of the function.
void Former::setOutput(Tensor &tensor, unsigned number) {
  Value value = function.getBody().front().getTerminator()->getOperand(number);
  tensor.role = TensorRole::Output;
  if (auto name = function.getResultAttrOfType<StringAttr>(number, "onnx.name"))
    tensor.name = tensor.hostName = name.str();
  if (auto name = function.getResultAttrOfType<StringAttr>(number, "onnx.type"))
    tensor.hostType = name.str();
  tensor.hostShape.assign(shapeOf(value).begin(), shapeOf(value).end());
}

/// The model's name of result `number`, or its number.
static std::string nameOfResult(func::FuncOp function, unsigned number) {
  auto name = function.getResultAttrOfType<StringAttr>(number, "onnx.name");
  return name ? name.str() : std::to_string(number);
}

bool Former::isMadeByHost(unsigned tensor) const {
  return llvm::any_of(graph.hostCalls, [&](const HostCall &call) {
    return llvm::is_contained(call.outputs, tensor);
  });
}

/// Results of the function. A result that is a view of something stored is written again, in its
/// own order.
LogicalResult Former::storeOutputs() {
  auto terminator = cast<func::ReturnOp>(function.getBody().front().getTerminator());
  for (auto [i, value] : llvm::enumerate(terminator.getOperands())) {
    unsigned lane = preferredLane(value);
    if (baseOf(value) != value) {
      Value base = baseOf(value);
      lane = 0;
      for (auto [dim, extent] :
           llvm::enumerate(shapeOf(value))) // the extent of the stored lanes, if it is there
        if (extent > 1)
          lane = unsigned(dim);
      if (demand(base) > 1)
        if (FailureOr<Stored> source = store(base, std::nullopt); succeeded(source)) {
          const Tensor &tensor = graph.tensors[source->tensor];
          for (auto [dim, extent] : llvm::enumerate(shapeOf(value)))
            if (extent == tensor.shape[tensor.laneDim] && extent > 1)
              lane = unsigned(dim);
        }
    }
    FailureOr<ElementType> type =
        storedType(cast<RankedTensorType>(value.getType()).getElementType());
    if (failed(type))
      return function.emitError("output '")
             << nameOfResult(function, unsigned(i)) << "' has elements of "
             << cast<RankedTensorType>(value.getType()).getElementType()
             << ", which no tensor of the grid holds; cast it to a float, int8 or int32";
    if (baseOf(value) == value && (demand(value) > 1 || value.getDefiningOp<tensor::ConcatOp>()))
      if (FailureOr<Stored> source = store(value, std::nullopt);
          succeeded(source) && graph.tensors[source->tensor].role == TensorRole::Intermediate &&
          !isMadeByHost(source->tensor)) { // the grid copies what the host makes
        setOutput(graph.tensors[source->tensor], unsigned(i));
        continue;
      }
    unsigned tensor = newTensor(value, shapeOf(value), lane);
    setOutput(graph.tensors[tensor], unsigned(i));
    // Computed here if nobody else needs it, else copied.
    bool isHere = baseOf(value) == value && formOf(value) && demand(value) <= 1 &&
                  isFormable(value.getDefiningOp());
    LogicalResult done = failure();
    int64_t split = 0;
    if (isHere)
      done = emit(value, tensor, {}, lane, split);
    auto copy = [&] {
      return emitKernel(
          value, tensorShape(value), lane, {},
          [&](Attempt &attempt, const Point &point) {
            return pull(attempt, value, shapeOf(value).empty() ? Point() : point);
          },
          [&](Attempt &attempt, const Point &point, Scalar scalar) {
            Access to{tensor, {}, 0};
            for (const Linear &at : point)
              to.index.push_back(at.affine());
            storeScalar(attempt.build, scalar, to);
          });
    };
    if (failed(done))
      done = copy();
    const Value base = baseOf(value);
    if (failed(done) && base.getDefiningOp() && !stored.count(base))
      if (FailureOr<Stored> made = storeByHost(base, base == value ? lane : preferredLane(base));
          succeeded(made)) {
        stored[base].push_back(*made);
        done = copy();
      }
    if (failed(done) && base != value) // a view whose index is not affine
      if (FailureOr<Stored> made = storeByHost(value, lane); succeeded(made)) {
        stored[value].push_back(*made);
        done = copy();
      }
    if (failed(done))
      return function.emitError("no kernel can be made that writes output '")
             << nameOfResult(function, unsigned(i))
             << "'; compute it in floats, or leave it out of the outputs";
  }
  return success();
}

} // namespace millrace::forms
