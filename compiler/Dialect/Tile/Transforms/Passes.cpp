// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

namespace millrace::tile {

void registerPasses() {
  mlir::registerPass(createLowerToLoopsPass);
  mlir::registerPass([] { return createLowerToHopperPass(); });
}

} // namespace millrace::tile
