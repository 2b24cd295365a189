// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Support/LargeStack.h"

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace millrace {
namespace {

/// The lowest address that a recursion of this thread should reach; 0: not known.
thread_local uintptr_t lowest = 0;

struct Job {
  const std::function<void()> &work;
  size_t bytes;
};

void *runJob(void *argument) {
  const Job &job = *static_cast<Job *>(argument);
  const char here = 0;
  lowest = reinterpret_cast<uintptr_t>(&here) - (job.bytes - job.bytes / 8);
  job.work();
  return nullptr;
}

} // namespace

void runOnLargeStack(const std::function<void()> &work) {
  for (size_t bytes = size_t(1) << 30; bytes >= size_t(16) << 20; bytes /= 2) {
    Job job{work, bytes};
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
      break;
    const bool runs = pthread_attr_setstacksize(&attributes, bytes) == 0 &&
                      pthread_create(&thread, &attributes, runJob, &job) == 0;
    pthread_attr_destroy(&attributes);
    if (!runs)
      continue;
    pthread_join(thread, nullptr);
    return;
  }
  work();
}

bool isStackShort() {
  const char here = 0;
  return reinterpret_cast<uintptr_t>(&here) < lowest;
}

} // namespace millrace
