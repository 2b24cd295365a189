// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Products/FuseProducts.h"

#include "compiler/Codegen/Gpu/Attention/TensorBuffers.h"
#include "compiler/Codegen/Gpu/Products/ProductKernel.h"
#include "compiler/Codegen/Gpu/Products/StoreOperands.h"
#include "compiler/Dialect/Tile/Transforms/Staging.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

#include "llvm/ADT/StringMap.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

class FuseProducts : public PassWrapper<FuseProducts, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FuseProducts)
  FuseProducts() = default;
  FuseProducts(const std::string &element, std::vector<std::string> *left, const TuningTable &table)
      : left(left), table(table) {
    type = element;
  }
  FuseProducts(const FuseProducts &other)
      : PassWrapper(other), left(other.left), table(other.table) {}
  StringRef getArgument() const final { return "fused-products-to-tile"; }
  StringRef getDescription() const final {
    return "makes matrix products at the tensor level, with what is elementwise around them, "
           "launches of kernels for tensor cores";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry
        .insert<arith::ArithDialect, bufferization::BufferizationDialect, math::MathDialect,
                memref::MemRefDialect, scf::SCFDialect, tensor::TensorDialect, tile::TileDialect>();
  }
  void runOnOperation() final {
    if (type != "bf16" && type != "f16") {
      getOperation().emitError() << "type '" << type.getValue()
                                 << "' of fused-products-to-tile; use bf16 or f16";
      return signalPassFailure();
    }
    if (!warpgroups)
      table = table.withoutWarpgroups();
    Builder builder(&getContext());
    const Type element = type == "bf16" ? Type(builder.getBF16Type()) : builder.getF16Type();
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (function.isExternal())
        continue;
      SmallVector<linalg::LinalgOp> products;
      for (auto op : function.getBody().front().getOps<linalg::LinalgOp>())
        if (op.hasPureTensorSemantics() && isAnyProduct(op))
          products.push_back(op);
      // The last one first: an operand may be the result of one before it.
      for (linalg::LinalgOp product : llvm::reverse(products)) {
        std::string why;
        if (std::optional<FoundProduct> found = findProduct(product, element, why))
          replace(std::move(*found), element);
        else
          remark(product, why);
      }
    }
  }

private:
  void remark(linalg::LinalgOp op, const std::string &why) {
    op->emitRemark() << "the product '" << nodeOf(op) << "' is left: " << why;
    if (left)
      left->push_back("'" + nodeOf(op) + "' is multiplied without tensor cores: " + why);
  }

  void replace(FoundProduct found, Type element) {
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    // All are built under one name, so that equal ones print equally.
    ProductKernel built = buildProduct(found, table, builder, "kernel");
    if (!tile::planStaging(built.kernel))
      if (linalg::LinalgOp stored = storeOperands(found)) {
        std::string why;
        built.kernel.erase();
        found = std::move(*findProduct(stored, element, why, /*follows=*/false));
        built = buildProduct(found, table, builder, "kernel");
      }
    std::string text;
    llvm::raw_string_ostream out(text);
    built.kernel->print(out);
    auto [shared, isNew] = kernels.try_emplace(text, built.kernel);
    if (isNew)
      built.kernel.setSymName(newName());
    else
      built.kernel.erase();
    tile::KernelOp kernel = shared->second;

    Operation *last = found.last;
    const Location place = last->getLoc();
    builder.setInsertionPoint(last);
    SmallVector<Value> operands;
    for (auto [tensor, memory] : llvm::zip(built.read, kernel.getArgumentTypes()))
      operands.push_back(bufferOf(builder, place, tensor, cast<MemRefType>(memory)));
    Value result =
        memref::AllocOp::create(builder, place, cast<MemRefType>(kernel.getArgumentTypes().back()));
    operands.push_back(result);
    tile::LaunchOp::create(builder, place, kernel.getSymName(), operands);
    result = tensorOf(builder, place, result,
                      cast<RankedTensorType>(last->getResult(0).getType()).getShape());
    last->getResult(0).replaceAllUsesWith(result);
    for (Operation *op : llvm::reverse(found.operations)) // what nothing else reads goes
      if (op->use_empty())
        op->erase();
  }

  std::string newName() {
    std::string name;
    do
      name = "product_" + std::to_string(++numbers);
    while (getOperation().lookupSymbol(name));
    return name;
  }

  Option<std::string> type{*this, "type", llvm::cl::desc("of what is multiplied: bf16 or f16"),
                           llvm::cl::init("f16")};
  Option<bool> warpgroups{*this, "warpgroups",
                          llvm::cl::desc("for chips that have warpgroups, where a kernel gains"),
                          llvm::cl::init(true)};
  std::vector<std::string> *left = nullptr;
  TuningTable table = TuningTable::builtIn();
  unsigned numbers = 0;
  llvm::StringMap<tile::KernelOp> kernels; ///< by their text
};

} // namespace

std::unique_ptr<Pass> createFuseProductsPass(const std::string &type,
                                             std::vector<std::string> *left,
                                             const TuningTable &table) {
  return std::make_unique<FuseProducts>(type, left, table);
}

void registerFuseProductsPass() { PassRegistration<FuseProducts>(); }

} // namespace millrace::gpu
