// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every hopper operation becomes one call of the emulator, with its operands and then its numbers.
// compiler/Codegen/Gpu/Emulator/Runtime.cpp defines what is called.
#include "compiler/Dialect/Hopper/Transforms/LowerKernel.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/TypeSwitch.h"

namespace millrace::hopper {

using namespace mlir;

namespace {

struct EmulatorTypes : TypeConverter {
  EmulatorTypes() {
    addConversion([](Type type) { return type; });
    addConversion(
        [](AccumulatorType type) -> Type { return IntegerType::get(type.getContext(), 64); });
    addConversion(
        [](TensorMapType type) -> Type { return LLVM::LLVMPointerType::get(type.getContext()); });
  }
};

/// How the emulator numbers types of operands.
int32_t codeOf(Type type) { return type.isBF16() ? 0 : 1; }

class Calls {
public:
  Calls(ConversionPatternRewriter &rewriter, Operation *op) : rewriter(rewriter), op(op) {}

  /// Calls `millrace_emulate_NAME` of operands, then numbers.
  Value call(StringRef name, ValueRange operands, ArrayRef<int32_t> numbers, Type result = {}) {
    SmallVector<Value> arguments(operands);
    for (int32_t number : numbers)
      arguments.push_back(constant(rewriter, op->getLoc(), number));
    SmallVector<Type> types(ValueRange(arguments).getTypes());
    if (!result)
      result = LLVM::LLVMVoidType::get(rewriter.getContext());
    FailureOr<LLVM::LLVMFuncOp> function =
        LLVM::lookupOrCreateFn(rewriter, op->getParentOfType<ModuleOp>(),
                               ("millrace_emulate_" + name).str(), types, result);
    auto called = LLVM::CallOp::create(rewriter, op->getLoc(), *function, arguments);
    return called.getNumResults() ? called.getResult() : Value();
  }

  /// The numbers after an operation's operands: its attributes, in order of their declaration.
  SmallVector<int32_t> numbersOf() {
    return TypeSwitch<Operation *, SmallVector<int32_t>>(op)
        .Case<CtaIdOp>([](CtaIdOp of) { return list(static_cast<uint32_t>(of.getAxis())); })
        .Case<MbarrierInitOp>([](MbarrierInitOp of) { return list(of.getCount()); })
        .Case<MbarrierArriveExpectOp>([](MbarrierArriveExpectOp of) { return list(of.getBytes()); })
        .Case<TmaLoadOp, TmaStoreOp>([](auto of) { return boxOf(of.getMap().getType()); })
        .Case<TmaStoreWaitOp>([](TmaStoreWaitOp of) { return list(of.getGroups(), of.getRead()); })
        .Case<MatrixDescriptorOp>(
            [](MatrixDescriptorOp of) { return list(of.getStride(), of.getLeading()); })
        .Case<AccumulatorZeroOp>(
            [](AccumulatorZeroOp of) { return list(of.getType().getColumns()); })
        .Case<AccumulatorReadOp>([](AccumulatorReadOp of) { return list(of.getIndex()); })
        .Case<WgmmaOp>([](WgmmaOp of) {
          return list(codeOf(of.getOperands()), of.getTransposeA(), of.getTransposeB());
        })
        .Case<WgmmaRsOp>(
            [](WgmmaRsOp of) { return list(codeOf(of.getOperands()), of.getTransposeB()); })
        .Case<MmaOp>([](MmaOp of) { return list(codeOf(of.getOperands())); })
        .Case<PackOp>([](PackOp of) { return list(codeOf(of.getType())); })
        .Case<ShuffleXorOp>([](ShuffleXorOp of) { return list(of.getMask()); })
        .Case<NamedBarrierOp, NamedBarrierArriveOp>(
            [](auto of) { return list(of.getNumber(), of.getThreads()); })
        .Case<SetMaxRegistersOp>(
            [](SetMaxRegistersOp of) { return list(of.getRegisters(), of.getWarpgroups()); })
        .Default([](Operation *) { return SmallVector<int32_t>(); });
  }

private:
  template <class... Numbers> static SmallVector<int32_t> list(Numbers... numbers) {
    return {static_cast<int32_t>(numbers)...};
  }
  /// What the kernel takes a tensor map for; the launch's must be the same.
  static SmallVector<int32_t> boxOf(TensorMapType map) {
    return list(map.getRows(), map.getColumns(), map.elementBytes(), map.getSwizzle(),
                map.getOuter());
  }

