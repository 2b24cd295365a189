// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tile dialect: kernels as programs on tiles. TileOps.td describes it.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/Dialect/Tile/IR/TileDialect.h.inc"
#define GET_OP_CLASSES
#include "compiler/Dialect/Tile/IR/TileOps.h.inc"

namespace millrace::tile {

/// Whether tensors in global memory may have this element type.
bool isElementType(mlir::Type type);

/// Whether the type is a tile's, not a scalar's.
inline bool isTile(mlir::Type type) { return mlir::isa<mlir::VectorType>(type); }

/// Whether it is that of a tile with a row per lane.
inline bool isRows(mlir::Type type) {
  auto tile = mlir::dyn_cast<mlir::VectorType>(type);
  return tile && tile.getRank() == 2;
}

/// Of a kernel: registers that a thread of a GPU gets at most, a multiple of 8, so that more
/// programs run at once; without it as many as there are.
constexpr const char *kRegistersAttribute = "tile.registers";

/// Whether a kernel has such tiles: it has no reductions over lanes then.
bool hasRows(KernelOp kernel);

/// Whether an operation names what only `dot` takes; null is none.
bool isTable(mlir::Operation *op);

/// Whether the lowerings take the operation in a kernel: those of the dialect, elementwise ones of
/// `arith` and `math`, constants, `scf.for`, `scf.if` and `scf.yield`.
bool isAllowedInKernel(mlir::Operation *op);

} // namespace millrace::tile
