// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ONNX files, from their bytes to the tensor level. Symbolic dimensions become 2. A model that is
// imported gives a module that verifies and whose text reads back as the same text.
#include "tests/fuzz/OnnxMutator.h"
#include "tests/fuzz/Target.h"

#include "compiler/Import/Onnx/Import.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdlib.h>

using namespace millrace;
using namespace millrace::fuzz;

namespace {

/// A folder of this process, with the one file that external data of a seed names.
std::filesystem::path makeFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "millrace-fuzz-XXXXXX").string();
  require(mkdtemp(path.data()), "a temporary folder can be made", path);
  std::ofstream(std::filesystem::path(path) / "weights.bin") << std::string(64, '\1');
  static std::string made; // a fuzzer ends its process without running destructors
  made = path;
  std::atexit([] {
    std::error_code ignored;
    for (const char *file : {"model.onnx", "weights.bin"})
      std::filesystem::remove(std::filesystem::path(made) / file, ignored);
    std::filesystem::remove(made, ignored);
  });
  return path;
}

/// The names that an error lists as "dimensions without a value: a, b; give".
std::map<std::string, int64_t> missingIn(const std::string &error) {
  static const std::string mark = "symbolic dimensions without a value: ";
  std::map<std::string, int64_t> dims;
  const size_t at = error.find(mark), end = error.rfind("; give each by --dim");
  if (at == error.npos || end == error.npos || end < at)
    return dims;
  std::string list = error.substr(at + mark.size(), end - at - mark.size());
  for (size_t from = 0; from <= list.size();) {
    const size_t comma = std::min(list.find(", ", from), list.size());
    dims[list.substr(from, comma - from)] = 2;
    from = comma + 2;
  }
  return dims;
}

std::string textOf(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, mlir::OpPrintingFlags().enableDebugInfo());
  return text;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::filesystem::path folder = makeFolder(), path = folder / "model.onnx";
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char *>(data), std::streamsize(size));
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::ScopedDiagnosticHandler quiet(&context, [](mlir::Diagnostic &) { return mlir::success(); });
  Expected<mlir::OwningOpRef<mlir::ModuleOp>> module = importOnnx(path, {}, context);
  if (!module)
    if (ImportOptions options{.dims = missingIn(module.error())}; !options.dims.empty())
      module = importOnnx(path, options, context);
  accepted = bool(module);
  if (!module) {
    requireError(module.error());
    return 0;
  }
  require(mlir::succeeded(mlir::verify(**module)), "an imported module verifies");
  const std::string text = textOf(**module);
  constexpr size_t mostText = 1 << 18;
  if (text.size() > mostText)
    return 0;
  mlir::MLIRContext fresh(mlir::MLIRContext::Threading::DISABLED);
  loadImportDialects(fresh);
  mlir::ScopedDiagnosticHandler quietToo(&fresh,
                                         [](mlir::Diagnostic &) { return mlir::success(); });
  const auto again = mlir::parseSourceString<mlir::ModuleOp>(text, &fresh);
  require(bool(again), "the text of an imported module parses", text);
  require(textOf(*again) == text, "and is the same text", text);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                                          unsigned int seed) {
  return mutateModel(data, size, most, seed);
}
