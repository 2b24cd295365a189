// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether the values of a run are right: by judges of growing independence. The evaluation of the
// kernels shares with the run what the compiler made of the model; the reference shares the import
// alone; ONNX Runtime shares nothing.
#pragma once

#include "compiler/Tools/Compare.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>

namespace millrace::driver {

enum class JudgeKind : uint8_t { None, Kernels, Reference, OnnxRuntime };

/// A model as it was imported, before anything was made of it.
struct TensorLevel {
  std::shared_ptr<mlir::MLIRContext> context; ///< outlives the module
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// What somebody else computes of a model, by ONNX name.
using Values = std::map<std::string, HostTensor>;

/// Results of @main, and of its operations that have one of the names `wanted` (kOnnxValue) and
/// elements of fp32, on this computer's CPU. Errors: no code for a function.
Expected<Values> referenceValues(mlir::ModuleOp module, const Values &inputs,
                                 const std::vector<std::string> &wanted);

/// The model's outputs and those of `wanted` that it has, by ONNX Runtime without optimisations.
/// Runs the Python that MILLRACE_PYTHON names, or that of scripts/setup, or python3. Errors: no
/// Python with onnx, onnxruntime and numpy; a model that ONNX Runtime refuses.
Expected<Values> onnxRuntimeValues(const std::string &model, const Values &inputs,
                                   const std::vector<std::string> &wanted);

/// The first operation of @main, in its order, whose value is much further from the judge's than
/// the values that it is computed of: `growth` times, and more than `least`, which is what a
/// rounding of stored values explains. Adds to `compared` how many values both know in one shape.
std::optional<Departure> firstDeparture(mlir::ModuleOp module, const Values &values,
                                        const Values &judged, double least, uint64_t &compared);

} // namespace millrace::driver
