// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/ErrorLine.h"

#include "mlir/IR/Location.h"

#include <algorithm>

namespace millrace::driver {

static std::string textOf(const mlir::Diagnostic &diagnostic) {
  auto place = mlir::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation());
  std::string text = diagnostic.str();
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (!place)
    return text;
  const bool isWhole = place.getLine() == 0; // of a module, not of a line in it
  return place.getFilename().str() +
         (isWhole
              ? std::string()
              : ":" + std::to_string(place.getLine()) + ":" + std::to_string(place.getColumn())) +
         ": " + text;
}

ErrorLine::ErrorLine(mlir::MLIRContext &context)
    : handler(&context, [this](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          line += (line.empty() ? "" : "; ") + textOf(diagnostic);
        return mlir::success();
      }) {}

} // namespace millrace::driver
