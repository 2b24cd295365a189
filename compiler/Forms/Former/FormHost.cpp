// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What no form covers runs on the host: one function per value, on tensors of the kernel graph.
#include "compiler/Forms/Former/Former.h"

#include "compiler/Support/HostTensor.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/raw_ostream.h"

namespace millrace::forms {

using namespace mlir;

bool Former::isFormable(Operation *op) {
  if (op->hasAttr(kDevice))
    return false;
  if (slicePoints.contains(op) || copies.contains(op) || isLookup(op))
    return true;
  auto form = dyn_cast<linalg::LinalgOp>(op);
  if (!form || !formOf(op->getResult(0)) || form.hasIndexSemantics() || op->hasAttr(kOnHost))
    return false;
  for (Value operand : form.getDpsInputs()) {
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    if (!type || type.getElementType().isInteger(64) || type.getElementType().isF64())
      return false;
  }
  if (isMap(form))
    return isFormableBody(*form.getBlock());
  const Combiner combiner = combinerOf(form);
  // Sums over lanes are contractions, and those are of floats.
  if (combiner == Combiner::Sum && reducesLanes(form) &&
      isa<IntegerType>(cast<RankedTensorType>(op->getResult(0).getType()).getElementType()))
    return false;
  // The greatest and the least of all lanes: of floats.
  if ((combiner == Combiner::Max || combiner == Combiner::Min) && reducesLanes(form) &&
      form.getIndexingMapsArray()[0].isProjectedPermutation() && // no window
      isa<IntegerType>(cast<RankedTensorType>(op->getResult(0).getType()).getElementType()))
    return false;
  return combiner != Combiner::None && isFormableBody(*form.getBlock());
}

/// Operations that belong into the host function together with their user: cheap, or not formable
/// themselves.
static bool staysOnHost(Operation *op, bool isFormable) {
  if (isa<tensor::EmptyOp, linalg::FillOp>(op))
    return true;
  if (op->hasTrait<OpTrait::ConstantLike>()) {
    auto type = dyn_cast<ShapedType>(op->getResult(0).getType());
    constexpr int64_t kSmall =
        64; // larger constants are tensors of the graph, so that the text stays short
    return !type || type.getNumElements() <= kSmall ||
           matchPattern(op->getResult(0), m_Constant<SplatElementsAttr>(nullptr));
  }
  return !isFormable;
}

/// What the grid takes from the host is fp32, or double as the model has it.
static Value widened(OpBuilder &builder, Value tensor) {
  auto given = cast<RankedTensorType>(tensor.getType());
  if (given.getElementType().isF32() || given.getElementType().isF64())
    return tensor;
  auto type = RankedTensorType::get(given.getShape(), builder.getF32Type());
  Location loc = tensor.getLoc();
  unsigned rank = unsigned(type.getRank());
  Value init = tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
  AffineMap identity = builder.getMultiDimIdentityMap(rank);
  auto map = linalg::GenericOp::create(
      builder, loc, TypeRange(type), ValueRange{tensor}, ValueRange(init),
      ArrayRef<AffineMap>{identity, identity},
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
      [&](OpBuilder &b, Location at, ValueRange x) {
        linalg::YieldOp::create(b, at,
                                arith::ExtFOp::create(b, at, b.getF32Type(), x[0]).getResult());
      });
  return map.getResult(0);
}

/// Says of which type the host's functions hold a tensor, where the model does not and it is not
/// fp32.
static void noteHostType(Tensor &tensor, Type type) {
  Type element = cast<RankedTensorType>(type).getElementType();
  if (tensor.hostType.empty() && element.isF64())
    tensor.hostType = onnxName(HostType::Float64);
  else if (tensor.hostType.empty() && element.isSignlessInteger())
    tensor.hostType =
        element.isInteger(1) ? "bool" : "int" + std::to_string(element.getIntOrFloatBitWidth());
}

/// Values from outside that an operation, or its region, uses.
static SetVector<Value> operandsOf(Operation *op) {
  SetVector<Value> operands;
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (!op->isAncestor(operand.getParentBlock()->getParentOp()) ||
          operand.getParentBlock() == op->getBlock())
        operands.insert(operand);
  });
  return operands;
}

/// The operations of one host function that ends in `root`, and what it takes from memory. Views
/// come along, and so does what `isInside` says.
static std::pair<SetVector<Operation *>, SmallVector<Value>>
hostFunction(Operation *root, llvm::function_ref<bool(Operation *)> isInside) {
  SetVector<Operation *> inside;
  SetVector<Value> arguments;
  inside.insert(root);
  for (SmallVector<Operation *> open = {root}; !open.empty();)
    for (Value operand : operandsOf(open.pop_back_val())) {
      Operation *source = operand.getDefiningOp();
      if (!source || source->getBlock() != root->getBlock() || !isInside(source))
        arguments.insert(operand);
      else if (inside.insert(source))
        open.push_back(source);
    }
  SmallVector<Value> order = arguments.takeVector();
  llvm::sort(order, [](Value x, Value y) { // as in the program
    Operation *a = x.getDefiningOp(), *b = y.getDefiningOp();
    if (!a || !b)
      return !a &&
             (b || cast<BlockArgument>(x).getArgNumber() < cast<BlockArgument>(y).getArgNumber());
    return a->isBeforeInBlock(b);
  });
  return {std::move(inside), std::move(order)};
}

