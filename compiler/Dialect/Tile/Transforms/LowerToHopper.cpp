// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// tile-to-hopper: what one thread of a GPU does of a program. A program is a CTA, a thread has some
// neighbouring lanes, and lanes meet in shuffles of a warp and then in shared memory.
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/Transforms/ExpandMath.h"
#include "compiler/Dialect/Tile/Transforms/LaneAccess.h"
#include "compiler/Dialect/Tile/Transforms/LaneCode.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/Pass.h"

namespace millrace::tile {

using namespace mlir;

namespace {

using Limits = hopper::Limits;

/// Bytes of shared memory for the warps' shares of one reduction, eight for each.
constexpr unsigned kSlot = 8 * Limits::kThreads / Limits::kWarp;

/// A truth takes a byte of memory.
Type storedType(OpBuilder &builder, Type type) {
  if (auto tile = dyn_cast<VectorType>(type))
    return VectorType::get(tile.getShape(), storedType(builder, tile.getElementType()));
  return type.isInteger(1) ? builder.getI8Type() : type;
}

class ThreadCode : public LaneCode {
public:
  ThreadCode(OpBuilder &builder, KernelOp kernel, unsigned width)
      : LaneCode(builder, width), kernel(kernel), warps(kernel.getLanes() / width / Limits::kWarp) {
  }

  void writeBody() {
    for (Operation &op : kernel.getBody().front().without_terminator())
      write(&op);
  }
  /// That the reductions written so far take.
  unsigned sharedBytes() const { return slots * kSlot; }

protected:
  Value program() override {
    return toIndex(
        hopper::CtaIdOp::create(builder, kernel.getLoc(), builder.getI32Type(), hopper::Axis::X));
  }
  Value firstLane() override {
    const Location place = kernel.getLoc();
    Value thread = hopper::ThreadIdOp::create(builder, place, builder.getI32Type());
    return arith::MulIOp::create(builder, place, toIndex(thread),
                                 arith::ConstantIndexOp::create(builder, place, width));
  }
  Value load(Location place, Value memory, Indices indices) override {
    return loadAs(cast<MemRefType>(memory.getType()).getElementType(), place, memory, indices, 0);
  }
  void store(Location place, Value value, Value memory, Indices indices) override {
    storeAt(place, value, memory, indices, 0);
  }

  Value loadTogether(LoadOp op) override {
    if (width == 1 || !isTogether(op, width))
      return {};
    const Type type = typeOf(op.getResult().getType());
    return onlyWhere(
        op.getLoc(), op.getMask(),
        [&] { return loadAs(type, op.getLoc(), op.getSource(), first(op.getIndices()), width); },
        [&]() -> Value {
          return vector::BroadcastOp::create(builder, op.getLoc(), type, lookup(op.getOther()));
        });
  }
  bool storeTogether(StoreOp op) override {
    if (width == 1 || !isTogether(op, width))
      return false;
    onlyWhere(
        op.getLoc(), op.getMask(),
        [&] {
          storeAt(op.getLoc(), lookup(op.getValue()), op.getTarget(), first(op.getIndices()),
                  width);
          return Value();
        },
        nullptr);
    return true;
  }

  Value reduce(ReduceOp op) override {
    const Location place = op.getLoc();
    const auto combine = [&](Value x, Value y) {
      return arith::getReductionOp(op.getKind(), builder, place, x, y);
    };
    Value mine = lookup(op.getTile());
    Value sum = element(place, mine, 0);
    for (unsigned lane = 1; lane < width; ++lane)
      sum = combine(sum, element(place, mine, lane));
    for (uint32_t mask = Limits::kWarp / 2; mask > 0; mask /= 2) {
      SmallVector<Value> words = toWords(place, sum);
      for (Value &word : words)
        word = hopper::ShuffleXorOp::create(builder, place, builder.getI32Type(), word, mask);
      sum = combine(sum, fromWords(place, words, sum.getType()));
    }
    return warps == 1 ? sum : acrossWarps(place, sum, combine);
  }

private:
  Value number(Location place, int32_t n) {
    return arith::ConstantIntOp::create(builder, place, builder.getI32Type(), n);
  }
  Value toIndex(Value i32) {
    return arith::IndexCastUIOp::create(builder, i32.getLoc(), builder.getIndexType(), i32);
  }

