// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Import.h"

#include "compiler/Import/Onnx/Fold.h"
#include "compiler/Import/Onnx/GraphImporter.h"
#include "compiler/Import/Onnx/Macs.h"
#include "compiler/Import/Onnx/Prepare.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace millrace {
namespace onnx_import {

std::string handlerKey(std::string_view domain, std::string_view type) {
  return std::string(domain) + ":" + std::string(type);
}

Handler needing(std::initializer_list<size_t> inputs, Handler handler) {
  std::vector<size_t> wanted(inputs);
  return [wanted, handler](NodeImporter &node) -> Status {
    for (size_t i : wanted)
      if (!node.has(i))
        return node.error("input " + std::to_string(i) + " is missing");
    return handler(node);
  };
}

Status checkTypes(const NodeImporter &node, ArrayRef<InputType> inputs) {
  for (const InputType &wanted : inputs) {
    if (!node.has(wanted.input))
      continue;
    const HostType type = node.inType(wanted.input);
    const auto wrong = [&](std::string_view instead) {
      return node.error("input " + std::to_string(wanted.input) + " is of " +
                        std::string(onnxName(type)) + "; give it " + std::string(instead));
    };
    switch (wanted.kind) {
    case InputType::Kind::Real:
      if (!isFloat(type))
        return wrong("floats");
      break;
    case InputType::Kind::Byte:
      if (type != HostType::Int8 && type != HostType::UInt8)
        return wrong("int8 or uint8");
      break;
    case InputType::Kind::Index:
      if (type != HostType::Int32 && type != HostType::Int64)
        return wrong("int32 or int64");
      break;
    case InputType::Kind::Like:
      if (node.has(wanted.other) && type != node.inType(wanted.other))
        return wrong(onnxName(node.inType(wanted.other)));
      break;
    }
    if (wanted.rank && node.rank(wanted.input) != *wanted.rank)
      return node.error("input " + std::to_string(wanted.input) + " has rank " +
                        std::to_string(node.rank(wanted.input)) + "; give it " +
                        std::to_string(*wanted.rank));
  }
  return Success{};
}

Handler typed(std::initializer_list<InputType> inputs, Handler handler) {
  return [wanted = std::vector(inputs), handler](NodeImporter &node) -> Status {
    const Status checked = checkTypes(node, wanted);
    return checked ? handler(node) : checked;
  };
}

std::optional<int64_t> normalAxis(int64_t axis, int64_t rank) {
  int64_t normal = axis < 0 ? axis + rank : axis;
  return normal >= 0 && normal < rank ? std::optional(normal) : std::nullopt;
}

std::optional<Shape> normalAxes(ArrayRef<int64_t> axes, int64_t rank) {
  Shape result;
  for (int64_t axis : axes) {
    std::optional<int64_t> normal = normalAxis(axis, rank);
    if (!normal)
      return std::nullopt;
    result.push_back(*normal);
  }
  llvm::sort(result);
  return result;
}

Shape allAxes(int64_t rank) {
  Shape axes;
  for (int64_t i = 0; i < rank; ++i)
    axes.push_back(i);
  return axes;
}

HandlerTable makeHandlers() {
  HandlerTable table;
  for (auto add : {addArithmeticOps,     addActivationOps, addConvolutionOps,  addConvTransposeOps,
                   addPoolingOps,        addMatMulOps,     addReductionOps,    addNormalizationOps,
                   addShapeOps,          addSliceOps,      addGatherOps,       addConstantOps,
                   addBlockQuantizedOps, addFusedOps,      addQuantizationOps, addAttentionOps,
                   addEmbeddingOps,      addEinsumOps,     addResizeOps,       addScatterOps,
                   addTopKOps,           addRecurrentOps,  addFourierOps,      addGridSampleOps,
                   addDeformConvOps,     addRoiAlignOps})
    add(table);
  for (const char *type : controlFlow) // GraphImporter does them itself
    table[(":" + Twine(type)).str()] = [](NodeImporter &node) -> Status {
      return node.error("has no values");
    };
  return table;
}

Status GraphImporter::checkSupported() const {
  std::string list;
  for (const auto &[index, node] : llvm::enumerate(graph.node())) {
    if (handlers.contains(handlerKey(normalDomain(node), node.op_type())))
      continue;
    std::string domain = node.domain().empty() ? "" : node.domain() + ".";
    list += (list.empty() ? "" : ", ") + domain + node.op_type() + " (node '" +
            nodeName(node, index) + "')";
  }
  if (!list.empty())
    return Error{"operations that are not supported: " + list + "; rewrite the model without them"};
  return Success{};
}

Value GraphImporter::convert(Value value, Type elementType) {
  if (elementTypeOf(value) == elementType)
    return value;
  return tensors.map({value}, elementType, [&](Scalars &s, ValueRange x) {
    return Arithmetic(s).cast(x[0], elementType, false);
  });
}

Status GraphImporter::addArguments(func::FuncOp function, Block &entry) {
  for (const onnx::ValueInfoProto &input : graph.input()) {
    if (initializers.contains(input.name()))
      continue;
    const auto &tensorType = input.type().tensor_type();
    std::optional<HostType> type = hostTypeOf(tensorType.elem_type());
    if (!type)
      return Error{"input '" + input.name() + "' has element type " +
                   onnx::TensorProto_DataType_Name(tensorType.elem_type()) +
                   ", which is not supported; use floats, integers or bool"};
    Shape shape;
    for (const auto &dim : tensorType.shape().dim())
      shape.push_back(dim.dim_value());
    auto index = static_cast<unsigned>(entry.getNumArguments());
    auto argumentType = RankedTensorType::get(shape, storageType(*type, &context));
    auto attributes = builder.getDictionaryAttr(
        {builder.getNamedAttr("onnx.name", builder.getStringAttr(input.name())),
         builder.getNamedAttr("onnx.type", builder.getStringAttr(onnxName(*type)))});
    if (failed(function.insertArgument(index, argumentType, attributes, named(input.name()))))
      return Error{"input '" + input.name() + "' cannot become an argument"};
    tensors.setLocation(named(input.name()));
    Value value = convert(entry.getArgument(index), computeType(*type, &context));
    values[input.name()] = {value, *type};
    varying.insert(input.name());
  }
  return Success{};
}

Expected<GraphValue> GraphImporter::lookUp(const std::string &name) {
  if (name.empty())
    return GraphValue{};
  if (auto found = values.find(name); found != values.end())
    return found->second;
  auto initializer = initializers.find(name);
  if (initializer == initializers.end())
    return Error{"value '" + name + "' is used but never computed"};
  Expected<ElementsAttr> constant = importTensor(*initializer->second, &context);
  if (!constant)
    return constant.takeError();
  Value value = arith::ConstantOp::create(builder, named(name), cast<TypedAttr>(*constant));
  return values[name] = GraphValue{value, *hostTypeOf(initializer->second->data_type())};
}

void GraphImporter::countMacs(const onnx::NodeProto &node, const std::string &name,
                              const NodeImporter &importer) {
  const auto varies = [&](const std::string &input) { return varying.contains(input); };
  if (!readsNumbers(node) || llvm::none_of(node.input(), varies))
    return;
  for (const std::string &output : node.output())
    if (!output.empty()) // which stands for an input that is absent
      varying.insert(output);
  if (const int64_t macs = macsOf(node, importer))
    counted.push_back({name, operatorOf(node), macs});
}

/// An attribute would keep equal operations apart: until they are merged, the name of the value
/// stands behind that of the node in the location. What passes a value on leaves it its first name.
void GraphImporter::nameValue(Value value, const std::string &output) {
  Operation *op = value.getDefiningOp();
  auto node = op ? dyn_cast<NameLoc>(op->getLoc()) : NameLoc();
  if (node && op->getNumResults() == 1 && !op->hasTrait<OpTrait::ConstantLike>() &&
      !isa<NameLoc>(node.getChildLoc()))
    op->setLoc(NameLoc::get(node.getName(), named(output)));
}

/// Makes attributes of the names of values.
static void nameValues(ModuleOp module) {
  module.walk([](Operation *op) {
    auto node = dyn_cast<NameLoc>(op->getLoc());
    auto value = node ? dyn_cast<NameLoc>(node.getChildLoc()) : NameLoc();
    if (!value)
      return;
    op->setAttr(kOnnxValue, value.getName());
    op->setLoc(NameLoc::get(node.getName()));
  });
}

Status GraphImporter::importNode(const onnx::NodeProto &node, size_t index) {
  SmallVector<GraphValue> inputs;
  for (const std::string &name : node.input()) {
    Expected<GraphValue> value = lookUp(name);
    if (!value)
      return value.takeError();
    inputs.push_back(*value);
  }
  const std::string name = nodeName(node, index);
  tensors.setLocation(named(name));
  NodeImporter importer(node, std::move(inputs), tensors);
  if (importer.outputCount() == 0)
    return importer.error("has no outputs; remove it");
  if (normalDomain(node).empty() && llvm::is_contained(controlFlow, node.op_type()))
    return importControlFlow(node, importer);
  const Handler &handler = handlers.find(handlerKey(normalDomain(node), node.op_type()))->second;
  if (Status handled = handler(importer); !handled)
    return handled;
  if (!tensors.failure().empty())
    return importer.error(tensors.failure());
  for (auto [i, result] : llvm::enumerate(importer.results())) {
    if (importer.wants(i) && !result.value)
      return importer.error("output " + std::to_string(i) + " is not supported");
    const auto isHuge = [](int64_t extent) { return extent > kMostElements; };
    if (importer.wants(i) && (productOf(shapeOf(result.value)) > kMostElements ||
                              llvm::any_of(shapeOf(result.value), isHuge)))
      return importer.error("output " + std::to_string(i) +
                            " has more than 2^36 elements; use smaller extents");
    if (!importer.wants(i))
      continue;
    const std::string &output = node.output(static_cast<int>(i));
    values[output] = result;
    nameValue(result.value, output);
  }
  countMacs(node, name, importer);
  return Success{};
}

Status GraphImporter::addResults(func::FuncOp function) {
  SmallVector<Value> results;
  SmallVector<Type> types;
  SmallVector<Attribute> attributes;
  for (const onnx::ValueInfoProto &output : graph.output()) {
    Expected<GraphValue> value = lookUp(output.name());
    if (!value)
      return value.takeError();
    tensors.setLocation(named(output.name()));
    results.push_back(convert(value->value, storageType(value->type, &context)));
    types.push_back(results.back().getType());
    attributes.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("onnx.name", builder.getStringAttr(output.name())),
         builder.getNamedAttr("onnx.type", builder.getStringAttr(onnxName(value->type)))}));
  }
  func::ReturnOp::create(builder, function.getLoc(), results);
  function.setType(builder.getFunctionType(function.getArgumentTypes(), types));
  function.setResAttrsAttr(builder.getArrayAttr(attributes));
  return Success{};
}

