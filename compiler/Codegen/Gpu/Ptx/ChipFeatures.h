// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which chip and which version of PTX an operation needs. LLVM ends the process with "Cannot
// select" where one does not fit, so it is asked here first.
#pragma once

#include "arch/spec/Expected.h"

#include <string>
#include <string_view>

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace millrace::gpu {

/// A chip that PTX is made for.
struct Chip {
  std::string name;             ///< as LLVM and ptxas write it: sm_90a
  unsigned capability = 0;      ///< 90
  bool hasArchFeatures = false; ///< the letter a: what later chips need not have
};

/// Reads a name such as "sm_80", "sm_90a". An error names the chips that are known.
Expected<Chip> parseChip(std::string_view name);

/// Checks every operation of a module of the nvvm and llvm dialects. Returns the lowest version of
/// PTX that has all of them, times ten (80 for 8.0), so that older tools take it too. An error
/// names the operation and the chip that it needs; operations that the table does not know are
/// errors.
Expected<unsigned> requirePtxVersion(mlir::ModuleOp module, const Chip &chip);

} // namespace millrace::gpu
