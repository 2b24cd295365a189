// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the spatial dialect to the kernel graph.
#include "compiler/Dialect/Spatial/IR/Spatial.h"

#include "arch/operations/AluOp.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace millrace::spatial {

using namespace mlir;

namespace {

ElementType elementType(Type type) {
  if (type.isInteger(8))
    return type.isUnsignedInteger() ? ElementType::UInt8 : ElementType::Int8;
  if (type.isInteger(32))
    return ElementType::Int32;
  if (type.isF16())
    return ElementType::Fp16;
  if (type.isBF16())
    return ElementType::Bf16;
  if (type.isF32())
    return ElementType::Fp32;
  return isa<Float8E4M3FNType>(type) ? ElementType::E4M3 : ElementType::E5M2;
}

/// Adds factor * expr, the terms in the order of the text.
void flatten(AffineExpr expr, OperandRange loops, int64_t factor, forms::AffineIndex &index) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    index.offset += factor * constant.getValue();
  } else if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    index.terms.push_back({cast<BlockArgument>(loops[dim.getPosition()]).getArgNumber(), factor});
  } else {
    auto binary = cast<AffineBinaryOpExpr>(expr);
    if (expr.getKind() == AffineExprKind::Mul) {
      const int64_t value = cast<AffineConstantExpr>(binary.getRHS()).getValue();
      return flatten(binary.getLHS(), loops, factor * value, index);
    }
    flatten(binary.getLHS(), loops, factor, index);
    flatten(binary.getRHS(), loops, factor, index);
  }
}

/// Reads one graph; its operations passed their verifiers.
class Importer {
public:
  forms::KernelGraph run(GraphOp op);

private:
  void tensor(TensorOp op);
  forms::Kernel kernel(KernelOp op);
  forms::HostCall call(CallOp op);
  forms::Access access(Value tensor, OperandRange loops, AffineMap map, uint64_t pad);
  static forms::Node node(Operation &op, const DenseMap<Value, unsigned> &numbers);

  forms::KernelGraph graph;
  DenseMap<Value, unsigned> tensors;
};

void Importer::tensor(TensorOp op) {
  forms::Tensor t;
  RankedTensorType type = op.getTensorType();
  t.name = op.getName().str();
  t.shape = type.getShape().vec();
  t.type = elementType(type.getElementType());
  t.laneDim = unsigned(op.getLanes());
  t.role = forms::TensorRole(unsigned(op.getRole()));
  t.splat = op.getSplat();
  t.value = op.getOnnxValue().value_or("").str();
  t.unbounded = op.getUnbounded();
  if (op.getData()) {
    const ConstantView view = *viewConstant(*op.getData());
    // Equal elements may be held once although the graph holds all of them.
    const auto copies = view.splat && !t.splat ? size_t(type.getNumElements()) : size_t(1);
    const auto *bytes = reinterpret_cast<const uint8_t *>(view.bytes.data());
    t.data.reserve(view.bytes.size() * copies);
    for (size_t i = 0; i < copies; ++i)
      t.data.insert(t.data.end(), bytes, bytes + view.bytes.size());
  }
  if (HostAttr host = op.getHostAttr()) {
    t.hostName = host.getName().str();
    t.hostType = host.getType().str();
    t.hostShape = host.getShape().vec();
    ArrayRef<int64_t> loops = host.getLoops();
    for (size_t i = 0; i + 5 <= loops.size(); i += 5)
      t.hostLoops.push_back(
          {loops[i], unsigned(loops[i + 1]), loops[i + 2], unsigned(loops[i + 3]), loops[i + 4]});
    t.hostStart = host.getStart().vec();
    t.hostScale = host.getScale().getValueAsDouble();
    t.hostZero = host.getZero();
    t.hostFill = host.getFill();
    t.hostExtent = host.getExtent();
  }
  tensors[op.getResult()] = unsigned(graph.tensors.size());
  graph.tensors.push_back(std::move(t));
}

forms::Access Importer::access(Value tensor, OperandRange loops, AffineMap map, uint64_t pad) {
  forms::Access result{tensors.at(tensor), {}, uint32_t(pad)};
  for (AffineExpr expr : map.getResults())
    flatten(expr, loops, 1, result.index.emplace_back());
  return result;
}

