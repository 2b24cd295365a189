// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of 16-bit operands as kernels that multiply on tensor cores. narrow-products
// finds them on tensors, products-to-tile makes kernels of them on buffers.
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Products/StoreOperands.h"
#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace millrace::gpu {

using namespace mlir;

namespace {

bool isNarrow(Type type) { return type.isF16() || type.isBF16(); }

/// Whether the operation adds products of one element of each input, which are widened at most, to
/// fp32.
bool isProduct(linalg::LinalgOp op) {
  return linalg::isaContractionOpInterface(op) && op.getNumDpsInputs() == 2 &&
         op.getNumDpsInits() == 1 && op.getNumReductionLoops() && !op.hasDynamicShape() &&
         getElementTypeOrSelf(op.getDpsInits()[0].getType()).isF32();
}

//===-- On tensors
//-------------------------------------------------------------------------------===//

/// What a tensor of fp32 was made of by widening alone, views aside, made again behind these; null
/// if it was made otherwise.
Value narrowed(Value value, OpBuilder &builder) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op)) {
    Value source = narrowed(op->getOperand(0), builder);
    if (!source)
      return {};
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfter(op);
    Operation *view = builder.clone(*op);
    view->setOperand(0, source);
    view->getResult(0).setType(cast<RankedTensorType>(op->getResult(0).getType())
                                   .clone(getElementTypeOrSelf(source.getType())));
    return view->getResult(0);
  }
  auto widening = dyn_cast<linalg::GenericOp>(op);
  if (!widening || widening.getNumDpsInputs() != 1 || widening.getNumDpsInits() != 1 ||
      widening.getNumReductionLoops() || !llvm::hasNItems(*widening.getBody(), 2) ||
      !llvm::all_of(widening.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return {};
  auto extension = dyn_cast<arith::ExtFOp>(widening.getBody()->front());
  Value source = widening.getDpsInputOperand(0)->get();
  return extension && extension.getIn() == widening.getBody()->getArgument(0) &&
                 widening.getBody()->getTerminator()->getOperand(0) == extension.getOut() &&
                 isNarrow(getElementTypeOrSelf(source.getType()))
             ? source
             : Value();
}

class NarrowProducts : public PassWrapper<NarrowProducts, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(NarrowProducts)
  StringRef getArgument() const final { return "narrow-products"; }
  StringRef getDescription() const final {
    return "multiplies 16-bit tensors as they are, not what is widened of them";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<arith::ArithDialect, linalg::LinalgDialect, tensor::TensorDialect>();
  }
  void runOnOperation() final {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (op.hasPureTensorSemantics() && isProduct(op))
        ops.push_back(op);
    });
    for (linalg::LinalgOp op : ops)
      narrow(op);
  }

private:
  static void narrow(linalg::LinalgOp op) {
    OpBuilder builder(op);
    SmallVector<Value> inputs;
    for (OpOperand *input : op.getDpsInputOperands())
      inputs.push_back(narrowed(input->get(), builder));
    if (!inputs[0] || !inputs[1] ||
        getElementTypeOrSelf(inputs[0].getType()) != getElementTypeOrSelf(inputs[1].getType()))
      return; // a copy of a view that was made for one of them is removed with what has no use
    narrowProduct(op, inputs);
  }
};

//===-- On buffers
//-------------------------------------------------------------------------------===//

/// Most rows and columns of a result that a program has, and products that it adds up at a time.
constexpr int64_t kMostRows = 64, kMostColumns = 64, kMostProducts = 32;
/// Fewer rows than these would leave most lanes without one.
constexpr int64_t kFewRows = 16;

class ProductBuilder {
public:
  ProductBuilder(linalg::LinalgOp op, OpBuilder &builder)
      : op(op), b(builder), place(op.getLoc()), sizes(op.getStaticLoopRanges()) {}

