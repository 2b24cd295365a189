// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hopper dialect: hardware actions of a Hopper streaming multiprocessor. HopperOps.td describes
// it.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/Dialect/Hopper/IR/HopperDialect.h.inc"
#include "compiler/Dialect/Hopper/IR/HopperEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/Dialect/Hopper/IR/HopperTypes.h.inc"
#define GET_OP_CLASSES
#include "compiler/Dialect/Hopper/IR/HopperOps.h.inc"

namespace millrace::hopper {

/// What one streaming multiprocessor of Hopper has (CUDA C++ Programming Guide, compute capability
/// 9.0).
struct Limits {
  static constexpr unsigned kThreads = 1024;
  static constexpr unsigned kRegisters = 65536;
  static constexpr unsigned kSharedMemory = 227 * 1024; ///< bytes that one CTA may use
  static constexpr unsigned kCluster = 8;               ///< CTAs, without an opt-in at launch
  static constexpr unsigned kNamedBarriers = 16;        ///< 0 is that of the CTA
  static constexpr unsigned kWarp = 32;
  static constexpr unsigned kWarpgroup = 128;
  static constexpr unsigned kOuter = 3;              ///< dimensions of a tensor beside a matrix
  static constexpr unsigned kBox = 256;              ///< elements of a box along one dimension
  static constexpr unsigned kBarrierCount = 1048575; ///< arrivals or bytes of one phase
};

} // namespace millrace::hopper
