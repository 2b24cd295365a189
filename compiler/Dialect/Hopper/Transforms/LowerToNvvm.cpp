// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One function per hardware action. What upstream has no operation for is inline PTX, in one place.
#include "compiler/Dialect/Hopper/Transforms/LowerKernel.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace millrace::hopper {

using namespace mlir;

namespace {

/// The name of a kernel's shared memory, whose size the launch gives.
constexpr StringLiteral kShared = "hopper_shared";
/// Address spaces of NVPTX.
constexpr unsigned kSharedSpace = 3, kClusterSpace = 7;
constexpr uint32_t kAllLanes = ~0u;
/// How long one try of a wait may sleep, in nanoseconds; the wait itself has no end.
constexpr int32_t kWaitTicks = 10'000'000;
/// Bits 62-63 of a descriptor hold the swizzle: 128 bytes.
constexpr int64_t kSwizzle128 = int64_t(1) << 62;

LLVM::LLVMStructType registersOf(AccumulatorType type) {
  return LLVM::LLVMStructType::getLiteral(
      type.getContext(),
      SmallVector<Type>(type.registersPerThread(), Float32Type::get(type.getContext())));
}

struct NvvmTypes : TypeConverter {
  NvvmTypes() {
    addConversion([](Type type) { return type; });
    addConversion([](AccumulatorType type) -> Type { return registersOf(type); });
    addConversion(
        [](TensorMapType type) -> Type { return LLVM::LLVMPointerType::get(type.getContext()); });
  }
};

/// Lowers one operation: `rewriter` stands before it, `place` is its location.
class Lowering {
public:
  Lowering(const TypeConverter &types, ConversionPatternRewriter &rewriter, Location place)
      : types(types), rewriter(rewriter), place(place) {}

  LogicalResult lower(KernelOp op, KernelOp::Adaptor) {
    const SmallVector<Type> arguments(op.getArgumentTypes());
    const auto threads = static_cast<int32_t>(op.getThreads());
    const auto registers = static_cast<int64_t>(op.getRegisters());
    const auto cluster = static_cast<int32_t>(op.getCluster());
    auto function = convertKernel(op, types, rewriter);
    if (failed(function))
      return failure();
    const auto set = [&](StringRef name, Attribute value) { (*function)->setAttr(name, value); };
    set(NVVM::NVVMDialect::getKernelFuncAttrName(), rewriter.getUnitAttr());
    set(NVVM::NVVMDialect::getReqntidAttrName(), rewriter.getDenseI32ArrayAttr({threads, 1, 1}));
    // With one CTA per multiprocessor and these threads, ptxas gives each thread what is left.
    set(NVVM::NVVMDialect::getMinctasmAttrName(), rewriter.getI32IntegerAttr(1));
    set(NVVM::NVVMDialect::getMaxnregAttrName(), rewriter.getI32IntegerAttr(registers));
    if (cluster > 1)
      set(NVVM::NVVMDialect::getClusterDimAttrName(),
          rewriter.getDenseI32ArrayAttr({cluster, 1, 1}));
    for (auto [i, type] : llvm::enumerate(arguments))
      if (isa<TensorMapType>(type))
        markTensorMap(*function, i);
    return success();
  }

  LogicalResult lower(ReturnOp op, ReturnOp::Adaptor) {
    rewriter.replaceOpWithNewOp<LLVM::ReturnOp>(op, ValueRange());
    return success();
  }

  // Places.
  LogicalResult lower(ThreadIdOp op, ThreadIdOp::Adaptor) { return replace(op, threadId()); }
  LogicalResult lower(WarpgroupIdOp op, WarpgroupIdOp::Adaptor) {
    Value group = LLVM::LShrOp::create(rewriter, place, threadId(), number(7));
    return replace(
        op, NVVM::ShflOp::create(rewriter, place, i32(), number(static_cast<int32_t>(kAllLanes)),
                                 group, number(0), number(31), NVVM::ShflKind::idx, UnitAttr()));
  }
  LogicalResult lower(ClusterRankOp op, ClusterRankOp::Adaptor) {
    return replace(op, NVVM::ClusterId::create(rewriter, place, i32()));
  }
  LogicalResult lower(CtaIdOp op, CtaIdOp::Adaptor) {
    switch (op.getAxis()) {
    case Axis::X:
      return replace(op, NVVM::BlockIdXOp::create(rewriter, place, i32()));
    case Axis::Y:
      return replace(op, NVVM::BlockIdYOp::create(rewriter, place, i32()));
    case Axis::Z:
      return replace(op, NVVM::BlockIdZOp::create(rewriter, place, i32()));
    }
    llvm_unreachable("an axis of the grid");
  }
  LogicalResult lower(ElectOp op, ElectOp::Adaptor) {
    return replace(op, NVVM::ElectSyncOp::create(rewriter, place, rewriter.getI1Type(), Value()));
  }

