// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Emulator/Fibers.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace millrace::gpu {

void Fibers::Unmap::operator()(std::byte *stack) const { munmap(stack, kGuardBytes + kStackBytes); }

Fibers::Stack Fibers::makeStack() {
  void *memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE))
    throw std::bad_alloc();
  return Stack(static_cast<std::byte *>(memory));
}

// makecontext passes integers only.
void Fibers::enter(unsigned high, unsigned low) {
  auto *self = reinterpret_cast<Fibers *>(uintptr_t(high) << 32 | uintptr_t(low));
  const unsigned fiber = self->current;
  self->body(fiber);
  self->fibers[fiber].hasEnded = true;
  self->suspend();
}

void Fibers::start(unsigned count, std::function<void(unsigned)> work) {
  body = std::move(work);
  fibers.resize(count);
  const auto self = reinterpret_cast<uintptr_t>(this);
  for (Fiber &fiber : fibers) {
    fiber.hasEnded = false;
    if (!fiber.stack)
      fiber.stack = makeStack();
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get() + kGuardBytes;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Fibers::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  }
}

void Fibers::resume(unsigned fiber) {
  current = fiber;
  swapcontext(&outside, &fibers[fiber].context);
}

void Fibers::suspend() { swapcontext(&fibers[current].context, &outside); }

} // namespace millrace::gpu
