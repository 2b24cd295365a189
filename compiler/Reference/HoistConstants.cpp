// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace millrace::reference {
namespace {

void replaceBySplat(arith::ConstantOp constant, SplatElementsAttr splat) {
  OpBuilder builder(constant);
  Location location = constant.getLoc();
  auto type = cast<RankedTensorType>(splat.getType());
  Value scalar = arith::ConstantOp::create(builder, location,
                                           cast<TypedAttr>(splat.getSplatValue<Attribute>()));
  Value empty = tensor::EmptyOp::create(builder, location, type.getShape(), type.getElementType());
  Value filled =
      linalg::FillOp::create(builder, location, ValueRange(scalar), ValueRange(empty)).getResult(0);
  constant.getResult().replaceAllUsesWith(filled);
  constant.erase();
}

} // namespace

void fillSplats(ModuleOp module, llvm::StringRef entry) {
  llvm::SmallVector<std::pair<arith::ConstantOp, SplatElementsAttr>> splats;
  module.lookupSymbol<func::FuncOp>(entry).walk([&](arith::ConstantOp constant) {
    auto splat = dyn_cast<SplatElementsAttr>(constant.getValue());
    if (splat && isa<RankedTensorType>(constant.getType()))
      splats.emplace_back(constant, splat);
  });
  for (auto [constant, splat] : splats)
    replaceBySplat(constant, splat);
}

llvm::SmallVector<ElementsAttr> hoistConstants(ModuleOp module, llvm::StringRef entry) {
  fillSplats(module, entry);
  llvm::SmallVector<ElementsAttr> values;
  auto function = module.lookupSymbol<func::FuncOp>(entry);
  llvm::SmallVector<arith::ConstantOp> constants;
  function.walk([&](arith::ConstantOp constant) {
    if (isa<RankedTensorType>(constant.getType()))
      constants.push_back(constant);
  });
  for (arith::ConstantOp constant : constants) {
    unsigned index = function.getNumArguments();
    // A failure here would mean a function without a body, which has no constants.
    if (failed(function.insertArgument(index, constant.getType(), {}, constant.getLoc())))
      continue;
    values.push_back(cast<ElementsAttr>(constant.getValue()));
    constant.getResult().replaceAllUsesWith(function.getArgument(index));
    constant.erase();
  }
  return values;
}

void dropEmptyPorts(ModuleOp module, llvm::StringRef entry) {
  auto function = module.lookupSymbol<func::FuncOp>(entry);
  auto isEmpty = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getNumElements() == 0;
  };
  llvm::BitVector arguments(function.getNumArguments()), results(function.getNumResults());
  OpBuilder builder = OpBuilder::atBlockBegin(&function.front());
  for (BlockArgument argument : function.getArguments()) {
    if (!isEmpty(argument.getType()))
      continue;
    auto type = cast<RankedTensorType>(argument.getType());
    argument.replaceAllUsesWith(tensor::EmptyOp::create(builder, argument.getLoc(), type.getShape(),
                                                        type.getElementType()));
    arguments.set(argument.getArgNumber());
  }
  Operation *terminator = function.front().getTerminator();
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    if (isEmpty(type))
      results.set(static_cast<unsigned>(i));
  terminator->eraseOperands(results);
  // Erasing ports of a function with a body cannot fail.
  (void)function.eraseArguments(arguments);
  (void)function.eraseResults(results);
}

} // namespace millrace::reference