  // Barriers in shared memory.
  LogicalResult lower(MbarrierInitOp op, MbarrierInitOp::Adaptor from) {
    NVVM::MBarrierInitOp::create(rewriter, place, shared(from.getAddress()), number(op.getCount()),
                                 Value());
    return erase(op);
  }
  LogicalResult lower(FenceMbarrierInitOp op, FenceMbarrierInitOp::Adaptor) {
    NVVM::FenceMbarrierInitOp::create(rewriter, place);
    return erase(op);
  }
  LogicalResult lower(MbarrierArriveExpectOp op, MbarrierArriveExpectOp::Adaptor from) {
    NVVM::MBarrierArriveExpectTxOp::create(rewriter, place, Type(), shared(from.getAddress()),
                                           number(op.getBytes()), NVVM::MemScopeKind::CTA,
                                           /*relaxed=*/false, Value());
    return erase(op);
  }
  LogicalResult lower(MbarrierArriveOp op, MbarrierArriveOp::Adaptor from) {
    Value barrier = shared(from.getAddress());
    if (!from.getCta()) {
      NVVM::MBarrierArriveOp::create(rewriter, place, Type(), barrier, Value());
      return erase(op);
    }
    Value remote =
        NVVM::MapaOp::create(rewriter, place, pointer(kClusterSpace), barrier, from.getCta());
    NVVM::MBarrierArriveOp::create(rewriter, place, Type(), remote, Value(),
                                   NVVM::MemScopeKind::CLUSTER);
    return erase(op);
  }
  LogicalResult lower(MbarrierWaitOp op, MbarrierWaitOp::Adaptor from) {
    NVVM::MBarrierTryWaitParityOp::create(rewriter, place, shared(from.getAddress()),
                                          from.getParity(), number(kWaitTicks));
    return erase(op);
  }

  // TMA; coordinates of PTX begin with the innermost dimension.
  LogicalResult lower(TmaLoadOp op, TmaLoadOp::Adaptor from) {
    Value target = LLVM::AddrSpaceCastOp::create(rewriter, place, pointer(kClusterSpace),
                                                 shared(from.getAddress()));
    SmallVector<Value> coordinates = {from.getColumn(), from.getRow()};
    llvm::append_range(coordinates, from.getOuter());
    NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
        rewriter, place, target, from.getMap(), coordinates, shared(from.getBarrier()),
        ValueRange(), from.getMask(), Value(), NVVM::TMALoadMode::TILE,
        /*isCTAOnly=*/false, NVVM::CTAGroupKindAttr(), Value());
    return erase(op);
  }
  LogicalResult lower(TmaStoreOp op, TmaStoreOp::Adaptor from) {
    NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp::create(
        rewriter, place, from.getMap(), shared(from.getAddress()),
        ValueRange{from.getColumn(), from.getRow()}, Value(), NVVM::TMAStoreMode::TILE, Value());
    return erase(op);
  }
  LogicalResult lower(TmaStoreCommitOp op, TmaStoreCommitOp::Adaptor) {
    NVVM::CpAsyncBulkCommitGroupOp::create(rewriter, place);
    return erase(op);
  }
  LogicalResult lower(TmaStoreWaitOp op, TmaStoreWaitOp::Adaptor) {
    NVVM::CpAsyncBulkWaitGroupOp::create(rewriter, place, op.getGroups(), op.getReadAttr());
    return erase(op);
  }

