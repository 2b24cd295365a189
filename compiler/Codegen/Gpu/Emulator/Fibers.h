// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Threads of a GPU as fibers of one host thread: each runs until it has to wait.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace millrace::gpu {

/// Fibers with stacks of their own, which are kept from one start to the next. One host thread uses
/// it. A fiber that is not resumed any more is dropped with its stack as it is: what runs in fibers
/// owns no memory while it is suspended for the last time.
class Fibers {
public:
  /// Makes `count` fibers; fiber i runs `body(i)` when it is first resumed.
  void start(unsigned count, std::function<void(unsigned)> body);
  /// Runs a fiber until it suspends or ends. From outside of fibers.
  void resume(unsigned fiber);
  /// Goes back to who resumed. From inside of a fiber.
  void suspend();
  bool hasEnded(unsigned fiber) const { return fibers[fiber].hasEnded; }

private:
  /// Unoptimised kernels keep every value on it. Memory that nobody touches is not taken.
  static constexpr size_t kStackBytes = 256 * 1024;
  /// Below each stack, so that one that overflows ends the process and harms no other.
  static constexpr size_t kGuardBytes = 64 * 1024;
  struct Unmap {
    void operator()(std::byte *stack) const;
  };
  using Stack = std::unique_ptr<std::byte, Unmap>;
  static Stack makeStack();
  struct Fiber {
    ucontext_t context;
    Stack stack;
    bool hasEnded = false;
  };
  static void enter(unsigned high, unsigned low);

  std::vector<Fiber> fibers;
  std::function<void(unsigned)> body;
  ucontext_t outside;
  unsigned current = 0;
};

} // namespace millrace::gpu
