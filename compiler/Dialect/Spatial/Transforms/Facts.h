// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the report says of a model and the kernel graph does not hold. In text it is the attribute
// `millrace.facts` of the module, on the tensor and on the spatial level.
#pragma once

#include "arch/spec/Machine.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace millrace::spatial {

struct ModelFacts {
  std::string model;     ///< file
  std::string precision; ///< fp16 bf16 int8; known once kernels are formed, like all that follows
  std::string machine;   ///< that the kernels are formed and rewritten for: name and hash
  std::map<std::string, int64_t> integerBounds; ///< of integer inputs that index a tensor: the
                                                ///< least extent indexed, by ONNX name
  std::vector<std::string> inputs;              ///< ONNX names, also of those that nothing reads
  std::vector<std::string> packed;              ///< what the rewritings packed, a line each
};

/// `tsp-v1 1f2e3d4c...`: equal for machines of equal name and hash.
std::string identityOf(const Machine &machine);

/// Adds what is known once the kernels of a tensor level are formed.
void describe(mlir::ModuleOp tensorLevel, const Machine &machine, const std::string &precision,
              ModelFacts &facts);

/// An error, with the remedy, if the kernels were made for another machine.
Status checkMachine(const ModelFacts &facts, const Machine &machine);

void writeFacts(mlir::ModuleOp module, const ModelFacts &facts);
/// What the attribute holds; empty where it holds nothing, or is of another form.
ModelFacts readFacts(mlir::ModuleOp module);

} // namespace millrace::spatial
