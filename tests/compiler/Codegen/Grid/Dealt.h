// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "TestMachine.h"

#include "compiler/Codegen/Grid/Partition.h"

namespace millrace::test {

/// What a partition is made for: a graph on `pes` PEs in a line.
class Dealt {
public:
  Dealt(const forms::KernelGraph &graph, unsigned pes, unsigned rowsPerBank = 4096,
        bool sharesRows = false)
      : graph(graph), machine(lineOf(pes, rowsPerBank)), program(machine),
        c(machine, this->graph, program, {.sharesRows = sharesRows}) {
    for (const forms::Kernel &kernel : this->graph.kernels)
      works.push_back(*grid::workOf(c, kernel));
    for (unsigned pe = 0; pe < pes; ++pe)
      order.push_back(pe);
  }
  grid::PartitionProblem problem(std::optional<uint64_t> mostWeightRows = std::nullopt) {
    std::vector<uint64_t> most;
    if (mostWeightRows)
      most.assign(order.size() * kHemispheres, *mostWeightRows);
    return {c, works, order, most};
  }

private:
  static Machine lineOf(unsigned pes, unsigned rowsPerBank) {
    Machine m = test::testMachine(2);
    m.fabric.columns = pes;
    m.memory.rowsPerBank = rowsPerBank;
    return m;
  }
  forms::KernelGraph graph;
  Machine machine;
  schedule::Program program;
  grid::Context c;
  std::vector<grid::Work> works;
  std::vector<unsigned> order;
};

} // namespace millrace::test
