// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/ThreadCode.h"

#include "compiler/Dialect/Tile/Transforms/LaneAccess.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace millrace::tile {

using namespace mlir;

using Limits = hopper::Limits;

namespace {

/// Bytes of shared memory for the warps' shares of one reduction, eight for each.
constexpr unsigned kSlot = 8 * Limits::kThreads / Limits::kWarp;

/// A truth takes a byte of memory.
Type storedType(OpBuilder &builder, Type type) {
  if (auto tile = dyn_cast<VectorType>(type))
    return VectorType::get(tile.getShape(), storedType(builder, tile.getElementType()));
  return type.isInteger(1) ? builder.getI8Type() : type;
}

} // namespace

ThreadCode::ThreadCode(OpBuilder &builder, KernelOp kernel, unsigned width)
    : LaneCode(builder, width), kernel(kernel), warps(kernel.getLanes() / width / Limits::kWarp) {}

void ThreadCode::writeBody() {
  for (Operation &op : kernel.getBody().front().without_terminator())
    write(&op);
}

/// That the reductions written so far take.
unsigned ThreadCode::sharedBytes() const { return slots * kSlot; }

Value ThreadCode::program() {
  return toIndex(
      hopper::CtaIdOp::create(builder, kernel.getLoc(), builder.getI32Type(), hopper::Axis::X));
}

Value ThreadCode::firstLane() {
  const Location place = kernel.getLoc();
  Value thread = hopper::ThreadIdOp::create(builder, place, builder.getI32Type());
  return arith::MulIOp::create(builder, place, toIndex(thread),
                               arith::ConstantIndexOp::create(builder, place, width));
}

Value ThreadCode::load(Location place, Value memory, Indices indices) {
  return loadAs(cast<MemRefType>(memory.getType()).getElementType(), place, memory, indices, 0);
}

void ThreadCode::store(Location place, Value value, Value memory, Indices indices) {
  storeAt(place, value, memory, indices, 0);
}

Value ThreadCode::loadTogether(LoadOp op) {
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

bool ThreadCode::storeTogether(StoreOp op) {
  if (width == 1 || !isTogether(op, width))
    return false;
  onlyWhere(
      op.getLoc(), op.getMask(),
      [&] {
        storeAt(op.getLoc(), lookup(op.getValue()), op.getTarget(), first(op.getIndices()), width);
        return Value();
      },
      nullptr);
  return true;
}

Value ThreadCode::reduce(ReduceOp op) {
  const Location place = op.getLoc();
  const auto combine = [&](Value x, Value y) {
    return arith::getReductionOp(op.getKind(), builder, place, x, y);
  };
  Value mine = lookup(op.getTile());
  Value sum = element(place, mine, 0);
  for (unsigned lane = 1; lane < width; ++lane)
    sum = combine(sum, element(place, mine, lane));
  for (uint32_t mask = Limits::kWarp / 2; mask > 0; mask /= 2) {
    sum = combine(sum, shuffle(place, sum, mask));
  }
  return warps == 1 ? sum : acrossWarps(place, sum, combine);
}

Value ThreadCode::number(Location place, int32_t n) {
  return arith::ConstantIntOp::create(builder, place, builder.getI32Type(), n);
}

Value ThreadCode::toIndex(Value i32) {
  return arith::IndexCastUIOp::create(builder, i32.getLoc(), builder.getIndexType(), i32);
}

/// The address of an element of the kernel's argument.
Value ThreadCode::addressOf(Location place, Value memory, Indices indices) {
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

Value ThreadCode::loadAs(Type type, Location place, Value memory, Indices indices,
                         unsigned elements) {
  const Type stored = storedType(builder, type);
  Value read = LLVM::LoadOp::create(builder, place, stored, addressOf(place, memory, indices),
                                    alignmentOf(stored, elements));
  return stored == type ? read : arith::TruncIOp::create(builder, place, type, read);
}

void ThreadCode::storeAt(Location place, Value value, Value memory, Indices indices,
                         unsigned elements) {
  const Type stored = storedType(builder, value.getType());
  if (stored != value.getType())
    value = arith::ExtUIOp::create(builder, place, stored, value);
  LLVM::StoreOp::create(builder, place, value, addressOf(place, memory, indices),
                        alignmentOf(stored, elements));
}

/// Indices of the thread's first lane.
SmallVector<Value> ThreadCode::first(OperandRange indices) {
  SmallVector<Value> scalars;
  for (Value index : indices)
    scalars.push_back(element(index.getLoc(), lookup(index), 0));
  return scalars;
}

/// What `make` gives where the first lane's mask is true, else what `other` gives.
Value ThreadCode::onlyWhere(Location place, Value mask, llvm::function_ref<Value()> make,
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

SmallVector<Value> ThreadCode::toWords(Location place, Value value) {
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

Value ThreadCode::fromWords(Location place, ValueRange words, Type type) {
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
Value ThreadCode::acrossWarps(Location place, Value share,
                              llvm::function_ref<Value(Value, Value)> combine) {
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

Value ThreadCode::shuffle(Location place, Value value, uint32_t mask) {
  SmallVector<Value> words = toWords(place, value);
  for (Value &word : words)
    word = hopper::ShuffleXorOp::create(builder, place, builder.getI32Type(), word, mask);
  return fromWords(place, words, value.getType());
}

} // namespace millrace::tile
