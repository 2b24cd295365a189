// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Build.h"

#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/RepeatedSums.h"
#include "compiler/Forms/Rewritings/Rewritings.h"
#include "compiler/Forms/Simplify.h"
#include "compiler/Support/LargeStack.h"

#include "mlir/Transforms/RegionUtils.h"

#include "arch/spec/Facts.h"

namespace millrace::forms {

using namespace mlir;

LogicalResult Former::run() {
  findSlicePoints();
  findStoredViews();
  findJoinedBeside();
  findShownArguments();
  // Inputs keep their order in the graph, also those that nothing reads.
  return storeOutputs();
}

static int64_t memoryOf(const Machine &machine) {
  return int64_t(factsOf(machine).capacityBytes) * int64_t(machine.pes());
}

int64_t mostBytesOfFewTables(const Machine &machine) { return memoryOf(machine) / 16; }

PrecisionOptions optionsFor(const Machine &machine, Precision precision, bool exactQdq, Room room) {
  PrecisionOptions options;
  options.precision = precision;
  options.exactQdq = exactQdq;
  options.isOnePe = machine.pes() == 1;
  options.lanes = machine.lanes();
  options.chain = longestChain(machine);
  options.memoryBytes = memoryOf(machine);
  options.room = room;
  if (room != Room::Ample)
    options.mostTableBytes = mostBytesOfFewTables(machine);
  constexpr int64_t kSlicesOfRow = 4; // its factors, what is alive beside it
  options.mostRows = std::min<int64_t>(8, machine.memory.slices / kSlicesOfRow);
  options.canGather = machine.lanesPerSuperlane >= 2;
  if (const MxmFormatSpec *format = machine.mxm.format(ElementType::Bf16))
    options.pass = format->lanesPerPass;
  return options;
}

static constexpr std::pair<Precision, std::string_view> precisions[] = {
    {Precision::Fp16, "fp16"}, {Precision::Bf16, "bf16"}, {Precision::Int8, "int8"}};

std::optional<Precision> precisionNamed(std::string_view name) {
  for (const auto &[precision, its] : precisions)
    if (its == name)
      return precision;
  return std::nullopt;
}

StringRef nameOf(Precision precision) {
  return llvm::find_if(precisions, [&](const auto &p) { return p.first == precision; })->second;
}

Precision precisionOf(ModuleOp module) {
  bool quantizes = false;
  module.walk([&](linalg::GenericOp op) {
    quantizes |= quantKind(op) == "quantize" &&
                 getElementTypeOrSelf(op->getResult(0)).isInteger(8) &&
                 isConstantValue(op->getOperand(1));
  });
  return quantizes ? Precision::Int8 : Precision::Fp16;
}

static int64_t pointsOf(linalg::LinalgOp op) {
  int64_t points = 1;
  for (int64_t extent : op.getStaticLoopRanges())
    points = llvm::MulOverflow(points, extent, points) ? INT64_MAX : points;
  return points;
}

using PointsByNode = std::map<std::string, ContractionPoints>;

static PointsByNode contractionsOf(func::FuncOp function) {
  PointsByNode points;
  function.walk([&](linalg::LinalgOp op) {
    if (isContraction(op))
      points[nameOf(op->getResult(0))].all += pointsOf(op);
  });
  return points;
}

/// Adds what the calls do that the graph has kept; each contraction once.
static void addHostPoints(const Former &former, const KernelGraph &graph, PointsByNode &points) {
  DenseSet<Operation *> seen;
  for (const HostCall &call : graph.hostCalls)
    for (Operation *op : former.contractionsOf(call))
      if (seen.insert(op).second)
        points[nameOf(op->getResult(0))].onHost += pointsOf(cast<linalg::LinalgOp>(op));
}

static bool isEmpty(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && shaped.hasStaticShape() && shaped.getNumElements() == 0;
}

/// The reference computes empty outputs, and sums over nothing, too; a schedule would have nothing
/// to do.
static LogicalResult checkSomethingIsComputed(func::FuncOp function) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (isEmpty(function.getResultTypes()[i])) {
      auto name = function.getResultAttrOfType<StringAttr>(i, "onnx.name");
      return function.emitError()
             << "output '" << (name ? name.str() : std::to_string(i))
             << "' has a dimension of 0, so that there is nothing to compute; use extents of at "
                "least 1";
    }
  Operation *reader = nullptr;
  function.walk([&](Operation *op) {
    if (!reader && llvm::any_of(op->getOperandTypes(), isEmpty) &&
        llvm::any_of(op->getResultTypes(),
                     [](Type type) { return isa<ShapedType>(type) && !isEmpty(type); }))
      reader = op;
  });
  if (!reader)
    return success();
  auto name = dyn_cast<NameLoc>(reader->getLoc());
  return function.emitError() << "'"
                              << (name ? name.getName().strref() : reader->getName().getStringRef())
                              << "' reads a tensor that has a dimension of 0; use extents of at "
                                 "least 1";
}

