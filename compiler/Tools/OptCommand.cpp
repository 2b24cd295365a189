// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Single passes on text of the tensor, the spatial or the hopper level.
#include "arch/files/NewFile.h"
#include "compiler/Codegen/Gpu/Attention/Attention.h"
#include "compiler/Codegen/Gpu/Gemm/Gemm.h"
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Spatial/IR/Spatial.h"
#include "compiler/Dialect/Spatial/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"
#include "compiler/Tools/Commands.h"
#include "compiler/Tools/ErrorLine.h"
#include "compiler/Tools/HelpText.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Support/ToolUtilities.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace millrace::driver {
namespace {

struct OptOptions {
  std::string file, output, ptxChip;
  std::vector<std::string> passes;
  bool list = false, split = false, verifyDiagnostics = false;
};

/// What the parser of pipelines says, without the line that it points into.
std::string lineOf(const std::string &error) {
  const size_t from = error.find("error: ");
  return from == error.npos ? error : error.substr(from + 7, error.find('\n', from) - from - 7);
}

/// Adds the named passes; what is wrong with a name goes to `error`.
mlir::LogicalResult addPasses(mlir::PassManager &manager, const std::vector<std::string> &passes,
                              std::string &error) {
  llvm::raw_string_ostream out(error);
  for (const std::string &pass : passes)
    if (failed(mlir::parsePassPipeline(pass, manager, out)))
      return mlir::failure();
  return mlir::success();
}

/// Parses, verifies, runs and prints one module. What is wrong with it goes to `error`.
mlir::LogicalResult process(std::unique_ptr<llvm::MemoryBuffer> buffer, const OptOptions &options,
                            llvm::raw_ostream &out, std::string &error) {
  mlir::MLIRContext context;
  context.printOpOnDiagnostic(false);
  loadImportDialects(context);
  registerReferenceDialects(context);
  context.loadDialect<spatial::SpatialDialect, tile::TileDialect, mlir::memref::MemRefDialect>();
  mlir::DialectRegistry gpuDialects;
  hopper::registerLoweringDialects(gpuDialects);
  context.appendDialectRegistry(gpuDialects);
  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  const auto run = [&]() -> mlir::LogicalResult {
    auto module = mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
    mlir::PassManager manager(&context, mlir::ModuleOp::getOperationName(),
                              mlir::PassManager::Nesting::Implicit);
    std::string unused;
    if (!module || failed(addPasses(manager, options.passes, unused)) ||
        failed(manager.run(*module)))
      return mlir::failure();
    if (!options.ptxChip.empty()) {
      Expected<std::string> ptx = gpu::emitPtx(*module, options.ptxChip);
      if (!ptx)
        return module->emitError() << ptx.error();
      out << *ptx;
      return mlir::success();
    }
    // Locations of the tensor level name ONNX nodes; kernels have them as an attribute.
    const bool isTensorLevel =
        !module->getOps<mlir::func::FuncOp>().empty() && module->getOps<spatial::GraphOp>().empty();
    module->print(out, mlir::OpPrintingFlags().enableDebugInfo(isTensorLevel));
    out << "\n";
    return mlir::success();
  };
  if (!options.verifyDiagnostics) {
    ErrorLine errors(context);
    const mlir::LogicalResult result = run();
    error += errors.text();
    return result;
  }
  mlir::SourceMgrDiagnosticVerifierHandler handler(*sources, &context);
  (void)run();
  return handler.verify();
}

int runPasses(const OptOptions &options) {
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  spatial::registerPasses();
  hopper::registerPasses();
  gpu::registerAttentionPass();
  gpu::registerGemmPass();
  gpu::registerKernelPasses();
  tile::registerPasses();
  if (options.list) {
    mlir::printRegisteredPasses();
    llvm::outs().flush();
    if (!llvm::outs().has_error())
      return Ok;
    return fail(BadOutput,
                "cannot write to the standard output: " + llvm::outs().error().message());
  }
  if (options.file.empty())
    return fail(Usage, "opt needs a file; see `millrace opt --help`");
  mlir::MLIRContext context;
  mlir::PassManager manager(&context, mlir::ModuleOp::getOperationName(),
                            mlir::PassManager::Nesting::Implicit);
  std::string error;
  if (failed(addPasses(manager, options.passes, error))) {
    return fail(Usage, lineOf(error) + "; `millrace opt --list-passes` lists the passes");
  }
  std::unique_ptr<llvm::MemoryBuffer> file = mlir::openInputFile(options.file, &error);
  if (!file)
    return fail(BadInput, error + "; check the path");
  std::string text;
  llvm::raw_string_ostream out(text);
  const auto chunk = [&](std::unique_ptr<llvm::MemoryBuffer> buffer, llvm::raw_ostream &to) {
    return process(std::move(buffer), options, to, error);
  };
  if (failed(mlir::splitAndProcessBuffer(std::move(file), chunk, out,
                                         options.split ? mlir::kDefaultSplitMarker : "",
                                         options.split ? mlir::kDefaultSplitMarker : "")))
    return fail(BadInput, error.empty() ? options.file + " does not pass" : error);
  if (options.output.empty())
    std::fwrite(text.data(), 1, text.size(), stdout);
  else if (Status s = writeFile(options.output, text); !s)
    return fail(BadOutput, s.error());
  return Ok;
}

} // namespace

void addOpt(CLI::App &app, Action &action) {
  auto options = std::make_shared<OptOptions>();
  CLI::App *command =
      app.add_subcommand(
             "opt", "Runs single passes on text of the tensor, the spatial or the hopper level")
          ->group(heading::Models);
  command->footer("Examples:\n"
                  "  millrace opt model.mlir --pass=form-kernels{machine=lp30} "
                  "--pass=split-windows\n"
                  "  millrace compile model.onnx --to tensor -o - | millrace opt - "
                  "--pass=form-kernels");
  command->add_option("file", options->file, "text, - for the standard input")->type_name("FILE");
  command
      ->add_option("--pass", options->passes,
                   "a pass, with options in braces: name{key=value key=value}; repeat for more")
      ->type_name("PASS")
      ->group(heading::Compiler);
  command
      ->add_option("--output,-o", options->output, "file to write; the standard output by default")
      ->type_name("FILE")
      ->group(heading::Data);
  command
      ->add_option("--ptx", options->ptxChip,
                   "write the PTX of the kernels for this chip, such as sm_90a, instead of text")
      ->type_name("CHIP")
      ->group(heading::Compiler);
  command->add_flag("--list-passes", options->list, "list the passes and their options instead")
      ->group(heading::Compiler);
  command
      ->add_flag("--split-input-file", options->split,
                 "the file holds several texts with // ----- between them")
      ->group(heading::Data);
  command
      ->add_flag("--verify-diagnostics", options->verifyDiagnostics,
                 "compare diagnostics with expected-error comments instead of printing them")
      ->group(heading::Data);
  command->callback([=, &action] { action = [=] { return runPasses(*options); }; });
}

} // namespace millrace::driver
