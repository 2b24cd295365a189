// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the report says of a model and the kernel graph does not hold. In text it is the attribute
// `millrace.facts` of the module, on the tensor and on the spatial level.
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

#include "compiler/Forms/Former/Build.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace millrace::spatial {

/// Multiply-accumulates that one node of the ONNX model asks for, by its shapes, and who does them.
/// Neither grid nor host does those of a node that equals another one or has no effect on the
/// outputs.
struct NodeMacs {
  std::string node, type; ///< name; operator, such as "Conv" or "com.microsoft.Attention"
  int64_t macs = 0;
  int64_t onGrid = 0, onHost = 0; ///< known once kernels are formed
};

struct ModelFacts {
  std::string model;     ///< file
  std::string precision; ///< fp16 bf16 int8; known once kernels are formed, like all that follows
  std::string machine;   ///< that the kernels are formed and rewritten for: name and hash
  unsigned computingPes = 0; ///< the first ones, that the kernels are formed for; 0: all
  std::map<std::string, int64_t> integerBounds; ///< of integer inputs that index a tensor: the
                                                ///< least extent indexed, by ONNX name
  std::vector<std::string> inputs;              ///< ONNX names, also of those that nothing reads
  std::vector<std::string> packed;              ///< what the rewritings packed, a line each
  std::optional<std::vector<NodeMacs>> macs;    ///< nothing if no ONNX model is known
};

/// `tsp-v1 1f2e3d4c...`: equal for machines of equal name and hash.
std::string identityOf(const Machine &machine);

/// The kernel graph of a tensor level, before any rewriting, and what is known of it: the way of
/// the driver and of the pass `form-kernels`. Emits an error and fails where the precision has no
/// such name, or the model cannot be formed. `room`: what forms may take.
mlir::FailureOr<forms::KernelGraph> formKernels(mlir::ModuleOp tensorLevel, const Machine &machine,
                                                const std::string &precision, bool exactQdq,
                                                ModelFacts &facts,
                                                forms::Room room = forms::Room::Ample);

/// An error, with the remedy, if the kernels were made for another machine.
Status checkMachine(const ModelFacts &facts, const Machine &machine);

void writeFacts(mlir::ModuleOp module, const ModelFacts &facts);
/// What the attribute holds; empty where it holds nothing, or is of another form.
ModelFacts readFacts(mlir::ModuleOp module);

} // namespace millrace::spatial
