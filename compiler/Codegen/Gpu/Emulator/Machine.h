// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The state of one cluster of CTAs while a kernel runs in it. Internal to the emulator: Machine.cpp
// schedules threads, Memory.cpp has shared memory, barriers and TMA, TensorCores.cpp has wgmma.
#pragma once

#include "compiler/Codegen/Gpu/Emulator/Emulator.h"
#include "compiler/Codegen/Gpu/Emulator/Fibers.h"

#include <array>
#include <deque>
#include <map>
#include <random>
#include <string>

namespace millrace::gpu {

/// What a kernel's launch takes (hopper.kernel).
struct KernelShape {
  unsigned threads = 0, registers = 0, sharedBytes = 0, cluster = 1;
};

/// A thread's 64 x columns accumulator, its own registers of it.
struct Accumulator {
  unsigned columns = 0;
  bool isInFlight = false;
  std::vector<float> values;            ///< columns / 2
  const struct Product *last = nullptr; ///< that writes it
};

/// One wgmma of a warpgroup, from the first thread that issues it on.
struct Product {
  uint64_t b = 0, a = 0; ///< descriptors
  unsigned columns = 0;
  bool isBf16 = false, hasRegisterA = false;
  bool isTransposedA = false, isTransposedB = false;
  std::vector<uint32_t> registersA; ///< four per thread
  std::array<int64_t, 128> accumulators = {};
  int group = -1; ///< -1: not committed
  bool isDone = false;
};

/// What the threads of a warp or a warpgroup do together, one after another.
struct Collective {
  enum class Kind : uint8_t { Wgmma, Commit, Wait, Fence, Stmatrix, Shuffle, Mma };
  Kind kind = Kind::Fence;
  unsigned joined = 0;
  bool isDone = false;
  unsigned groups = 0;                     ///< of a wait
  Product *product = nullptr;              ///< of a wgmma
  std::array<uint32_t, 32> addresses = {}; ///< of a stmatrix, by lane
  /// By lane: of a stmatrix four, of a shuffle one, of an mma those of A, B and the sums.
  std::array<std::array<uint32_t, 10>, 32> words = {};
};

struct Warpgroup {
  std::deque<Collective> collectives;
  std::deque<Product> products;
  int committed = 0; ///< groups
  int complete = 0;  ///< groups that a wait said are complete
};

struct Mbarrier {
  uint32_t count = 0, pending = 0;
  int64_t bytes = 0;
  uint32_t phase = 0;
  unsigned maker = 0;    ///< thread that made it
  bool isFenced = false; ///< visible to TMA
};

/// A barrier of threads: named, of the CTA, or of the cluster.
struct ThreadBarrier {
  unsigned arrived = 0, expected = 0;
  uint64_t generation = 0;
};

struct TmaStore {
  const TensorMap *map = nullptr;
  int64_t row = 0, column = 0;
  uint32_t address = 0;
  bool isDone = false;
};

struct Thread {
  unsigned number = 0;         ///< in its CTA
  unsigned cta = 0;            ///< in its cluster
  std::function<bool()> ready; ///< empty: it can run
  std::string waitsFor;
  std::vector<Accumulator> accumulators;
  size_t warpgroupStep = 0, warpStep = 0; ///< collectives that it joined
  std::vector<uint32_t> dirty;            ///< 16-byte units that it wrote since its last fence
  std::vector<TmaStore> openStores;
  std::deque<std::vector<TmaStore>> storeGroups; ///< committed and not waited for
  std::array<float, 4> sums = {};                ///< of its last mma
  unsigned registers = 0;
  uint64_t clusterGeneration = 0;
};

struct Cta {
  unsigned x = 0, y = 0;
  std::vector<std::byte> shared;
  std::vector<uint16_t> dirtyWriters; ///< by 16-byte unit: threads that wrote it and did not fence
  std::map<uint32_t, Mbarrier> mbarriers;
  std::array<ThreadBarrier, 16> barriers;
  std::vector<Warpgroup> warpgroups;
  std::vector<std::deque<Collective>> warps;
  int64_t freeRegisters = 0;
  unsigned ended = 0; ///< threads
};

struct TmaLoad {
  const TensorMap *map = nullptr;
  int64_t row = 0, column = 0;
  std::array<int64_t, 3> outer = {}; ///< indices of the tensor's outer dimensions
  uint32_t address = 0, barrier = 0;
  uint32_t ctas = 0; ///< a bit for each that gets it
};

/// Global memory of an argument, and who wrote it in this launch.
struct GlobalRange {
  const std::byte *data = nullptr;
  size_t bytes = 0;
  std::vector<uint32_t> writers; ///< by byte, 0: nobody; empty before the first write
};

class Machine {
public:
  Machine(const KernelShape &shape, const Adversary &adversary)
      : shape(shape), adversary(adversary), random(adversary.seed) {}

