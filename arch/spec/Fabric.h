// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a named topology to links. PEs are numbered row by row, from the north-west corner.
//
//   single  one PE, no links
//   mesh    ports 0 north, 1 east, 2 south, 3 west; a link arrives at the opposite port
//   torus   as mesh, with the ends of each row and column of at least 2 PEs joined
//   ring    port 0 to the next PE, arriving at its port 1; port 1 to the previous one
//   full    every pair; the ports of a PE lead to the other PEs in their order
//   list    links are given one by one
#pragma once

#include "arch/spec/Machine.h"

namespace millrace {

/// Sets machine.links from machine.fabric (leaves them alone for `list`). Errors: an unknown
/// topology, or more than one PE in a `single` one. That the PEs have enough ports is
/// Machine::verify's business.
Status deriveLinks(Machine &machine);

} // namespace millrace
