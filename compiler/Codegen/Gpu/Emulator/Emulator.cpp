// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Emulator/Emulator.h"

#include "compiler/Codegen/Gpu/Emulator/Machine.h"
#include "compiler/Codegen/Gpu/Emulator/Runtime.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Support/JitSymbols.h"

#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

#include "llvm/Support/TargetSelect.h"

#include <algorithm>

namespace millrace::gpu {

using namespace mlir;

std::vector<Adversary> Adversary::all() {
  constexpr Landing early = Landing::Early, late = Landing::Late;
  return {{early, early, early, 0}, {late, late, late, 1},   {early, late, late, 2},
          {late, early, early, 3},  {early, late, early, 1}, {late, late, late, 4}};
}

struct EmulatedKernel::State {
  std::string name;
  KernelShape shape;
  std::vector<Type> arguments; ///< of `context`
  std::unique_ptr<ExecutionEngine> engine;
  void (*entry)(void **) = nullptr;
};

EmulatedKernel::EmulatedKernel(std::unique_ptr<State> state) : state(std::move(state)) {}
EmulatedKernel::EmulatedKernel(EmulatedKernel &&) noexcept = default;
EmulatedKernel &EmulatedKernel::operator=(EmulatedKernel &&) noexcept = default;
EmulatedKernel::~EmulatedKernel() = default;

namespace {

Status lower(ModuleOp module) {
  std::string text;
  ScopedDiagnosticHandler collect(module.getContext(), [&](Diagnostic &diagnostic) {
    if (text.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error)
      text = diagnostic.str();
    return success();
  });
  PassManager passes(module.getContext(), ModuleOp::getOperationName(),
                     PassManager::Nesting::Implicit);
  // Not every CPU rounds to bf16, and the code links no library that would.
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  passes.addPass(arith::createArithExpandOpsPass(expand));
  passes.addPass(hopper::createLowerToEmulatorPass());
  hopper::addConversionToLLVM(passes);
  if (failed(passes.run(module)))
    return Error{"cannot lower the kernel for the emulator: " + text};
  return Success{};
}

/// The types of a kernel's arguments as the launch gives them.
bool fits(const Argument &argument, Type type) {
  if (std::holds_alternative<const TensorMap *>(argument))
    return isa<hopper::TensorMapType>(type);
  if (std::holds_alternative<GlobalMemory>(argument))
    return isa<LLVM::LLVMPointerType>(type);
  if (std::holds_alternative<int32_t>(argument))
    return type.isInteger(32);
  return std::holds_alternative<int64_t>(argument) ? type.isInteger(64) : type.isF32();
}

} // namespace

Expected<EmulatedKernel> EmulatedKernel::create(ModuleOp module, std::string_view name) {
  auto kernel = module.lookupSymbol<hopper::KernelOp>(llvm::StringRef(name));
  if (!kernel)
    return Error{"the module has no kernel '" + std::string(name) + "'"};
  auto state = std::make_unique<State>();
  state->name = name;
  state->shape = {kernel.getThreads(), kernel.getRegisters(), kernel.getSharedMemory(),
                  kernel.getCluster()};
  state->arguments.assign(kernel.getArgumentTypes().begin(), kernel.getArgumentTypes().end());
  MLIRContext &context = *module.getContext();
  registerBuiltinDialectTranslation(context);
  registerLLVMDialectTranslation(context);
  DialectRegistry registry;
  hopper::registerLoweringDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> lowered = module.clone();
  if (Status done = lower(*lowered); !done)
    return done.takeError();
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  ExecutionEngineOptions options;
  // Time goes into what the code calls, so that optimising it would take longer than it saves.
  options.jitCodeGenOptLevel = llvm::CodeGenOptLevel::None;
  options.enableGDBNotificationListener = false;
  options.enablePerfNotificationListener = false;
  auto engine = ExecutionEngine::create(*lowered, options);
  if (!engine)
    return Error{"cannot generate code: " + llvm::toString(engine.takeError())};
  (*engine)->registerSymbols(roundingsToBf16);
  (*engine)->registerSymbols(runtimeSymbols);
  auto entry = (*engine)->lookupPacked(state->name);
  if (!entry)
    return Error{"cannot generate code: " + llvm::toString(entry.takeError())};
  state->engine = std::move(*engine);
  state->entry = *entry;
  return EmulatedKernel(std::move(state));
}

Status EmulatedKernel::run(Grid grid, const std::vector<Argument> &arguments,
                           const Adversary &adversary) {
  const std::string of = "kernel '" + state->name + "': ";
  if (arguments.size() != state->arguments.size())
    return Error{of + "got " + std::to_string(arguments.size()) + " arguments, it takes " +
                 std::to_string(state->arguments.size())};
  std::vector<void *> packed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!fits(arguments[i], state->arguments[i]))
      return Error{of + "argument " + std::to_string(i) + " is of another type than the kernel's"};
    if (const auto *map = std::get_if<const TensorMap *>(&arguments[i]))
      if (Status valid = verifyTensorMap(**map); !valid)
        return Error{of + "argument " + std::to_string(i) + ": " + valid.error()};
    // Of global memory the kernel takes its address, the first member.
    packed.push_back(std::visit(
        [](const auto &value) { return const_cast<void *>(static_cast<const void *>(&value)); },
        arguments[i]));
  }
  if (!grid.x || !grid.y || grid.x % state->shape.cluster)
    return Error{of + "a grid of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) +
                 " CTAs is not made of clusters of " + std::to_string(state->shape.cluster)};
  std::vector<std::pair<unsigned, unsigned>> clusters;
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; x += state->shape.cluster)
      clusters.emplace_back(x, y);
  if (adversary.seed == 1)
    std::reverse(clusters.begin(), clusters.end());
  Machine machine(state->shape, adversary);
  for (const Argument &argument : arguments)
    if (const auto *memory = std::get_if<GlobalMemory>(&argument))
      machine.addGlobalMemory(*memory);
  for (const auto &[x, y] : clusters)
    if (Status done = machine.runCluster(x, y, [&] { state->entry(packed.data()); }); !done)
      return Error{of + done.error()};
  return Success{};
}

} // namespace millrace::gpu