  /// The address of an element of the kernel's argument.
  Value addressOf(Location place, Value memory, Indices indices) {
    const auto type = cast<MemRefType>(memory.getType());
    const auto [strides, offset] = type.getStridesAndOffset();
    Value at = arith::ConstantIndexOp::create(builder, place, offset);
    for (auto [index, stride] : llvm::zip(indices, strides))
      at = arith::AddIOp::create(
          builder, place, at,
          arith::MulIOp::create(builder, place, index,
                                arith::ConstantIndexOp::create(builder, place, stride)));
    Value wide = arith::IndexCastOp::create(builder, place, builder.getI64Type(), at);
    return LLVM::GEPOp::create(builder, place, LLVM::LLVMPointerType::get(builder.getContext(), 1),
                               storedType(builder, type.getElementType()), lookup(memory),
                               ArrayRef<LLVM::GEPArg>{wide});
  }
  /// `elements`: 0 for one with the alignment of its type.
  static unsigned alignmentOf(Type type, unsigned elements) {
    return elements * getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8;
  }
  Value loadAs(Type type, Location place, Value memory, Indices indices, unsigned elements) {
    const Type stored = storedType(builder, type);
    Value read = LLVM::LoadOp::create(builder, place, stored, addressOf(place, memory, indices),
                                      alignmentOf(stored, elements));
    return stored == type ? read : arith::TruncIOp::create(builder, place, type, read);
  }
  void storeAt(Location place, Value value, Value memory, Indices indices, unsigned elements) {
    const Type stored = storedType(builder, value.getType());
    if (stored != value.getType())
      value = arith::ExtUIOp::create(builder, place, stored, value);
    LLVM::StoreOp::create(builder, place, value, addressOf(place, memory, indices),
                          alignmentOf(stored, elements));
  }
  /// Indices of the thread's first lane.
  SmallVector<Value> first(OperandRange indices) {
    SmallVector<Value> scalars;
    for (Value index : indices)
      scalars.push_back(element(index.getLoc(), lookup(index), 0));
    return scalars;
  }
  /// What `make` gives where the first lane's mask is true, else what `other` gives.
  Value onlyWhere(Location place, Value mask, llvm::function_ref<Value()> make,
                  llvm::function_ref<Value()> other) {
    if (!mask)
      return make();
    Value isOn = element(place, lookup(mask), 0);
    OpBuilder::InsertionGuard guard(builder);
    if (!other) {
      auto choice = scf::IfOp::create(builder, place, isOn, /*withElseRegion=*/false);
      builder.setInsertionPointToStart(choice.thenBlock());
      return make();
    }
    Value instead = other();
    auto choice = scf::IfOp::create(builder, place, TypeRange(instead.getType()), isOn,
                                    /*withElseRegion=*/true);
    builder.setInsertionPointToStart(choice.thenBlock());
    scf::YieldOp::create(builder, place, make());
    builder.setInsertionPointToStart(choice.elseBlock());
    scf::YieldOp::create(builder, place, instead);
    return choice.getResult(0);
  }

  SmallVector<Value> toWords(Location place, Value value) {
    const unsigned bits = value.getType().getIntOrFloatBitWidth();
    if (isa<FloatType>(value.getType()))
      value = arith::BitcastOp::create(builder, place, builder.getIntegerType(bits), value);
    const Type word = builder.getI32Type();
    if (bits < 32)
      return {arith::ExtUIOp::create(builder, place, word, value)};
    if (bits == 32)
      return {value};
    Value half = arith::ConstantIntOp::create(builder, place, builder.getI64Type(), 32);
    Value high = arith::ShRUIOp::create(builder, place, value, half);
    return {arith::TruncIOp::create(builder, place, word, value),
            arith::TruncIOp::create(builder, place, word, high)};
  }
  Value fromWords(Location place, ValueRange words, Type type) {
    const unsigned bits = type.getIntOrFloatBitWidth();
    const Type integer = builder.getIntegerType(bits);
    Value value = words[0];
    if (bits < 32)
      value = arith::TruncIOp::create(builder, place, integer, value);
    if (bits == 64) {
      Value half = arith::ConstantIntOp::create(builder, place, integer, 32);
      Value high = arith::ShLIOp::create(
          builder, place, arith::ExtUIOp::create(builder, place, integer, words[1]), half);
      value = arith::OrIOp::create(builder, place, high,
                                   arith::ExtUIOp::create(builder, place, integer, value));
    }
    return isa<FloatType>(type) ? arith::BitcastOp::create(builder, place, type, value) : value;
  }