forms::Node Importer::node(Operation &op, const DenseMap<Value, unsigned> &numbers) {
  using Kind = forms::Node::Kind;
  forms::Node n;
  if (isa<AccumulatorOp>(op)) {
    n.kind = Kind::Accumulator;
  } else if (auto read = dyn_cast<ReadOp>(op)) {
    n.kind = Kind::Operand;
    n.index = numbers.at(read.getOperand());
  } else if (auto immediate = dyn_cast<ImmediateOp>(op)) {
    n.kind = Kind::Immediate;
    n.bits = uint32_t(immediate.getBits());
  } else {
    auto reduce = dyn_cast<ReduceOp>(op);
    const StringRef mnemonic = reduce ? reduce.getMnemonic() : cast<AluOp>(op).getMnemonic();
    n.kind = reduce ? Kind::Reduce : Kind::Op;
    n.op = *aluOpFromMnemonic(mnemonic.str());
    for (Value operand : op.getOperands())
      n.args.push_back(numbers.at(operand));
  }
  return n;
}

forms::Kernel Importer::kernel(KernelOp op) {
  forms::Kernel k;
  k.name = op.getName().str();
  k.provenance = op.getProvenance().str();
  for (auto [extent, kind] : llvm::zip(op.getExtents(), op.getKinds()))
    k.loops.push_back({extent, forms::LoopKind(unsigned(cast<LoopKindAttr>(kind).getValue()))});
  DenseMap<Value, unsigned> numbers; // of operands and of nodes, which are counted apart
  for (Operation &part : op.getBody().front()) {
    if (auto term = dyn_cast<TermOp>(part)) {
      k.terms.push_back({access(term.getA(), term.getALoops(), term.getAMap(), term.getAPad()),
                         access(term.getW(), term.getWLoops(), term.getWMap(), term.getWPad()),
                         int64_t(term.getMacs())});
    } else if (auto operand = dyn_cast<OperandOp>(part)) {
      numbers[operand.getResult()] = unsigned(k.operands.size());
      k.operands.push_back(
          access(operand.getTensor(), operand.getLoops(), operand.getMap(), operand.getPad()));
      if (operand.getIndices())
        k.operands.back().lookup = forms::Lookup{
            unsigned(*operand.getDim()), tensors.at(operand.getIndices()),
            access(operand.getIndices(), operand.getIndexLoops(), *operand.getIndexMap(), 0).index};
    } else if (auto write = dyn_cast<WriteOp>(part)) {
      k.results.push_back({numbers.at(write.getValue()), access(write.getTensor(), write.getLoops(),
                                                                write.getMap(), write.getPad())});
    } else {
      k.nodes.push_back(node(part, numbers));
      numbers[part.getResult(0)] = unsigned(k.nodes.size() - 1);
    }
  }
  return k;
}

forms::HostCall Importer::call(CallOp op) {
  forms::HostCall c;
  c.name = op.getName().str();
  c.function = op.getFunction().str();
  if (const auto device = op.getDevice())
    c.device = *device == nameOf(StepDevice::Gpu) ? StepDevice::Gpu : StepDevice::Cpu;
  for (Value t : op.getInputs())
    c.inputs.push_back(tensors.at(t));
  for (Value t : op.getOutputs())
    c.outputs.push_back(tensors.at(t));
  return c;
}

/// Puts `item` at its number, or next; the graph's verifier finds holes by the order.
template <class T, class Op> unsigned place(std::vector<T> &items, T item, Op op, unsigned &next) {
  const unsigned number = op.getNumber() ? unsigned(*op.getNumber()) : next;
  ++next;
  items.resize(std::max<size_t>(items.size(), number + size_t(1)));
  items[number] = std::move(item);
  return number;
}

forms::KernelGraph Importer::run(GraphOp op) {
  graph.name = op.getName().str();
  unsigned kernels = 0, calls = 0;
  for (Operation &step : op.getBody().front())
    if (auto t = dyn_cast<TensorOp>(step))
      tensor(t);
    else if (auto k = dyn_cast<KernelOp>(step))
      graph.order.push_back({false, place(graph.kernels, kernel(k), k, kernels)});
    else if (auto c = dyn_cast<CallOp>(step))
      graph.order.push_back({true, place(graph.hostCalls, call(c), c, calls)});
  return std::move(graph);
}

} // namespace

forms::KernelGraph importOp(GraphOp op) { return Importer().run(op); }

GraphOp findGraph(ModuleOp module) {
  auto graphs = module.getOps<GraphOp>();
  const auto count = std::distance(graphs.begin(), graphs.end());
  if (count == 1)
    return *graphs.begin();
  module.emitError() << "holds " << count << " spatial.graph operations instead of one";
  return {};
}

FailureOr<forms::KernelGraph> importGraph(ModuleOp module) {
  GraphOp op = findGraph(module);
  if (!op)
    return failure();
  forms::KernelGraph graph = importOp(op);
  if (auto host = module.lookupSymbol<ModuleOp>(kHostModule)) {
    llvm::raw_string_ostream out(graph.hostModule);
    for (auto function : host.getOps<func::FuncOp>()) {
      function.print(out, OpPrintingFlags().assumeVerified());
      out << "\n";
    }
  }
  return graph;
}

} // namespace millrace::spatial
