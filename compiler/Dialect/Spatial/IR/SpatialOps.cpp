// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text and verifiers of the operations.
#include "compiler/Dialect/Spatial/IR/Spatial.h"

#include "arch/operations/AluOp.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

namespace millrace::spatial {

using namespace mlir;

//===-- Pieces of text ----------------------------------------------------------------------===//

static ParseResult parseNumber(OpAsmParser &parser, IntegerAttr &number) {
  int64_t value = 0;
  if (parser.parseInteger(value))
    return failure();
  number = parser.getBuilder().getI64IntegerAttr(value);
  return success();
}

static ParseResult parseBits(OpAsmParser &parser, IntegerAttr &bits) {
  return parseNumber(parser, bits);
}

/// Hexadecimal: most immediates are patterns of floating-point numbers.
static void printBits(OpAsmPrinter &printer, Operation *, IntegerAttr bits) {
  printer << "0x" << llvm::utohexstr(uint64_t(bits.getInt()));
}

/// `tensor<4xf16>`, or `tensor<4xf16> = dense<...>`.
static ParseResult parseTypeAndData(OpAsmParser &parser, TypeAttr &type, ElementsAttr &data) {
  Type parsed;
  if (parser.parseType(parsed))
    return failure();
  type = TypeAttr::get(parsed);
  return succeeded(parser.parseOptionalEqual()) ? parser.parseAttribute(data, parsed) : success();
}

static void printTypeAndData(OpAsmPrinter &printer, Operation *, TypeAttr type, ElementsAttr data) {
  printer << type.getValue();
  if (!data)
    return;
  printer << " = ";
  printer.printAttributeWithoutType(data);
}

static ParseResult parseRole(OpAsmParser &parser, RoleAttr &role) {
  FailureOr<Role> value = FieldParser<Role>::parse(parser);
  if (failed(value))
    return failure();
  role = RoleAttr::get(parser.getContext(), *value);
  return success();
}

static void printRole(OpAsmPrinter &printer, Operation *, RoleAttr role) {
  printer << stringifyRole(role.getValue());
}

/// `%tensor[%p0 * 2 + %c1 - 1, 0] pad 5`.
static ParseResult parseAccess(OpAsmParser &parser, OpAsmParser::UnresolvedOperand &tensor,
                               SmallVectorImpl<OpAsmParser::UnresolvedOperand> &loops,
                               AffineMapAttr &map, IntegerAttr &pad) {
  Attribute indices;
  NamedAttrList unused;
  pad = parser.getBuilder().getI64IntegerAttr(0);
  if (parser.parseOperand(tensor) || parser.parseAffineMapOfSSAIds(loops, indices, "map", unused))
    return failure();
  map = cast<AffineMapAttr>(indices);
  return succeeded(parser.parseOptionalKeyword("pad")) ? parseNumber(parser, pad) : success();
}

static void printAccess(OpAsmPrinter &printer, Operation *, Value tensor, OperandRange loops,
                        AffineMapAttr map, IntegerAttr pad) {
  printer << tensor << "[";
  printer.printAffineMapOfSSAIds(map, loops);
  printer << "]";
  if (pad.getInt() != 0)
    printer << " pad " << pad.getInt();
}

/// `lookup dim 0 %indices[%p0, 0]`, or nothing.
static ParseResult parseLookup(OpAsmParser &parser,
                               std::optional<OpAsmParser::UnresolvedOperand> &indices,
                               SmallVectorImpl<OpAsmParser::UnresolvedOperand> &loops,
                               AffineMapAttr &map, IntegerAttr &dim) {
  if (failed(parser.parseOptionalKeyword("lookup")))
    return success();
  Attribute parsed;
  NamedAttrList unused;
  if (parser.parseKeyword("dim") || parseNumber(parser, dim) ||
      parser.parseOperand(indices.emplace()) ||
      parser.parseAffineMapOfSSAIds(loops, parsed, "indexMap", unused))
    return failure();
  map = cast<AffineMapAttr>(parsed);
  return success();
}

static void printLookup(OpAsmPrinter &printer, Operation *, Value indices, OperandRange loops,
                        AffineMapAttr map, IntegerAttr dim) {
  if (!indices)
    return;
  printer << "lookup dim " << dim.getInt() << " " << indices << "[";
  printer.printAffineMapOfSSAIds(map, loops);
  printer << "]";
}

static ParseResult parseMnemonic(OpAsmParser &parser, StringAttr &operation) {
  StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  operation = parser.getBuilder().getStringAttr(word);
  return success();
}

static void printMnemonic(OpAsmPrinter &printer, Operation *, StringAttr operation) {
  printer << operation.getValue();
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name, provenance;
  SmallVector<OpAsmParser::Argument> loops;
  SmallVector<int64_t> extents;
  SmallVector<Attribute> kinds;
  const auto parseLoop = [&]() -> ParseResult {
    FailureOr<LoopKind> kind;
    loops.emplace_back().type = builder.getIndexType();
    if (parser.parseArgument(loops.back()) || parser.parseEqual() ||
        failed(kind = FieldParser<LoopKind>::parse(parser)) ||
        parser.parseInteger(extents.emplace_back()))
      return failure();
    loops.back().type = builder.getIndexType();
    kinds.push_back(LoopKindAttr::get(builder.getContext(), *kind));
    return success();
  };
  if (parser.parseAttribute(name) || parser.parseKeyword("from") ||
      parser.parseAttribute(provenance) ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseLoop) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.parseRegion(*result.addRegion(), loops))
    return failure();
  if (result.regions.front()->empty())
    result.regions.front()->emplaceBlock().addArguments(
        SmallVector<Type>(loops.size(), builder.getIndexType()),
        SmallVector<Location>(loops.size(), result.location));
  result.addAttribute(getNameAttrName(result.name), name);
  result.addAttribute(getProvenanceAttrName(result.name), provenance);
  result.addAttribute(getExtentsAttrName(result.name), builder.getDenseI64ArrayAttr(extents));
  result.addAttribute(getKindsAttrName(result.name), builder.getArrayAttr(kinds));
  return success();
}

void KernelOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printAttributeWithoutType(getNameAttr());
  printer << " from ";
  printer.printAttributeWithoutType(getProvenanceAttr());
  printer << " (";
  llvm::interleaveComma(
      llvm::zip(getBody().getArguments(), getKinds(), getExtents()), printer, [&](auto loop) {
        auto [argument, kind, extent] = loop;
        printer << argument << " = " << stringifyLoopKind(cast<LoopKindAttr>(kind).getValue())
                << " " << extent;
      });
  printer << ")";
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getNameAttrName(), getProvenanceAttrName(), getExtentsAttrName(), getKindsAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

void KernelOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  for (auto [argument, kind] : llvm::zip(region.getArguments(), getKinds()))
    setName(argument, stringifyLoopKind(cast<LoopKindAttr>(kind).getValue()).take_front().str() +
                          std::to_string(argument.getArgNumber()));
}

void TensorOp::getAsmResultNames(OpAsmSetValueNameFn setName) { setName(getResult(), getName()); }

//===-- Verifiers ---------------------------------------------------------------------------===//

// Far beyond every model, so that products of what passes stay within 64 bits.
constexpr int64_t kMostElements = int64_t(1) << 40; ///< of a tensor
constexpr int64_t kMostPoints = int64_t(1) << 56;   ///< of a kernel's loops

static bool productFits(ArrayRef<int64_t> factors, int64_t most) {
  int64_t product = 1;
  return llvm::all_of(factors, [&](int64_t factor) {
    return !llvm::MulOverflow(product, factor, product) && product <= most;
  });
}

static bool isStored(Type element) {
  return element.isSignlessInteger(8) || element.isUnsignedInteger(8) ||
         element.isSignlessInteger(32) || element.isF16() || element.isBF16() || element.isF32() ||
         isa<Float8E4M3FNType, Float8E5M2Type>(element);
}

