// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Spatial/IR/Spatial.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "compiler/Dialect/Spatial/IR/SpatialDialect.cpp.inc"
#include "compiler/Dialect/Spatial/IR/SpatialEnums.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/Dialect/Spatial/IR/SpatialTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/Dialect/Spatial/IR/SpatialAttributes.cpp.inc"

namespace millrace::spatial {

void SpatialDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/Dialect/Spatial/IR/SpatialTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/Dialect/Spatial/IR/SpatialAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "compiler/Dialect/Spatial/IR/SpatialOps.cpp.inc"
      >();
}

} // namespace millrace::spatial
