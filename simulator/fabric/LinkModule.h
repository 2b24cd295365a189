// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One directed link: vectors in flight between two PEs. A vector sent in cycle t must be received
// in cycle t + latency.
#pragma once

#include "arch/spec/Machine.h"
#include "simulator/base/Tag.h"

#include <deque>
#include <systemc>
#include <vector>

namespace millrace::sim {

struct Message {
  Cycle sent = 0;
  Tag tag;                    ///< the Send
  std::vector<uint8_t> bytes; ///< empty in cycles-only runs
};

class LinkModule : public sc_core::sc_module {
public:
  LinkModule(const sc_core::sc_module_name &name, const Link &link)
      : sc_core::sc_module(name), link(link) {}
  const Link link;
  std::deque<Message> inFlight; ///< by time of sending
  Cycle lastSent = INT64_MIN / 2;
};

} // namespace millrace::sim
