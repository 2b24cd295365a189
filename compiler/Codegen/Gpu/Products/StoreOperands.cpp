// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Products/StoreOperands.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

Type numberTypeOf(Value value) { return getElementTypeOrSelf(value.getType()); }

/// Its numbers are rounded to the type when the program runs, not here.
bool isRoundedLater(Value operand, Type element) {
  DenseFPElementsAttr numbers;
  return numberTypeOf(operand) != element && !matchPattern(operand, m_Constant(&numbers));
}

/// By what an H200 reached (docs/results/2026-11-27-gpu.md): kernels without TMA about 45 TFLOPS,
/// with it more than ten times as many, and kernels that only move memory 3.5 TB/s.
bool pays(const FoundProduct &found) {
  constexpr double kFlops = 45e12, kBytes = 3.5e12, kLaunch = 5e-6;
  const double products = double(found.count(found.outer)) * double(found.count(found.rows)) *
                          double(found.size(found.column)) * double(found.count(found.depths)) *
                          double(found.count(found.steps));
  double moves = 0;
  linalg::LinalgOp product = found.product;
  for (OpOperand *operand : product.getDpsInputOperands())
    if (isRoundedLater(operand->get(), found.element)) {
      const auto type = cast<RankedTensorType>(operand->get().getType());
      moves += kLaunch + double(type.getNumElements()) * 6 / kBytes; // read as fp32, and written
    }
  return 2 * products / kFlops > 1.5 * moves;
}

/// Rows that TMA can load: neighbours in memory, so many that the next row is aligned.
bool isLoadable(Value operand) {
  const auto type = dyn_cast<RankedTensorType>(operand.getType());
  return type && type.hasStaticShape() && type.getRank() >= 2 && type.getRank() <= 5 &&
         type.getShape().back() % 8 == 0;
}

Value rounded(OpBuilder &b, Location place, Value operand, Type element) {
  const auto type = cast<RankedTensorType>(operand.getType()).clone(element);
  DenseFPElementsAttr numbers;
  if (matchPattern(operand, m_Constant(&numbers))) {
    const llvm::fltSemantics &format = cast<FloatType>(element).getFloatSemantics();
    return arith::ConstantOp::create(b, place, numbers.mapValues(element, [&](APFloat number) {
      bool isInexact = false;
      number.convert(format, APFloat::rmNearestTiesToEven, &isInexact);
      return number.bitcastToAPInt();
    }));
  }
  Value empty = tensor::EmptyOp::create(b, place, type, ValueRange());
  const AffineMap same = b.getMultiDimIdentityMap(unsigned(type.getRank()));
  const SmallVector<utils::IteratorType> loops(size_t(type.getRank()),
                                               utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, place, TypeRange(type), operand, empty, ArrayRef<AffineMap>{same, same}, loops,
             [&](OpBuilder &inner, Location, ValueRange values) {
               Value number = arith::TruncFOp::create(inner, place, element, values[0]);
               linalg::YieldOp::create(inner, place, number);
             })
      .getResult(0);
}

} // namespace

linalg::LinalgOp narrowProduct(linalg::LinalgOp product, ValueRange inputs) {
  OpBuilder builder(product);
  auto narrow = linalg::GenericOp::create(
      builder, product.getLoc(), product->getResultTypes(), inputs, product.getDpsInits(),
      product.getIndexingMapsArray(), product.getIteratorTypesArray(),
      [](OpBuilder &b, Location place, ValueRange values) {
        const auto wide = [&](Value value) -> Value {
          return arith::ExtFOp::create(b, place, b.getF32Type(), value);
        };
        Value term = arith::MulFOp::create(b, place, wide(values[0]), wide(values[1]));
        Value sum = arith::AddFOp::create(b, place, values[2], term);
        linalg::YieldOp::create(b, place, sum);
      });
  product->replaceAllUsesWith(narrow);
  product->erase();
  return narrow;
}

linalg::LinalgOp storeOperands(const FoundProduct &found) {
  linalg::LinalgOp product = found.product;
  bool isChanged = false;
  if (found.left->kind != Term::Kind::Leaf || found.right->kind != Term::Kind::Leaf)
    return {};
  for (OpOperand *operand : product.getDpsInputOperands()) {
    const bool isNarrow = numberTypeOf(operand->get()) == found.element;
    if (!isLoadable(operand->get()) || (!isNarrow && !numberTypeOf(operand->get()).isF32()))
      return {};
    isChanged |= !isNarrow;
  }
  if (!isChanged || !pays(found))
    return {};
  OpBuilder builder(product);
  const Location place = product.getLoc();
  SmallVector<Value> inputs;
  for (OpOperand *operand : product.getDpsInputOperands())
    inputs.push_back(numberTypeOf(operand->get()) == found.element
                         ? operand->get()
                         : rounded(builder, place, operand->get(), found.element));
  return narrowProduct(product, inputs);
}

} // namespace millrace::gpu