/// The dimensions that the mapping of a host's tensor names.
static LogicalResult verifyHost(TensorOp op, HostAttr host) {
  const int64_t hostRank = int64_t(host.getShape().size());
  if (host.getLoops().empty())
    return success();
  if (int64_t(host.getStart().size()) != hostRank)
    return op.emitOpError() << "has " << host.getStart().size() << " first indices for the host's "
                            << hostRank << " dimensions";
  for (size_t i = 0; i + 5 <= host.getLoops().size(); i += 5) {
    ArrayRef<int64_t> loop = host.getLoops().slice(i, 5);
    if (loop[0] < 1 || loop[1] < 0 || loop[1] >= op.getTensorType().getRank() || loop[3] < 0 ||
        loop[3] >= hostRank)
      return op.emitOpError() << "has a host loop of extent " << loop[0] << " over dimension "
                              << loop[1] << " of " << op.getTensorType().getRank()
                              << " and the host's dimension " << loop[3] << " of " << hostRank;
  }
  return success();
}

LogicalResult TensorOp::verify() {
  RankedTensorType type = getTensorType();
  if (!isStored(type.getElementType()))
    return emitOpError() << "has elements of type " << type.getElementType()
                         << "; memory holds i8, ui8, i32, f16, bf16, f32, f8E4M3FN and f8E5M2";
  if (!type.hasStaticShape())
    return emitOpError() << "has the shape " << type << "; all extents must be known";
  if (!productFits(type.getShape(), kMostElements))
    return emitOpError() << "has more elements than any machine holds: " << type;
  if (getLanes() >= uint64_t(type.getRank()))
    return emitOpError() << "has its lanes in dimension " << getLanes() << " of " << type.getRank();
  if (getData().has_value() != (getRole() == Role::Constant))
    return emitOpError() << "with role " << stringifyRole(getRole())
                         << (getData() ? " has data; only constants do" : " needs data");
  if (getSplat() && !getData())
    return emitOpError("is a splat without data");
  if (HostAttr host = getHostAttr(); host && failed(verifyHost(*this, host)))
    return failure();
  if (!getData())
    return success();
  std::optional<ConstantView> data = viewConstant(*getData());
  if (!data || data->type != type)
    return emitOpError() << "has data of another type than " << type;
  if (getSplat() && !data->splat && type.getNumElements() != 1)
    return emitOpError("is a splat, but its data has more than one value");
  return success();
}

/// What the loops of an access may be, and how many indices it has.
static LogicalResult verifyAccess(Operation *op, Value tensor, OperandRange loops, AffineMap map,
                                  uint64_t pad, bool contracted, bool running) {
  auto kernel = cast<KernelOp>(op->getParentOp());
  auto source = tensor.getDefiningOp<TensorOp>();
  if (!source)
    return op->emitOpError("accesses a value that no spatial.tensor defines");
  if (map.getNumResults() != source.getTensorType().getRank())
    return op->emitOpError() << "has " << map.getNumResults() << " indices for '"
                             << source.getName() << "' of rank "
                             << source.getTensorType().getRank();
  if (map.getNumDims() != loops.size() || map.getNumSymbols() != 0)
    return op->emitOpError() << "has indices of " << map.getNumInputs() << " loops, but names "
                             << loops.size();
  if (pad > UINT32_MAX)
    return op->emitOpError() << "has a pad of more than 32 bits: " << pad;
  for (Value loop : loops) {
    auto argument = dyn_cast<BlockArgument>(loop);
    if (!argument || argument.getOwner() != &kernel.getBody().front())
      return op->emitOpError("has an index that is no loop of its kernel");
    LoopKind kind = cast<LoopKindAttr>(kernel.getKinds()[argument.getArgNumber()]).getValue();
    if ((kind == LoopKind::Contracted && !contracted) || (kind == LoopKind::Running && !running))
      return op->emitOpError() << "may not use loop " << argument.getArgNumber() << ", which is "
                               << stringifyLoopKind(kind);
  }
  for (AffineExpr index : map.getResults())
    if (!index.isPureAffine() || index
                                     .walk([](AffineExpr part) {
                                       const AffineExprKind kind = part.getKind();
                                       return kind == AffineExprKind::Mod ||
                                                      kind == AffineExprKind::FloorDiv ||
                                                      kind == AffineExprKind::CeilDiv
                                                  ? WalkResult::interrupt()
                                                  : WalkResult::advance();
                                     })
                                     .wasInterrupted())
      return op->emitOpError("has an index that is no sum of loops times numbers");
  return success();
}