  ConversionPatternRewriter &rewriter;
  Operation *op;
};

struct EmulateOperation : ConversionPattern {
  EmulateOperation(const TypeConverter &types, MLIRContext *context)
      : ConversionPattern(types, MatchAnyOpTypeTag(), /*benefit=*/1, context) {}

  LogicalResult matchAndRewrite(Operation *op, ArrayRef<Value> operands,
                                ConversionPatternRewriter &rewriter) const override {
    if (!isa_and_nonnull<HopperDialect>(op->getDialect()))
      return failure();
    if (auto kernel = dyn_cast<KernelOp>(op))
      return convertKernel(kernel, *getTypeConverter(), rewriter);
    if (isa<ReturnOp>(op)) {
      rewriter.replaceOpWithNewOp<LLVM::ReturnOp>(op, ValueRange());
      return success();
    }
    Calls calls(rewriter, op);
    if (isa<WgmmaFenceOp, WgmmaWaitOp>(op))
      return replaceAccumulators(op, operands, calls, rewriter);
    SmallVector<Value> arguments(operands);
    if (isa<MmaOp>(op)) { // its results are kept with the thread
      calls.call("mma", operands, calls.numbersOf());
      SmallVector<Value> sums;
      for (int32_t i = 0; i < 4; ++i)
        sums.push_back(calls.call("mma_sum", {}, i, rewriter.getF32Type()));
      rewriter.replaceOp(op, sums);
      return success();
    }
    if (auto of = dyn_cast<AccumulatorOfOp>(op))
      return fillAccumulator(of, operands[0], calls, rewriter);
    if (auto of = dyn_cast<AccumulatorValuesOp>(op))
      return readAccumulator(of, operands[0], calls, rewriter);
    if (isa<NamedBarrierOp>(op))
      arguments.clear(); // here everything is computed in its order
    // Without a CTA it is the thread's own; a missing mask is -1, which no i16 is.
    if (auto arrive = dyn_cast<MbarrierArriveOp>(op); arrive && !arrive.getCta())
      arguments.push_back(calls.call("cluster_rank", {}, {}, rewriter.getI32Type()));
    if (auto load = dyn_cast<TmaLoadOp>(op))
      fillArguments(load, arguments, rewriter);
    Type result =
        op->getNumResults() ? getTypeConverter()->convertType(op->getResult(0).getType()) : Type();
    // C++ and LLVM agree on what an i32 is; of an i1 they need not.
    const bool isTruth = result && result.isInteger(1);
    Value value = calls.call(op->getName().stripDialect(), arguments, calls.numbersOf(),
                             isTruth ? rewriter.getI32Type() : result);
    if (isTruth)
      value = LLVM::TruncOp::create(rewriter, op->getLoc(), result, value);
    if (value)
      rewriter.replaceOp(op, value);
    else
      rewriter.eraseOp(op);
    return success();
  }

private:
  /// A mask of 32 bits, then an index of each outer dimension that there may be.
  static void fillArguments(TmaLoadOp load, SmallVectorImpl<Value> &arguments, OpBuilder &builder) {
    const size_t mask = 5;
    if (load.getMask())
      arguments[mask] =
          LLVM::ZExtOp::create(builder, load.getLoc(), builder.getI32Type(), arguments[mask]);
    else
      arguments.insert(arguments.begin() + mask, constant(builder, load.getLoc(), -1));
    while (arguments.size() < mask + 1 + Limits::kOuter)
      arguments.push_back(constant(builder, load.getLoc(), 0));
  }