/// Erases what nothing uses: what rewrites left behind would count as a use of what it reads.
static void eraseUnused(func::FuncOp function) {
  IRRewriter rewriter(function.getContext());
  (void)runRegionDCE(rewriter, function->getRegions());
}

FailureOr<KernelGraph> buildKernelGraph(ModuleOp module, const PrecisionOptions &options,
                                        std::vector<std::string> *remarks, PointsByNode *points) {
  auto function = module.lookupSymbol<func::FuncOp>("main");
  if (!function)
    return module.emitError("has no function @main");
  if (failed(checkSomethingIsComputed(function)))
    return failure();
  bool isQuantized = false;
  function.walk([&](linalg::LinalgOp op) { isQuantized |= !quantKind(op).empty(); });
  if (options.precision == Precision::Int8 && !isQuantized)
    return function.emitError(
        "int8 needs a quantised model, but this one holds no QuantizeLinear or "
        "DequantizeLinear; quantise it with models/recipes/quantize.py");
  if (options.precision != Precision::Int8 || !options.exactQdq)
    dropWideRoundings(function);
  if (options.precision != Precision::Int8)
    foldDequantized(function);
  else
    noteRealFactors(function);
  const PointsByNode before = contractionsOf(function);
  cancelTransposes(function);
  flattenConcats(function);
  expandFunctions(function);
  skipUnreached(function, options.activation());
  beginNeutral(function);
  shiftInputs(function, options.precision == Precision::Bf16);
  foldChannels(function);
  addBranches(function);
  prepareSquares(function);
  if (options.precision == Precision::Int8) {
    clampBeforeRounding(function);
    viewIntegers(function);
    expandJoined(function);
    poolIntegers(function);
    if (!options.exactQdq) {
      fuseResiduals(function);
      dropRoundings(function); // what sums of contractions became is theirs
    }
  }
  mixRows(function, options.mostRows);
  sumInRows(function, options.lanes);
  simplifyViews(function);
  mapBeforeViews(function);
  joinBesideScores(function);
  splitMaxWindows(function);
  PointsByNode contractions = contractionsOf(function);
  contractions.insert(before.begin(), before.end()); // what the rewrites made something else of
  multiplyBlocks(function, options.activation());
  multiplyCumulative(function, options.activation());
  multiplyChosen(function, options.activation());
  multiplySkewed(function, options.activation());
  if (options.precision != Precision::Int8)
    multiplySlices(function, options.activation(), options.lanes);
  eraseUnused(function);
  KernelGraph graph;
  graph.name = module.getName().value_or("model").str();
  Former former(function, options, graph);
  for (std::string &line : former.keepTablesWithHost())
    if (remarks)
      remarks->push_back(std::move(line));
  LogicalResult formed = failure();
  runOnLargeStack([&] { formed = former.run(); });
  if (failed(formed))
    return failure();
  if (remarks)
    llvm::append_range(*remarks, former.remarks);
  multiplyRepeatedSums(graph);
  simplify(graph, options.chain);
  if (std::string wrong = graph.verify(); !wrong.empty())
    return function.emitError("the kernel graph is wrong: ") << wrong;
  addHostPoints(former, graph, contractions);
  if (points)
    *points = std::move(contractions);
  return graph;
}

} // namespace millrace::forms
