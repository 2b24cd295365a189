// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/observe/VcdWriter.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <tuple>

namespace millrace::sim {

/// Identifier codes of VCD: printable characters from '!' to '~', least significant first.
static std::string codeOf(uint32_t signal) {
  std::string code;
  do {
    code += char('!' + signal % 94);
    signal /= 94;
  } while (signal);
  return code;
}

void VcdWriter::dispatched(unsigned pe, unsigned queue, const Burst &burst) {
  const uint32_t signal = pe * machine.queues() + queue;
  changes.push_back({base + uint64_t(burst.start), true, signal, burst.index + 1});
  changes.push_back({base + uint64_t(burst.lastCycle()) + 1, false, signal, burst.index + 1});
}

VcdWriter::~VcdWriter() {
  std::sort(changes.begin(), changes.end(), [](const Change &a, const Change &b) {
    return std::tuple(a.time, a.begins, a.signal, a.value) <
           std::tuple(b.time, b.begins, b.signal, b.value);
  });
  std::map<uint32_t, uint32_t>
      held; // signal to its value; only queues that do anything are declared
  for (const Change &c : changes)
    held[c.signal] = 0;
  out << "$timescale 1ns $end\n$scope module grid $end\n";
  for (auto [signal, value] : held)
    out << "$var wire 32 " << codeOf(signal) << " pe" << signal / machine.queues() << "."
        << machine.queueName(signal % machine.queues()) << " $end\n";
  out << "$upscope $end\n$enddefinitions $end\n#0\n";
  for (auto [signal, value] : held)
    out << "b0 " << codeOf(signal) << '\n';
  uint64_t time = 0;
  for (const Change &c : changes) {
    if (!c.begins && held[c.signal] != c.value)
      continue; // another burst of the queue (a slice reads and writes at once) has begun since
    if (c.time != time)
      out << '#' << (time = c.time) << '\n';
    held[c.signal] = c.begins ? c.value : 0;
    out << 'b' << std::bitset<32>(held[c.signal]).to_string() << ' ' << codeOf(c.signal) << '\n';
  }
}

} // namespace millrace::sim
