// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tensor level on the CPU: golden values and host steps. No reassociation, no fused
// multiply-add: a sum runs in the order of its loops as orderLoops leaves them, and every rounding
// is one that the module says. An index that is data and lies outside of its tensor reads the
// nearest element.
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Support/HostTensor.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <memory>
#include <vector>

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace millrace {

/// Registers what the lowering to machine code needs with `context`.
void registerReferenceDialects(mlir::MLIRContext &context);

/// What else happens on the way to machine code.
struct ReferenceOptions {
  /// Passes before and behind the change from tensors to buffers.
  std::function<void(mlir::OpPassManager &)> onTensors, onBuffers;
  /// Functions of this process that the code calls, as C names and addresses.
  std::vector<std::pair<const char *, void *>> functions;
};

/// What an element type of a tensor is in host memory; integers count as signed. Nothing of others.
std::optional<HostType> hostTypeOfElement(mlir::Type type);

/// A function compiled for this CPU. Runs as often as wanted; not from two threads at once.
class Reference {
public:
  /// Compiles the public function `entry` of a module of func, tensor, linalg, arith, math and scf
  /// operations on static ranked tensors. The module is not changed; its context must outlive the
  /// result.
  static Expected<Reference> create(mlir::ModuleOp module, llvm::StringRef entry = "main",
                                    const ReferenceOptions &options = {});

  /// Runs with one tensor per argument; shapes and element sizes must be those of the arguments,
  /// but a single element may have any rank.
  Expected<std::vector<HostTensor>> run(const std::vector<HostView> &inputs);
  Expected<std::vector<HostTensor>> run(const std::vector<HostTensor> &inputs) {
    return run(std::vector<HostView>(inputs.begin(), inputs.end()));
  }

  Reference(Reference &&) noexcept;
  Reference &operator=(Reference &&) noexcept;
  ~Reference();

private:
  struct State;
  explicit Reference(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

/// Compiles and runs @main once.
Expected<std::vector<HostTensor>> runReference(mlir::ModuleOp module,
                                               const std::vector<HostTensor> &inputs);

} // namespace millrace
