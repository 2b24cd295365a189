// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Fabric.h"

#include "arch/spec/Nearest.h"

namespace millrace {
namespace {

constexpr unsigned kMostPes = 65535; ///< as Verify.cpp says

class Links {
public:
  explicit Links(Machine &machine) : machine(machine) { machine.links.clear(); }

  void add(unsigned from, unsigned port, unsigned to, unsigned toPort) {
    const LinkClass &link = machine.fabric.link;
    if (from != to)
      machine.links.push_back({from, to, port, toPort, link.latency, link.slot});
  }

private:
  Machine &machine;
};

void deriveGrid(Machine &machine, bool wraps) {
  constexpr struct {
    int row, column;
  } kSteps[] = {{-1, 0}, {0, 1}, {1, 0}, {0, -1}}; // north, east, south, west
  Links links(machine);
  const int rows = int(machine.fabric.rows), columns = int(machine.fabric.columns);
  for (int pe = 0; pe < rows * columns; ++pe)
    for (unsigned port = 0; port < 4; ++port) {
      int row = pe / columns + kSteps[port].row, column = pe % columns + kSteps[port].column;
      if (wraps) {
        row = (row + rows) % rows;
        column = (column + columns) % columns;
      }
      if (row >= 0 && row < rows && column >= 0 && column < columns)
        links.add(unsigned(pe), port, unsigned(row * columns + column), (port + 2) % 4);
    }
}

void deriveRing(Machine &machine) {
  Links links(machine);
  const unsigned pes = machine.pes();
  for (unsigned pe = 0; pe < pes; ++pe) {
    links.add(pe, 0, (pe + 1) % pes, 1);
    links.add(pe, 1, (pe + pes - 1) % pes, 0);
  }
}

void deriveFull(Machine &machine) {
  Links links(machine);
  auto portTo = [](unsigned pe, unsigned other) { return other < pe ? other : other - 1; };
  for (unsigned from = 0; from < machine.pes(); ++from)
    for (unsigned to = 0; to < machine.pes(); ++to)
      if (from != to)
        links.add(from, portTo(from, to), to, portTo(to, from));
}

} // namespace

Status deriveLinks(Machine &machine) {
  const std::string &topology = machine.fabric.topology;
  if (topology == "single") {
    if (machine.pes() != 1)
      return Error{"'fabric.topology' is single, but fabric.rows x fabric.columns = " +
                   std::to_string(machine.pes()) +
                   "; name a topology that joins them: mesh, torus, ring or full"};
    machine.links.clear();
  } else if (topology != "list" && machine.pes() > kMostPes) {
    machine.links.clear(); // Machine::verify says so; links are for fabrics that can be
  } else if (topology == "mesh" || topology == "torus") {
    deriveGrid(machine, topology == "torus");
  } else if (topology == "ring") {
    deriveRing(machine);
  } else if (topology == "full") {
    machine.links.clear();
    if (machine.pes() > machine.c2c.ports + 1)
      return Error{"'fabric.topology' is full, which needs a port to each of the other " +
                   std::to_string(machine.pes() - 1) +
                   " PEs, but c2c.ports = " + std::to_string(machine.c2c.ports) +
                   "; raise it or lower fabric.rows or fabric.columns"};
    deriveFull(machine);
  } else if (topology != "list") {
    return Error{"'fabric.topology' = '" + topology + "' is unknown" +
                 didYouMean(topology, {"single", "mesh", "torus", "ring", "full", "list"},
                            "choose single, mesh, torus, ring, full or list")};
  }
  return Success{};
}

} // namespace millrace