LogicalResult TermOp::verify() {
  if (failed(verifyAccess(*this, getA(), getALoops(), getAMap(), getAPad(), true, true)) ||
      failed(verifyAccess(*this, getW(), getWLoops(), getWMap(), getWPad(), true, true)))
    return failure();
  Type a = getA().getDefiningOp<TensorOp>().getTensorType().getElementType();
  Type w = getW().getDefiningOp<TensorOp>().getTensorType().getElementType();
  if (a != w || a.isF32() || a.isInteger(32))
    return emitOpError() << "multiplies " << a << " by " << w << "; both must be one MXM format";
  return success();
}

LogicalResult OperandOp::verify() {
  if (failed(verifyAccess(*this, getTensor(), getLoops(), getMap(), getPad(), false, true)))
    return failure();
  if (bool(getIndices()) != bool(getIndexMap()) || bool(getIndices()) != bool(getDim()))
    return emitOpError("looks an index up without saying where, or in which dimension");
  if (!getIndices())
    return success();
  if (failed(verifyAccess(*this, getIndices(), getIndexLoops(), *getIndexMap(), 0, false, true)))
    return failure();
  if (int64_t rank = getTensor().getDefiningOp<TensorOp>().getTensorType().getRank();
      *getDim() >= uint64_t(rank))
    return emitOpError() << "looks up the index of dimension " << *getDim() << " of " << rank;
  Type type = getIndices().getDefiningOp<TensorOp>().getTensorType().getElementType();
  if (!type.isInteger(32))
    return emitOpError() << "takes indices from elements of type " << type << "; they are i32";
  return success();
}

LogicalResult WriteOp::verify() {
  return verifyAccess(*this, getTensor(), getLoops(), getMap(), getPad(), false, false);
}

LogicalResult ImmediateOp::verify() {
  if (getBits() > UINT32_MAX)
    return emitOpError() << "has more than 32 bits: " << getBits();
  return success();
}

LogicalResult AluOp::verify() {
  std::optional<millrace::AluOp> op = aluOpFromMnemonic(getMnemonic().str());
  if (!op)
    return emitOpError() << "names '" << getMnemonic()
                         << "', which no ALU does; docs/spec/isa.md lists the operations";
  if (aluOpInfo(*op).operands != getInputs().size())
    return emitOpError() << "gives " << getInputs().size() << " operands to " << getMnemonic()
                         << ", which takes " << aluOpInfo(*op).operands;
  return success();
}

LogicalResult ReduceOp::verify() {
  std::optional<millrace::AluOp> op = aluOpFromMnemonic(getMnemonic().str());
  if (!op || aluOpInfo(*op).operands != 2)
    return emitOpError() << "reduces by '" << getMnemonic()
                         << "', which is no operation of two operands";
  return success();
}

/// Each term runs through its own contracted loops, beside those that no term has for its own.
static bool pointsFit(KernelOp kernel) {
  const auto isContracted = [&](unsigned loop) {
    return cast<LoopKindAttr>(kernel.getKinds()[loop]).getValue() == LoopKind::Contracted;
  };
  std::vector<std::vector<int64_t>> terms;
  std::vector<bool> isOwn(kernel.getExtents().size(), false);
  kernel.getBody().walk([&](TermOp term) {
    terms.emplace_back();
    for (BlockArgument loop : kernel.getBody().getArguments())
      if (isContracted(loop.getArgNumber()) && llvm::is_contained(term->getOperands(), loop)) {
        terms.back().push_back(kernel.getExtents()[loop.getArgNumber()]);
        isOwn[loop.getArgNumber()] = true;
      }
  });
  std::vector<int64_t> common;
  for (auto [loop, extent] : llvm::enumerate(kernel.getExtents()))
    if (!isOwn[loop])
      common.push_back(extent);
  terms.emplace_back();
  return llvm::all_of(terms, [&](std::vector<int64_t> &own) {
    own.insert(own.end(), common.begin(), common.end());
    return productFits(own, kMostPoints);
  });
}

