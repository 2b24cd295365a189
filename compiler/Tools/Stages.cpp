// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Stages.h"

#include "arch/program/Assembler.h"
#include "arch/program/ImageCheck.h"
#include "arch/spec/MachineFile.h"
#include "compiler/Codegen/Devices/AssignDevices.h"
#include "compiler/Codegen/Gpu/Kernels/KernelPlan.h"
#include "compiler/Dialect/Spatial/IR/Spatial.h"
#include "compiler/Forms/Former/Build.h"
#include "compiler/Forms/Rewritings/Rewritings.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Schedule/Problem/Text.h"
#include "compiler/Support/OnnxValue.h"
#include "compiler/Tools/Checks.h"
#include "compiler/Tools/HostRunner.h"
#include "compiler/Tools/WhatWouldHelp.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace millrace::driver {

using nlohmann::json;

namespace {

void note(Image &image, const char *key, const json &value) {
  image.notes.push_back({key, jsonText(value)});
}

/// Multiply-accumulates by operator and by who does them: of the model where it is known, else of
/// the kernels.
void addMacs(Image &image, const spatial::ModelFacts &facts, const forms::KernelGraph &graph,
             const grid::CompileReport &report) {
  if (!facts.macs) {
    note(image, "macs_total", graph.macs());
    note(image, "macs_on_grid", report.macsOnGrid);
    return;
  }
  std::map<std::pair<std::string, std::string>, int64_t> counts; ///< by operator and device
  int64_t total = 0, onGrid = 0;
  const auto add = [](int64_t &sum, int64_t macs) { // saturates, as the counts of nodes do
    sum = macs > INT64_MAX - sum ? INT64_MAX : sum + macs;
  };
  for (const spatial::NodeMacs &node : *facts.macs) {
    add(total, node.macs);
    add(onGrid, node.onGrid);
    for (const auto &[device, macs] :
         {std::pair("grid", node.onGrid), std::pair("host", node.onHost),
          std::pair("none", node.macs - node.onGrid - node.onHost)})
      if (macs)
        add(counts[{node.type, device}], macs);
  }
  json rows = json::array();
  for (const auto &[key, macs] : counts)
    rows.push_back({{"operator", key.first}, {"device", key.second}, {"macs", macs}});
  note(image, "macs_total", total);
  note(image, "macs_on_grid", onGrid);
  note(image, "macs_by_operator", rows);
}

void addNotes(Image &image, const spatial::ModelFacts &facts, const forms::KernelGraph &graph,
              const grid::CompileReport &report) {
  note(image, "model", facts.model);
  note(image, "precision", facts.precision);
  addMacs(image, facts, graph, report);
  note(image, "host_ops", report.hostCalls);
  note(image, "bursts", report.bursts);
  note(image, "partition", report.partition);
  note(image, "order", report.order);
  note(image, "schedule", report.tactic.text());
  note(image, "schedules_tried", std::max<size_t>(1, report.tried.size()));
  note(image, "integer_input_bounds", facts.integerBounds);
  note(image, "packed", facts.packed);
  note(image, "model_inputs", facts.inputs);
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

std::string textOf(mlir::ModuleOp module, bool locations) {
  std::string text;
  llvm::raw_string_ostream out(text);
  module.print(out, mlir::OpPrintingFlags().enableDebugInfo(locations));
  out << "\n";
  return text;
}

} // namespace

Stages::Stages(const ModelOptions &options)
    : options(options), progress(options.verbosity), errors(*context) {
  context->printOpOnDiagnostic(false); // a whole function for each form that is tried in vain
  loadImportDialects(*context);
}

Failure Stages::failed(Exit code, const std::string &what) const {
  return {code, options.model + " on " + target->name + ": " + what};
}

std::optional<Failure> Stages::loadTarget() {
  Expected<Machine> machine = loadMachine(options.machine, options.settings);
  if (!machine)
    return Failure{BadInput, machine.error()};
  target = std::move(*machine);
  return std::nullopt;
}

std::optional<Failure> Stages::importModel() {
  progress.stage("importing");
  ImportOptions import;
  if (std::optional<Failure> failure = parseDims(options.dims, import.dims))
    return failure;
  std::vector<millrace::NodeMacs> macs;
  auto imported = importOnnx(options.model, import, *context, &macs);
  if (!imported)
    return Failure{BadInput, imported.error()};
  module = std::move(*imported);
  facts.model = options.model;
  facts.macs.emplace();
  for (const NodeMacs &node : macs)
    facts.macs->push_back({.node = node.node, .type = node.type, .macs = node.macs});
  return std::nullopt;
}

std::optional<Failure> Stages::markFp32() {
  auto function = module->lookupSymbol<mlir::func::FuncOp>("main");
  for (const std::string &name : options.keepFp32) {
    const auto isNamed = [&](mlir::Attribute attribute) {
      auto text = mlir::dyn_cast_or_null<mlir::StringAttr>(attribute);
      return text && text.getValue() == name;
    };
    bool isFound = false;
    for (unsigned i = 0; function && i < function.getNumArguments(); ++i)
      if (isNamed(function.getArgAttr(i, "onnx.name"))) {
        function.setArgAttr(i, kKeepFp32, mlir::UnitAttr::get(context.get()));
        isFound = true;
      }
    module->walk([&](mlir::Operation *op) {
      if (isNamed(op->getAttr(kOnnxValue))) {
        op->setAttr(kKeepFp32, mlir::UnitAttr::get(context.get()));
        isFound = true;
      }
    });
    if (!isFound)
      return Failure{BadInput,
                     options.model + ": --keep-fp32 '" + name +
                         "' names no value that is computed, or one that equals another; "
                         "give an output of a node or an input, by its name in the model"};
  }
  return std::nullopt;
}

std::optional<Failure> Stages::markDevices() {
  if (options.deviceMap.empty())
    return std::nullopt;
  Expected<devices::DeviceMap> map = devices::parseDeviceMap(options.deviceMap);
  if (!map)
    return Failure{Usage, map.error()};
  std::vector<std::string> remarks;
  if (Status s = devices::assignDevices(*module, *map, remarks); !s)
    return Failure{BadInput, options.model + ": " + s.error()};
  if (room == forms::Room::Ample) // else they are noted already
    std::move(remarks.begin(), remarks.end(), std::back_inserter(facts.packed));
  return std::nullopt;
}

std::optional<Failure> Stages::checkDevices() {
  if (options.deviceMap.empty())
    return std::nullopt;
  Expected<devices::DeviceMap> map = devices::parseDeviceMap(options.deviceMap);
  if (!map)
    return Failure{Usage, map.error()};
  for (const devices::Assignment &assignment : *map)
    if (assignment.device && !assignment.isDefault &&
        llvm::none_of(graph.hostCalls, [&](const forms::HostCall &call) {
          return call.device == *assignment.device;
        }))
      return failed(Wrong, "--device-map sends work to the " +
                               std::string(nameOf(*assignment.device)) +
                               ", and none of it became a step; please report it with the model");
  return std::nullopt;
}

/// Of each step its device, what it has of the kinds of work that the map names, and why it is
/// there.
static json placementOf(const Image &image, mlir::ModuleOp host, const devices::DeviceMap &map) {
  json rows = json::array();
  for (const auto &[number, step] : llvm::enumerate(image.steps)) {
    if (step.kind == Step::Kind::Grid) {
      rows.push_back({{"step", number},
                      {"device", "grid"},
                      {"function", json()},
                      {"work", json::array()},
                      {"why", "the map sends it nowhere else"}});
      continue;
    }
    std::set<std::string> work;
    if (auto function = host.lookupSymbol<mlir::func::FuncOp>(step.function))
      function.walk([&](mlir::Operation *op) {
        if (auto name = op->getAttrOfType<mlir::StringAttr>(forms::kWork))
          work.insert(name.str());
      });
    const bool isDefault = llvm::any_of(map, [&](const devices::Assignment &own) {
      return own.isDefault && work.count(devices::workNames()[size_t(own.work)].name);
    });
    rows.push_back({{"step", number},
                    {"device", nameOf(step.device)},
                    {"function", step.function},
                    {"work", work},
                    {"why", step.device == StepDevice::Host ? "the grid has no lowering for it"
                            : isDefault                     ? "the default policy"
                                                            : "the map names it"}});
  }
  return rows;
}

std::optional<Failure> Stages::noteKernels() {
  json functions = json::object();
  mlir::OwningOpRef<mlir::ModuleOp> host;
  if (!options.deviceMap.empty() ||
      llvm::any_of(image.steps, [](const Step &step) { return step.device == StepDevice::Gpu; })) {
    host = mlir::parseSourceString<mlir::ModuleOp>(image.hostModule, context.get());
    if (!host)
      return failed(Wrong, "the compiler made host functions that do not parse; please report it");
  }
  if (!options.deviceMap.empty())
    if (const Expected<devices::DeviceMap> map = devices::parseDeviceMap(options.deviceMap))
      note(image, "placement", placementOf(image, *host, *map));
  for (const Step &step : image.steps) {
    if (step.device != StepDevice::Gpu)
      continue;
    Expected<gpu::KernelPlan> plan =
        gpu::planKernels(*host, step.function, multipliedType(facts.precision));
    if (!plan) {
      facts.packed.push_back(step.function + " has no kernels: " + plan.error());
      continue;
    }
    json launches = json::array();
    for (const gpu::LaunchWork &work : plan->launches) {
      json kind = work.kind.sizes;
      kind.update({{"op", work.kind.op}, {"type", work.kind.type}});
      launches.push_back({{"kernel", work.kernel},
                          {"programs", work.programs},
                          {"bytes", work.bytes},
                          {"matrix_flops", work.matrixFlops},
                          {"other_flops", work.otherFlops},
                          {"is_whole", work.isWhole},
                          {"kind", kind}});
    }
    functions[step.function] = {
        {"launches", launches}, {"left", plan->left}, {"notes", plan->notes}};
  }
  if (!functions.empty())
    note(image, "gpu_functions", functions);
  return std::nullopt;
}

std::optional<Failure> Stages::formKernels() {
  progress.stage("forming kernels");
  if (auto failure = markFp32())
    return failure;
  if (auto failure = markDevices())
    return failure;
  if (options.judge > JudgeKind::Kernels)
    imported = module->clone();
  if (room == forms::Room::Ample)
    origin = Origin{module->clone(), facts};
  if (auto failure = formKernelsFor(*module, *target, layoutCosts))
    return failure;
  return chooseComputingPes();
}

std::optional<Failure> Stages::formKernelsFor(mlir::ModuleOp tensors, const Machine &machine,
                                              std::shared_ptr<layouts::CostCache> costs) {
  mlir::FailureOr<forms::KernelGraph> formed =
      spatial::formKernels(tensors, machine, options.precision, options.exactQdq, facts, room);
  if (mlir::failed(formed))
    return Failure{BadInput, options.model + ": " + errors.text()};
  graph = std::move(*formed);
  if (auto failure = checkDevices())
    return failure;
  forms::RewriteOptions rewrite{.layouts = options.layouts,
                                .layoutSeed = options.layoutSeed,
                                .costs = std::move(costs),
                                .room = room};
  if (options.explain == "layouts")
    rewrite.layoutsChosen = [&](const layouts::LayoutProblem &problem,
                                const layouts::Choice &choice) { explain(problem, choice); };
  Expected<std::vector<std::string>> lines = forms::rewrite(graph, machine, rewrite);
  if (!lines)
    return failed(TooLarge, lines.error());
  std::move(lines->begin(), lines->end(), std::back_inserter(facts.packed));
  if (explanation)
    explanation->copies = forcedCopies(graph, machine);
  return std::nullopt;
}

void Stages::explain(const layouts::LayoutProblem &problem, const layouts::Choice &choice) {
  progress.stage("explaining layouts", problem.variables.size());
  explanation.emplace().choice =
      layouts::explain(problem, choice, [&](size_t done, size_t of) { progress.update(done, of); });
  explanation->precision = facts.precision;
  progress.stage("forming kernels");
}

/// Bytes of the tables that kernels look into.
static int64_t bytesOfTables(const forms::KernelGraph &graph) {
  std::set<unsigned> tables;
  for (const forms::Kernel &kernel : graph.kernels)
    for (const forms::Access &o : kernel.operands)
      if (o.lookup)
        tables.insert(o.tensor);
  int64_t bytes = 0;
  for (unsigned t : tables)
    bytes += int64_t(graph.tensors[t].data.size());
  return bytes;
}

std::optional<Failure> Stages::formAgain(forms::Room its) {
  room = its;
  facts = origin->facts;
  module = origin->module->clone();
  return formKernels();
}

void Stages::take(Formed formed) {
  graph = std::move(formed.graph);
  facts = std::move(formed.facts);
  explanation = std::move(formed.explanation);
}

/// Most bursts of a program that found room for which a way that takes less is tried as well; with
/// an effort of 2, of any.
static constexpr uint64_t kMostForBoth = 250'000;

std::optional<Failure> Stages::schedule() {
  const std::optional<Failure> failure = scheduleKernels();
  if (!failure || failure->code != TooLarge || !origin)
    return failure;
  if (bytesOfTables(graph) > forms::mostBytesOfFewTables(*target) &&
      !formAgain(forms::Room::FewTables) && !scheduleKernels())
    return std::nullopt;
  rewritesToFit = true;
  std::optional<Formed> best;
  for (const forms::Room its : {room, forms::Room::Spare, forms::Room::Least}) {
    if (its != room && formAgain(its))
      continue;
    Attempt made = compileKernels(options.effort);
    if (!made.image || (best && made.report.predictedCycles >= attempt->report.predictedCycles))
      continue;
    best = Formed{std::move(graph), std::move(facts), std::move(explanation)};
    attempt = std::move(made);
    if (options.effort < 2 && attempt->report.bursts > kMostForBoth)
      break;
  }
  if (!best)
    return failure;
  take(std::move(*best));
  return scheduleKernels();
}

std::vector<schedule::Relief> Stages::reliefs() const {
  std::vector<schedule::Relief> all;
  if (options.explain == "what-would-help")
    for (const Raise &raise : raisesOf(*target)) {
      all.push_back(raise.relief);
      all.push_back(raise.relief);
      all.back().share = 0;
    }
  return all;
}

Stages::Attempt Stages::compileKernels(unsigned effort) {
  if (Status s = checkFits(graph, *target); !s)
    return {s.takeError(), {}};
  grid::CompileReport report;
  grid::FitOptions fit;
  fit.rewrites = !origin || rewritesToFit;
  fit.compile.partition = options.partition;
  fit.compile.keepsOrder = options.order != "auto";
  if (fit.compile.keepsOrder)
    fit.compile.tactic.order = options.order;
  fit.compile.tactic.pes = facts.computingPes;
  fit.compile.effort = effort;
  fit.compile.gaps = options.explain == "cycles";
  fit.compile.reliefs = reliefs();
  if (!options.exactQdq)
    fit.narrow = options.precision == "bf16" ? ElementType::Bf16 : ElementType::Fp16;
  progress.stage("scheduling", graph.order.size());
  fit.compile.progress = [&](size_t done, size_t of) { progress.update(done, of); };
  fit.compile.searching = [&](size_t done, size_t of) { progress.update(done, of); };
  fit.compile.refused = [&](const std::string &why) { progress.note(why); };
  Expected<Image> compiled = grid::compileToFit(graph, *target, fit, report);
  return {std::move(compiled), std::move(report)};
}

std::optional<Failure> Stages::scheduleKernels() {
  Attempt made = attempt ? std::move(*attempt) : compileKernels(options.effort);
  attempt.reset();
  Expected<Image> &compiled = made.image;
  grid::CompileReport &report = made.report;
  if (!compiled)
    return failed(TooLarge, compiled.error());
  for (const std::string &name : report.rounded)
    facts.packed.push_back(name + ": rounded to 16 bits, as the program did not fit");
  for (const grid::Tried &tried : report.tried)
    progress.note(tried.tactic.text() + ": " +
                  (tried.cycles ? std::to_string(tried.cycles) + " cycles" : "no room"));
  image = std::move(*compiled);
  image.machineYaml = toYaml(*target);
  if (auto failure = options.effort > 1 ? improveSchedule(report) : std::nullopt)
    return failure;
  if (auto failure = applySchedule(&report))
    return failure;
  if (auto failure = noteKernels())
    return failure;
  addNotes(image, facts, graph, report);
  cycles.emplace().ledger = std::move(report.ledger);
  cycles->bounds = std::move(report.bounds);
  cycles->relieved = std::move(report.relieved);
  cycles->model = options.model;
  cycles->machine = target->name;
  cycles->precision = facts.precision;
  for (const schedule::StepBound &bound : cycles->bounds.steps) {
    cycles->boundUnits.emplace_back();
    for (const schedule::BoundPart &part : bound.parts)
      cycles->boundUnits.back().push_back(target->queueName(part.queue));
  }
  for (const forms::Kernel &kernel : graph.kernels)
    cycles->kernels.push_back(kernel.name);
  if (options.judge != JudgeKind::None)
    reckoning = Reckoning{std::move(graph), std::move(report.kernels)};
  return verify();
}

std::optional<Failure> Stages::verify() {
  progress.stage("verifying");
  Status s = verifyImage(image, *target);
  if (s)
    return std::nullopt;
  if (options.from != Level::Onnx) // text can hold what no compiler writes
    return failed(BadInput, "its image is not well formed: " + s.error());
  return failed(Wrong, "the compiler made an image that is not well formed (" + s.error() +
                           "); please report it with the model and the machine");
}

std::optional<Failure> Stages::parse(const std::string &level) {
  context->loadDialect<spatial::SpatialDialect>();
  const mlir::ParserConfig config(context.get(), /*verifyAfterParse=*/false);
  module = mlir::parseSourceFile<mlir::ModuleOp>(options.model, config);
  if (!module)
    return Failure{BadInput, errors.text() + "; '" + options.model + "' should be text of the " +
                                 level + " level"};
  if (mlir::failed(mlir::verify(*module)))
    return Failure{BadInput, errors.text()};
  facts = spatial::readFacts(*module);
  if (facts.model.empty())
    facts.model = options.model;
  return std::nullopt;
}

std::optional<Failure> Stages::readTensors() { return parse("tensor"); }

std::optional<Failure> Stages::readKernels() {
  if (auto failure = parse("spatial"))
    return failure;
  if (Status s = spatial::checkMachine(facts, *target); !s)
    return Failure{BadInput, options.model + ": " + s.error()};
  mlir::FailureOr<forms::KernelGraph> read = spatial::importGraph(*module);
  if (mlir::failed(read))
    return Failure{BadInput, errors.text()};
  graph = std::move(*read);
  return std::nullopt;
}

std::optional<Failure> Stages::readSchedule() {
  std::ifstream file(options.model, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return Failure{BadInput, "cannot read '" + options.model + "'; check the path"};
  Expected<Image> assembled = assemble(text.str(), options.model, &*target);
  if (!assembled)
    return Failure{BadInput, assembled.error()};
  image = std::move(*assembled);
  if (auto failure = verify())
    return failure;
  if (auto failure = applySchedule(nullptr))
    return failure;
  return options.schedule.empty() ? std::nullopt : verify();
}

std::optional<Failure> Stages::writeTensors(std::string &text) {
  spatial::writeFacts(*module, facts);
  text = textOf(*module, /*locations=*/true); // they name the ONNX nodes
  return std::nullopt;
}

std::optional<Failure> Stages::writeKernels(std::string &text) {
  mlir::MLIRContext fresh; // in which the names of constants are not taken by the tensor level
  fresh.loadDialect<spatial::SpatialDialect>();
  auto exported = spatial::exportGraph(graph, fresh);
  if (mlir::failed(exported))
    return failed(Wrong, "the compiler made host functions that do not parse; please report it");
  spatial::writeFacts(**exported, facts);
  text = textOf(**exported, /*locations=*/false);
  return std::nullopt;
}

std::optional<Failure> Stages::writeSchedule(std::string &text) {
  text = disassemble(image, *target);
  return std::nullopt;
}

std::optional<Failure> Stages::writeProblem(std::string &text) {
  if (auto failure = poseProblem())
    return failure;
  text = schedule::writeProblem(*problem);
  return std::nullopt;
}

} // namespace millrace::driver
