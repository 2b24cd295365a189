// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Build.h"

#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/RepeatedSums.h"
#include "compiler/Forms/Rewritings/Rewritings.h"
#include "compiler/Forms/Simplify.h"

#include "arch/spec/Facts.h"

namespace millrace::forms {

using namespace mlir;

LogicalResult Former::run() {
  findSlicePoints();
  findStoredViews();
  // Inputs keep their order in the graph, also those that nothing reads.
  return storeOutputs();
}

PrecisionOptions optionsFor(const Machine &machine, Precision precision, bool exactQdq) {
  PrecisionOptions options;
  options.precision = precision;
  options.exactQdq = exactQdq;
  options.lanes = machine.lanes();
  options.chain = longestChain(machine);
  options.memoryBytes = int64_t(factsOf(machine).capacityBytes) * int64_t(machine.pes());
  options.canGather = machine.lanesPerSuperlane >= 2;
  return options;
}

std::optional<Precision> precisionNamed(std::string_view name) {
  if (name == "fp16")
    return Precision::Fp16;
  if (name == "bf16")
    return Precision::Bf16;
  if (name == "int8")
    return Precision::Int8;
  return std::nullopt;
}

FailureOr<KernelGraph> buildKernelGraph(ModuleOp module, const PrecisionOptions &options,
                                        std::vector<std::string> *remarks) {
  auto function = module.lookupSymbol<func::FuncOp>("main");
  if (!function)
    return module.emitError("has no function @main");
  bool isQuantized = false;
  function.walk([&](linalg::LinalgOp op) { isQuantized |= !quantKind(op).empty(); });
  if (options.precision == Precision::Int8 && !isQuantized)
    return function.emitError(
        "int8 needs a quantised model, but this one holds no QuantizeLinear or "
        "DequantizeLinear; quantise it with models/recipes/quantize.py");
  foldChannels(function);
  if (options.precision == Precision::Int8) {
    poolIntegers(function);
    if (!options.exactQdq)
      fuseResiduals(function);
  }
  splitMaxWindows(function);
  KernelGraph graph;
  graph.name = module.getName().value_or("model").str();
  Former former(function, options, graph);
  for (std::string &line : former.keepTablesWithHost())
    if (remarks)
      remarks->push_back(std::move(line));
  if (failed(former.run()))
    return failure();
  multiplyRepeatedSums(graph);
  simplify(graph, options.chain);
  if (std::string wrong = graph.verify(); !wrong.empty())
    return function.emitError("the kernel graph is wrong: ") << wrong;
  return graph;
}

} // namespace millrace::forms