ArrayRef<Operation *> Former::contractionsOf(const HostCall &call) const {
  const auto found = hostContractions.find(call.function);
  return found == hostContractions.end() ? ArrayRef<Operation *>() : found->second;
}

FailureOr<Stored> Former::storeByHost(Value base, unsigned lane) {
  Operation *root = base.getDefiningOp();
  if (!root)
    return failure();
  // Of what is a view of something, it is that of the something.
  Operation *behindViews = baseOf(base).getDefiningOp();
  const auto device = (behindViews ? behindViews : root)->getAttrOfType<StringAttr>(kDevice);
  hosted.insert(base);
  laneChoices.clear();
  HostCall call;
  call.name = nameOf(base);
  call.function = "host_" + std::to_string(++hostFunctions);
  DenseSet<Operation *> repeated; ///< computed by the grid, too
  if (device)
    call.device = device.getValue() == nameOf(StepDevice::Gpu) ? StepDevice::Gpu : StepDevice::Cpu;
  // What another device computes comes from there, through the grid's memory if it lies there.
  const auto isElsewhere = [&](Operation *source) {
    const auto own = source->getAttrOfType<StringAttr>(kDevice);
    return own && own != device;
  };
  auto isInside = [&](Operation *source) {
    Value value = source->getResult(0);
    if (isElsewhere(source))
      return false;
    return isView(source) || isShown(source) || hosted.contains(value) || repeated.contains(source) ||
           (staysOnHost(source, isFormable(source)) && !stored.count(value));
  };
  // Arguments in memory first. What turns out to be made by the host is made here, too: between
  // two host steps nothing lies in the grid's memory.
  SetVector<Operation *> inside;
  SmallVector<Value> order;
  for (bool isSettled = false; !isSettled;) {
    std::tie(inside, order) = hostFunction(root, isInside);
    call.inputs.clear();
    isSettled = true;
    for (Value argument : order) {
      Operation *source = argument.getDefiningOp();
      Stored value;
      if (source && source->hasTrait<OpTrait::ConstantLike>()) {
        bool isFloat = isa<FloatType>(cast<RankedTensorType>(argument.getType()).getElementType());
        value.tensor =
            constantTensor(argument, isFloat ? ElementType::Fp32 : ElementType::Int32, 0);
      } else {
        FailureOr<Stored> found = store(argument, std::nullopt);
        if (succeeded(found) && found->laneSplit && source) { // cut for the grid alone
          repeated.insert(source);
          isSettled = false;
          continue;
        }
        if (failed(found) || found->laneSplit)
          return function.emitError("value '")
                 << nameOf(argument) << "' cannot be stored for the host step '" << call.name
                 << "'";
        value = *found;
        isSettled &= !hosted.contains(argument) || (source && isElsewhere(source));
      }
      call.inputs.push_back(value.tensor);
      noteHostType(graph.tensors[value.tensor], argument.getType());
    }
  }
  SmallVector<Type> types(ValueRange(order).getTypes());

  OpBuilder builder(base.getContext());
  OwningOpRef<ModuleOp> module(ModuleOp::create(builder.getUnknownLoc()));
  builder.setInsertionPointToEnd(module->getBody());
  auto body = func::FuncOp::create(builder, base.getLoc(), call.function,
                                   builder.getFunctionType(types, {base.getType()}));
  builder.setInsertionPointToStart(body.addEntryBlock());
  IRMapping mapping;
  for (auto [i, argument] : llvm::enumerate(order))
    mapping.map(argument, body.getArgument(unsigned(i)));
  SmallVector<Operation *> sorted(inside.begin(), inside.end());
  llvm::sort(sorted, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  for (Operation *op : sorted) {
    builder.clone(*op, mapping);
    if (auto form = dyn_cast<linalg::LinalgOp>(op);
        form && isContraction(form) && !repeated.contains(op))
      hostContractions[call.function].push_back(op);
  }
  const Value made = mapping.lookup(base);
  Value result = made;
  if (isa<FloatType>(cast<RankedTensorType>(base.getType()).getElementType()))
    result = widened(builder, result);
  SmallVector<Value> results{result};
  const SmallVector<unsigned> numbers = takeOutputs(base);
  results.append(numbers.size(), made);
  body.setType(builder.getFunctionType(types, ValueRange(results).getTypes()));
  func::ReturnOp::create(builder, base.getLoc(), results);
  llvm::raw_string_ostream out(graph.hostModule);
  body.print(out);
  out << "\n";

  unsigned tensor = newTensor(base, shapeOf(base), lane);
  call.outputs.push_back(tensor);
  noteHostType(graph.tensors[tensor], base.getType());
  for (unsigned number : numbers) { // as they are: they do not go through the grid's memory
    call.outputs.push_back(newTensor(base, shapeOf(base), lane));
    setOutput(graph.tensors[call.outputs.back()], number);
  }
  graph.hostCalls.push_back(std::move(call));
  graph.order.push_back({true, unsigned(graph.hostCalls.size() - 1)});
  return Stored{tensor, 0};
}

} // namespace millrace::forms
