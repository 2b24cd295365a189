// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionImplementation.h"

#define GET_OP_CLASSES
#include "compiler/Dialect/Tile/IR/TileOps.cpp.inc"

namespace millrace::tile {

using namespace mlir;

/// Elements that a matrix product adds up at a time (mma.sync m16n8k16); rows are made of them.
constexpr int64_t kRowStep = 8, kDotStep = 16;

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

bool isTable(Operation *op) { return isa_and_nonnull<LoadTableOp, ComputeTableOp>(op); }

bool hasRows(KernelOp kernel) {
  return kernel
      .walk([](Operation *op) {
        return llvm::any_of(op->getResultTypes(), isRows) ? WalkResult::interrupt()
                                                          : WalkResult::advance();
      })
      .wasInterrupted();
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
    for (Value operand : op->getOperands())
      if (isTable(operand.getDefiningOp()) &&
          (!isa<DotOp>(op) || operand != cast<DotOp>(op).getTable() ||
           operand == cast<DotOp>(op).getRows()))
        return op->emitOpError("takes a table; only tile.dot does, as its second operand"),
               WalkResult::interrupt();
    for (Type type : op->getResultTypes())
      if (auto tile = dyn_cast<VectorType>(type);
          isa<TensorType, MemRefType>(type) ||
          (tile && !isTable(op) &&
           (tile.getRank() > 2 || tile.isScalable() || tile.getDimSize(0) != getLanes())))
        return op->emitOpError() << "has a result of type " << type << "; tiles of kernel '"
                                 << getSymName() << "' are vectors of " << getLanes()
                                 << " elements",
               WalkResult::interrupt();
    for (Type type : op->getResultTypes())
      if (isRows(type) && cast<VectorType>(type).getDimSize(1) % kRowStep)
        return op->emitOpError() << "has rows of " << cast<VectorType>(type).getDimSize(1)
                                 << " elements; use a multiple of " << kRowStep,
               WalkResult::interrupt();
    if (isa<ReduceOp>(op) && hasRows(*this))
      return op->emitOpError("combines lanes of a kernel with rows per lane; combine rows, or use "
                             "another kernel"),
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
  if (isa<KernelOp>(kernel) && TypeRange(kernel.getArgumentTypes()) != TypeRange(getOperands()))
    return emitOpError() << "passes what kernel '" << getKernel()
                         << "' does not take; its arguments are " << kernel.getArgumentTypes();
  return success();
}

namespace {

LogicalResult verifyKind(Operation *op, arith::AtomicRMWKind kind, Type element) {
  using Kind = arith::AtomicRMWKind;
  const bool isFloat = isa<FloatType>(element);
  const bool fits =
      isFloat ? llvm::is_contained({Kind::addf, Kind::mulf, Kind::maximumf, Kind::minimumf}, kind)
              : llvm::is_contained({Kind::addi, Kind::muli, Kind::maxs, Kind::mins, Kind::maxu,
                                    Kind::minu, Kind::andi, Kind::ori, Kind::xori},
                                   kind);
  if (!fits || !isElementType(element))
    return op->emitOpError() << "cannot combine elements of " << element << " by '"
                             << arith::stringifyAtomicRMWKind(kind) << "'";
  return success();
}

} // namespace

LogicalResult ReduceOp::verify() {
  if (!isa<KernelOp>((*this)->getParentOp()))
    return emitOpError("stands in a loop or branch; combine tiles there and reduce behind it");
  return verifyKind(*this, getKind(), getResult().getType());
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

//===-- A row per lane
//-------------------------------------------------------------------------===//

namespace {

LogicalResult verifyRowAccess(Operation *op, Value memory, OperandRange indices, Value mask,
                              uint32_t along, Type rows) {
  if (failed(verifyAccess(op, memory, indices, rows)))
    return failure();
  if (along >= indices.size())
    return op->emitOpError() << "goes along dimension " << static_cast<int32_t>(along) << " of "
                             << memory.getType();
  if (isTile(indices[along].getType()))
    return op->emitOpError() << "has a tile of indices in dimension " << along
                             << ", along which the rows lie; give a scalar";
  if (!getElementTypeOrSelf(rows).isIntOrFloat() || getElementTypeOrSelf(rows).isInteger(1))
    return op->emitOpError("moves rows of i1; use i8");
  return success();
}

} // namespace

LogicalResult LoadRowsOp::verify() {
  return verifyRowAccess(*this, getSource(), getIndices(), getMask(), getAlong(),
                         getResult().getType());
}

LogicalResult StoreRowsOp::verify() {
  if (failed(verifyRowAccess(*this, getTarget(), getIndices(), getMask(), getAlong(),
                             getValue().getType())))
    return failure();
  if (!getMask() &&
      llvm::none_of(getIndices(), [](Value index) { return isTile(index.getType()); }))
    return emitOpError("writes the rows of all lanes to one place; give it a tile of indices, or a "
                       "mask");
  return success();
}

/// Of what a table is read from.
static LogicalResult verifyNotWritten(Operation *op, Value memory) {
  for (Operation *user : memory.getUsers())
    if (isa<StoreOp, StoreRowsOp>(user)) {
      InFlightDiagnostic error = op->emitOpError("lies in a tensor that the kernel writes; read it "
                                                 "as rows, or write to another");
      error.attachNote(user->getLoc()) << "here";
      return error;
    }
  return success();
}

LogicalResult LoadTableOp::verify() {
  if (failed(verifyAccess(*this, getSource(), getIndices(), getResult().getType())))
    return failure();
  if (getRows() >= getIndices().size() || getColumns() >= getIndices().size() ||
      getRows() == getColumns())
    return emitOpError() << "lies along dimensions " << static_cast<int32_t>(getRows()) << " and "
                         << static_cast<int32_t>(getColumns()) << " of " << getSource().getType()
                         << "; name two of it";
  return verifyNotWritten(*this, getSource());
}

LogicalResult ComputeTableOp::verifyRegions() {
  Block &block = getBody().front();
  if (static_cast<int64_t>(getRowEnd()) < 1 || static_cast<int64_t>(getColumnEnd()) < 1)
    return emitOpError() << "ends at (" << static_cast<int64_t>(getRowEnd()) << ", "
                         << static_cast<int64_t>(getColumnEnd())
                         << "); it has at least one row and one column";
  if (block.getNumArguments() != 2 ||
      !llvm::all_of(block.getArgumentTypes(), [](Type type) { return type.isIndex(); }))
    return emitOpError("has a region that takes no two indices; it takes the row and the column");
  auto yield = dyn_cast<YieldOp>(block.back());
  if (!yield || yield.getValue().getType() != getResult().getType().getElementType())
    return emitOpError() << "has a region that does not yield "
                         << getResult().getType().getElementType();
  for (Operation &op : block.without_terminator()) {
    auto load = dyn_cast<LoadOp>(op);
    const StringRef dialect = op.getName().getDialectNamespace();
    if ((!load && dialect != "arith" && dialect != "math") || op.getNumRegions() ||
        llvm::any_of(op.getResultTypes(), isTile))
      return op.emitOpError("computes an element of a table; use loads of scalars and elementwise "
                            "arith and math on scalars");
    if (load && failed(verifyNotWritten(load, load.getSource())))
      return failure();
  }
  return success();
}

LogicalResult DotOp::verify() {
  const VectorType rows = getRows().getType(), table = getTable().getType(),
                   sums = getAccumulator().getType();
  const Type element = rows.getElementType();
  if (element != table.getElementType() || !(element.isF16() || element.isBF16()) ||
      !sums.getElementType().isF32())
    return emitOpError() << "multiplies " << element << " by " << table.getElementType() << " into "
                         << sums.getElementType()
                         << "; it takes f16 or bf16 on both sides, and sums in f32";
  if (rows.getDimSize(1) != table.getDimSize(1) || sums.getDimSize(1) != table.getDimSize(0) ||
      rows.getDimSize(0) != sums.getDimSize(0))
    return emitOpError() << "multiplies " << rows << " by a table " << table << " into " << sums;
  if (rows.getDimSize(1) % kDotStep || table.getDimSize(0) % kRowStep)
    return emitOpError() << "adds up " << rows.getDimSize(1) << " products for "
                         << table.getDimSize(0) << " results; use multiples of " << kDotStep
                         << " and of " << kRowStep;
  if (!isTable(getTable().getDefiningOp()))
    return emitOpError("has a second operand that is not the result of tile.load_table or "
                       "tile.compute_table");
  return success();
}

LogicalResult ReduceRowsOp::verify() {
  const VectorType rows = getRows().getType();
  const auto lanes = cast<VectorType>(getResult().getType());
  if (lanes.getDimSize(0) != rows.getDimSize(0) || lanes.getElementType() != rows.getElementType())
    return emitOpError() << "makes " << lanes << " of " << rows;
  return verifyKind(*this, getKind(), lanes.getElementType());
}

LogicalResult SpreadOp::verify() {
  const auto lanes = cast<VectorType>(getLanes().getType());
  const VectorType rows = getResult().getType();
  if (lanes.getDimSize(0) != rows.getDimSize(0) || lanes.getElementType() != rows.getElementType())
    return emitOpError() << "makes " << rows << " of " << lanes;
  return success();
}

} // namespace millrace::tile
