// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the tensor level to the kernel graph. Operations are recognised by their iteration maps and
// bodies only.
#pragma once

#include "compiler/Forms/Kernel.h"
#include "compiler/Forms/Room.h"

#include "arch/spec/Machine.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringRef.h"

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::forms {

/// On an operation: it runs on this device, "cpu" or "gpu", and not on the grid.
inline constexpr llvm::StringLiteral kDevice = "millrace.device";

/// On an operation with a device: the kind of work that it is a part of, for reports.
inline constexpr llvm::StringLiteral kWork = "millrace.work";

enum class Precision : uint8_t { Fp16, Bf16, Int8 };

struct PrecisionOptions {
  Precision precision = Precision::Fp16;
  bool exactQdq =
      false; ///< keep every rounding of a quantised graph instead of fusing residual scales
  bool isOnePe = true; ///< values need not travel
  int64_t lanes =
      320;            ///< vector length of the machine; maxima over longer lanes are taken in parts
  int64_t pass = 160; ///< lanes of 16 bits that an MXM plane takes at once
  unsigned chain = 16; ///< most operations fused into one kernel
  int64_t memoryBytes = std::numeric_limits<int64_t>::max(); ///< MEM of all PEs
  int64_t mostRows = 8;  ///< of a tensor that one map reads at once
  bool canGather = true; ///< a superlane holds the two bytes of an address (R12)
  int64_t mostTableBytes = std::numeric_limits<int64_t>::max(); ///< of tables on the grid
  Room room = Room::Ample;

  bool sparesRoom() const { return room >= Room::Spare; }

  /// What real numbers become in memory, where nothing asks for more.
  ElementType activation() const {
    return precision == Precision::Bf16 ? ElementType::Bf16 : ElementType::Fp16;
  }
};

/// Bytes of tables on the grid where they are few: a sixteenth of the memory of all PEs.
int64_t mostBytesOfFewTables(const Machine &machine);

/// The options of a stated precision for a machine.
PrecisionOptions optionsFor(const Machine &machine, Precision precision, bool exactQdq,
                            Room room = Room::Ample);

/// fp16, bf16 or int8; nothing for other names.
std::optional<Precision> precisionNamed(std::string_view name);

/// The precision that suits a model: int8 where it quantises values to 8 bits by scales that are
/// constants, fp16 otherwise. Scales that a model makes of its values suit either: those products
/// are of integers in every precision.
Precision precisionOf(mlir::ModuleOp module);
/// "fp16", "bf16", "int8".
llvm::StringRef nameOf(Precision precision);

/// Points of the loops of one ONNX node's contractions, by their shapes at the tensor level.
struct ContractionPoints {
  int64_t all = 0;
  int64_t onHost = 0; ///< of contractions that host functions do
};

/// Forms the kernels of @main. Emits an error and fails where an output is empty or made of
/// nothing, and where a float model is asked for in int8, with the recipe that quantises it. What
/// no form covers becomes a HostCall. Tables of look-ups take at most half of the memory that the
/// other constants leave, small ones first: the host looks up in the rest, and `remarks` receives a
/// line for each, and for each constant with numbers beyond the range of the type that it is stored
/// in. `points` receives who does the contractions of each ONNX node, by its name.
mlir::FailureOr<KernelGraph>
buildKernelGraph(mlir::ModuleOp module, const PrecisionOptions &options,
                 std::vector<std::string> *remarks = nullptr,
                 std::map<std::string, ContractionPoints> *points = nullptr);

} // namespace millrace::forms
