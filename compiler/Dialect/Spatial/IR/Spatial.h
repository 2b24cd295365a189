// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The spatial dialect: the kernel graph as text that is read back. SpatialOps.td describes it.
#pragma once

#include "compiler/Forms/Kernel.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/OwningOpRef.h"

#include "compiler/Dialect/Spatial/IR/SpatialDialect.h.inc"
#include "compiler/Dialect/Spatial/IR/SpatialEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/Dialect/Spatial/IR/SpatialTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/Dialect/Spatial/IR/SpatialAttributes.h.inc"
#define GET_OP_CLASSES
#include "compiler/Dialect/Spatial/IR/SpatialOps.h.inc"

namespace millrace::spatial {

/// The graph as a module of the spatial level; the context has the dialect loaded. Constants that
/// `reuse` (a graph of the same context) holds already are not copied again. Fails with a
/// diagnostic if the graph's host functions do not parse.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
exportGraph(const forms::KernelGraph &graph, mlir::MLIRContext &context, GraphOp reuse = {});

/// The graph that a module of the spatial level holds. exportGraph and importGraph lose nothing in
/// either direction. Fails with a diagnostic if the module has not exactly one graph.
mlir::FailureOr<forms::KernelGraph> importGraph(mlir::ModuleOp module);

/// The graph of one operation, without the text of its host functions.
forms::KernelGraph importOp(GraphOp op);

/// The one graph of the module, or a diagnostic and null.
GraphOp findGraph(mlir::ModuleOp module);

/// Name of the module with the functions that run on the host.
constexpr llvm::StringLiteral kHostModule = "host";

} // namespace millrace::spatial