  // Tensor cores.
  LogicalResult lower(MatrixDescriptorOp op, MatrixDescriptorOp::Adaptor from) {
    Value address = LLVM::PtrToIntOp::create(rewriter, place, i32(), shared(from.getAddress()));
    Value inWindow = LLVM::AndOp::create(rewriter, place, address, number(0x3FFFF));
    Value field = LLVM::LShrOp::create(rewriter, place, inWindow, number(4));
    Value wide = LLVM::ZExtOp::create(rewriter, place, i64(), field);
    Value fixed = LLVM::ConstantOp::create(
        rewriter, place, i64(),
        rewriter.getI64IntegerAttr(kSwizzle128 | int64_t(op.getStride() / 16) << 32 |
                                   int64_t(op.getLeading() / 16) << 16));
    return replace(op, LLVM::OrOp::create(rewriter, place, wide, fixed));
  }
  LogicalResult lower(AccumulatorZeroOp op, AccumulatorZeroOp::Adaptor) {
    return replace(op, LLVM::ZeroOp::create(rewriter, place, registersOf(op.getType())));
  }
  LogicalResult lower(AccumulatorOfOp op, AccumulatorOfOp::Adaptor from) {
    Value registers = LLVM::UndefOp::create(rewriter, place, registersOf(op.getType()));
    for (unsigned i = 0; i < op.getType().registersPerThread(); ++i) {
      Value one = LLVM::ExtractElementOp::create(rewriter, place, from.getValues(),
                                                 number(static_cast<int32_t>(i)));
      registers = LLVM::InsertValueOp::create(rewriter, place, registers, one, int64_t(i));
    }
    return replace(op, registers);
  }
  LogicalResult lower(AccumulatorValuesOp op, AccumulatorValuesOp::Adaptor from) {
    Value vector = LLVM::UndefOp::create(rewriter, place, op.getType());
    for (auto [i, one] : llvm::enumerate(unpack(from.getAccumulator())))
      vector = LLVM::InsertElementOp::create(rewriter, place, vector, one,
                                             number(static_cast<int32_t>(i)));
    return replace(op, vector);
  }
  LogicalResult lower(AccumulatorReadOp op, AccumulatorReadOp::Adaptor from) {
    return replace(op, LLVM::ExtractValueOp::create(rewriter, place, from.getAccumulator(),
                                                    int64_t(op.getIndex())));
  }
  LogicalResult lower(WgmmaFenceOp op, WgmmaFenceOp::Adaptor from) {
    NVVM::WgmmaFenceAlignedOp::create(rewriter, place);
    rewriter.replaceOp(op, from.getAccumulators());
    return success();
  }
  LogicalResult lower(WgmmaOp op, WgmmaOp::Adaptor from) {
    const auto shape = NVVM::MMAShapeAttr::get(op.getContext(), AccumulatorType::kRows,
                                               op.getAccumulator().getType().getColumns(), 16);
    const auto operands =
        op.getOperands().isBF16() ? NVVM::WGMMATypes::bf16 : NVVM::WGMMATypes::f16;
    return replace(op,
                   NVVM::WgmmaMmaAsyncOp::create(
                       rewriter, place, from.getAccumulator().getType(), from.getAccumulator(),
                       from.getA(), from.getB(), shape, operands, operands, NVVM::WGMMATypes::f32,
                       NVVM::WGMMAScaleOut::one, NVVM::WGMMAScaleIn::one, NVVM::WGMMAScaleIn::one,
                       op.getTransposeA() ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                       op.getTransposeB() ? NVVM::MMALayout::row : NVVM::MMALayout::col,
                       NVVM::MMAIntOverflowAttr()));
  }
  LogicalResult lower(WgmmaCommitOp op, WgmmaCommitOp::Adaptor) {
    NVVM::WgmmaGroupSyncAlignedOp::create(rewriter, place);
    return erase(op);
  }

  // Inline PTX, for what upstream's operations lack.

  /// wgmma with A in registers: results are tied to the accumulator's registers.
  LogicalResult lower(WgmmaRsOp op, WgmmaRsOp::Adaptor from) {
    const AccumulatorType type = op.getAccumulator().getType();
    const unsigned count = type.registersPerThread();
    std::string text;
    llvm::raw_string_ostream ptx(text);
    const StringRef operands = op.getOperands().isBF16() ? "bf16" : "f16";
    ptx << "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n"
        << type.getColumns() << "k16.f32." << operands << "." << operands << " {";
    for (unsigned i = 0; i < count; ++i)
      ptx << (i ? ", $" : "$") << i;
    // Results, then the accumulator's tied inputs, then A and B; scale-d, imm-scales, B's order.
    const unsigned a = 2 * count;
    ptx << "}, {$" << a << ", $" << a + 1 << ", $" << a + 2 << ", $" << a + 3 << "}, $" << a + 4
        << ", p, 1, 1, " << op.getTransposeB() << "; }";
    SmallVector<Value> inputs = unpack(from.getAccumulator());
    inputs.append({from.getA0(), from.getA1(), from.getA2(), from.getA3(), from.getB()});
    return replace(op, inlinePtx(text, inputs, count, ",r,r,r,r,l"));
  }

