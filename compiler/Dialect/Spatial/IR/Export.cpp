// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the kernel graph to the spatial dialect.
#include "compiler/Dialect/Spatial/IR/Spatial.h"

#include "arch/operations/AluOp.h"
#include "compiler/Support/Constants.h"

#include "mlir/IR/Builders.h"
#include "mlir/Parser/Parser.h"

namespace millrace::spatial {

using namespace mlir;

namespace {

Type elementType(Builder &builder, ElementType type) {
  switch (type) {
  case ElementType::Int8:
    return builder.getIntegerType(8);
  case ElementType::UInt8:
    return builder.getIntegerType(8, /*isSigned=*/false);
  case ElementType::Int32:
    return builder.getIntegerType(32);
  case ElementType::Fp16:
    return builder.getF16Type();
  case ElementType::Bf16:
    return builder.getBF16Type();
  case ElementType::Fp32:
    return builder.getF32Type();
  case ElementType::E4M3:
    return Float8E4M3FNType::get(builder.getContext());
  case ElementType::E5M2:
    return Float8E5M2Type::get(builder.getContext());
  }
  llvm_unreachable("an element type that the switch lacks");
}

/// Writes one graph into a module.
class Exporter {
public:
  Exporter(const forms::KernelGraph &graph, MLIRContext &context, GraphOp reuse);
  FailureOr<OwningOpRef<ModuleOp>> run();

private:
  Value tensor(const forms::Tensor &tensor);
  ElementsAttr dataOf(const forms::Tensor &tensor, RankedTensorType type);
  HostAttr hostOf(const forms::Tensor &tensor);
  void kernel(const forms::Kernel &kernel, unsigned number);
  Value node(const forms::Kernel &kernel, const forms::Node &node, ArrayRef<Value> operands,
             ArrayRef<Value> nodes);
  void call(const forms::HostCall &call, unsigned number);
  /// The loops that an access uses, in the order in which they appear, and the map of its indices.
  std::pair<AffineMap, SmallVector<Value>> indices(const forms::Access &access, Block *loops);
  /// The number of a kernel or call, where its place in the text does not say it.
  IntegerAttr numberIfNeeded(unsigned number, unsigned &next) {
    return number == next++ ? IntegerAttr() : builder.getI64IntegerAttr(number);
  }