  /// Nothing if the loops are not those of a matrix product.
  tile::KernelOp build(StringRef name) {
    FailureOr<linalg::ContractionDimensions> found = linalg::inferContractionDims(op);
    if (failed(found) || found->k.empty() || (found->m.empty() && found->n.empty()) ||
        llvm::is_contained(sizes, 0))
      return {};
    left = op.getDpsInputOperand(0);
    right = op.getDpsInputOperand(1);
    SmallVector<unsigned> m(found->m.begin(), found->m.end()), n(found->n.begin(), found->n.end());
    if (n.empty() || (!m.empty() && count(m) < kFewRows && count(n) > count(m))) {
      std::swap(m, n);
      std::swap(left, right);
    }
    if (m.empty() || n.empty())
      return {};
    rowLoops = m;
    column = n.pop_back_val();
    outer.assign(found->batch.begin(), found->batch.end());
    outer.append(n);
    depths.assign(found->k.begin(), found->k.end());
    depth = depths.pop_back_val();
    return write(name);
  }

private:
  int64_t count(ArrayRef<unsigned> loops) const {
    int64_t product = 1;
    for (unsigned loop : loops)
      product *= sizes[loop];
    return product;
  }
  Value number(int64_t n) { return arith::ConstantIndexOp::create(b, place, n); }
  VectorType lanesOf(Type type) { return VectorType::get(lanes, type); }
  Value asTile(Value scalar) {
    return tile::BroadcastOp::create(b, place, lanesOf(scalar.getType()), scalar);
  }

  tile::KernelOp write(StringRef name) {
    const int64_t rows = count(rowLoops);
    lanes = std::min(kMostRows, 32 * llvm::divideCeilSigned(rows, 32));
    columns = std::min(kMostColumns, 8 * llvm::divideCeilSigned(sizes[column], 8));
    products = std::min(kMostProducts, 16 * llvm::divideCeilSigned(sizes[depth], 16));
    const int64_t rowTiles = (rows + lanes - 1) / lanes,
                  columnTiles = (sizes[column] + columns - 1) / columns;
    SmallVector<Type> types(op->getOperandTypes());
    auto kernel =
        tile::KernelOp::create(b, place, name, b.getFunctionType(types, {}), lanes,
                               count(outer) * rowTiles * columnTiles, ArrayAttr(), ArrayAttr());
    Block *body = b.createBlock(&kernel.getBody());
    for (Type type : types)
      body->addArgument(type, place);
    // The program's number, from the innermost on: columns, rows, then what lies outside of both.
    at.assign(sizes.size(), Value());
    Value left = tile::ProgramIdOp::create(b, place);
    const auto take = [&](int64_t size) {
      Value own = arith::RemUIOp::create(b, place, left, number(size));
      left = arith::DivUIOp::create(b, place, left, number(size));
      return own;
    };
    at[column] = arith::MulIOp::create(b, place, take(columnTiles), number(columns));
    chooseRows(take(rowTiles), rows);
    for (unsigned loop : llvm::reverse(outer))
      at[loop] = take(sizes[loop]);
    const unsigned result = op.getDpsInitOperand(0)->getOperandNumber();
    OpOperand &target = op->getOpOperand(result);
    const auto sums = VectorType::get({lanes, columns}, b.getF32Type());
    const SmallVector<Value> to = indicesOf(target);
    Value before = tile::LoadRowsOp::create(b, place, sums, body->getArgument(result), to, inside,
                                            dimensionOf(target, column));
    Value sum = addUp(0, before, *body);
    tile::StoreRowsOp::create(b, place, sum, body->getArgument(result), to, inside,
                              dimensionOf(target, column));
    tile::ReturnOp::create(b, place);
    return kernel;
  }

