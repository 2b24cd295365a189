// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles what does not fit as it is.
#pragma once

#include "compiler/Codegen/Grid/Compile.h"

#include <optional>

namespace millrace::grid {

struct FitOptions {
  CompileOptions compile;
  /// fp16 or bf16: constants that are added may be rounded to it for room. Nothing: every rewriting
  /// is exact.
  std::optional<ElementType> narrow;
  bool rewrites = true; ///< else the graph is tried as it is, and no other
};

/// As compile(); where that finds no room, the graph is rewritten so that it needs less, and tried
/// again: results of a kernel in kernels of their own where bursts met, weights
/// that share rows and chains of kernels part by part where there are none left. `graph` becomes
/// what was compiled, or stays on an error, which is then that of the graph as it was. The report
/// names constants that were rounded.
Expected<Image> compileToFit(forms::KernelGraph &graph, const Machine &machine,
                             const FitOptions &options, CompileReport &report);

} // namespace millrace::grid