  const forms::KernelGraph &graph;
  OpBuilder builder;
  Location loc;
  llvm::StringMap<ElementsAttr> known; ///< data of the graph to reuse, by tensor name
  SmallVector<Value> tensors;
  unsigned nextKernel = 0, nextCall = 0;
};

Exporter::Exporter(const forms::KernelGraph &graph, MLIRContext &context, GraphOp reuse)
    : graph(graph), builder(&context), loc(builder.getUnknownLoc()) {
  if (reuse)
    for (auto op : reuse.getBody().getOps<TensorOp>())
      if (op.getData())
        known.try_emplace(op.getName(), *op.getData());
}

ElementsAttr Exporter::dataOf(const forms::Tensor &tensor, RankedTensorType type) {
  if (tensor.data.empty())
    return {};
  ArrayRef<char> bytes(reinterpret_cast<const char *>(tensor.data.data()), tensor.data.size());
  if (tensor.splat)
    return DenseElementsAttr::getFromRawBuffer(type, bytes);
  if (auto held = known.find(tensor.name); held != known.end()) {
    std::optional<ConstantView> view = viewConstant(held->second);
    if (view && view->type == type && view->bytes == bytes)
      return held->second;
  }
  return makeConstant(type, bytes, tensor.name);
}

HostAttr Exporter::hostOf(const forms::Tensor &t) {
  if (t.hostName.empty() && t.hostType.empty() && t.hostShape.empty() && t.hostLoops.empty() &&
      t.hostStart.empty() && t.hostScale == 0 && t.hostZero == 0 && t.hostFill == 0 &&
      t.hostExtent == 0)
    return {};
  SmallVector<int64_t> loops;
  for (const forms::HostLoop &loop : t.hostLoops)
    loops.append({loop.extent, loop.dim, loop.step, loop.hostDim, loop.hostStep});
  return HostAttr::get(builder.getContext(), t.hostName, t.hostType, t.hostShape, loops,
                       t.hostStart, builder.getF64FloatAttr(t.hostScale), t.hostZero, t.hostFill,
                       t.hostExtent);
}

Value Exporter::tensor(const forms::Tensor &t) {
  auto type = RankedTensorType::get(t.shape, elementType(builder, t.type));
  return TensorOp::create(builder, loc, builder.getType<TensorType>(), Role(unsigned(t.role)),
                          t.name, type, t.laneDim, hostOf(t), t.splat, dataOf(t, type),
                          t.value.empty() ? StringAttr() : builder.getStringAttr(t.value),
                          t.unbounded, t.uniform);
}

std::pair<AffineMap, SmallVector<Value>> Exporter::indices(const forms::Access &access,
                                                           Block *loops) {
  SmallVector<AffineExpr> results;
  SmallVector<Value> used;
  for (const forms::AffineIndex &index : access.index) {
    AffineExpr sum;
    for (auto [loop, coefficient] : index.terms) {
      Value argument = loops->getArgument(loop);
      auto *found = llvm::find(used, argument);
      const auto dim = unsigned(found - used.begin());
      if (found == used.end())
        used.push_back(argument);
      AffineExpr part = builder.getAffineDimExpr(dim) * coefficient;
      sum = sum ? sum + part : part;
    }
    AffineExpr offset = builder.getAffineConstantExpr(index.offset);
    results.push_back(sum ? sum + offset : offset);
  }
  return {AffineMap::get(unsigned(used.size()), 0, results, builder.getContext()), used};
}

Value Exporter::node(const forms::Kernel &, const forms::Node &node, ArrayRef<Value> operands,
                     ArrayRef<Value> nodes) {
  Type lane = builder.getI32Type();
  SmallVector<Value> inputs;
  for (unsigned arg : node.args)
    inputs.push_back(nodes[arg]);
  const StringRef mnemonic = aluOpInfo(node.op).mnemonic;
  switch (node.kind) {
  case forms::Node::Kind::Accumulator:
    return AccumulatorOp::create(builder, loc, lane);
  case forms::Node::Kind::Operand:
    return ReadOp::create(builder, loc, lane, operands[node.index]);
  case forms::Node::Kind::Immediate:
    return ImmediateOp::create(builder, loc, lane, node.bits);
  case forms::Node::Kind::Op:
    return AluOp::create(builder, loc, lane, mnemonic, inputs);
  case forms::Node::Kind::Reduce:
    return ReduceOp::create(builder, loc, lane, mnemonic, inputs.front());
  }
  llvm_unreachable("a kind of node that the switch lacks");
}

void Exporter::kernel(const forms::Kernel &k, unsigned number) {
  SmallVector<int64_t> extents;
  SmallVector<Attribute> kinds;
  for (const forms::Loop &loop : k.loops) {
    extents.push_back(loop.extent);
    kinds.push_back(LoopKindAttr::get(builder.getContext(), LoopKind(unsigned(loop.kind))));
  }
  auto op =
      KernelOp::create(builder, loc, builder.getStringAttr(k.name),
                       builder.getStringAttr(k.provenance), builder.getDenseI64ArrayAttr(extents),
                       builder.getArrayAttr(kinds), numberIfNeeded(number, nextKernel));
  Block *body = &op.getBody().emplaceBlock();
  body->addArguments(SmallVector<Type>(k.loops.size(), builder.getIndexType()),
                     SmallVector<Location>(k.loops.size(), loc));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(body);
  for (const forms::Term &term : k.terms) {
    auto [aMap, aLoops] = indices(term.a, body);
    auto [wMap, wLoops] = indices(term.w, body);
    TermOp::create(builder, loc, tensors[term.a.tensor], aLoops, tensors[term.w.tensor], wLoops,
                   aMap, term.a.pad, wMap, term.w.pad, term.macs);
  }
  SmallVector<Value> operands, nodes;
  for (const forms::Access &access : k.operands) {
    auto [map, loops] = indices(access, body);
    Value indices;
    SmallVector<Value> indexLoops;
    AffineMapAttr indexMap;
    IntegerAttr dim;
    if (access.lookup) {
      indices = tensors[access.lookup->tensor];
      AffineMap lookedUp;
      std::tie(lookedUp, indexLoops) =
          this->indices({access.lookup->tensor, access.lookup->index, 0}, body);
      indexMap = AffineMapAttr::get(lookedUp);
      dim = builder.getI64IntegerAttr(access.lookup->dim);
    }
    operands.push_back(OperandOp::create(builder, loc, builder.getType<OperandType>(),
                                         tensors[access.tensor], loops, map, access.pad, indices,
                                         indexLoops, indexMap, dim));
  }
  for (const forms::Node &n : k.nodes)
    nodes.push_back(node(k, n, operands, nodes));
  for (const forms::Result &result : k.results) {
    auto [map, loops] = indices(result.access, body);
    WriteOp::create(builder, loc, nodes[result.node], tensors[result.access.tensor], loops, map,
                    result.access.pad);
  }
}

void Exporter::call(const forms::HostCall &c, unsigned number) {
  SmallVector<Value> inputs, outputs;
  for (unsigned t : c.inputs)
    inputs.push_back(tensors[t]);
  for (unsigned t : c.outputs)
    outputs.push_back(tensors[t]);
  CallOp::create(builder, loc, builder.getStringAttr(c.name),
                 FlatSymbolRefAttr::get(builder.getContext(), c.function), inputs, outputs,
                 numberIfNeeded(number, nextCall),
                 c.device == StepDevice::Host ? StringAttr()
                                              : builder.getStringAttr(nameOf(c.device)));
}

FailureOr<OwningOpRef<ModuleOp>> Exporter::run() {
  OwningOpRef<ModuleOp> module(ModuleOp::create(builder, loc));
  builder.setInsertionPointToEnd(module->getBody());
  auto op = GraphOp::create(builder, loc, graph.name);
  if (!graph.hostModule.empty()) {
    OwningOpRef<ModuleOp> host =
        parseSourceString<ModuleOp>(graph.hostModule, builder.getContext());
    if (!host)
      return failure();
    (*host)->setLoc(loc);
    host->setName(kHostModule);
    builder.insert(host.release());
  }
  builder.setInsertionPointToEnd(&op.getBody().emplaceBlock());
  for (const forms::Tensor &t : graph.tensors)
    tensors.push_back(tensor(t));
  for (auto [isHost, index] : graph.order)
    if (isHost)
      call(graph.hostCalls[index], index);
    else
      kernel(graph.kernels[index], index);
  return module;
}

} // namespace

FailureOr<OwningOpRef<ModuleOp>> exportGraph(const forms::KernelGraph &graph, MLIRContext &context,
                                             GraphOp reuse) {
  return Exporter(graph, context, reuse).run();
}

} // namespace millrace::spatial
