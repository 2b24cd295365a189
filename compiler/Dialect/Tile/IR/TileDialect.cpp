// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/IR/Tile.h"

#include "compiler/Dialect/Tile/IR/TileDialect.cpp.inc"

namespace millrace::tile {

void TileDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "compiler/Dialect/Tile/IR/TileOps.cpp.inc"
      >();
}

} // namespace millrace::tile
