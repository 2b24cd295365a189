// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Threads of one cluster: who runs, who waits, and what it means when all wait.
#include "compiler/Codegen/Gpu/Emulator/Machine.h"

#include <algorithm>
#include <numeric>

namespace millrace::gpu {

thread_local Machine *Machine::running = nullptr;

void Machine::report(const std::string &text) {
  if (!error.empty())
    return;
  error = text;
  if (isInFiber)
    error += " (thread " + std::to_string(thread().number) + " of CTA " + std::to_string(cta().x) +
             ", " + std::to_string(cta().y) + ")";
}

void Machine::stopIfFailed() {
  while (!error.empty())
    fibers.suspend();
}

void Machine::waitUntil(std::function<bool()> ready, std::string text) {
  if (ready())
    return;
  thread().ready = std::move(ready);
  thread().waitsFor = std::move(text);
  fibers.suspend();
}

void Machine::orderThreads() {
  // Whole warps change places: what happens inside of one is in step anyway.
  std::vector<unsigned> warps((threads.size() + 31) / 32);
  std::iota(warps.begin(), warps.end(), 0);
  if (adversary.seed == 1)
    std::reverse(warps.begin(), warps.end());
  else if (adversary.seed > 1)
    std::shuffle(warps.begin(), warps.end(), random);
  order.clear();
  for (unsigned warp : warps)
    for (unsigned thread = warp * 32; thread < (warp + 1) * 32; ++thread)
      order.push_back(thread);
}

void Machine::endThread() {
  Thread &thread = this->thread();
  ++cta().ended;
  if (!thread.openStores.empty())
    report("a thread ends with a tma_store that no tma_store_commit follows");
  if (!thread.storeGroups.empty())
    report("a thread ends before tma_store_wait: TMA still reads its shared memory");
  if (thread.number % 128)
    return;
  const std::vector<Warpgroup> &groups = cta().warpgroups;
  if (warpgroup() < groups.size()) {
    const Warpgroup &group = groups[warpgroup()];
    if (group.complete < group.committed ||
        std::any_of(group.products.begin(), group.products.end(),
                    [](const Product &product) { return product.group < 0; }))
      report("a warpgroup ends with a wgmma in flight; put wgmma_commit and wgmma_wait before it");
  }
}

bool Machine::landOne() {
  if (loads.empty())
    return false;
  const size_t which = adversary.seed == 0   ? 0
                       : adversary.seed == 1 ? loads.size() - 1
                                             : random() % loads.size();
  const TmaLoad load = loads[which];
  loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(which));
  land(load);
  return true;
}

std::string Machine::deadlock() const {
  std::map<std::string, unsigned> waits;
  for (const Thread &thread : threads)
    if (thread.ready)
      ++waits["CTA " + std::to_string(ctas[thread.cta].x) + ", " +
              std::to_string(ctas[thread.cta].y) + ": " + thread.waitsFor];
  std::string text = "deadlock:";
  for (const auto &[what, count] : waits)
    text += (text.back() == ':' ? " " : "; ") + std::to_string(count) + " threads of " + what;
  for (const Cta &cta : ctas)
    for (const auto &[address, barrier] : cta.mbarriers)
      if (barrier.pending != barrier.count || barrier.bytes)
        text += "; the barrier at " + std::to_string(address) + " lacks " +
                std::to_string(barrier.pending) + " of " + std::to_string(barrier.count) +
                " arrivals and " + std::to_string(barrier.bytes) + " bytes";
  return text;
}

bool Machine::runThread(unsigned next) {
  Thread &thread = threads[next];
  if (!error.empty() || fibers.hasEnded(next) || (thread.ready && !thread.ready()))
    return false;
  thread.ready = nullptr;
  current = next;
  isInFiber = true;
  fibers.resume(next);
  isInFiber = false;
  live -= fibers.hasEnded(next);
  return true;
}

bool Machine::runRound() {
  if (adversary.seed > 1)
    orderThreads();
  bool anyRan = false;
  for (size_t warp = 0; warp < order.size(); warp += 32) {
    bool ran = true;
    while (ran) {
      ran = false;
      for (size_t i = warp; i < warp + 32; ++i)
        ran |= runThread(order[i]);
      anyRan |= ran;
      // Every second seed lets a warp run ahead of all others as far as it can.
      ran &= adversary.seed % 2 == 1;
    }
  }
  return anyRan;
}

Status Machine::schedule() {
  live = threads.size();
  while (live && error.empty())
    if (!runRound() && error.empty() && !landOne())
      report(deadlock());
  if (!error.empty())
    return Error{error};
  if (!loads.empty())
    return Error{"the cluster ends before " + std::to_string(loads.size()) +
                 " boxes that tma_load asked for have landed; wait for their barrier"};
  return Success{};
}

Status Machine::runCluster(unsigned x, unsigned y, const std::function<void()> &body) {
  error.clear();
  loads.clear();
  clusterBarrier = {};
  ctas.assign(shape.cluster, {});
  threads.assign(size_t(shape.cluster) * shape.threads, {});
  for (unsigned c = 0; c < shape.cluster; ++c) {
    Cta &cta = ctas[c];
    cta.x = x + c;
    cta.y = y;
    // All bits set: NaN in every type.
    cta.shared.assign(shape.sharedBytes, std::byte{0xFF});
    cta.dirtyWriters.assign((shape.sharedBytes + 15) / 16, 0);
    cta.warpgroups.resize(shape.threads / 128);
    cta.warps.resize((shape.threads + 31) / 32);
    for (unsigned t = 0; t < shape.threads; ++t) {
      Thread &thread = threads[size_t(c) * shape.threads + t];
      thread.number = t;
      thread.cta = c;
      thread.registers = shape.registers;
    }
  }
  orderThreads();
  fibers.start(static_cast<unsigned>(threads.size()), [&](unsigned) {
    body();
    endThread();
  });
  Machine *before = std::exchange(running, this);
  Status result = schedule();
  running = before;
  earlierThreads += static_cast<uint32_t>(threads.size());
  return result;
}

} // namespace millrace::gpu
