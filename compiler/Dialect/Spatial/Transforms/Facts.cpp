// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Spatial/Transforms/Facts.h"

#include "compiler/Forms/Former/Build.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

#include <algorithm>
#include <set>

namespace millrace::spatial {

using namespace mlir;

static constexpr llvm::StringLiteral kAttribute = "millrace.facts";

/// One more than the greatest of several constants that the operation compares `value` with for
/// equality, as a one-hot code does.
static std::optional<int64_t> behindCompared(Operation *op, Value value) {
  bool compares = false;
  op->walk([&](arith::CmpIOp compare) {
    compares |= compare.getPredicate() == arith::CmpIPredicate::eq;
  });
  constexpr int64_t kMost = 1 << 24; // codes; greater numbers mark something else
  std::optional<int64_t> bound;
  for (Value other : op->getOperands())
    if (const std::optional<ConstantView> constant = viewConstant(other);
        compares && other != value && constant && !constant->splat &&
        constant->type.getElementType().isInteger())
      for (int64_t i = 0; i < constant->type.getNumElements(); ++i)
        if (const int64_t at = constant->integer(i); at >= 0 && at < kMost)
          bound = std::max(bound.value_or(0), at + 1);
  return bound;
}

/// For integer arguments of @main that index a tensor, or that several constants are compared with:
/// the least extent indexed, or one more than the greatest, by ONNX name.
static std::map<std::string, int64_t> integerBoundsOf(ModuleOp module) {
  std::map<std::string, int64_t> bounds;
  auto main = module.lookupSymbol<func::FuncOp>("main");
  if (!main)
    return bounds;
  for (BlockArgument argument : main.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    auto name = main.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "onnx.name");
    if (!type || !name || !type.getElementType().isInteger())
      continue;
    // Follow the values made of it until one picks elements of another tensor.
    std::vector<Value> work{argument};
    std::set<Operation *> seen;
    while (!work.empty()) {
      Value value = work.back();
      work.pop_back();
      for (Operation *user : value.getUsers()) {
        if (!seen.insert(user).second)
          continue;
        bool picks = false;
        const auto note = [&](int64_t bound) {
          picks = true;
          auto [it, fresh] = bounds.emplace(name.str(), bound);
          it->second = std::min(it->second, bound);
        };
        user->walk([&](tensor::ExtractOp extract) {
          auto from = cast<RankedTensorType>(extract.getTensor().getType());
          if (from.getRank() != 0 && extract.getTensor() != value)
            note(from.getDimSize(0));
        });
        if (const std::optional<int64_t> bound = behindCompared(user, value))
          note(*bound);
        if (!picks)
          for (Value result : user->getResults())
            if (auto t = dyn_cast<RankedTensorType>(result.getType());
                t && t.getElementType().isInteger())
              work.push_back(result);
      }
    }
  }
  return bounds;
}

/// ONNX names of the arguments of @main.
static std::vector<std::string> inputNamesOf(ModuleOp module) {
  std::vector<std::string> names;
  if (auto main = module.lookupSymbol<func::FuncOp>("main"))
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      if (auto name = main.getArgAttrOfType<StringAttr>(i, "onnx.name"))
        names.push_back(name.str());
  return names;
}

std::string identityOf(const Machine &machine) {
  return machine.name + " " + llvm::utohexstr(machine.hash(), /*LowerCase=*/true);
}

/// Says who does the multiply-accumulates, by the contractions that the kernels were formed of.
static void assignMacs(ModelFacts &facts,
                       const std::map<std::string, forms::ContractionPoints> &points) {
  if (!facts.macs)
    return;
  for (NodeMacs &node : *facts.macs) {
    node.onGrid = node.onHost = 0;
    const auto found = points.find(node.node);
    if (found == points.end() || found->second.all == 0)
      continue;
    const auto [all, onHost] = found->second;
    // Loops may run over more points than the model multiplies, as those of a transposed
    // convolution do: shares count. The product of two numbers below 2^63 needs 128 bits.
    node.onHost = int64_t(__int128(node.macs) * std::min(onHost, all) / all);
    node.onGrid = node.macs - node.onHost;
  }
}

FailureOr<forms::KernelGraph> formKernels(ModuleOp module, const Machine &machine,
                                          const std::string &precision, bool exactQdq,
                                          ModelFacts &facts, forms::Room room) {
  const std::optional<forms::Precision> chosen =
      precision == "auto" ? forms::precisionOf(module) : forms::precisionNamed(precision);
  if (!chosen)
    return module.emitError() << "there is no precision '" << precision
                              << "'; form-kernels knows auto, fp16, bf16 and int8";
  std::map<std::string, forms::ContractionPoints> points;
  forms::PrecisionOptions options = forms::optionsFor(machine, *chosen, exactQdq, room);
  FailureOr<forms::KernelGraph> graph =
      forms::buildKernelGraph(module, options, &facts.packed, &points);
  if (failed(graph))
    return failure();
  facts.integerBounds = integerBoundsOf(module);
  facts.inputs = inputNamesOf(module);
  facts.machine = identityOf(machine);
  facts.precision = forms::nameOf(*chosen).str();
  assignMacs(facts, points);
  return graph;
}

