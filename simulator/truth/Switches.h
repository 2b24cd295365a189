// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The SXM units of one PE.
#pragma once

#include "simulator/truth/Core.h"

#include <map>

namespace millrace::sim::truth {

class Switches {
public:
  explicit Switches(Core &core) : core(core) {}

  /// The element to come of an SXM instruction acts.
  void element(const Work &work, Cycle now);
  void clear() { maps.clear(); }

private:
  Cycle latency(const Work &work) const;
  void transpose(const std::vector<Bytes> &in, const std::vector<Bytes> &out) const;
  uint8_t lane(const Work &work, const std::vector<uint16_t> &map, const Lanes &a, const Lanes *b,
               unsigned lane) const;

  Core &core;
  std::map<unsigned, uint32_t> maps; ///< by queue: what Config loaded
};

} // namespace millrace::sim::truth