  static LogicalResult fillAccumulator(AccumulatorOfOp op, Value values, Calls &calls,
                                       ConversionPatternRewriter &rewriter) {
    const auto columns = static_cast<int32_t>(op.getType().getColumns());
    Value made = calls.call("accumulator_zero", {}, columns, rewriter.getI64Type());
    for (int32_t i = 0; i < columns / 2; ++i)
      calls.call("accumulator_write",
                 {made, LLVM::ExtractElementOp::create(rewriter, op.getLoc(), values,
                                                       constant(rewriter, op.getLoc(), i))},
                 i);
    rewriter.replaceOp(op, made);
    return success();
  }
  static LogicalResult readAccumulator(AccumulatorValuesOp op, Value accumulator, Calls &calls,
                                       ConversionPatternRewriter &rewriter) {
    Value vector = LLVM::UndefOp::create(rewriter, op.getLoc(), op.getType());
    for (int32_t i = 0; i < int32_t(op.getType().getNumElements()); ++i)
      vector = LLVM::InsertElementOp::create(
          rewriter, op.getLoc(), vector,
          calls.call("accumulator_read", accumulator, i, rewriter.getF32Type()),
          constant(rewriter, op.getLoc(), i));
    rewriter.replaceOp(op, vector);
    return success();
  }

  /// A fence hands every accumulator over; a wait takes back those that it says are complete.
  static LogicalResult replaceAccumulators(Operation *op, ArrayRef<Value> operands, Calls &calls,
                                           ConversionPatternRewriter &rewriter) {
    const bool isWait = isa<WgmmaWaitOp>(op);
    SmallVector<int32_t> groups;
    if (isWait)
      groups.push_back(static_cast<int32_t>(cast<WgmmaWaitOp>(op).getGroups()));
    calls.call(op->getName().stripDialect(), {}, groups);
    SmallVector<Value> results;
    for (auto [value, from, to] :
         llvm::zip(operands, op->getOperandTypes(), op->getResultTypes())) {
      const bool changes = from != to;
      results.push_back(changes
                            ? calls.call(isWait ? "accumulator_take_back" : "accumulator_hand_over",
                                         value, {}, rewriter.getI64Type())
                            : value);
    }
    rewriter.replaceOp(op, results);
    return success();
  }
};

/// The emulator is told of every access to global memory before it happens.
void announceAccesses(ModuleOp module) {
  const auto announce = [&](Operation *op, Value address, Type type, StringRef name) {
    const auto pointer = cast<LLVM::LLVMPointerType>(address.getType());
    if (pointer.getAddressSpace() != 1)
      return;
    OpBuilder builder(op);
    const auto bytes = static_cast<int32_t>(DataLayout::closest(op).getTypeSize(type));
    FailureOr<LLVM::LLVMFuncOp> function =
        LLVM::lookupOrCreateFn(builder, module, name, {pointer, builder.getI32Type()},
                               LLVM::LLVMVoidType::get(builder.getContext()));
    LLVM::CallOp::create(builder, op->getLoc(), *function,
                         ValueRange{address, constant(builder, op->getLoc(), bytes)});
  };
  module.walk([&](Operation *op) {
    if (auto load = dyn_cast<LLVM::LoadOp>(op))
      announce(op, load.getAddr(), load.getType(), "millrace_emulate_global_read");
    else if (auto store = dyn_cast<LLVM::StoreOp>(op))
      announce(op, store.getAddr(), store.getValue().getType(), "millrace_emulate_global_write");
  });
}

class LowerToEmulator : public PassWrapper<LowerToEmulator, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerToEmulator)
  StringRef getArgument() const final { return "hopper-to-emulator"; }
  StringRef getDescription() const final {
    return "lowers the hopper level to calls of the functional emulator";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registerLoweringDialects(registry);
  }
  void runOnOperation() final {
    announceAccesses(getOperation());
    EmulatorTypes types;
    RewritePatternSet patterns(&getContext());
    patterns.add<EmulateOperation>(types, &getContext());
    if (failed(convertHopper(getOperation(), types, std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace

std::unique_ptr<Pass> createLowerToEmulatorPass() { return std::make_unique<LowerToEmulator>(); }

} // namespace millrace::hopper
