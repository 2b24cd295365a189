// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Reference.h"

#include "compiler/Reference/Lower.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/JitSymbols.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/AllInterfaces.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <functional>
#include <limits>
#include <numeric>

using namespace mlir;

namespace millrace {

struct ReferencePort {
  HostType type;
  std::vector<int64_t> shape;
};

void registerReferenceDialects(MLIRContext &context) {
  DialectRegistry registry;
  registry
      .insert<arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect, math::MathDialect,
              memref::MemRefDialect, scf::SCFDialect, tensor::TensorDialect, LLVM::LLVMDialect>();
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(registry);
  linalg::registerAllDialectInterfaceImplementations(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
}

std::optional<HostType> hostTypeOfElement(Type type) {
  if (type.isF32())
    return HostType::Float32;
  if (type.isF64())
    return HostType::Float64;
  if (type.isF16())
    return HostType::Float16;
  if (type.isBF16())
    return HostType::BFloat16;
  if (type.isInteger(1))
    return HostType::Bool;
  if (type.isInteger(8))
    return HostType::Int8;
  if (type.isInteger(16))
    return HostType::Int16;
  if (type.isInteger(32))
    return HostType::Int32;
  if (type.isInteger(64))
    return HostType::Int64;
  return std::nullopt;
}

namespace {

std::string textOf(llvm::Error error) { return llvm::toString(std::move(error)); }

/// The host type of an argument or result: `onnx.type` where it says so, for signedness.
std::optional<HostType> hostTypeOf(RankedTensorType type, DictionaryAttr attributes) {
  auto name = attributes ? attributes.getAs<StringAttr>("onnx.type") : StringAttr();
  std::optional<HostType> named = name ? hostTypeFromOnnxName(name.getValue()) : std::nullopt;
  std::optional<HostType> plain = hostTypeOfElement(type.getElementType());
  return named && plain && byteSize(*named) == byteSize(*plain) ? named : plain;
}

int64_t elements(const std::vector<int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

Expected<std::vector<ReferencePort>>
portsOf(TypeRange types, llvm::function_ref<DictionaryAttr(unsigned)> attributes) {
  std::vector<ReferencePort> ports;
  for (auto [i, type] : llvm::enumerate(types)) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    std::optional<HostType> host = tensor && tensor.hasStaticShape()
                                       ? hostTypeOf(tensor, attributes(static_cast<unsigned>(i)))
                                       : std::nullopt;
    if (!host)
      return Error{"argument or result " + std::to_string(i) +
                   " is not a static tensor of a supported type"};
    ports.push_back({*host, {tensor.getShape().begin(), tensor.getShape().end()}});
  }
  return ports;
}

/// Operations on numbers that a function does, about; infinite where its extents do not say.
double workOf(func::FuncOp function) {
  double work = 0;
  const auto add = [&](ArrayRef<int64_t> extents, double each) {
    double points = 1;
    for (int64_t extent : extents)
      points *=
          ShapedType::isDynamic(extent) ? std::numeric_limits<double>::infinity() : double(extent);
    work += points * each;
  };
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isa<LoopLikeOpInterface, CallOpInterface>(op)) {
      work = std::numeric_limits<double>::infinity();
      return WalkResult::interrupt();
    }
    if (auto form = dyn_cast<linalg::LinalgOp>(op)) {
      add(form.getStaticLoopRanges(), double(llvm::range_size(*form.getBlock())));
      return WalkResult::skip();
    }
    if (!op->hasTrait<OpTrait::ConstantLike>())
      for (Type type : op->getResultTypes())
        if (auto tensor = dyn_cast<RankedTensorType>(type))
          add(tensor.getShape(), 1);
    return WalkResult::advance();
  });
  return work;
}

/// How hard LLVM tries: of a few operations, on the scale of the tenths of a second that it takes
/// to make them fast, not at all. Values are the same.
struct Effort {
  unsigned passes;
  llvm::CodeGenOptLevel code;
};
Effort effortFor(double work) {
  constexpr double kMost = 4e6;
  return work <= kMost ? Effort{0, llvm::CodeGenOptLevel::None}
                       : Effort{3, llvm::CodeGenOptLevel::Default};
}

std::unique_ptr<llvm::TargetMachine> makeTargetMachine(llvm::CodeGenOptLevel level,
                                                       std::string &failure) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  auto host = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!host) {
    failure = textOf(host.takeError());
    return nullptr;
  }
  host->setCodeGenOptLevel(level);
  auto machine = host->createTargetMachine();
  if (!machine) {
    failure = textOf(machine.takeError());
    return nullptr;
  }
  return std::move(*machine);
}

} // namespace

struct Reference::State {
  std::vector<ReferencePort> inputs, outputs;
  std::vector<ConstantView> constants;
  std::vector<Attribute> held; ///< keeps the resources of the constants
  std::unique_ptr<ExecutionEngine> engine;
  void (*entry)(void **) = nullptr;
};