LogicalResult KernelOp::verify() {
  if (getBody().getNumArguments() != getExtents().size() ||
      getKinds().size() != getExtents().size())
    return emitOpError() << "has " << getBody().getNumArguments() << " loops, "
                         << getExtents().size() << " extents and " << getKinds().size() << " kinds";
  for (BlockArgument loop : getBody().getArguments())
    if (!loop.getType().isIndex())
      return emitOpError() << "has a loop of type " << loop.getType() << " instead of index";
  if (!pointsFit(*this))
    return emitOpError("has more points than any machine computes");
  unsigned section = 0;
  for (Operation &op : getBody().front()) {
    if (!isa<TermOp, OperandOp, AccumulatorOp, ReadOp, ImmediateOp, AluOp, ReduceOp, WriteOp>(op))
      return op.emitOpError("is no part of a kernel");
    const unsigned own = isa<TermOp>(op) ? 0 : isa<OperandOp>(op) ? 1 : isa<WriteOp>(op) ? 3 : 2;
    if (own < section)
      return op.emitOpError("stands too late: a kernel has terms, then operands, then the "
                            "epilogue, then writes");
    section = own;
  }
  return success();
}

LogicalResult CallOp::verify() {
  auto module = (*this)->getParentOfType<ModuleOp>();
  auto host = module ? module.lookupSymbol<ModuleOp>(kHostModule) : ModuleOp();
  auto function = host ? host.lookupSymbol<func::FuncOp>(getFunction()) : func::FuncOp();
  if (!function)
    return emitOpError() << "names @" << getFunction() << ", which is no function of the module @"
                         << kHostModule;
  if (getDevice() && *getDevice() != "cpu" && *getDevice() != "gpu")
    return emitOpError() << "runs on '" << *getDevice()
                         << "'; use \"cpu\" or \"gpu\", or leave it out";
  if (function.getNumArguments() != getInputs().size() ||
      function.getNumResults() != getOutputs().size())
    return emitOpError() << "gives " << getInputs().size() << " tensors for " << getOutputs().size()
                         << " to @" << getFunction() << ", which takes "
                         << function.getNumArguments() << " for " << function.getNumResults();
  return success();
}

/// Numbers of kernels or calls lie below their count; that none comes twice is the graph's to say.
template <class Op> static LogicalResult verifyNumbers(GraphOp graph) {
  auto ops = graph.getBody().getOps<Op>();
  const auto count = std::distance(ops.begin(), ops.end());
  for (Op op : ops)
    if (op.getNumber() && *op.getNumber() >= uint64_t(count))
      return op.emitOpError() << "has number " << *op.getNumber() << " of " << count;
  return success();
}

LogicalResult GraphOp::verify() {
  for (Operation &op : getBody().front())
    if (!isa<TensorOp, KernelOp, CallOp>(op))
      return op.emitOpError("is no part of a kernel graph");
  return success();
}

LogicalResult GraphOp::verifyRegions() {
  if (failed(verifyNumbers<KernelOp>(*this)) || failed(verifyNumbers<CallOp>(*this)))
    return failure();
  if (std::string wrong = importOp(*this).verify(); !wrong.empty())
    return emitOpError() << "is wrong: " << wrong;
  return success();
}

} // namespace millrace::spatial

#define GET_OP_CLASSES
#include "compiler/Dialect/Spatial/IR/SpatialOps.cpp.inc"
