// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Spatial/Transforms/Passes.h"

#include "compiler/Dialect/Spatial/IR/Spatial.h"
#include "compiler/Dialect/Spatial/Transforms/Facts.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Rewritings/Rewritings.h"

#include "arch/spec/MachineFile.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

namespace millrace::spatial {

using namespace mlir;

namespace {

/// One of the rewrites of the tensor level.
struct TensorRewrite {
  const char *name, *summary;
  void (*run)(func::FuncOp function);
};

constexpr TensorRewrite tensorRewrites[] = {
    {"cancel-transposes", "computes between transposes that undo each other without them",
     forms::cancelTransposes},
    {"flatten-concats", "puts parts of parts together at once", forms::flattenConcats},
    {"skip-unreached", "replaces extremes that no element reaches by what they begin with",
     [](func::FuncOp function) { forms::skipUnreached(function, ElementType::Fp16); }},
    {"fold-channels", "folds maps that are affine per channel into constant weights",
     forms::foldChannels},
    {"add-branches", "adds convolutions of one image that are added to each other",
     forms::addBranches},
    {"clamp-before-rounding", "rounds what is clamped between two equal roundings once",
     forms::clampBeforeRounding},
    {"view-integers", "moves integers instead of what they dequantise to", forms::viewIntegers},
    {"expand-joined", "works between a joining view and its inverse in what is joined",
     forms::expandJoined},
    {"pool-integers", "pools integers instead of what they dequantise to", forms::poolIntegers},
    {"drop-roundings", "leaves values between maps unrounded", forms::dropRoundings},
    {"fuse-residuals", "rounds a residual sum once instead of twice", forms::fuseResiduals},
    {"mix-rows", "mixes a few rows by maps instead of products",
     [](func::FuncOp function) { forms::mixRows(function, 8); }},
    {"sum-in-rows", "sums what is compared with the greatest of few by maps instead of products",
     [](func::FuncOp function) { forms::sumInRows(function, 320); }},
    {"simplify-views", "cuts, moves and joins dimensions in this order", forms::simplifyViews},
    {"map-before-views", "maps what is transposed or reshaped before that", forms::mapBeforeViews},
    {"join-beside-scores", "joins what is added to scores instead of cutting those",
     forms::joinBesideScores},
    {"split-max-windows", "cuts maximum windows into one along each dimension",
     forms::splitMaxWindows},
};

class TensorPass : public PassWrapper<TensorPass, OperationPass<func::FuncOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TensorPass)
  explicit TensorPass(const TensorRewrite &rewrite) : rewrite(rewrite) {}
  StringRef getArgument() const final { return rewrite.name; }
  StringRef getDescription() const final { return rewrite.summary; }
  void runOnOperation() final { rewrite.run(getOperation()); }

private:
  const TensorRewrite &rewrite;
};

/// A pass that works for a machine. Registered classes differ in their arguments only.
template <class Derived> class MachinePass : public PassWrapper<Derived, OperationPass<ModuleOp>> {
public:
  MachinePass() = default;
  MachinePass(const MachinePass &other) : PassWrapper<Derived, OperationPass<ModuleOp>>(other) {}
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<SpatialDialect>();
  }

protected:
  /// The machine of the option, or a diagnostic.
  FailureOr<Machine> loadTarget() {
    Expected<Machine> target = loadMachine(machine);
    if (!target)
      return this->getOperation().emitError() << target.error();
    return std::move(*target);
  }
  /// Puts the graph in the place of what the module holds.
  LogicalResult replace(const forms::KernelGraph &graph, GraphOp old, const ModelFacts &facts) {
    ModuleOp module = this->getOperation();
    FailureOr<OwningOpRef<ModuleOp>> next = exportGraph(graph, *module.getContext(), old);
    if (failed(next))
      return module.emitError("the graph's host functions do not parse");
    module.getBody()->clear();
    module.getBody()->getOperations().splice(module.getBody()->end(),
                                             (**next).getBody()->getOperations());
    writeFacts(module, facts);
    return success();
  }

  Pass::Option<std::string> machine{*this, "machine",
                                    llvm::cl::desc("a machine's name, or a YAML file"),
                                    llvm::cl::init("tsp-v1")};
};

class FormPass : public MachinePass<FormPass> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FormPass)
  FormPass() = default;
  FormPass(const FormPass &other) : MachinePass(other) {}
  StringRef getArgument() const final { return "form-kernels"; }
  StringRef getDescription() const final { return "makes the kernel graph of @main"; }
  void runOnOperation() final {
    FailureOr<Machine> target = loadTarget();
    if (failed(target))
      return signalPassFailure();
    ModelFacts facts = readFacts(getOperation());
    FailureOr<forms::KernelGraph> graph =
        formKernels(getOperation(), *target, precision, exactQdq, facts);
    if (failed(graph) || failed(replace(*graph, {}, facts)))
      signalPassFailure();
  }

private:
  Option<std::string> precision{*this, "precision", llvm::cl::desc("auto, fp16, bf16 or int8"),
                                llvm::cl::init("auto")};
  Option<bool> exactQdq{*this, "exact-qdq",
                        llvm::cl::desc("int8: keep every rounding of the quantised graph"),
                        llvm::cl::init(false)};
};

/// One rewriting, or all of them.
class RewritePass : public MachinePass<RewritePass> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RewritePass)
  explicit RewritePass(const forms::Rewriting &rewriting) : rewriting(rewriting) {}
  RewritePass(const RewritePass &other) : MachinePass(other), rewriting(other.rewriting) {}
  StringRef getArgument() const final { return rewriting.name; }
  StringRef getDescription() const final { return rewriting.summary; }
  void runOnOperation() final {
    FailureOr<Machine> target = loadTarget();
    FailureOr<forms::KernelGraph> graph = importGraph(getOperation());
    if (failed(target) || failed(graph))
      return signalPassFailure();
    ModelFacts facts = readFacts(getOperation());
    if (Status s = checkMachine(facts, *target); !s) {
      getOperation().emitError() << s.error();
      return signalPassFailure();
    }
    facts.machine = identityOf(*target);
    Expected<std::vector<std::string>> lines = rewriting.run(*graph, *target, {});
    if (!lines) {
      getOperation().emitError() << lines.error();
      return signalPassFailure();
    }
    std::move(lines->begin(), lines->end(), std::back_inserter(facts.packed));
    if (failed(replace(*graph, findGraph(getOperation()), facts)))
      signalPassFailure();
  }

private:
  const forms::Rewriting &rewriting;
};

constexpr forms::Rewriting everyRewriting = {
    "rewrite-kernels", "all rewritings of the kernel graph, in order", forms::rewrite};

void registerRewriting(const forms::Rewriting &rewriting) {
  registerPass([&rewriting] { return std::make_unique<RewritePass>(rewriting); });
}

} // namespace

void registerPasses() {
  for (const TensorRewrite &rewrite : tensorRewrites)
    registerPass([&rewrite] { return std::make_unique<TensorPass>(rewrite); });
  registerPass([] { return std::make_unique<FormPass>(); });
  for (const forms::Rewriting &rewriting : forms::rewritings())
    registerRewriting(rewriting);
  registerRewriting(everyRewriting);
}

} // namespace millrace::spatial
