// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Hopper/IR/Hopper.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "compiler/Dialect/Hopper/IR/HopperDialect.cpp.inc"
#include "compiler/Dialect/Hopper/IR/HopperEnums.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/Dialect/Hopper/IR/HopperTypes.cpp.inc"

namespace millrace::hopper {

void HopperDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/Dialect/Hopper/IR/HopperTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "compiler/Dialect/Hopper/IR/HopperOps.cpp.inc"
      >();
}

} // namespace millrace::hopper
