// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/Attention.h"
#include "compiler/Codegen/Gpu/Attention/FormAttention.h"

#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

class BuildAttention : public PassWrapper<BuildAttention, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BuildAttention)
  BuildAttention() = default;
  BuildAttention(const BuildAttention &other) : PassWrapper(other) {}
  StringRef getArgument() const final { return "build-attention"; }
  StringRef getDescription() const final {
    return "adds the kernel of an attention, of the tile level";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<arith::ArithDialect, math::MathDialect, scf::SCFDialect, tile::TileDialect>();
  }
  void runOnOperation() final {
    if (type != "bf16" && type != "f16") {
      getOperation().emitError() << "type '" << type << "' of build-attention; use bf16 or f16";
      return signalPassFailure();
    }
    AttentionProblem problem;
    problem.type =
        type == "bf16" ? AttentionProblem::Type::BFloat16 : AttentionProblem::Type::Float16;
    problem.batch = batch;
    problem.queryHeads = queryHeads;
    problem.keyHeads = keyHeads;
    problem.queries = queries;
    problem.keys = keys;
    problem.depth = depth;
    problem.valueDepth = valueDepth ? valueDepth : depth;
    problem.isCausal = causal;
    problem.window = window;
    problem.scale = scale;
    problem.softcap = softcap;
    problem.hasSinks = sinks;
    AttentionSchedule schedule = AttentionSchedule::choose(problem);
    if (rowsOfProgram)
      schedule.rows = rowsOfProgram;
    if (keysOfBlock)
      schedule.keys = keysOfBlock;
    if (Status done = buildAttention(getOperation(), name, problem, schedule); !done) {
      getOperation().emitError() << done.error();
      signalPassFailure();
    }
  }

private:
  template <class T> using Of = Option<T>;
  Of<std::string> name{*this, "name", llvm::cl::desc("of the kernel"), llvm::cl::init("attention")};
  Of<std::string> type{*this, "type", llvm::cl::desc("of Q, K and V: bf16 or f16"),
                       llvm::cl::init("f16")};
  Of<int64_t> batch{*this, "batch", llvm::cl::desc("of all tensors"), llvm::cl::init(1)};
  Of<int64_t> queryHeads{*this, "query-heads", llvm::cl::desc("of Q and O"), llvm::cl::init(1)};
  Of<int64_t> keyHeads{*this, "key-heads", llvm::cl::desc("of K and V, each for as many of Q"),
                       llvm::cl::init(1)};
  Of<int64_t> queries{*this, "queries", llvm::cl::desc("rows of Q and O; the last of the keys"),
                      llvm::cl::init(1)};
  Of<int64_t> keys{*this, "keys", llvm::cl::desc("rows of K and V"), llvm::cl::init(64)};
  Of<int64_t> depth{*this, "depth", llvm::cl::desc("columns of Q and K"), llvm::cl::init(64)};
  Of<int64_t> valueDepth{*this, "value-depth", llvm::cl::desc("columns of V and O; 0: depth"),
                         llvm::cl::init(0)};
  Of<bool> causal{*this, "causal", llvm::cl::desc("no query sees keys behind it"),
                  llvm::cl::init(false)};
  Of<int64_t> window{*this, "window", llvm::cl::desc("keys that a query sees; 0: all"),
                     llvm::cl::init(0)};
  Of<double> scale{*this, "scale", llvm::cl::desc("of the scores"), llvm::cl::init(1)};
  Of<double> softcap{*this, "softcap", llvm::cl::desc("bound of the scores; 0: none"),
                     llvm::cl::init(0)};
  Of<bool> sinks{*this, "sinks", llvm::cl::desc("a score per head without a value"),
                 llvm::cl::init(false)};
  Of<int64_t> rowsOfProgram{*this, "rows", llvm::cl::desc("of a program; 0: chosen"),
                            llvm::cl::init(0)};
  Of<int64_t> keysOfBlock{*this, "block", llvm::cl::desc("keys at a time; 0: chosen"),
                          llvm::cl::init(0)};
};

} // namespace

void registerAttentionPass() {
  PassRegistration<BuildAttention>();
  registerFormAttentionPass();
}

} // namespace millrace::gpu