  /// Upstream's operation takes pairs as vectors; here they are words already.
  LogicalResult lower(MmaOp op, MmaOp::Adaptor from) {
    const std::string operands = op.getOperands().isBF16() ? "bf16" : "f16";
    const std::string text =
        "mma.sync.aligned.m16n8k16.row.col.f32." + operands + "." + operands +
        ".f32 {$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13}, {$0, $1, $2, $3};";
    Value sums = inlinePtx(text,
                           {from.getC0(), from.getC1(), from.getC2(), from.getC3(), from.getA0(),
                            from.getA1(), from.getA2(), from.getA3(), from.getB0(), from.getB1()},
                           4, ",r,r,r,r,r,r");
    rewriter.replaceOp(op, unpack(sums));
    return success();
  }

  /// A wait with what it waits for, so that nothing reads an accumulator before it. Those that stay
  /// in flight stay where they are.
  LogicalResult lower(WgmmaWaitOp op, WgmmaWaitOp::Adaptor from) {
    SmallVector<Value> inputs, results(from.getAccumulators());
    for (auto [value, result] : llvm::zip(from.getAccumulators(), op.getResults()))
      if (!cast<AccumulatorType>(result.getType()).getInFlight())
        inputs.append(unpack(value));
    if (inputs.empty()) {
      NVVM::WgmmaWaitGroupSyncOp::create(rewriter, place, op.getGroups());
      rewriter.replaceOp(op, results);
      return success();
    }
    Value all = inlinePtx("wgmma.wait_group.sync.aligned " + std::to_string(op.getGroups()) + ";",
                          inputs, inputs.size(), "");
    int64_t next = 0;
    for (auto [value, result] : llvm::zip(results, op.getResults()))
      if (!cast<AccumulatorType>(result.getType()).getInFlight())
        value = repack(all, next, value.getType());
    rewriter.replaceOp(op, results);
    return success();
  }

  LogicalResult lower(Exp2Op op, Exp2Op::Adaptor from) {
    return replace(op,
                   LLVM::InlineAsmOp::create(
                       rewriter, place, rewriter.getF32Type(), from.getExponent(),
                       "ex2.approx.ftz.f32 $0, $1;", "=f,f", /*has_side_effects=*/false,
                       /*is_align_stack=*/false, LLVM::TailCallKind::None,
                       LLVM::AsmDialectAttr::get(rewriter.getContext(), LLVM::AsmDialect::AD_ATT),
                       ArrayAttr())
                       .getRes());
  }

  // Registers to shared memory.
  LogicalResult lower(PackOp op, PackOp::Adaptor from) {
    const auto pair = VectorType::get({2}, op.getType());
    Value packed;
    if (op.getType().isBF16())
      packed = NVVM::ConvertF32x2ToBF16x2Op::create(
          rewriter, place, pair, from.getHigh(), from.getLow(), Value(), NVVM::FPRoundingMode::RN);
    else
      packed = NVVM::ConvertF32x2ToF16x2Op::create(
          rewriter, place, pair, from.getHigh(), from.getLow(), Value(), NVVM::FPRoundingMode::RN);
    return replace(op, LLVM::BitcastOp::create(rewriter, place, i32(), packed));
  }
  LogicalResult lower(StmatrixOp op, StmatrixOp::Adaptor from) {
    NVVM::StMatrixOp::create(
        rewriter, place, shared(from.getAddress()),
        ValueRange{from.getR0(), from.getR1(), from.getR2(), from.getR3()}, NVVM::MMALayout::row,
        NVVM::LdStMatrixShapeAttr::get(op.getContext(), 8, 8), NVVM::LdStMatrixEltType::B16);
    return erase(op);
  }

  // Exchange between threads.
  LogicalResult lower(ShuffleXorOp op, ShuffleXorOp::Adaptor from) {
    return replace(
        op, NVVM::ShflOp::create(rewriter, place, i32(), number(static_cast<int32_t>(kAllLanes)),
                                 from.getValue(), number(static_cast<int32_t>(op.getMask())),
                                 number(31), NVVM::ShflKind::bfly, UnitAttr()));
  }
  LogicalResult lower(SharedStoreOp op, SharedStoreOp::Adaptor from) {
    LLVM::StoreOp::create(rewriter, place, from.getValue(), shared(from.getAddress()));
    return erase(op);
  }
  LogicalResult lower(SharedLoadOp op, SharedLoadOp::Adaptor from) {
    return replace(op, LLVM::LoadOp::create(rewriter, place, i32(), shared(from.getAddress())));
  }

