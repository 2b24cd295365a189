// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// import-and-run MODEL.onnx FOLDER [--dim name=n]... [--print]
//
// Imports the model, runs it by Reference on FOLDER/input_<i>.npy, writes FOLDER/output_<i>.npy.
// Prints the seconds of each step, or with --print the tensor level. For tests; people use
// `millrace`.
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"
#include "compiler/Support/Npy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <iostream>

namespace {

using millrace::Error;
using millrace::HostTensor;
using millrace::Status;

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Request {
  std::filesystem::path model, folder;
  millrace::ImportOptions options;
  bool prints = false;
};

Request parse(int argc, char **argv) {
  Request request{argv[1], argv[2], {}};
  for (int i = 3; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--print") {
      request.prints = true;
    } else if (argument == "--dim" && i + 1 < argc) {
      std::string dim = argv[++i];
      size_t equals = dim.find('=');
      request.options.dims[dim.substr(0, equals)] = std::stoll(dim.substr(equals + 1));
    }
  }
  return request;
}

Status run(mlir::ModuleOp module, const std::filesystem::path &folder) {
  auto function = module.lookupSymbol<mlir::func::FuncOp>("main");
  std::vector<HostTensor> inputs;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto input = millrace::readNpy(folder / ("input_" + std::to_string(i) + ".npy"));
    if (!input)
      return input.takeError();
    inputs.push_back(std::move(*input));
  }
  auto start = std::chrono::steady_clock::now();
  auto reference = millrace::Reference::create(module);
  if (!reference)
    return reference.takeError();
  std::cout << "compile " << secondsSince(start) << " s\n";
  start = std::chrono::steady_clock::now();
  auto outputs = reference->run(inputs);
  if (!outputs)
    return outputs.takeError();
  std::cout << "run " << secondsSince(start) << " s\n";
  for (size_t i = 0; i < outputs->size(); ++i)
    if (Status written =
            millrace::writeNpy(folder / ("output_" + std::to_string(i) + ".npy"), (*outputs)[i]);
        !written)
      return written;
  return millrace::Success{};
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3) {
    std::cerr << "usage: import-and-run MODEL.onnx FOLDER [--dim name=n]... [--print]\n";
    return 2;
  }
  Request request = parse(argc, argv);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto start = std::chrono::steady_clock::now();
  auto module = millrace::importOnnx(request.model, request.options, context);
  if (!module) {
    std::cerr << module.error() << "\n";
    return 1;
  }
  if (request.prints) {
    mlir::OpPrintingFlags flags;
    flags.elideLargeElementsAttrs(16).elideLargeResourceString(64).enableDebugInfo(true, false);
    (**module)->print(llvm::outs(), flags);
    return 0;
  }
  std::cout << "import " << secondsSince(start) << " s\n";
  if (Status ran = run(**module, request.folder); !ran) {
    std::cerr << ran.error() << "\n";
    return 1;
  }
  return 0;
}