  /// Runs one cluster to its end; `body` is the kernel. An error is the first violation.
  Status runCluster(unsigned x, unsigned y, const std::function<void()> &body);

  /// The machine whose fiber runs.
  static thread_local Machine *running;

  // Of the thread that runs.
  Thread &thread() { return threads[current]; }
  Cta &cta() { return ctas[thread().cta]; }
  unsigned warpgroup() { return thread().number / 128; }
  unsigned electedLane() const { return adversary.seed % 32; }
  unsigned threadsOfCta() const { return shape.threads; }

  /// Notes a violation; the first counts.
  void report(const std::string &text);
  /// Never returns to the kernel's code after a violation.
  void stopIfFailed();
  /// Suspends the thread until `ready`; `text` is for the report of a deadlock.
  void waitUntil(std::function<bool()> ready, std::string text);

  // Memory.cpp
  void initBarrier(uint32_t address, uint32_t count);
  void fenceBarriers();
  void arrive(unsigned cta, uint32_t address, int64_t bytes);
  void waitPhase(uint32_t address, uint32_t parity);
  void load(TmaLoad load);
  void store(TmaStore store);
  void commitStores();
  void waitStores(unsigned groups);
  void stmatrix(uint32_t address, std::array<uint32_t, 4> words);
  void fenceAsync();
  uint32_t shuffleXor(uint32_t value, uint32_t mask);
  void sharedStore(uint32_t value, uint32_t address);
  uint32_t sharedLoad(uint32_t address);

  // GlobalMemory.cpp
  void addGlobalMemory(const GlobalMemory &memory);
  /// Checks an access before it happens.
  void accessGlobal(const std::byte *address, uint32_t bytes, bool isWrite);
  /// Checks that TMA or wgmma may read 16 bytes.
  bool checkVisible(const Cta &cta, uint32_t address, const char *reader);
  /// Whether the barrier's threads are complete with this one.
  bool arriveThreads(ThreadBarrier &barrier, unsigned expected, const std::string &name);
  void syncThreads(ThreadBarrier &barrier, unsigned expected, const std::string &name);
  void clusterArrive();
  void clusterWait();
  void setRegisters(unsigned registers);
  /// Whether a box of a map may lie at an address; `what` names it in the report.
  bool checkBox(const TensorMap &map, uint32_t address, const char *what);

  // TensorCores.cpp
  int64_t zeroAccumulator(unsigned columns);
  int64_t handOver(int64_t accumulator);
  int64_t takeBack(int64_t accumulator);
  float readAccumulator(int64_t accumulator, unsigned index);
  void writeAccumulator(int64_t number, float value, unsigned index);
  int64_t multiply(int64_t accumulator, const Product &product, const uint32_t *registersA);
  /// `words`: four of A, two of B, and four sums; the results are the thread's `sums`.
  void mma(const std::array<uint32_t, 10> &words, bool isBf16);
  void wgmmaStep(Collective::Kind kind, unsigned groups = 0);

private:
  Status schedule();
  void orderThreads();
  /// Runs the thread until it waits or ends, if it can run; whether it did.
  bool runThread(unsigned next);
  /// Runs every thread once, or each warp as far as it comes; whether any thread ran.
  bool runRound();
  bool landOne();
  void land(const TmaLoad &load);
  void execute(TmaStore &store, const Cta &cta);
  void complete(Mbarrier &barrier);
  void endThread();
  std::string deadlock() const;
  Mbarrier *findBarrier(unsigned cta, uint32_t address);
  /// The collective that the thread joins next, or null if others do something else there.
  Collective *join(std::deque<Collective> &all, size_t &step, Collective::Kind kind,
                   unsigned members, bool &isLast);
  void finishWarpgroupStep(Cta &cta, Warpgroup &group, Collective &step);
  void execute(Cta &cta, unsigned group, Product &product);
  bool readOperand(const Cta &cta, uint64_t descriptor, unsigned rows, bool isTransposed,
                   bool isBf16, std::vector<double> &values);
  bool readChunk(const Cta &cta, uint32_t address, std::array<uint16_t, 8> &bits);

  const KernelShape shape;
  const Adversary adversary;
  std::minstd_rand random;
  Fibers fibers;
  std::vector<Thread> threads;
  std::vector<Cta> ctas;
  std::vector<unsigned> order;
  std::deque<TmaLoad> loads; ///< that did not land
  ThreadBarrier clusterBarrier;
  std::vector<GlobalRange> globals;
  uint32_t earlierThreads = 0; ///< of clusters that ran before
  unsigned current = 0;
  size_t live = 0; ///< threads that have not ended
  bool isInFiber = false;
  std::string error;
};

/// Where element bytes lie in shared memory with 128-byte swizzle; bases are multiples of 1024.
inline uint32_t swizzle128(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

} // namespace millrace::gpu
