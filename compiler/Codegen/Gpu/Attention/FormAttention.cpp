// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/FormAttention.h"

#include "compiler/Codegen/Gpu/Attention/TensorBuffers.h"
#include "compiler/Codegen/Gpu/Attention/TermCode.h"
#include "compiler/Dialect/Tile/IR/Tile.h"

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

class FormAttention : public PassWrapper<FormAttention, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FormAttention)
  FormAttention() = default;
  FormAttention(const std::string &element, std::vector<std::string> *left,
                const TuningTable &table)
      : left(left), table(table) {
    type = element;
  }
  FormAttention(const FormAttention &other)
      : PassWrapper(other), left(other.left), table(other.table) {}
  StringRef getArgument() const final { return "attention-to-tile"; }
  StringRef getDescription() const final {
    return "makes attention at the tensor level the launch of one kernel of the tile level";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry
        .insert<arith::ArithDialect, bufferization::BufferizationDialect, math::MathDialect,
                memref::MemRefDialect, scf::SCFDialect, tensor::TensorDialect, tile::TileDialect>();
  }
  void runOnOperation() final {
    if (type != "bf16" && type != "f16") {
      getOperation().emitError() << "type '" << type.getValue()
                                 << "' of attention-to-tile; use bf16 or f16";
      return signalPassFailure();
    }
    if (!warpgroups)
      table = table.withoutWarpgroups();
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (function.isExternal())
        continue;
      std::vector<LeftAttention> others;
      const std::vector<FoundAttention> all = findAttention(function, &others);
      // The last one first: an operand may be the result of one before it.
      for (const FoundAttention &found : llvm::reverse(all))
        replace(found);
      for (const LeftAttention &other : others)
        remark(function, other);
    }
  }

private:
  void remark(Operation *op, const LeftAttention &what) {
    op->emitRemark() << "attention at '" << what.node << "' is left: " << what.why;
    if (left)
      left->push_back("'" + what.node + "' is no single kernel: " + what.why);
  }

  /// Of the three operands, if they agree; else what the pass was told.
  Type elementOf(const FoundAttention &found, Builder &builder) const {
    const auto of = [](const AttentionTensor &x) { return getElementTypeOrSelf(x.base.getType()); };
    const Type q = of(found.q);
    if ((q.isF16() || q.isBF16()) && q == of(found.k) && q == of(found.v))
      return q;
    return type == "bf16" ? Type(builder.getBF16Type()) : Type(builder.getF16Type());
  }

  void replace(const FoundAttention &found) {
    linalg::LinalgOp op = found.values;
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    const TermForm terms(found, elementOf(found, builder), builder);
    const AttentionForm &form = terms.form();
    std::string why = terms.why();
    // All are built under one name, so that equal ones print equally.
    if (why.empty())
      if (Status done = buildAttentionForm(builder, "kernel", form, table); !done)
        why = done.error();
    if (!why.empty())
      return remark(op, {nodeOf(op), why});
    auto kernel = cast<tile::KernelOp>(getOperation().getBody()->back());
    std::string text;
    llvm::raw_string_ostream out(text);
    kernel->print(out);
    auto [shared, isNew] = kernels.try_emplace(text, kernel);
    if (isNew)
      kernel.setSymName(newName());
    else
      kernel.erase();
    kernel = shared->second;

    builder.setInsertionPoint(op);
    SmallVector<Value> bases = {found.q.base, found.k.base, found.v.base};
    for (const TermMemory &other : terms.others())
      bases.push_back(other.base);
    SmallVector<Value> operands;
    for (auto [base, memory] : llvm::zip(bases, kernel.getArgumentTypes()))
      operands.push_back(bufferOf(builder, op.getLoc(), base, cast<MemRefType>(memory)));
    const auto memory = cast<MemRefType>(kernel.getArgumentTypes().back());
    Value result = memref::AllocOp::create(builder, op.getLoc(), memory);
    operands.push_back(result);
    tile::LaunchOp::create(builder, op.getLoc(), kernel.getSymName(), operands);
    result = tensorOf(builder, op.getLoc(), result,
                      cast<RankedTensorType>(op->getResult(0).getType()).getShape());
    op->getResult(0).replaceAllUsesWith(result);
    for (Operation *each : found.operations) // what nothing else reads goes
      if (each != op)
        unused.push_back(each);
    op->erase();
    eraseUnused();
  }

  void eraseUnused() {
    for (bool isDone = false; !isDone;) {
      isDone = true;
      for (Operation *&op : unused)
        if (op && op->use_empty()) {
          op->erase();
          op = nullptr;
          isDone = false;
        }
    }
    unused.clear();
  }

  std::string newName() {
    std::string name;
    for (unsigned n = unsigned(kernels.size());; ++n)
      if (name = "attention_" + std::to_string(n); !getOperation().lookupSymbol(name))
        return name;
  }

  Option<std::string> type{*this, "type", llvm::cl::desc("of what is multiplied: bf16 or f16"),
                           llvm::cl::init("f16")};
  Option<bool> warpgroups{*this, "warpgroups",
                          llvm::cl::desc("for chips that have warpgroups, where a kernel gains"),
                          llvm::cl::init(true)};
  std::vector<std::string> *left = nullptr;
  TuningTable table = TuningTable::builtIn();
  llvm::StringMap<tile::KernelOp> kernels; ///< by their text
  SmallVector<Operation *> unused;
};

} // namespace

std::unique_ptr<Pass> createFormAttentionPass(const std::string &type,
                                              std::vector<std::string> *left,
                                              const TuningTable &table) {
  return std::make_unique<FormAttention>(type, left, table);
}

void registerFormAttentionPass() { PassRegistration<FormAttention>(); }

} // namespace millrace::gpu
