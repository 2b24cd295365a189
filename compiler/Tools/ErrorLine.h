// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <string>

namespace millrace::driver {

/// The errors that MLIR reports while this lives, in one line; each with its place if that is in a
/// text.
class ErrorLine {
public:
  explicit ErrorLine(mlir::MLIRContext &context);
  const std::string &text() const { return line; }

private:
  std::string line;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace millrace::driver
