// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/LaunchCalls.h"

#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Pass/Pass.h"

namespace millrace::gpu {

using namespace mlir;

void millraceLaunch(Launcher *launcher, int64_t site, void *const *arguments) {
  launcher->launch(launcher->sites[static_cast<size_t>(site)], arguments);
}

namespace {

/// Bytes from where the memory begins to behind its last element.
size_t extentOf(MemRefType type) {
  const auto [strides, offset] = type.getStridesAndOffset();
  int64_t last = offset;
  for (auto [size, stride] : llvm::zip(type.getShape(), strides))
    last += (size - 1) * stride;
  return static_cast<size_t>(last + 1) * std::max(8u, type.getElementTypeBitWidth()) / 8;
}

class CallLauncher : public PassWrapper<CallLauncher, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CallLauncher)
  explicit CallLauncher(Launcher &launcher) : launcher(launcher) {}
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<func::FuncDialect, memref::MemRefDialect, arith::ArithDialect>();
  }
  void runOnOperation() final {
    SmallVector<tile::LaunchOp> launches;
    getOperation().walk([&](tile::LaunchOp launch) { launches.push_back(launch); });
    for (tile::LaunchOp launch : launches)
      replace(launch);
    launcher.takeKernels(getOperation());
  }

private:
  /// millrace_launch(launcher, number of the site, an array of pointers).
  void replace(tile::LaunchOp launch) {
    OpBuilder b(launch);
    const Location place = launch.getLoc();
    const auto constant = [&](int64_t n) -> Value {
      return arith::ConstantIntOp::create(b, place, b.getI64Type(), n);
    };
    LaunchSite site{launch.getKernel().str(), {}};
    const auto array = MemRefType::get(int64_t(launch.getOperands().size()), b.getIndexType());
    Value pointers = memref::AllocaOp::create(b, place, array);
    for (auto [i, operand] : llvm::enumerate(launch.getOperands())) {
      site.bytes.push_back(extentOf(cast<MemRefType>(operand.getType())));
      memref::StoreOp::create(b, place,
                              memref::ExtractAlignedPointerAsIndexOp::create(b, place, operand),
                              pointers, ValueRange{arith::ConstantIndexOp::create(b, place, i)});
    }
    Value begin = arith::IndexCastOp::create(
        b, place, b.getI64Type(),
        memref::ExtractAlignedPointerAsIndexOp::create(b, place, pointers));
    const Type number = b.getI64Type();
    if (!getOperation().lookupSymbol(kLaunchFunction)) {
      OpBuilder top = OpBuilder::atBlockBegin(getOperation().getBody());
      func::FuncOp::create(top, place, kLaunchFunction,
                           top.getFunctionType({number, number, number}, {}))
          .setPrivate();
    }
    func::CallOp::create(b, place, kLaunchFunction, TypeRange(),
                         ValueRange{constant(reinterpret_cast<intptr_t>(&launcher)),
                                    constant(int64_t(launcher.sites.size())), begin});
    launcher.sites.push_back(std::move(site));
    launch.erase();
  }

  Launcher &launcher;
};

} // namespace

std::unique_ptr<Pass> createCallLauncherPass(Launcher &launcher) {
  return std::make_unique<CallLauncher>(launcher);
}

} // namespace millrace::gpu
