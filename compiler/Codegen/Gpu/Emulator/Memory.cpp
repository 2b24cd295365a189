// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared memory, its barriers, TMA, and the barriers of threads.
#include "compiler/Codegen/Gpu/Emulator/Machine.h"

#include <algorithm>
#include <cstring>

namespace millrace::gpu {

namespace {

std::string text(uint64_t number) { return std::to_string(number); }

constexpr unsigned kUnit = 16; ///< bytes whose visibility is tracked

} // namespace

//===-- Barriers in shared memory
//-----------------------------------------------------------------===//

void Machine::initBarrier(uint32_t address, uint32_t count) {
  if (address % 8 || address + 8 > shape.sharedBytes)
    return report("mbarrier_init at " + text(address) +
                  ", which is no multiple of 8 within shared memory");
  cta().mbarriers[address] = {count, count, 0, 0, thread().number, false};
}

void Machine::fenceBarriers() {
  for (auto &[address, barrier] : cta().mbarriers)
    if (barrier.maker == thread().number)
      barrier.isFenced = true;
}

Mbarrier *Machine::findBarrier(unsigned number, uint32_t address) {
  if (number >= ctas.size()) {
    report("a barrier of CTA " + text(number) + " of a cluster of " + text(ctas.size()));
    return nullptr;
  }
  Cta &owner = ctas[number];
  if (owner.ended == shape.threads) {
    report(
        "a barrier of a CTA that has ended; end the kernel with cluster_arrive and cluster_wait");
    return nullptr;
  }
  auto found = owner.mbarriers.find(address);
  if (found == owner.mbarriers.end()) {
    report("there is no barrier at " + text(address) +
           " yet; mbarrier_init, then a barrier of all "
           "its users, come first");
    return nullptr;
  }
  return &found->second;
}

void Machine::complete(Mbarrier &barrier) {
  if (barrier.pending || barrier.bytes)
    return;
  barrier.phase ^= 1;
  barrier.pending = barrier.count;
}

void Machine::arrive(unsigned number, uint32_t address, int64_t bytes) {
  Mbarrier *barrier = findBarrier(number, address);
  if (!barrier)
    return;
  if (!barrier->pending)
    return report("the barrier at " + text(address) + " gets more than its " +
                  text(barrier->count) + " arrivals in one phase");
  barrier->bytes += bytes;
  --barrier->pending;
  complete(*barrier);
}

void Machine::waitPhase(uint32_t address, uint32_t parity) {
  Mbarrier *barrier = findBarrier(thread().cta, address);
  if (barrier)
    waitUntil([barrier, parity] { return (barrier->phase & 1) != (parity & 1); },
              "mbarrier_wait " + text(address) + " parity " + text(parity & 1));
}

//===-- TMA
//-----------------------------------------------------------------------------------------===//

bool Machine::checkBox(const TensorMap &map, uint32_t address, const char *what) {
  const unsigned alignment = map.swizzle ? 1024 : 128;
  if (address % alignment)
    report(std::string(what) + " at " + text(address) + ", which is no multiple of " +
           text(alignment));
  else if (uint64_t(address) + map.boxBytes() > shape.sharedBytes)
    report(std::string(what) + " of " + text(map.boxBytes()) + " bytes at " + text(address) +
           " of " + text(shape.sharedBytes) + " bytes of shared memory");
  auto over = cta().mbarriers.lower_bound(address < 8 ? 0 : address - 7);
  if (over != cta().mbarriers.end() && over->first < address + map.boxBytes())
    report(std::string(what) + " at " + text(address) + " lies over the barrier at " +
           text(over->first));
  return error.empty();
}

/// Calls `each(bytes in shared memory, bytes of the matrix or null outside)` for every element.
template <class Each>
static void forBox(const TensorMap &map, uint32_t address, int64_t row, int64_t column,
                   const std::array<int64_t, 3> &outer, Each each) {
  bool isThere = true; // the matrix
  std::byte *base = map.base;
  for (size_t i = 0; i < map.outer.size(); ++i) {
    isThere &= outer[i] >= 0 && outer[i] < map.outer[i].size;
    base += outer[i] * map.outer[i].bytes;
  }
  for (unsigned r = 0; r < map.boxRows; ++r)
    for (unsigned c = 0; c < map.boxColumns; ++c) {
      const uint32_t dense = address + (r * map.boxColumns + c) * map.elementBytes;
      const int64_t y = row + r, x = column + c;
      const bool isInside = isThere && y >= 0 && y < map.rows && x >= 0 && x < map.columns;
      each(map.swizzle ? swizzle128(dense) : dense,
           isInside ? base + y * map.rowBytes + x * map.elementBytes : nullptr);
    }
}

void Machine::load(TmaLoad load) {
  if (!checkBox(*load.map, load.address, "tma_load"))
    return;
  for (unsigned c = 0; c < ctas.size(); ++c) {
    if (!(load.ctas >> c & 1))
      continue;
    Mbarrier *barrier = findBarrier(c, load.barrier);
    if (barrier && !barrier->isFenced)
      report("tma_load signals the barrier at " + text(load.barrier) +
             ", which no fence_mbarrier_init made visible");
    // Until it has landed nobody may rely on what was there.
    if (adversary.loads == Landing::Late)
      std::memset(ctas[c].shared.data() + load.address, 0xFF, load.map->boxBytes());
  }
  if (load.ctas >> ctas.size())
    report("tma_load multicasts to CTAs beyond the cluster's " + text(ctas.size()));
  if (!error.empty())
    return;
  if (adversary.loads == Landing::Early)
    land(load);
  else
    loads.push_back(load);
}

void Machine::land(const TmaLoad &load) {
  const TensorMap &map = *load.map;
  for (unsigned c = 0; c < ctas.size(); ++c) {
    if (!(load.ctas >> c & 1))
      continue;
    std::byte *shared = ctas[c].shared.data();
    forBox(map, load.address, load.row, load.column, load.outer,
           [&](uint32_t to, const std::byte *from) {
             if (from)
               std::memcpy(shared + to, from, map.elementBytes);
             else
               std::memset(shared + to, 0, map.elementBytes);
           });
    Mbarrier *barrier = findBarrier(c, load.barrier);
    if (!barrier)
      return;
    barrier->bytes -= map.boxBytes();
    if (!barrier->pending && barrier->bytes < 0)
      return report("the barrier at " + text(load.barrier) + " gets " + text(-barrier->bytes) +
                    " bytes more than its phase expects");
    complete(*barrier);
  }
}

void Machine::store(TmaStore store) {
  if (!checkBox(*store.map, store.address, "tma_store"))
    return;
  for (uint32_t at = store.address; at < store.address + store.map->boxBytes(); at += kUnit)
    if (!checkVisible(cta(), at, "tma_store"))
      return;
  if (adversary.stores == Landing::Early)
    execute(store, cta());
  thread().openStores.push_back(store);
}

void Machine::execute(TmaStore &store, const Cta &from) {
  if (std::exchange(store.isDone, true))
    return;
  // An H200 writes 16 bytes at a time: what stands behind the last column in its own is written,
  // too.
  TensorMap map = *store.map;
  const int64_t inUnit = kUnit / map.elementBytes;
  map.columns = (map.columns + inUnit - 1) / inUnit * inUnit;
  forBox(map, store.address, store.row, store.column, {}, [&](uint32_t at, std::byte *to) {
    if (to)
      std::memcpy(to, from.shared.data() + at, map.elementBytes);
  });
}

void Machine::commitStores() {
  thread().storeGroups.push_back(std::move(thread().openStores));
  thread().openStores.clear();
}

void Machine::waitStores(unsigned groups) {
  std::deque<std::vector<TmaStore>> &all = thread().storeGroups;
  for (; all.size() > groups; all.pop_front())
    for (TmaStore &store : all.front())
      execute(store, cta());
}

//===-- Writes of threads
//---------------------------------------------------------------------------===//

bool Machine::checkVisible(const Cta &of, uint32_t address, const char *reader) {
  if (of.dirtyWriters[address / kUnit])
    report(std::string(reader) + " reads 16 bytes at " + text(address / kUnit * kUnit) + " that " +
           text(of.dirtyWriters[address / kUnit]) +
           " threads wrote and did not make visible by fence_async");
  return error.empty();
}

Collective *Machine::join(std::deque<Collective> &all, size_t &step, Collective::Kind kind,
                          unsigned members, bool &isLast) {
  if (step == all.size()) {
    all.emplace_back();
    all.back().kind = kind;
  }
  Collective &next = all[step++];
  isLast = ++next.joined == members;
  if (next.kind == kind)
    return &next;
  report("threads that act together do different things: their warp or warpgroup has diverged");
  return nullptr;
}

void Machine::stmatrix(uint32_t address, std::array<uint32_t, 4> words) {
  if (address % 16 || uint64_t(address) + 16 > shape.sharedBytes)
    return report("stmatrix writes a row at " + text(address) +
                  ", which is no multiple of 16 within shared memory");
  const unsigned warp = thread().number / 32, lane = thread().number % 32;
  bool isLast = false;
  Collective *step =
      join(cta().warps[warp], thread().warpStep, Collective::Kind::Stmatrix, 32, isLast);
  if (!step)
    return;
  step->addresses[lane] = address;
  std::copy(words.begin(), words.end(), step->words[lane].begin());
  if (!isLast)
    return waitUntil([step] { return step->isDone; }, "stmatrix of its warp");
  const unsigned first = thread().cta * shape.threads + warp * 32;
  for (unsigned matrix = 0; matrix < 4; ++matrix)
    for (unsigned from = 0; from < 32; ++from) {
      const uint32_t row = step->addresses[matrix * 8 + from / 4];
      std::memcpy(cta().shared.data() + row + from % 4 * 4, &step->words[from][matrix], 4);
      ++cta().dirtyWriters[row / kUnit];
      threads[first + from].dirty.push_back(row / kUnit);
    }
  step->isDone = true;
}

uint32_t Machine::shuffleXor(uint32_t value, uint32_t mask) {
  const unsigned warp = thread().number / 32, lane = thread().number % 32;
  bool isLast = false;
  Collective *step =
      join(cta().warps[warp], thread().warpStep, Collective::Kind::Shuffle, 32, isLast);
  if (!step)
    return 0;
  step->words[lane][0] = value;
  if (isLast)
    step->isDone = true;
  else
    waitUntil([step] { return step->isDone; }, "shuffle_xor of its warp");
  return step->words[lane ^ mask][0];
}

void Machine::sharedStore(uint32_t value, uint32_t address) {
  if (address % 4 || uint64_t(address) + 4 > shape.sharedBytes)
    return report("shared_store writes at " + text(address) +
                  ", which is no multiple of 4 within shared memory");
  std::memcpy(cta().shared.data() + address, &value, 4);
}

uint32_t Machine::sharedLoad(uint32_t address) {
  uint32_t value = 0;
  if (address % 4 || uint64_t(address) + 4 > shape.sharedBytes)
    report("shared_load reads at " + text(address) +
           ", which is no multiple of 4 within shared memory");
  else
    std::memcpy(&value, cta().shared.data() + address, 4);
  return value;
}

void Machine::fenceAsync() {
  for (uint32_t unit : thread().dirty)
    --cta().dirtyWriters[unit];
  thread().dirty.clear();
}

//===-- Barriers of threads
//-------------------------------------------------------------------------===//

bool Machine::arriveThreads(ThreadBarrier &barrier, unsigned expected, const std::string &name) {
  if (barrier.arrived && barrier.expected != expected) {
    report(name + " is for " + text(expected) + " threads here and for " + text(barrier.expected) +
           " elsewhere");
    return true;
  }
  barrier.expected = expected;
  if (++barrier.arrived < expected)
    return false;
  barrier.arrived = 0;
  ++barrier.generation;
  return true;
}

void Machine::syncThreads(ThreadBarrier &barrier, unsigned expected, const std::string &name) {
  const uint64_t generation = barrier.generation;
  if (!arriveThreads(barrier, expected, name))
    waitUntil([&barrier, generation] { return barrier.generation != generation; }, name);
}

void Machine::clusterArrive() {
  thread().clusterGeneration = clusterBarrier.generation;
  if (++clusterBarrier.arrived < threads.size())
    return;
  clusterBarrier.arrived = 0;
  ++clusterBarrier.generation;
}

void Machine::clusterWait() {
  const uint64_t generation = thread().clusterGeneration;
  waitUntil([this, generation] { return clusterBarrier.generation != generation; }, "cluster_wait");
}

void Machine::setRegisters(unsigned registers) {
  Thread &self = thread();
  Cta &own = cta();
  const int64_t more = int64_t(registers) - self.registers;
  waitUntil([&own, more] { return own.freeRegisters >= more; },
            "set_max_registers increase " + text(registers));
  own.freeRegisters -= more;
  self.registers = registers;
}

} // namespace millrace::gpu