  // Synchronisation of threads.
  LogicalResult lower(FenceAsyncOp op, FenceAsyncOp::Adaptor) {
    NVVM::FenceProxyOp::create(
        rewriter, place, NVVM::ProxyKind::async_shared,
        NVVM::SharedSpaceAttr::get(op.getContext(), NVVM::SharedSpace::shared_cta));
    return erase(op);
  }
  LogicalResult lower(CtaBarrierOp op, CtaBarrierOp::Adaptor) {
    NVVM::BarrierOp::create(rewriter, place);
    return erase(op);
  }
  /// ptxas moves arithmetic over barriers, so that the barrier's number is made to depend on what
  /// stands before it: of these bits none counts, as grids have one CTA along z, but ptxas does not
  /// know that.
  LogicalResult lower(NamedBarrierOp op, NamedBarrierOp::Adaptor from) {
    Value barrier = number(op.getNumber());
    if (!from.getAfter().empty()) {
      Value all = from.getAfter().front();
      for (Value value : from.getAfter().drop_front())
        all = LLVM::OrOp::create(rewriter, place, all, value);
      all = LLVM::AndOp::create(rewriter, place, all,
                                NVVM::BlockIdZOp::create(rewriter, place, i32()));
      barrier = LLVM::AddOp::create(rewriter, place, barrier, all);
    }
    NVVM::BarrierOp::create(rewriter, place, Type(), barrier, number(op.getThreads()),
                            NVVM::BarrierReductionAttr(), Value());
    return erase(op);
  }
  LogicalResult lower(NamedBarrierArriveOp op, NamedBarrierArriveOp::Adaptor) {
    NVVM::BarrierArriveOp::create(rewriter, place, number(op.getNumber()), number(op.getThreads()));
    return erase(op);
  }
  LogicalResult lower(ClusterArriveOp op, ClusterArriveOp::Adaptor) {
    NVVM::ClusterArriveOp::create(rewriter, place, rewriter.getUnitAttr());
    return erase(op);
  }
  LogicalResult lower(ClusterWaitOp op, ClusterWaitOp::Adaptor) {
    NVVM::ClusterWaitOp::create(rewriter, place, rewriter.getUnitAttr());
    return erase(op);
  }
  LogicalResult lower(SetMaxRegistersOp op, SetMaxRegistersOp::Adaptor) {
    NVVM::SetMaxRegisterOp::create(rewriter, place, op.getRegisters(),
                                   op.getChange() == RegisterChange::Increase
                                       ? NVVM::SetMaxRegisterAction::increase
                                       : NVVM::SetMaxRegisterAction::decrease);
    return erase(op);
  }

private:
  Type i32() { return rewriter.getI32Type(); }
  Type i64() { return rewriter.getI64Type(); }
  Type pointer(unsigned space) { return LLVM::LLVMPointerType::get(rewriter.getContext(), space); }
  Value number(int32_t value) { return constant(rewriter, place, value); }
  Value threadId() { return NVVM::ThreadIdXOp::create(rewriter, place, i32()); }

  LogicalResult erase(Operation *op) {
    rewriter.eraseOp(op);
    return success();
  }
  LogicalResult replace(Operation *op, Value value) {
    rewriter.replaceOp(op, value);
    return success();
  }

  /// An address of the hopper level as a pointer.
  Value shared(Value address) {
    Value base =
        LLVM::AddressOfOp::create(rewriter, place, pointer(kSharedSpace), StringRef(kShared));
    return LLVM::GEPOp::create(rewriter, place, pointer(kSharedSpace), rewriter.getI8Type(), base,
                               ArrayRef<LLVM::GEPArg>{address});
  }

  /// A tensor map is 128 bytes in the kernel's constant parameters, which TMA reads by address.
  void markTensorMap(LLVM::LLVMFuncOp function, unsigned argument) {
    const auto bytes = LLVM::LLVMArrayType::get(rewriter.getI8Type(), 128);
    function.setArgAttr(argument, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(bytes));
    function.setArgAttr(argument, LLVM::LLVMDialect::getAlignAttrName(),
                        rewriter.getI64IntegerAttr(64));
    function.setArgAttr(argument, NVVM::NVVMDialect::getGridConstantAttrName(),
                        rewriter.getUnitAttr());
    function.setArgAttr(argument, LLVM::LLVMDialect::getNoUndefAttrName(), rewriter.getUnitAttr());
  }

