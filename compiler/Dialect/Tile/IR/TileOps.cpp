// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionImplementation.h"

#define GET_OP_CLASSES
#include "compiler/Dialect/Tile/IR/TileOps.cpp.inc"

namespace millrace::tile {

using namespace mlir;

bool isElementType(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type))
    return integer.isSignless() && llvm::is_contained({1u, 8u, 16u, 32u, 64u}, integer.getWidth());
  return isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(type);
}

bool isAllowedInKernel(Operation *op) {
  const StringRef dialect = op->getName().getDialectNamespace();
  if (dialect == "tile")
    return !isa<KernelOp, LaunchOp>(op);
  if (dialect == "arith" || dialect == "math")
    return OpTrait::hasElementwiseMappableTraits(op) || op->hasTrait<OpTrait::ConstantLike>();
  return llvm::is_contained({"scf.for", "scf.if", "scf.yield"}, op->getName().getStringRef());
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  const auto functionType = [](Builder &builder, ArrayRef<Type> arguments, ArrayRef<Type> results,
                               function_interface_impl::VariadicFlag, std::string &) -> Type {
    return builder.getFunctionType(arguments, results);
  };
  return function_interface_impl::parseFunctionOp(
      parser, result, /*allowVariadic=*/false, getFunctionTypeAttrName(result.name), functionType,
      getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void KernelOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(printer, *this, /*isVariadic=*/false,
                                           getFunctionTypeAttrName(), getArgAttrsAttrName(),
                                           getResAttrsAttrName());
}

LogicalResult KernelOp::verify() {
  if (isExternal())
    return emitOpError("has no body");
  if (!getResultTypes().empty())
    return emitOpError("has results; a kernel writes to global memory");
  // Attributes of a text may be negative.
  const auto lanes = static_cast<int32_t>(getLanes());
  if (lanes < 32 || lanes > int32_t(kMostLanes) || lanes % 32)
    return emitOpError() << "has " << lanes << " lanes; use a multiple of 32 up to " << kMostLanes;
  if (static_cast<int32_t>(getPrograms()) < 1)
    return emitOpError() << "has " << static_cast<int32_t>(getPrograms())
                         << " programs; at least one runs";
  for (auto [i, type] : llvm::enumerate(getArgumentTypes())) {
    const auto memory = dyn_cast<MemRefType>(type);
    SmallVector<int64_t> strides;
    int64_t offset = 0;
    if (!memory || !memory.hasStaticShape() || memory.getMemorySpace() ||
        !isElementType(memory.getElementType()) ||
        failed(memory.getStridesAndOffset(strides, offset)) || ShapedType::isDynamic(offset) ||
        llvm::any_of(strides, ShapedType::isDynamic))
      return emitOpError() << "has argument " << i << " of type " << type
                           << "; arguments are memrefs of static shape and strides, of i1, i8, "
                              "i16, i32, i64, f16, bf16, f32 or f64";
  }
  return success();
}

LogicalResult KernelOp::verifyRegions() {
  const WalkResult found = walk([&](Operation *op) {
    if (op == getOperation())
      return WalkResult::advance();
    if (!isAllowedInKernel(op))
      return op->emitOpError("cannot stand in a tile.kernel; use the tile dialect, elementwise "
                             "arith and math, scf.for and scf.if"),
             WalkResult::interrupt();
    DenseElementsAttr constant;
    if (matchPattern(op, m_Constant(&constant)) && !constant.isSplat())
      return op->emitOpError("has different elements; a constant tile has one for all lanes"),
             WalkResult::interrupt();
    for (Type type : op->getResultTypes())
      if (auto tile = dyn_cast<VectorType>(type);
          isa<TensorType, MemRefType>(type) ||
          (tile && (tile.getRank() != 1 || tile.isScalable() || tile.getDimSize(0) != getLanes())))
        return op->emitOpError() << "has a result of type " << type << "; tiles of kernel '"
                                 << getSymName() << "' are vectors of " << getLanes()
                                 << " elements",
               WalkResult::interrupt();
    return WalkResult::advance();
  });
  return success(!found.wasInterrupted());
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel = dyn_cast_or_null<FunctionOpInterface>(
      symbols.lookupNearestSymbolFrom(*this, getKernelAttr()));
  if (!kernel)
    return emitOpError() << "names '" << getKernel() << "', which is no kernel of the module";
  if (isa<KernelOp>(kernel) && kernel.getArgumentTypes() != TypeRange(getOperands()))
    return emitOpError() << "passes what kernel '" << getKernel()
                         << "' does not take; its arguments are " << kernel.getArgumentTypes();
  return success();
}

LogicalResult ReduceOp::verify() {
  if (!isa<KernelOp>((*this)->getParentOp()))
    return emitOpError("stands in a loop or branch; combine tiles there and reduce behind it");
  using Kind = arith::AtomicRMWKind;
  const bool isFloat = isa<FloatType>(getResult().getType());
  const bool fits =
      isFloat
          ? llvm::is_contained({Kind::addf, Kind::mulf, Kind::maximumf, Kind::minimumf}, getKind())
          : llvm::is_contained({Kind::addi, Kind::muli, Kind::maxs, Kind::mins, Kind::maxu,
                                Kind::minu, Kind::andi, Kind::ori, Kind::xori},
                               getKind());
  if (!fits || !isElementType(getResult().getType()))
    return emitOpError() << "cannot combine elements of " << getResult().getType() << " by '"
                         << arith::stringifyAtomicRMWKind(getKind()) << "'";
  return success();
}

namespace {

/// What loads and stores have in common; `value`: what a lane reads or writes.
LogicalResult verifyAccess(Operation *op, Value memory, OperandRange indices, Type value) {
  if (!isa<BlockArgument>(memory) ||
      !isa<KernelOp>(cast<BlockArgument>(memory).getOwner()->getParentOp()))
    return op->emitOpError("takes a tensor that is no argument of the kernel");
  const auto type = cast<MemRefType>(memory.getType());
  if (int64_t(indices.size()) != type.getRank())
    return op->emitOpError() << "has " << indices.size() << " indices for " << type
                             << "; it takes one per dimension";
  if (getElementTypeOrSelf(value) != type.getElementType())
    return op->emitOpError() << "moves " << getElementTypeOrSelf(value) << ", and the elements of "
                             << type << " are " << type.getElementType();
  // A constant is known here; what is computed is the emulator's to check.
  for (auto [index, size] : llvm::zip(indices, type.getShape())) {
    IntegerAttr known;
    if (matchPattern(index, m_Constant(&known)) &&
        (known.getValue().isNegative() || known.getValue().getSExtValue() >= size))
      return op->emitOpError() << "has index " << known.getValue().getSExtValue() << " of " << size;
  }
  return success();
}

} // namespace

LogicalResult LoadOp::verify() {
  if (failed(verifyAccess(*this, getSource(), getIndices(), getResult().getType())))
    return failure();
  if (getMask() && !isTile(getResult().getType()))
    return emitOpError("has a mask and gives a scalar; give a tile");
  if (getOther() && getOther().getType() != getElementTypeOrSelf(getResult().getType()))
    return emitOpError() << "gives " << getOther().getType() << " to lanes that do not read "
                         << getElementTypeOrSelf(getResult().getType());
  if (!isTile(getResult().getType()) &&
      llvm::any_of(getIndices(), [](Value index) { return isTile(index.getType()); }))
    return emitOpError("has a tile of indices and gives a scalar; give a tile");
  return success();
}

LogicalResult StoreOp::verify() {
  if (failed(verifyAccess(*this, getTarget(), getIndices(), getValue().getType())))
    return failure();
  if (!getMask() &&
      llvm::none_of(getIndices(), [](Value index) { return isTile(index.getType()); }))
    return emitOpError("writes all lanes to one element; give it a tile of indices, or a mask");
  return success();
}

} // namespace millrace::tile