  /// Each warp leaves its share in a slot of its own, and each thread combines all of them. As no
  /// other reduction has these slots, one barrier is enough.
  Value acrossWarps(Location place, Value share, llvm::function_ref<Value(Value, Value)> combine) {
    const auto base = static_cast<int32_t>(kSlot * slots++);
    Value thread = hopper::ThreadIdOp::create(builder, place, builder.getI32Type());
    Value lane = arith::AndIOp::create(builder, place, thread, number(place, Limits::kWarp - 1));
    Value isFirst =
        arith::CmpIOp::create(builder, place, arith::CmpIPredicate::eq, lane, number(place, 0));
    auto choice = scf::IfOp::create(builder, place, isFirst, /*withElseRegion=*/false);
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(choice.thenBlock());
      Value at = arith::AddIOp::create(
          builder, place, number(place, base),
          arith::DivUIOp::create(builder, place, thread, number(place, Limits::kWarp / 8)));
      for (auto [i, word] : llvm::enumerate(toWords(place, share)))
        hopper::SharedStoreOp::create(
            builder, place, word,
            arith::AddIOp::create(builder, place, at, number(place, 4 * int32_t(i))));
    }
    hopper::CtaBarrierOp::create(builder, place);
    Value sum;
    for (unsigned warp = 0; warp < warps; ++warp) {
      SmallVector<Value> words;
      for (unsigned i = 0; i < (share.getType().getIntOrFloatBitWidth() == 64 ? 2 : 1); ++i)
        words.push_back(hopper::SharedLoadOp::create(
            builder, place, builder.getI32Type(), number(place, base + int32_t(8 * warp + 4 * i))));
      Value next = fromWords(place, words, share.getType());
      sum = sum ? combine(sum, next) : next;
    }
    return sum;
  }

  KernelOp kernel;
  const unsigned warps;
  unsigned slots = 0; ///< of shared memory, one per reduction across warps
};

LogicalResult lower(KernelOp kernel) {
  OpBuilder builder(kernel);
  const Location place = kernel.getLoc();
  const unsigned width = chooseWidth(kernel);
  const unsigned threads = kernel.getLanes() / width;
  if (threads > Limits::kThreads)
    return kernel.emitError() << "has " << kernel.getLanes()
                              << " lanes, which do not spread over at most 1024 threads";
  const SmallVector<Type> arguments(kernel.getNumArguments(),
                                    LLVM::LLVMPointerType::get(builder.getContext(), 1));
  // As many as a thread can have: ptxas takes those that it uses.
  const unsigned registers = std::min(255u, Limits::kRegisters / threads / 8 * 8);
  auto function = hopper::KernelOp::create(
      builder, place, kernel.getSymName(), builder.getFunctionType(arguments, {}), threads,
      registers, /*shared_memory=*/0, /*cluster=*/1, ArrayAttr(), ArrayAttr());
  Block *body = builder.createBlock(&function.getBody());
  ThreadCode code(builder, kernel, width);
  for (auto [argument, type] : llvm::zip(kernel.getBody().getArguments(), arguments))
    code.map(argument, body->addArgument(type, argument.getLoc()));
  code.writeBody();
  hopper::ReturnOp::create(builder, place);
  function.setSharedMemory(code.sharedBytes());
  function->setAttr(kProgramsAttribute, kernel.getProgramsAttr());
  return expandMath(function);
}

class LowerToHopper : public PassWrapper<LowerToHopper, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerToHopper)
  StringRef getArgument() const final { return "tile-to-hopper"; }
  StringRef getDescription() const final {
    return "lowers the tile level to code of one GPU thread";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    hopper::registerLoweringDialects(registry);
    registry.insert<math::MathDialect, vector::VectorDialect>();
  }
  void runOnOperation() final {
    for (KernelOp kernel : llvm::make_early_inc_range(getOperation().getOps<KernelOp>())) {
      if (failed(lower(kernel)))
        return signalPassFailure();
      kernel.erase();
    }
  }
};

} // namespace

std::unique_ptr<Pass> createLowerToHopperPass() { return std::make_unique<LowerToHopper>(); }

} // namespace millrace::tile