/// The function with its arguments.
Status GraphImporter::begin(ModuleOp module) {
  if (Status supported = checkSupported(); !supported)
    return supported;
  for (const onnx::TensorProto &tensor : graph.initializer())
    initializers[tensor.name()] = &tensor;
  builder.setInsertionPointToStart(module.getBody());
  auto function =
      func::FuncOp::create(builder, named(graph.name()), "main", builder.getFunctionType({}, {}));
  Block &entry = *function.addEntryBlock();
  builder.setInsertionPointToEnd(&entry);
  // Handlers build through `tensors`, whose insertion point is its own.
  tensors.ops().setInsertionPointToEnd(&entry);
  return addArguments(function, entry);
}

Expected<OwningOpRef<ModuleOp>> GraphImporter::run() {
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder, named(graph.name()));
  if (Status begun = begin(*module); !begun)
    return begun.takeError();
  for (const auto &[index, node] : llvm::enumerate(graph.node()))
    if (Status imported = importNode(node, index); !imported)
      return imported.takeError();
  builder.setInsertionPointToEnd(&body(*module));
  if (Status added = addResults(module->lookupSymbol<func::FuncOp>("main")); !added)
    return added.takeError();
  return module;
}

std::vector<NodeError> GraphImporter::runAll() {
  std::vector<NodeError> errors;
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder, named(graph.name()));
  if (Status begun = begin(*module); !begun)
    return {{"", begun.error()}};
  llvm::StringSet<> failed; // values that are not there
  for (const auto &[index, node] : llvm::enumerate(graph.node())) {
    const bool isLeftOut =
        llvm::any_of(node.input(), [&](const auto &name) { return failed.contains(name); });
    if (!isLeftOut) {
      const Status imported = importNode(node, index);
      if (imported)
        continue;
      errors.push_back({nodeName(node, index), imported.error()});
      tensors = TensorBuilder(UnknownLoc::get(&context), builder); // which forgets the failure
      tensors.ops().setInsertionPointToEnd(&body(*module));
    }
    for (const std::string &output : node.output())
      failed.insert(output);
  }
  return errors;
}