  void chooseRows(Value tile, int64_t rows) {
    Value first = arith::MulIOp::create(b, place, tile, number(lanes));
    Value iota = tile::IotaOp::create(b, place, lanesOf(b.getIndexType()));
    Value row = arith::AddIOp::create(b, place, asTile(first), iota);
    if (rows % lanes)
      inside =
          arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, row, asTile(number(rows)));
    for (unsigned loop : llvm::reverse(rowLoops)) {
      if (loop == rowLoops.front()) {
        at[loop] = row;
        break;
      }
      at[loop] = arith::RemUIOp::create(b, place, row, asTile(number(sizes[loop])));
      row = arith::DivUIOp::create(b, place, row, asTile(number(sizes[loop])));
    }
  }

  SmallVector<Value> indicesOf(OpOperand &operand) {
    SmallVector<Value> indices;
    for (AffineExpr index : op.getMatchingIndexingMap(&operand).getResults())
      indices.push_back(at[cast<AffineDimExpr>(index).getPosition()]);
    return indices;
  }
  uint32_t dimensionOf(OpOperand &operand, unsigned loop) {
    return *op.getMatchingIndexingMap(&operand).getResultPosition(
        getAffineDimExpr(loop, op.getContext()));
  }

  /// Loops over what is summed, from `level` on.
  Value addUp(size_t level, Value before, Block &body) {
    const bool isLast = level == depths.size();
    const unsigned loop = isLast ? depth : depths[level];
    Value from = number(0), to = number(sizes[loop]), step = number(isLast ? products : 1);
    auto all = scf::ForOp::create(b, place, from, to, step, before);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(all.getBody());
    at[loop] = all.getInductionVar();
    Value sum = all.getRegionIterArg(0);
    scf::YieldOp::create(b, place, isLast ? multiply(sum, body) : addUp(level + 1, sum, body));
    return all.getResult(0);
  }

  Value multiply(Value sum, Block &body) {
    const Type type = getElementTypeOrSelf(left->get().getType());
    Value rows = tile::LoadRowsOp::create(b, place, VectorType::get({lanes, products}, type),
                                          body.getArgument(left->getOperandNumber()),
                                          indicesOf(*left), inside, dimensionOf(*left, depth));
    Value table =
        tile::LoadTableOp::create(b, place, VectorType::get({columns, products}, type),
                                  body.getArgument(right->getOperandNumber()), indicesOf(*right),
                                  dimensionOf(*right, column), dimensionOf(*right, depth));
    return tile::DotOp::create(b, place, sum.getType(), rows, table, sum);
  }

  linalg::LinalgOp op;
  OpBuilder &b;
  const Location place;
  const SmallVector<int64_t> sizes;
  OpOperand *left = nullptr, *right = nullptr; ///< of rows, and of tables
  SmallVector<unsigned> rowLoops, outer, depths;
  unsigned column = 0, depth = 0;
  int64_t lanes = 0, columns = 0, products = 0;
  SmallVector<Value> at; ///< by loop
  Value inside;          ///< lanes that have a row; none: all have
};

class FormProducts : public PassWrapper<FormProducts, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FormProducts)
  StringRef getArgument() const final { return "products-to-tile"; }
  StringRef getDescription() const final {
    return "makes matrix products of 16-bit buffers launches of kernels for tensor cores";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry
        .insert<arith::ArithDialect, memref::MemRefDialect, scf::SCFDialect, tile::TileDialect>();
  }
  void runOnOperation() final {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (op.hasPureBufferSemantics() && isProduct(op) && areNarrow(op))
        ops.push_back(op);
    });
    for (linalg::LinalgOp op : ops)
      replace(op);
  }

private:
  static bool areNarrow(linalg::LinalgOp op) {
    const Type type = getElementTypeOrSelf(op.getDpsInputs()[0].getType());
    return isNarrow(type) && type == getElementTypeOrSelf(op.getDpsInputs()[1].getType()) &&
           op.getDpsInputs()[0] != op.getDpsInits()[0] &&
           op.getDpsInputs()[1] != op.getDpsInits()[0];
  }

  void replace(linalg::LinalgOp op) {
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    // All are built under one name, so that equal ones print equally.
    tile::KernelOp kernel = ProductBuilder(op, builder).build("kernel");
    if (!kernel)
      return;
    std::string text;
    llvm::raw_string_ostream out(text);
    kernel->print(out);
    auto [found, isNew] = kernels.try_emplace(text, kernel);
    if (isNew)
      kernel.setSymName(("product_" + Twine(kernels.size())).str());
    else
      kernel.erase();
    builder.setInsertionPoint(op);
    tile::LaunchOp::create(builder, op.getLoc(), found->second.getSymName(), op->getOperands());
    op->erase();
  }

  llvm::StringMap<tile::KernelOp> kernels; ///< by their text
};

} // namespace

std::unique_ptr<Pass> createNarrowProductsPass() { return std::make_unique<NarrowProducts>(); }
std::unique_ptr<Pass> createFormProductsPass() { return std::make_unique<FormProducts>(); }

} // namespace millrace::gpu
