// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace millrace::reference {
namespace {

/// The allocation or argument that a buffer is a part of.
Value rootOf(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return buffer;
}

/// Buffers of different roots do not overlap: allocations, and the arguments of the entry.
bool areDisjoint(ArrayRef<Value> values) {
  llvm::DenseSet<Value> roots;
  for (Value value : values)
    if (isa<MemRefType>(value.getType()) && !roots.insert(rootOf(value)).second)
      return false;
  return true;
}

/// Values that `op` and its body use from outside. Constants go to `constants`.
void collectUses(Operation *op, llvm::SetVector<Value> &values,
                 llvm::SetVector<Operation *> &constants) {
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      if (op->isAncestor(operand.getParentBlock()->getParentOp()))
        continue;
      Operation *definition = operand.getDefiningOp();
      if (definition && matchPattern(definition, m_Constant()))
        constants.insert(definition);
      else
        values.insert(operand);
    }
  });
}

class Outliner {
public:
  explicit Outliner(ModuleOp module) : module(module) {}

  void outline(Operation *op) {
    llvm::SetVector<Value> values;
    llvm::SetVector<Operation *> constants;
    collectUses(op, values, constants);
    func::FuncOp function = build(op, values.getArrayRef(), constants.getArrayRef());
    std::string text;
    llvm::raw_string_ostream stream(text);
    function->print(stream);
    auto [found, isNew] = functions.try_emplace(text, function);
    if (isNew) {
      function.setSymName("loops_" + std::to_string(functions.size()));
      module.push_back(function);
    } else {
      function.erase();
    }
    OpBuilder builder(op);
    func::CallOp::create(builder, op->getLoc(), found->second, values.getArrayRef());
    op->erase();
  }

private:
  /// All functions are built under one name, so that equal ones print equally.
  func::FuncOp build(Operation *op, ArrayRef<Value> values, ArrayRef<Operation *> constants) {
    OpBuilder builder(module.getContext());
    Location unknown = builder.getUnknownLoc();
    auto function = func::FuncOp::create(
        unknown, "loops", builder.getFunctionType(TypeRange(ValueRange(values)), {}));
    function.setPrivate();
    Block *entry = function.addEntryBlock();
    builder.setInsertionPointToEnd(entry);
    IRMapping mapping;
    for (Operation *constant : constants)
      builder.clone(*constant, mapping);
    bool disjoint = areDisjoint(values);
    for (auto [i, value] : llvm::enumerate(values)) {
      mapping.map(value, entry->getArgument(static_cast<unsigned>(i)));
      if (disjoint && isa<MemRefType>(value.getType()))
        function.setArgAttr(static_cast<unsigned>(i), LLVM::LLVMDialect::getNoAliasAttrName(),
                            builder.getUnitAttr());
    }
    builder.clone(*op, mapping);
    func::ReturnOp::create(builder, unknown);
    return function;
  }

  ModuleOp module;
  llvm::StringMap<func::FuncOp> functions;
};

} // namespace

void outlineLoops(ModuleOp module) {
  llvm::SmallVector<Operation *> ops;
  module.walk([&](linalg::LinalgOp op) { ops.push_back(op); });
  Outliner outliner(module);
  for (Operation *op : ops)
    outliner.outline(op);
}

void keepOutlined(ModuleOp module) {
  module.walk([](LLVM::LLVMFuncOp function) {
    if (function.isPrivate())
      function.setNoInline(true);
  });
}

} // namespace millrace::reference
