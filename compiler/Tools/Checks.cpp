// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Checks.h"

#include "arch/spec/Facts.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace millrace::driver {

static bool isEmpty(mlir::Type type) {
  auto shaped = mlir::dyn_cast<mlir::ShapedType>(type);
  return shaped && shaped.hasStaticShape() && shaped.getNumElements() == 0;
}

/// The first operation that makes elements out of none (a sum over nothing), or null.
static mlir::Operation *readerOfNothing(mlir::func::FuncOp main) {
  mlir::Operation *found = nullptr;
  main.walk([&](mlir::Operation *op) {
    if (!found && llvm::any_of(op->getOperandTypes(), isEmpty) &&
        llvm::any_of(op->getResultTypes(), [](mlir::Type type) {
          return mlir::isa<mlir::ShapedType>(type) && !isEmpty(type);
        }))
      found = op;
  });
  return found;
}

Status checkOutputsHold(mlir::ModuleOp module) {
  auto main = module.lookupSymbol<mlir::func::FuncOp>("main");
  for (unsigned i = 0; main && i < main.getNumResults(); ++i)
    if (isEmpty(main.getResultTypes()[i])) {
      auto name = main.getResultAttrOfType<mlir::StringAttr>(i, "onnx.name");
      return Error{"output '" + (name ? name.str() : std::to_string(i)) +
                   "' has a dimension of 0, so that there is nothing to compute; use extents of "
                   "at least 1"};
    }
  if (mlir::Operation *op = main ? readerOfNothing(main) : nullptr) {
    auto name = mlir::dyn_cast<mlir::NameLoc>(op->getLoc());
    return Error{"'" + (name ? name.getName().str() : op->getName().getStringRef().str()) +
                 "' reads a tensor that has a dimension of 0; use extents of at least 1"};
  }
  return Success{};
}

/// A constant of one repeated element can be kept smaller than its shape; it counts nothing here.
static uint64_t bytesOf(const forms::Tensor &tensor) {
  uint64_t bytes = tensor.splat ? 0 : byteWidth(tensor.type);
  for (int64_t extent : tensor.shape)
    bytes *= uint64_t(extent);
  return bytes;
}

Status checkFits(const forms::KernelGraph &graph, const Machine &machine) {
  std::vector<bool> used(graph.tensors.size(),
                         false); // rewritings leave tensors behind that nothing reads
  for (const forms::Kernel &kernel : graph.kernels) {
    for (const forms::Access &operand : kernel.operands)
      used[operand.tensor] = true;
    for (const forms::Term &term : kernel.terms)
      used[term.a.tensor] = used[term.w.tensor] = true;
  }
  std::map<forms::TensorRole, uint64_t> bytes;
  for (size_t t = 0; t < graph.tensors.size(); ++t)
    if (used[t] || graph.tensors[t].role == forms::TensorRole::Output)
      bytes[graph.tensors[t].role] += bytesOf(graph.tensors[t]);
  const uint64_t constants = bytes[forms::TensorRole::Constant];
  const uint64_t ends = std::max(bytes[forms::TensorRole::Input], bytes[forms::TensorRole::Output]);
  const uint64_t needed = constants + ends;
  const uint64_t present = factsOf(machine).capacityBytes * machine.pes();
  if (needed <= present)
    return Success{};
  const auto mebibytes = [](uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f MiB", double(bytes) / (1 << 20));
    return std::string(text);
  };
  return Error{"its constants take " + mebibytes(constants) + " and its inputs or outputs " +
               mebibytes(ends) + ", the memory of all PEs has " + mebibytes(present) + ": " +
               mebibytes(needed - present) +
               " too little; use a machine with more memory or more PEs"};
}

} // namespace millrace::driver