  SmallVector<Value> unpack(Value registers) {
    SmallVector<Value> values;
    const auto type = cast<LLVM::LLVMStructType>(registers.getType());
    for (int64_t i = 0; i < int64_t(type.getBody().size()); ++i)
      values.push_back(LLVM::ExtractValueOp::create(rewriter, place, registers, i));
    return values;
  }
  /// A structure of the fields of `all` from `next` on, which moves behind them.
  Value repack(Value all, int64_t &next, Type type) {
    Value result = LLVM::UndefOp::create(rewriter, place, type);
    for (int64_t i = 0; i < int64_t(cast<LLVM::LLVMStructType>(type).getBody().size()); ++i) {
      Value field = LLVM::ExtractValueOp::create(rewriter, place, all, next++);
      result = LLVM::InsertValueOp::create(rewriter, place, result, field, i);
    }
    return result;
  }
  /// PTX that reads and writes the first `tied` inputs in place, and only reads the others, whose
  /// constraints `rest` names. The result is a structure of what was written.
  Value inlinePtx(StringRef text, ArrayRef<Value> inputs, unsigned tied, StringRef rest) {
    std::string constraints;
    for (unsigned i = 0; i < tied; ++i)
      constraints += i ? ",=f" : "=f";
    for (unsigned i = 0; i < tied; ++i)
      constraints += "," + std::to_string(i);
    constraints += rest;
    const auto type = LLVM::LLVMStructType::getLiteral(
        rewriter.getContext(), SmallVector<Type>(tied, rewriter.getF32Type()));
    return LLVM::InlineAsmOp::create(
               rewriter, place, type, inputs, text, constraints,
               /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
               LLVM::AsmDialectAttr::get(rewriter.getContext(), LLVM::AsmDialect::AD_ATT),
               ArrayAttr())
        .getRes();
  }

  const TypeConverter &types;
  ConversionPatternRewriter &rewriter;
  Location place;
};

/// Hands every hopper operation to its function above.
struct LowerOperation : ConversionPattern {
  LowerOperation(const TypeConverter &types, MLIRContext *context)
      : ConversionPattern(types, MatchAnyOpTypeTag(), /*benefit=*/1, context) {}

  template <class Op>
  LogicalResult run(Operation *op, ArrayRef<Value> operands,
                    ConversionPatternRewriter &rewriter) const {
    Lowering lowering(*getTypeConverter(), rewriter, op->getLoc());
    return lowering.lower(cast<Op>(op), typename Op::Adaptor(operands, cast<Op>(op)));
  }

  template <class... Ops>
  LogicalResult dispatch(Operation *op, ArrayRef<Value> operands,
                         ConversionPatternRewriter &rewriter) const {
    LogicalResult result = failure();
    (void)((isa<Ops>(op) && (result = run<Ops>(op, operands, rewriter), true)) || ...);
    return result;
  }

  LogicalResult matchAndRewrite(Operation *op, ArrayRef<Value> operands,
                                ConversionPatternRewriter &rewriter) const override {
    return dispatch<
#define GET_OP_LIST
#include "compiler/Dialect/Hopper/IR/HopperOps.cpp.inc"
        >(op, operands, rewriter);
  }
};

class LowerToNvvm : public PassWrapper<LowerToNvvm, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerToNvvm)
  StringRef getArgument() const final { return "hopper-to-nvvm"; }
  StringRef getDescription() const final {
    return "lowers the hopper level to upstream's nvvm and llvm dialects";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registerLoweringDialects(registry);
  }
  void runOnOperation() final {
    ModuleOp module = getOperation();
    if (module.getOps<KernelOp>().empty())
      return;
    OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
    const auto bytes = LLVM::LLVMArrayType::get(builder.getI8Type(), 0);
    LLVM::GlobalOp::create(builder, module.getLoc(), bytes, /*isConstant=*/false,
                           LLVM::Linkage::External, kShared, Attribute(), /*alignment=*/1024,
                           kSharedSpace);
    NvvmTypes types;
    RewritePatternSet patterns(&getContext());
    patterns.add<LowerOperation>(types, &getContext());
    if (failed(convertHopper(module, types, std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace

void registerLoweringDialects(DialectRegistry &registry) {
  registry.insert<HopperDialect, arith::ArithDialect, cf::ControlFlowDialect, LLVM::LLVMDialect,
                  NVVM::NVVMDialect, scf::SCFDialect>();
  registerConvertNVVMToLLVMInterface(registry);
}

std::unique_ptr<Pass> createLowerToNvvmPass() { return std::make_unique<LowerToNvvm>(); }

} // namespace millrace::hopper