Reference::Reference(std::unique_ptr<State> state) : state(std::move(state)) {}
Reference::Reference(Reference &&) noexcept = default;
Reference &Reference::operator=(Reference &&) noexcept = default;
Reference::~Reference() = default;

Expected<Reference> Reference::create(ModuleOp module, llvm::StringRef entry,
                                      const ReferenceOptions &options) {
  registerReferenceDialects(*module.getContext());
  auto function = module.lookupSymbol<func::FuncOp>(entry);
  if (!function || function.isExternal())
    return Error{"the module has no function @" + entry.str()};
  const Effort effort = effortFor(workOf(function));
  auto state = std::make_unique<State>();
  auto inputs =
      portsOf(function.getArgumentTypes(), [&](unsigned i) { return function.getArgAttrDict(i); });
  auto outputs =
      portsOf(function.getResultTypes(), [&](unsigned i) { return function.getResultAttrDict(i); });
  if (!inputs || !outputs)
    return inputs ? outputs.takeError() : inputs.takeError();
  state->inputs = std::move(*inputs);
  state->outputs = std::move(*outputs);

  OwningOpRef<ModuleOp> lowered = module.clone();
  auto constants = reference::lowerTensors(*lowered, entry, options.onTensors);
  if (!constants)
    return constants.takeError();
  for (ElementsAttr constant : *constants) {
    state->held.push_back(constant);
    std::optional<ConstantView> view = viewConstant(constant);
    if (!view)
      return Error{"a constant of @" + entry.str() + " has no bytes"};
    state->constants.push_back(*view);
  }
  if (Status done = reference::lowerToLLVM(*lowered, options); !done)
    return done.takeError();

  std::string failure;
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(effort.code, failure);
  if (!machine)
    return Error{"cannot generate code for this CPU: " + failure};
  auto optimize = makeOptimizingTransformer(effort.passes, /*sizeLevel=*/0, machine.get());
  ExecutionEngineOptions engineOptions;
  engineOptions.transformer = optimize;
  engineOptions.enableGDBNotificationListener = false;
  engineOptions.enablePerfNotificationListener = false;
  auto optimizedFor = makeTargetMachine(effort.code, failure);
  auto engine = ExecutionEngine::create(*lowered, engineOptions, std::move(optimizedFor));
  if (!engine)
    return Error{"cannot generate code: " + textOf(engine.takeError())};
  (*engine)->registerSymbols(roundingsToBf16);
  (*engine)->registerSymbols([&](llvm::orc::MangleAndInterner named) {
    llvm::orc::SymbolMap symbols;
    for (const auto &[name, address] : options.functions)
      symbols[named(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                              llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    return symbols;
  });
  auto pointer = (*engine)->lookupPacked(entry);
  if (!pointer)
    return Error{"cannot generate code: " + textOf(pointer.takeError())};
  state->engine = std::move(*engine);
  state->entry = *pointer;
  return Reference(std::move(state));
}

Expected<std::vector<HostTensor>> Reference::run(const std::vector<HostView> &inputs) {
  if (inputs.size() != state->inputs.size())
    return Error{"got " + std::to_string(inputs.size()) + " inputs, the function takes " +
                 std::to_string(state->inputs.size())};
  std::vector<void *> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ReferencePort &port = state->inputs[i];
    const bool fits = inputs[i].shape == port.shape ||
                      (inputs[i].elementCount() == 1 && elements(port.shape) == 1);
    if (!fits || byteSize(inputs[i].type) != byteSize(port.type))
      return Error{"input " + std::to_string(i) + " is " + std::string(onnxName(inputs[i].type)) +
                   " " + shapeText(inputs[i].shape) + ", the function takes " +
                   std::string(onnxName(port.type)) + " " + shapeText(port.shape)};
    if (inputs[i].data.empty())
      continue;
    // The code reads its arguments only, whatever their C++ type says.
    pointers.push_back(const_cast<std::byte *>(inputs[i].data.data()));
  }
  for (const ConstantView &constant : state->constants)
    pointers.push_back(const_cast<char *>(constant.bytes.data()));
  std::vector<HostTensor> outputs;
  for (const ReferencePort &port : state->outputs)
    outputs.push_back(HostTensor::zeros(port.type, port.shape));
  for (HostTensor &output : outputs)
    if (!output.data.empty())
      pointers.push_back(output.data.data());
  std::vector<void *> arguments;
  for (void *&pointer : pointers)
    arguments.push_back(&pointer);
  state->entry(arguments.data());
  return outputs;
}

Expected<std::vector<HostTensor>> runReference(ModuleOp module,
                                               const std::vector<HostTensor> &inputs) {
  Expected<Reference> reference = Reference::create(module);
  if (!reference)
    return reference.takeError();
  return reference->run(inputs);
}

} // namespace millrace