static constexpr const char *kNode = "node", *kType = "type", *kMacs = "macs", *kGrid = "grid",
                            *kHost = "host";

static Attribute macsAttribute(Builder &builder, const std::vector<NodeMacs> &macs) {
  SmallVector<Attribute> nodes;
  for (const NodeMacs &node : macs)
    nodes.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr(kNode, builder.getStringAttr(node.node)),
         builder.getNamedAttr(kType, builder.getStringAttr(node.type)),
         builder.getNamedAttr(kMacs, builder.getI64IntegerAttr(node.macs)),
         builder.getNamedAttr(kGrid, builder.getI64IntegerAttr(node.onGrid)),
         builder.getNamedAttr(kHost, builder.getI64IntegerAttr(node.onHost))}));
  return builder.getArrayAttr(nodes);
}

static std::vector<NodeMacs> readMacs(ArrayAttr nodes) {
  std::vector<NodeMacs> macs;
  for (auto entry : nodes.getAsRange<Attribute>()) {
    auto node = dyn_cast<DictionaryAttr>(entry);
    if (!node)
      continue;
    const auto text = [&](const char *key) {
      auto value = node.getAs<StringAttr>(key);
      return value ? value.str() : std::string();
    };
    const auto count = [&](const char *key) {
      auto value = node.getAs<IntegerAttr>(key);
      return value && value.getValue().isSignedIntN(64)
                 ? std::max<int64_t>(value.getValue().getSExtValue(), 0)
                 : 0;
    };
    // Text may say that more is done than there is.
    const int64_t all = count(kMacs), onGrid = std::min(count(kGrid), all);
    macs.push_back({text(kNode), text(kType), all, onGrid, std::min(count(kHost), all - onGrid)});
  }
  return macs;
}

Status checkMachine(const ModelFacts &facts, const Machine &machine) {
  if (facts.machine.empty() || facts.machine == identityOf(machine))
    return Success{};
  return Error{"the kernels were made for machine " + facts.machine + ", not for " +
               identityOf(machine) + "; give that machine and its settings, or form them again"};
}

void writeFacts(ModuleOp module, const ModelFacts &facts) {
  Builder builder(module.getContext());
  SmallVector<NamedAttribute> all, bounds;
  const auto text = [&](StringRef key, const std::string &value) {
    if (!value.empty())
      all.push_back(builder.getNamedAttr(key, builder.getStringAttr(value)));
  };
  const auto list = [&](StringRef key, const std::vector<std::string> &values) {
    SmallVector<StringRef> lines(values.begin(), values.end());
    if (!lines.empty())
      all.push_back(builder.getNamedAttr(key, builder.getStrArrayAttr(lines)));
  };
  for (const auto &[name, bound] : facts.integerBounds)
    bounds.push_back(builder.getNamedAttr(name, builder.getI64IntegerAttr(bound)));
  if (!bounds.empty())
    all.push_back(builder.getNamedAttr("integer_bounds", builder.getDictionaryAttr(bounds)));
  if (facts.computingPes)
    all.push_back(
        builder.getNamedAttr("computing_pes", builder.getI64IntegerAttr(facts.computingPes)));
  list("inputs", facts.inputs);
  text("machine", facts.machine);
  if (facts.macs)
    all.push_back(builder.getNamedAttr("macs", macsAttribute(builder, *facts.macs)));
  text("model", facts.model);
  list("packed", facts.packed);
  text("precision", facts.precision);
  module->setAttr(kAttribute, builder.getDictionaryAttr(all));
}

ModelFacts readFacts(ModuleOp module) {
  ModelFacts facts;
  auto all = module->getAttrOfType<DictionaryAttr>(kAttribute);
  if (!all)
    return facts;
  const auto text = [&](StringRef key) {
    auto value = all.getAs<StringAttr>(key);
    return value ? value.str() : std::string();
  };
  const auto list = [&](StringRef key) {
    std::vector<std::string> lines;
    if (auto values = all.getAs<ArrayAttr>(key))
      for (auto line : values.getAsRange<Attribute>())
        if (auto value = dyn_cast<StringAttr>(line))
          lines.push_back(value.str());
    return lines;
  };
  facts.model = text("model");
  facts.precision = text("precision");
  facts.machine = text("machine");
  if (auto pes = all.getAs<IntegerAttr>("computing_pes"))
    if (pes.getValue().isSignedIntN(32) && pes.getInt() > 0)
      facts.computingPes = unsigned(pes.getInt());
  facts.inputs = list("inputs");
  facts.packed = list("packed");
  if (auto macs = all.getAs<ArrayAttr>("macs"))
    facts.macs = readMacs(macs);
  if (auto bounds = all.getAs<DictionaryAttr>("integer_bounds"))
    for (NamedAttribute bound : bounds)
      if (auto value = dyn_cast<IntegerAttr>(bound.getValue()))
        facts.integerBounds[bound.getName().str()] = value.getInt();
  return facts;
}

} // namespace millrace::spatial
