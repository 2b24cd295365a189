// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Gemm/Gemm.h"

#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

class BuildGemm : public PassWrapper<BuildGemm, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BuildGemm)
  BuildGemm() = default;
  BuildGemm(const BuildGemm &other) : PassWrapper(other) {}
  StringRef getArgument() const final { return "build-gemm"; }
  StringRef getDescription() const final {
    return "adds the kernel of a matrix product, of the hopper level";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    hopper::registerLoweringDialects(registry);
  }
  void runOnOperation() final {
    if (type != "bf16" && type != "f16") {
      getOperation().emitError() << "type '" << type << "' of build-gemm; use bf16 or f16";
      return signalPassFailure();
    }
    const GemmProblem problem{
        type == "bf16" ? GemmProblem::Type::BFloat16 : GemmProblem::Type::Float16, bias};
    const GemmSchedule schedule =
        GemmSchedule::make(tileM, tileN, tileK, stages, consumers, cluster);
    if (Status done = buildGemm(getOperation(), name, problem, schedule); !done) {
      getOperation().emitError() << done.error();
      signalPassFailure();
    }
  }

private:
  Option<std::string> name{*this, "name", llvm::cl::desc("of the kernel"), llvm::cl::init("gemm")};
  Option<std::string> type{*this, "type", llvm::cl::desc("of A, B and C: bf16 or f16"),
                           llvm::cl::init("bf16")};
  Option<bool> bias{*this, "bias", llvm::cl::desc("adds an fp32 bias to each column"),
                    llvm::cl::init(false)};
  Option<unsigned> tileM{*this, "tile-m", llvm::cl::desc("rows of C per CTA"), llvm::cl::init(128)};
  Option<unsigned> tileN{*this, "tile-n", llvm::cl::desc("columns of C per CTA"),
                         llvm::cl::init(128)};
  Option<unsigned> tileK{*this, "tile-k", llvm::cl::desc("elements of K per stage"),
                         llvm::cl::init(64)};
  Option<unsigned> stages{*this, "stages", llvm::cl::desc("of the ring"), llvm::cl::init(4)};
  Option<unsigned> consumers{*this, "consumers", llvm::cl::desc("warpgroups that multiply"),
                             llvm::cl::init(2)};
  Option<unsigned> cluster{*this, "cluster", llvm::cl::desc("CTAs along M that share tiles of B"),
                           llvm::cl::init(1)};
};

} // namespace

void registerGemmPass() { PassRegistration<BuildGemm>(); }

} // namespace millrace::gpu
