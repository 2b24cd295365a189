// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Build.h"

#include "arch/program/ImageCheck.h"
#include "arch/spec/Facts.h"
#include "arch/spec/MachineFile.h"
#include "compiler/Codegen/Grid/Partition.h"
#include "compiler/Forms/Build.h"
#include "compiler/Forms/Rewritings.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Tools/Inputs.h"
#include "compiler/Tools/Progress.h"

#include <mlir/IR/Diagnostics.h>
#include <mlir/IR/MLIRContext.h>
#include <nlohmann/json.hpp>

#include <chrono>

namespace millrace::driver {

using nlohmann::json;

void ModelOptions::addTo(CLI::App &command) {
  command.add_option("model", model, "ONNX file, opset 7 or newer")->required();
  command
      .add_option("--machine,-m", machine,
                  "machine: a name that `millrace machines` lists, or a YAML file")
      ->capture_default_str();
  command
      .add_option("--precision,-p", precision,
                  "storage and multiplication type: fp16, bf16 or int8 (for quantised models)")
      ->check(CLI::IsMember({"fp16", "bf16", "int8"}))
      ->capture_default_str();
  command.add_option("--dim", dims, "value of a symbolic dimension, name=n; repeat for more");
  command.add_option(
      "--set", settings,
      "change one key of the machine, path=value (memory.slices=16); repeat for more");
  std::vector<std::string> solvers{"auto"};
  std::string text = "who deals kernels to PEs: auto, the first whose weights fit";
  for (const grid::PartitionSolver &solver : grid::partitionSolvers()) {
    solvers.push_back(solver.name);
    text += "; " + solver.name + ", " + solver.text;
  }
  command.add_option("--partition", partition, text)
      ->check(CLI::IsMember(solvers))
      ->capture_default_str();
  command.add_flag("--exact-qdq", exactQdq, "int8: keep every rounding of the quantised graph");
}

std::string jsonText(const json &value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

nlohmann::json jsonNote(const Image &image, const std::string &key) {
  for (const auto &[k, value] : image.notes)
    if (k == key)
      if (json parsed = json::parse(value, nullptr, false); !parsed.is_discarded())
        return parsed;
  return {};
}

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A constant of one repeated element can be kept smaller than its shape; it counts nothing here.
uint64_t bytesOf(const forms::Tensor &tensor) {
  uint64_t bytes = tensor.splat ? 0 : byteWidth(tensor.type);
  for (int64_t extent : tensor.shape)
    bytes *= uint64_t(extent);
  return bytes;
}

/// A model that cannot be in the memory of all PEs, even without any padding, is refused before it
/// is planned, by how much it is larger: its constants are there all the time, its inputs at the
/// beginning and its outputs at the end.
Status checkFits(const forms::KernelGraph &graph, const Machine &machine) {
  std::vector<bool> used(graph.tensors.size(),
                         false); // rewritings leave tensors behind that nothing reads
  for (const forms::Kernel &kernel : graph.kernels) {
    for (const forms::Access &operand : kernel.operands)
      used[operand.tensor] = true;
    for (const forms::Term &term : kernel.terms)
      used[term.a.tensor] = used[term.w.tensor] = true;
  }
  std::map<forms::TensorRole, uint64_t> bytes;
  for (size_t t = 0; t < graph.tensors.size(); ++t)
    if (used[t] || graph.tensors[t].role == forms::TensorRole::Output)
      bytes[graph.tensors[t].role] += bytesOf(graph.tensors[t]);
  const uint64_t constants = bytes[forms::TensorRole::Constant];
  const uint64_t ends = std::max(bytes[forms::TensorRole::Input], bytes[forms::TensorRole::Output]);
  const uint64_t needed = constants + ends;
  const uint64_t present = factsOf(machine).capacityBytes * machine.pes();
  if (needed <= present)
    return Success{};
  const auto mebibytes = [](uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f MiB", double(bytes) / (1 << 20));
    return std::string(text);
  };
  return Error{"its constants take " + mebibytes(constants) + " and its inputs or outputs " +
               mebibytes(ends) + ", the memory of all PEs has " + mebibytes(present) + ": " +
               mebibytes(needed - present) +
               " too little; use a machine with more memory or more PEs"};
}

void note(Image &image, const char *key, const json &value) {
  image.notes.push_back({key, jsonText(value)});
}

void addNotes(Image &image, const ModelOptions &options, const forms::KernelGraph &graph,
              const grid::CompileReport &report, const std::map<std::string, int64_t> &bounds,
              double elapsed) {
  note(image, "model", options.model);
  note(image, "precision", options.precision);
  note(image, "macs_total", graph.macs());
  note(image, "macs_on_grid", report.macsOnGrid);
  note(image, "host_ops", report.hostCalls);
  note(image, "compile_seconds", elapsed);
  note(image, "bursts", report.bursts);
  note(image, "partition", report.partition);
  note(image, "integer_input_bounds", bounds);
  json kernels = json::array();
  for (const grid::KernelReport &k : report.kernels)
    kernels.push_back({{"name", k.name},
                       {"first_cycle", k.firstCycle},
                       {"last_cycle", k.lastCycle},
                       {"macs", k.macs},
                       {"mxm_vectors", k.mxmVectors},
                       {"mxm_tiles_installed", k.mxmInstalls},
                       {"vxm_vectors", k.vxmVectors}});
  note(image, "kernels", kernels);
}

/// The reference computes empty outputs too; a schedule would have nothing to do.
Status checkOutputsHold(mlir::ModuleOp module) {
  auto main = module.lookupSymbol<mlir::func::FuncOp>("main");
  for (unsigned i = 0; main && i < main.getNumResults(); ++i)
    if (auto type = mlir::dyn_cast<mlir::ShapedType>(main.getResultTypes()[i]);
        type && type.hasStaticShape() && type.getNumElements() == 0) {
      auto name = main.getResultAttrOfType<mlir::StringAttr>(i, "onnx.name");
      return Error{"output '" + (name ? name.str() : std::to_string(i)) +
                   "' has a dimension of 0, so that there is nothing to compute; use extents of "
                   "at least 1"};
    }
  return Success{};
}

} // namespace

std::variant<Built, Failure> build(const ModelOptions &options) {
  const double start = seconds();
  Expected<Machine> machine = loadMachine(options.machine, options.settings);
  if (!machine)
    return Failure{BadInput, machine.error()};
  ImportOptions import;
  for (const std::string &dim : options.dims) {
    const size_t equals = dim.find('=');
    char *end = nullptr;
    const long value =
        equals == std::string::npos ? 0 : std::strtol(dim.c_str() + equals + 1, &end, 10);
    if (!end || *end || value < 0 || end == dim.c_str() + equals + 1)
      return Failure{Usage, "--dim '" + dim + "' is not name=n with n >= 0"};
    import.dims[dim.substr(0, equals)] = value;
  }
  Progress progress;
  progress.stage("importing");
  mlir::MLIRContext context;
  loadImportDialects(context);
  std::string diagnostics;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &d) {
    if (d.getSeverity() == mlir::DiagnosticSeverity::Error)
      diagnostics += (diagnostics.empty() ? "" : "; ") + d.str();
    return mlir::success();
  });
  auto module = importOnnx(options.model, import, context);
  if (!module)
    return Failure{BadInput, module.error()};
  if (Status s = checkOutputsHold(**module); !s)
    return Failure{BadInput, options.model + ": " + s.error()};
  progress.stage("forming kernels");
  forms::PrecisionOptions precision;
  precision.precision = options.precision == "bf16"   ? forms::Precision::Bf16
                        : options.precision == "int8" ? forms::Precision::Int8
                                                      : forms::Precision::Fp16;
  precision.exactQdq = options.exactQdq;
  precision.lanes = machine->lanes();
  precision.chain = forms::longestChain(*machine);
  mlir::FailureOr<forms::KernelGraph> graph = forms::buildKernelGraph(**module, precision);
  if (mlir::failed(graph))
    return Failure{BadInput, options.model + ": " + diagnostics};
  const std::vector<std::string> packed = forms::rewrite(*graph, *machine);
  if (Status s = checkFits(*graph, *machine); !s)
    return Failure{TooLarge, options.model + " on " + machine->name + ": " + s.error()};
  grid::CompileReport report;
  grid::CompileOptions compileOptions;
  compileOptions.partition = options.partition;
  progress.stage("scheduling", graph->kernels.size());
  compileOptions.progress = [&](size_t done, size_t) { progress.update(done); };
  Expected<Image> image = grid::compile(*graph, *machine, compileOptions, report);
  if (!image)
    return Failure{TooLarge, options.model + " on " + machine->name + ": " + image.error()};
  image->machineYaml = toYaml(*machine);
  progress.stage("verifying");
  if (Status s = verifyImage(*image, *machine); !s)
    return Failure{Wrong, options.model + " on " + machine->name +
                              ": the compiler made an image that is not well formed (" + s.error() +
                              "); please report it with the model and the machine"};
  addNotes(*image, options, *graph, report, integerBounds(**module), seconds() - start);
  note(*image, "packed", packed);
  note(*image, "model_inputs", inputNames(**module));
  return Built{std::move(*machine), std::move(*image)};
}

} // namespace millrace::driver