/// Runs the clean-up passes and the verifier; returns what the first diagnostic said.
static Status finish(ModuleOp module, const ImportOptions &options) {
  std::string text;
  ScopedDiagnosticHandler collect(module.getContext(), [&](Diagnostic &diagnostic) {
    if (text.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error)
      text = diagnostic.str();
    return success();
  });
  if (failed(verify(module)))
    return Error{"the imported module is not valid: " + text};
  if (options.cleanUp) {
    foldConstants(module);
    PassManager passes(module.getContext());
    passes.addPass(createCanonicalizerPass());
    passes.addPass(createCSEPass());
    if (failed(passes.run(module)))
      return Error{"clean-up failed: " + text};
  }
  nameValues(module);
  return Success{};
}

std::vector<NodeError> importErrors(const onnx::GraphProto &graph, const HandlerTable &handlers,
                                    MLIRContext &context) {
  return GraphImporter(graph, handlers, context).runAll();
}

} // namespace onnx_import

void loadImportDialects(MLIRContext &context) {
  context.loadDialect<func::FuncDialect, arith::ArithDialect, math::MathDialect,
                      tensor::TensorDialect, linalg::LinalgDialect>();
}

Expected<OwningOpRef<ModuleOp>> importOnnx(const std::filesystem::path &path,
                                           const ImportOptions &options, MLIRContext &context,
                                           std::vector<NodeMacs> *macs) {
  using namespace onnx_import;
  loadImportDialects(context);
  HandlerTable handlers = makeHandlers();
  auto isSupported = [&](std::string_view domain, std::string_view type) {
    return handlers.contains(handlerKey(domain, type));
  };
  Expected<onnx::ModelProto> model = prepareModel(path, options, isSupported);
  if (!model)
    return model.takeError();
  GraphImporter importer(model->graph(), handlers, context);
  Expected<OwningOpRef<ModuleOp>> module = importer.run();
  if (!module)
    return Error{path.string() + ": " + module.error()};
  if (Status finished = finish(**module, options); !finished)
    return Error{path.string() + ": " + finished.error()};
  if (macs)
    *macs = importer.macs();
  return module;
}

} // namespace millrace
