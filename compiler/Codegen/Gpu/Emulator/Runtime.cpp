// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Emulator/Runtime.h"

#include "compiler/Codegen/Gpu/Emulator/Machine.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/bit.h"

#include <cmath>
#include <limits>

namespace millrace::gpu {

namespace {

/// Does something in the thread that runs, and goes on unless it was a violation.
template <class Action> auto inThread(Action action) {
  Machine &machine = *Machine::running;
  if constexpr (std::is_void_v<decltype(action(machine))>) {
    action(machine);
    machine.stopIfFailed();
  } else {
    auto result = action(machine);
    machine.stopIfFailed();
    return result;
  }
}

constexpr int32_t kBf16 = 0; ///< how LowerToEmulator.cpp numbers types

uint32_t threadId() { return Machine::running->thread().number; }
uint32_t warpgroupId() { return Machine::running->warpgroup(); }
uint32_t clusterRank() { return Machine::running->thread().cta; }
uint32_t ctaId(uint32_t axis) {
  const Cta &cta = Machine::running->cta();
  return axis == 0 ? cta.x : axis == 1 ? cta.y : 0;
}
uint32_t elect() { return threadId() % 32 == Machine::running->electedLane(); }

void mbarrierInit(uint32_t address, uint32_t count) {
  inThread([&](Machine &m) { m.initBarrier(address, count); });
}
void fenceMbarrierInit() {
  inThread([](Machine &m) { m.fenceBarriers(); });
}
void mbarrierArriveExpect(uint32_t address, uint32_t bytes) {
  inThread([&](Machine &m) { m.arrive(m.thread().cta, address, bytes); });
}
void mbarrierArrive(uint32_t address, uint32_t cta) {
  inThread([&](Machine &m) { m.arrive(cta, address, 0); });
}
void mbarrierWait(uint32_t address, uint32_t parity) {
  inThread([&](Machine &m) { m.waitPhase(address, parity); });
}

/// Whether the launch's map is what the kernel was compiled for.
bool isMeant(Machine &machine, const TensorMap &map, uint32_t rows, uint32_t columns,
             uint32_t elementBytes, uint32_t swizzle, uint32_t outer) {
  const bool fits = map.boxRows == rows && map.boxColumns == columns &&
                    map.elementBytes == elementBytes && map.swizzle == swizzle &&
                    map.outer.size() == outer;
  if (!fits)
    machine.report("a tensor map of the launch has boxes of " + std::to_string(map.boxRows) +
                   " x " + std::to_string(map.boxColumns) + ", and the kernel moves " +
                   std::to_string(rows) + " x " + std::to_string(columns) +
                   " of its element size, swizzle and outer dimensions");
  return fits;
}

void tmaLoad(const TensorMap *map, int32_t row, int32_t column, uint32_t address, uint32_t barrier,
             int32_t mask, int32_t outer0, int32_t outer1, int32_t outer2, uint32_t rows,
             uint32_t columns, uint32_t elementBytes, uint32_t swizzle, uint32_t outer) {
  inThread([&](Machine &m) {
    const uint32_t ctas = mask < 0 ? 1u << m.thread().cta : static_cast<uint32_t>(mask);
    if (isMeant(m, *map, rows, columns, elementBytes, swizzle, outer))
      m.load({map, row, column, {outer0, outer1, outer2}, address, barrier, ctas});
  });
}
void tmaStore(uint32_t address, const TensorMap *map, int32_t row, int32_t column, uint32_t rows,
              uint32_t columns, uint32_t elementBytes, uint32_t swizzle, uint32_t outer) {
  inThread([&](Machine &m) {
    if (isMeant(m, *map, rows, columns, elementBytes, swizzle, outer))
      m.store({map, row, column, address, false});
  });
}
void tmaStoreCommit() {
  inThread([](Machine &m) { m.commitStores(); });
}
void tmaStoreWait(uint32_t groups, uint32_t) {
  inThread([&](Machine &m) { m.waitStores(groups); });
}

uint64_t matrixDescriptor(uint32_t address, uint32_t stride, uint32_t leading) {
  return uint64_t(1) << 62 | uint64_t(stride / 16) << 32 | uint64_t(leading / 16) << 16 |
         (address & 0x3FFFF) >> 4;
}
int64_t accumulatorZero(uint32_t columns) { return Machine::running->zeroAccumulator(columns); }
int64_t accumulatorHandOver(int64_t accumulator) { return Machine::running->handOver(accumulator); }
int64_t accumulatorTakeBack(int64_t accumulator) {
  return inThread([&](Machine &m) { return m.takeBack(accumulator); });
}
void accumulatorWrite(int64_t accumulator, float value, uint32_t index) {
  Machine::running->writeAccumulator(accumulator, value, index);
}
float accumulatorRead(int64_t accumulator, uint32_t index) {
  return inThread([&](Machine &m) { return m.readAccumulator(accumulator, index); });
}
void wgmmaFence() {
  inThread([](Machine &m) { m.wgmmaStep(Collective::Kind::Fence); });
}
int64_t wgmma(int64_t accumulator, uint64_t a, uint64_t b, int32_t type, int32_t turnsA,
              int32_t turnsB) {
  Product product;
  product.a = a;
  product.b = b;
  product.isTransposedA = turnsA != 0;
  product.isTransposedB = turnsB != 0;
  product.isBf16 = type == kBf16;
  return inThread([&](Machine &m) { return m.multiply(accumulator, product, nullptr); });
}
int64_t wgmmaRs(int64_t accumulator, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b,
                int32_t type, int32_t turnsB) {
  Product product;
  product.b = b;
  product.isTransposedB = turnsB != 0;
  product.isBf16 = type == kBf16;
  product.hasRegisterA = true;
  const uint32_t registers[4] = {a0, a1, a2, a3};
  return inThread([&](Machine &m) { return m.multiply(accumulator, product, registers); });
}
void mma(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float c0,
         float c1, float c2, float c3, int32_t type) {
  const auto bits = [](float sum) { return llvm::bit_cast<uint32_t>(sum); };
  inThread([&](Machine &m) {
    m.mma({a0, a1, a2, a3, b0, b1, bits(c0), bits(c1), bits(c2), bits(c3)}, type == kBf16);
  });
}
float mmaSum(uint32_t index) { return Machine::running->thread().sums[index]; }
void wgmmaCommit() {
  inThread([](Machine &m) { m.wgmmaStep(Collective::Kind::Commit); });
}
void wgmmaWait(uint32_t groups) {
  inThread([&](Machine &m) { m.wgmmaStep(Collective::Kind::Wait, groups); });
}

uint32_t roundTo(float value, int32_t type) {
  llvm::APFloat number(value);
  bool isInexact = false;
  number.convert(type == kBf16 ? llvm::APFloat::BFloat() : llvm::APFloat::IEEEhalf(),
                 llvm::APFloat::rmNearestTiesToEven, &isInexact);
  return static_cast<uint32_t>(number.bitcastToAPInt().getZExtValue());
}
uint32_t pack(float low, float high, int32_t type) {
  return roundTo(low, type) | roundTo(high, type) << 16;
}
/// As near as this CPU knows it.
float exp2Flushed(float exponent) {
  const float power = std::exp2(exponent);
  return power < std::numeric_limits<float>::min() ? 0 : power;
}
void stmatrix(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  inThread([&](Machine &m) { m.stmatrix(address, {r0, r1, r2, r3}); });
}

uint32_t shuffleXor(uint32_t value, uint32_t mask) {
  return inThread([&](Machine &m) { return m.shuffleXor(value, mask); });
}
void sharedStore(uint32_t value, uint32_t address) {
  inThread([&](Machine &m) { m.sharedStore(value, address); });
}
uint32_t sharedLoad(uint32_t address) {
  return inThread([&](Machine &m) { return m.sharedLoad(address); });
}
void globalRead(const std::byte *address, uint32_t bytes) {
  inThread([&](Machine &m) { m.accessGlobal(address, bytes, false); });
}
void globalWrite(const std::byte *address, uint32_t bytes) {
  inThread([&](Machine &m) { m.accessGlobal(address, bytes, true); });
}

void fenceAsync() { Machine::running->fenceAsync(); }
void ctaBarrier() {
  inThread([](Machine &m) { m.syncThreads(m.cta().barriers[0], m.threadsOfCta(), "cta_barrier"); });
}
void namedBarrier(uint32_t number, uint32_t threads) {
  inThread([&](Machine &m) {
    m.syncThreads(m.cta().barriers[number], threads, "named_barrier " + std::to_string(number));
  });
}
void namedBarrierArrive(uint32_t number, uint32_t threads) {
  inThread([&](Machine &m) {
    m.arriveThreads(m.cta().barriers[number], threads, "named_barrier " + std::to_string(number));
  });
}
void clusterArrive() { Machine::running->clusterArrive(); }
void clusterWait() {
  inThread([](Machine &m) { m.clusterWait(); });
}
void setMaxRegisters(uint32_t registers, uint32_t) {
  inThread([&](Machine &m) { m.setRegisters(registers); });
}

} // namespace

llvm::orc::SymbolMap runtimeSymbols(llvm::orc::MangleAndInterner named) {
  llvm::orc::SymbolMap symbols;
  const auto add = [&](const char *name, auto *function) {
    symbols[named(std::string("millrace_emulate_") + name)] = {
        llvm::orc::ExecutorAddr::fromPtr(function),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  add("thread_id", threadId);
  add("warpgroup_id", warpgroupId);
  add("cluster_rank", clusterRank);
  add("cta_id", ctaId);
  add("elect", elect);
  add("mbarrier_init", mbarrierInit);
  add("fence_mbarrier_init", fenceMbarrierInit);
  add("mbarrier_arrive_expect", mbarrierArriveExpect);
  add("mbarrier_arrive", mbarrierArrive);
  add("mbarrier_wait", mbarrierWait);
  add("tma_load", tmaLoad);
  add("tma_store", tmaStore);
  add("tma_store_commit", tmaStoreCommit);
  add("tma_store_wait", tmaStoreWait);
  add("matrix_descriptor", matrixDescriptor);
  add("accumulator_zero", accumulatorZero);
  add("accumulator_hand_over", accumulatorHandOver);
  add("accumulator_take_back", accumulatorTakeBack);
  add("accumulator_write", accumulatorWrite);
  add("accumulator_read", accumulatorRead);
  add("wgmma_fence", wgmmaFence);
  add("wgmma", wgmma);
  add("wgmma_rs", wgmmaRs);
  add("mma", mma);
  add("mma_sum", mmaSum);
  add("wgmma_commit", wgmmaCommit);
  add("wgmma_wait", wgmmaWait);
  add("pack", pack);
  add("exp2", exp2Flushed);
  add("stmatrix", stmatrix);
  add("shuffle_xor", shuffleXor);
  add("shared_store", sharedStore);
  add("shared_load", sharedLoad);
  add("global_read", globalRead);
  add("global_write", globalWrite);
  add("fence_async", fenceAsync);
  add("cta_barrier", ctaBarrier);
  add("named_barrier", namedBarrier);
  add("named_barrier_arrive", namedBarrierArrive);
  add("cluster_arrive", clusterArrive);
  add("cluster_wait", clusterWait);
  add("set_max_registers", setMaxRegisters);
  return symbols;
}

} // namespace millrace::gpu
