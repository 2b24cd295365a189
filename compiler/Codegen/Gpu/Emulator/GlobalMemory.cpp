// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads and stores of global memory: where they may go, and that no two threads meet there.
#include "compiler/Codegen/Gpu/Emulator/Machine.h"

#include <algorithm>

namespace millrace::gpu {

void Machine::addGlobalMemory(const GlobalMemory &memory) {
  const auto *data = static_cast<const std::byte *>(memory.data);
  // One memory may be two arguments.
  for (const GlobalRange &range : globals)
    if (range.data == data && range.bytes == memory.bytes)
      return;
  globals.push_back({data, memory.bytes, {}});
}

void Machine::accessGlobal(const std::byte *address, uint32_t bytes, bool isWrite) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const std::string what = std::string(isWrite ? "a store of " : "a load of ") +
                           std::to_string(bytes) + " bytes of global memory ";
  if (at % bytes)
    return report(what + "is not aligned to its size");
  const auto range = std::find_if(globals.begin(), globals.end(), [&](const GlobalRange &r) {
    return address >= r.data && address + bytes <= r.data + r.bytes;
  });
  if (range == globals.end())
    return report(what + "lies outside of every argument of the launch");
  if (range->writers.empty() && isWrite)
    range->writers.assign(range->bytes, 0);
  if (range->writers.empty())
    return;
  const uint32_t self = earlierThreads + current + 1;
  const auto first = range->writers.begin() + (address - range->data);
  if (std::any_of(first, first + bytes, [&](uint32_t by) { return by && by != self; }))
    return report(what + "meets what another thread of the launch wrote, at byte " +
                  std::to_string(address - range->data));
  if (isWrite)
    std::fill(first, first + bytes, self);
}

} // namespace millrace::gpu
