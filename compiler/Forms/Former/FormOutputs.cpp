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

/// The results of the function that are this value and that nobody writes yet; the caller will.
SmallVector<unsigned> Former::takeOutputs(Value value) {
  SmallVector<unsigned> numbers;
  for (auto [i, result] :
       llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
    if (result == value && takenOutputs.insert(unsigned(i)).second)
      numbers.push_back(unsigned(i));
  return numbers;
}

/// Whether the host makes the value, as no form covers it, or a conversion of what it makes.
bool Former::isOfHost(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || op->hasTrait<OpTrait::ConstantLike>())
    return false;
  if (hosted.contains(value))
    return true;
  if (!isFormable(op))
    return !isa<tensor::ConcatOp>(op);
  auto map = dyn_cast<linalg::LinalgOp>(op);
  if (!map || !isMap(map) || map.getNumDpsInputs() != 1 || demand(value) > 1 ||
      !map.getIndexingMapsArray()[0].isIdentity())
    return false;
  const Value source = baseOf(op->getOperand(0));
  return llvm::hasSingleElement(map.getBlock()->without_terminator()) &&
         isa<CastOpInterface>(map.getBlock()->front()) && demand(source) <= 1 && isOfHost(source);
}

/// What the host makes, or a view of it, is written by the host. Whether it is.
bool Former::storeOutputByHost(Value value, unsigned number) {
  const Value base = baseOf(value);
  if (!isOfHost(base))
    return false;
  if (base == value && !stored.count(value) && !isFormable(base.getDefiningOp()))
    return succeeded(store(value, std::nullopt)) && takenOutputs.contains(number);
  return succeeded(storeByHost(value, 0)); // a view, a conversion, or once more for the caller
}

/// Results of the function. A result that is a view of something stored is written again, in its
/// own order.
LogicalResult Former::storeOutputs() {
  auto terminator = cast<func::ReturnOp>(function.getBody().front().getTerminator());
  for (auto [i, value] : llvm::enumerate(terminator.getOperands())) {
    if (failed(storedType(cast<RankedTensorType>(value.getType()).getElementType())))
      return function.emitError("output '")
             << nameOfResult(function, unsigned(i)) << "' has elements of "
             << cast<RankedTensorType>(value.getType()).getElementType()
             << ", which no tensor of the grid holds; cast it to a float, int8 or int32";
    if (takenOutputs.contains(unsigned(i)) || storeOutputByHost(value, unsigned(i)))
      continue;
    takenOutputs.insert(unsigned(i));
    unsigned lane = preferredLane(value);
    const Value base = baseOf(value);
    if (base != value) {
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
    if (base == value && (demand(value) > 1 || value.getDefiningOp<tensor::ConcatOp>()))
      if (FailureOr<Stored> source = store(value, std::nullopt);
          succeeded(source) && graph.tensors[source->tensor].role == TensorRole::Intermediate &&
          !hosted.contains(value)) {
        setOutput(graph.tensors[source->tensor], unsigned(i));
        continue;
      }
    unsigned tensor = newTensor(value, shapeOf(value), lane);
    setOutput(graph.tensors[tensor], unsigned(i));
    // Computed here if nobody else needs it, else copied.
    bool isHere =
        base == value && formOf(value) && demand(value) <= 1 && isFormable(value.getDefiningOp());
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
            storeScalar(attempt.build, scalar, to, value.getType());
          });
    };
    if (failed(done) && !hosted.contains(base))
      done = copy();
    if (failed(done) || hosted.contains(base)) { // no kernel makes it, so the host does
      takenOutputs.erase(unsigned(i));
      if (succeeded(storeByHost(value, 0))) {
        graph.tensors[tensor].role = TensorRole::Intermediate; // of nobody
        continue;
      }
    }
    if (failed(done))
      return function.emitError("no kernel can be made that writes output '")
             << nameOfResult(function, unsigned(i))
             << "'; compute it in floats, or leave it out of the outputs";
  }
  return success();
}

} // namespace millrace::forms
