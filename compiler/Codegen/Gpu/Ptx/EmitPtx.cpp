// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"

#include "compiler/Codegen/Gpu/Ptx/ChipFeatures.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

Status runPasses(ModuleOp module, llvm::function_ref<void(OpPassManager &)> add) {
  std::string text;
  ScopedDiagnosticHandler collect(module.getContext(), [&](Diagnostic &diagnostic) {
    if (text.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error)
      text = diagnostic.str();
    return success();
  });
  PassManager passes(module.getContext(), ModuleOp::getOperationName(),
                     PassManager::Nesting::Implicit);
  add(passes);
  if (failed(passes.run(module)))
    return Error{"cannot lower to NVVM: " + text};
  return Success{};
}

void loadDialects(MLIRContext &context) {
  DialectRegistry registry;
  hopper::registerLoweringDialects(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
}

Expected<std::unique_ptr<llvm::TargetMachine>> makeMachine(const Chip &chip, unsigned version) {
  static const bool initialised = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)initialised;
  const llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string failure;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, failure);
  if (!target)
    return Error{"this LLVM makes no PTX: " + failure};
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, chip.name, "+ptx" + std::to_string(version), {}, {}, {},
                                  llvm::CodeGenOptLevel::Aggressive));
}

Expected<std::string> compile(ModuleOp module, llvm::TargetMachine &machine) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context);
  if (!code)
    return Error{"cannot translate the module to LLVM IR"};
  code->setTargetTriple(machine.getTargetTriple());
  code->setDataLayout(machine.createDataLayout());
  if (llvm::Error error = makeOptimizingTransformer(3, /*sizeLevel=*/0, &machine)(code.get()))
    return Error{"cannot optimise the kernel: " + llvm::toString(std::move(error))};
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream out(text);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return Error{"this LLVM writes no PTX"};
  passes.run(*code);
  return std::string(text);
}

} // namespace

Expected<std::string> emitPtx(ModuleOp module, std::string_view chipName) {
  Expected<Chip> chip = parseChip(chipName);
  if (!chip)
    return chip.takeError();
  loadDialects(*module.getContext());
  OwningOpRef<ModuleOp> lowered = module.clone();
  for (auto function : llvm::make_early_inc_range(lowered->getOps<func::FuncOp>()))
    function.erase(); // what launches kernels
  if (Status done = runPasses(
          *lowered, [](OpPassManager &passes) { passes.addPass(hopper::createLowerToNvvmPass()); });
      !done)
    return done.takeError();
  // Before inline PTX takes the place of operations that the table knows.
  Expected<unsigned> version = requirePtxVersion(*lowered, *chip);
  if (!version)
    return version.takeError();
  if (Status done = runPasses(*lowered, hopper::addConversionToLLVM); !done)
    return done.takeError();
  auto machine = makeMachine(*chip, *version);
  if (!machine)
    return machine.takeError();
  return compile(*lowered, **machine);
}

} // namespace millrace::gpu
