// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small problems.
#pragma once

#include "compiler/Schedule/Problem/Problem.h"

namespace millrace::test {

/// `bundles` bundles of one step that hold nothing and start in cycle 0; the last write slot of
/// each is its 10th cycle. Resources 0 to 2: a port, a stream of two registers, a slice's rows.
inline schedule::ScheduleProblem problemOf(unsigned bundles) {
  using schedule::ResourceKind;
  schedule::ScheduleProblem p;
  p.machine = "a machine";
  p.machineHash = 42;
  p.steps = {{0, 56, 56}};
  p.resources = {{ResourceKind::ReadPort, "pe0.mem.w.3.read", 0},
                 {ResourceKind::Stream, "pe0.w.out.5", 1},
                 {ResourceKind::Rows, "pe0.mem.w.3.rows", 0}};
  for (unsigned b = 0; b < bundles; ++b) {
    p.bundles.emplace_back();
    p.bundles.back().lastWrite = 10;
    p.bundles.back().name = "node" + std::to_string(b);
    p.bundles.back().members = {{0, b, 0}};
  }
  return p;
}

} // namespace millrace::test
