// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text of kernels: the tile level and the hopper level, with what may stand in their bodies. What
// parses and verifies reads back as the same text, and each lowering takes it or says why not.
#include "tests/fuzz/Target.h"
#include "tests/fuzz/TextMutator.h"

#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

using namespace millrace;
using namespace millrace::fuzz;

namespace {

std::string textOf(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

/// Runs the passes on a copy; one that fails says something.
mlir::OwningOpRef<mlir::ModuleOp> lowered(mlir::ModuleOp module, std::string &diagnostics,
                                          llvm::function_ref<void(mlir::PassManager &)> add) {
  mlir::OwningOpRef<mlir::ModuleOp> copy = module.clone();
  mlir::PassManager passes(module.getContext());
  add(passes);
  diagnostics.clear();
  if (succeeded(passes.run(*copy)))
    return copy;
  require(!diagnostics.empty(), "a lowering that refuses a module says why", textOf(module));
  return {};
}

/// Does it number a result, or ask for results, by millions? MLIR's parser makes room for all of
/// them before it looks at any: that is its own limit, and no finding here.
bool numbersMillions(const std::string &text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '#' && text[at] != ':')
      continue;
    const size_t first = text.find_first_not_of(' ', at + 1),
                 end = text.find_first_not_of("0123456789", first);
    if (first != std::string::npos && std::min(end, text.size()) - first > 6)
      return true;
  }
  return false;
}

/// As `opt` has them.
void loadDialects(mlir::MLIRContext &context) {
  mlir::DialectRegistry registry;
  hopper::registerLoweringDialects(registry);
  registry.insert<tile::TileDialect, mlir::func::FuncDialect, mlir::memref::MemRefDialect,
                  mlir::math::MathDialect>();
  context.appendDialectRegistry(registry);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  loadDialects(context);
  std::string diagnostics;
  mlir::ScopedDiagnosticHandler collect(&context, [&](mlir::Diagnostic &diagnostic) {
    diagnostics += diagnostic.str();
    return mlir::success();
  });
  // The parser looks for the 0 behind the text.
  const std::string source(millrace::fuzz::textOf(data, size));
  accepted = false;
  if (numbersMillions(source))
    return 0;
  const auto module = mlir::parseSourceString<mlir::ModuleOp>(source, &context);
  accepted = bool(module);
  if (!module) {
    requireError(diagnostics);
    return 0;
  }
  const std::string text = textOf(*module);
  const auto again = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  require(bool(again), "the text of a module that verifies parses", diagnostics + text);
  require(textOf(*again) == text, "and is the same text", text);
  lowered(*module, diagnostics,
          [](mlir::PassManager &passes) { passes.addPass(tile::createLowerToLoopsPass()); });
  const mlir::OwningOpRef<mlir::ModuleOp> threads =
      lowered(*module, diagnostics,
              [](mlir::PassManager &passes) { passes.addPass(tile::createLowerToHopperPass()); });
  if (!threads)
    return 0;
  lowered(*threads, diagnostics,
          [](mlir::PassManager &passes) { passes.addPass(hopper::createLowerToNvvmPass()); });
  lowered(*threads, diagnostics,
          [](mlir::PassManager &passes) { passes.addPass(hopper::createLowerToEmulatorPass()); });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                                          unsigned int seed) {
  return mutateText(data, size, most, seed);
}
