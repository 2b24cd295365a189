// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A text of the tensor level or the tile level as a module, in a context that can lower it.
#pragma once

#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Reference/Reference.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

#include <string>

namespace millrace::gpu {

/// All dialects that a kernel passes through.
inline void loadKernelDialects(mlir::MLIRContext &context) {
  registerReferenceDialects(context);
  mlir::DialectRegistry registry;
  hopper::registerLoweringDialects(registry);
  registry.insert<tile::TileDialect>();
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
}

/// `module` is null if the text does not parse or verify.
struct Parsed {
  explicit Parsed(const std::string &text) {
    loadKernelDialects(context);
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace millrace::gpu
