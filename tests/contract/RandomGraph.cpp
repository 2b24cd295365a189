// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/RandomGraph.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>

namespace millrace::test {
namespace {

class GraphDraw {
public:
  GraphDraw(Draw &draw, const Machine &machine) : draw(draw), machine(machine) {
    laneBounds = {machine.lanesPerSuperlane, machine.mxm.columnsPerInstall, machine.mxm.columns,
                  machine.lanes()};
    for (const MxmFormatSpec &format : machine.mxm.formats)
      laneBounds.push_back(format.lanesPerPass);
    rowBounds = {machine.mxm.accumulatorRows, machine.memory.rowsPerBank, machine.mxm.columns};
  }

  Recipe run() {
    start(from("start"));
    for (int64_t steps = number("steps"), tries = 0; steps > 0 && tries < 60; ++tries)
      steps -= operate();
    for (unsigned s = 0; s < recipe.steps.size(); ++s)
      if (recipe.steps[s].operation != "input" && recipe.steps[s].operation != "constant" &&
          draw.oneIn(8))
        recipe.outputs.push_back(s);
    recipe.simplified = number("flag");
    return std::move(recipe);
  }

private:
  std::string from(std::string_view name) { return draw.from(rangeOf(graphRanges(), name)); }
  int64_t number(std::string_view name) { return std::stoll(from(name)); }

  int64_t near(const std::vector<int64_t> &bounds) {
    const int64_t bound = draw.of(bounds) * (draw.oneIn(3) ? 2 : 1);
    return std::max<int64_t>(1, bound + draw.between(-1, 1));
  }
  int64_t lanes() {
    const int64_t kind = draw.below(5);
    return kind == 0 ? 1 : kind < 3 ? number("lanes") : std::min<int64_t>(200, near(laneBounds));
  }
  int64_t rows() {
    if (draw.oneIn(16))
      return near(rowBounds);
    const int64_t kind = draw.below(5);
    return kind == 0 ? 1 : kind < 3 ? number("rows") : std::min<int64_t>(70, near(laneBounds));
  }
  ElementType type() {
    const std::string name = from("type");
    return name == "fp16"   ? ElementType::Fp16
           : name == "bf16" ? ElementType::Bf16
                            : ElementType::Int8;
  }

  /// Appends the step if it can be made; the number of its value, or nothing.
  std::optional<unsigned> append(Step step) {
    std::vector<Value> operands;
    for (unsigned o : step.operands)
      operands.push_back(values[o]);
    const std::optional<Value> value = valueOf(step, operands, nullptr);
    if (!value)
      return std::nullopt;
    recipe.steps.push_back(std::move(step));
    values.push_back(*value);
    return unsigned(values.size() - 1);
  }

  void start(const std::string &what) {
    for (;;) { // until the sizes are within bounds
      Step step{what == "embedding" ? "embedding" : "input", {}, {}};
      auto &n = step.numbers;
      n["lanes"] = lanes();
      if (what == "image")
        n["height"] = number("edge"), n["width"] = number("edge");
      else
        n["rows"] = rows();
      if (what == "batch")
        n["batch"] = number("batch");
      if (what == "embedding")
        n["table"] = number("table"), n["weights"] = number("weights");
      else
        n["type"] = int64_t(type());
      if (append(step))
        return;
    }
  }

  unsigned operand() {
    const auto back = size_t(number("operand"));
    return unsigned(values.size() - 1 - std::min(back, values.size() - 1));
  }
  /// Another value of that kind: one that there is, or a new input.
  unsigned another(const Value &like) {
    std::vector<unsigned> same;
    for (unsigned v = 0; v < values.size(); ++v)
      if (values[v] == like)
        same.push_back(v);
    if (!same.empty() && draw.below(4))
      return draw.of(same);
    Step step{draw.oneIn(3) ? "constant" : "input", {}, {}};
    auto &n = step.numbers;
    n["type"] = int64_t(like.type), n["lanes"] = like.lanes();
    if (step.operation == "constant")
      n["weights"] = number("weights");
    if (like.shape.size() == 4)
      n["height"] = like.shape[2], n["width"] = like.shape[3];
    else
      n["rows"] = like.shape[like.shape.size() - 2];
    if (like.shape.size() == 3)
      n["batch"] = like.shape[0];
    return *append(step);
  }

  /// Whether a step came of it.
  bool operate() {
    Step step{from("operation"), {}, {}};
    if (values.size() == 1 && step.operation == "constant")
      return false;
    const unsigned x = operand();
    step.operands = {x};
    if (step.operation == "attention")
      return attention(x);
    if (step.operation == "alternate")
      return alternate(x);
    return choose(step, Value(values[x])) && append(step);
  }

  bool choose(Step &step, const Value &x) {
    const std::string &op = step.operation;
    auto &n = step.numbers;
    if (op == "zip")
      n["combine"] = number("combine"), step.operands.push_back(another(x));
    else if (op == "linear" || op == "swapped")
      n["weights"] = number("weights"), n[op == "linear" ? "lanes" : "rows"] = lanes();
    else if (op == "product")
      return chooseProduct(step, x);
    else if (op == "affine")
      n["weights"] = number("weights");
    else if (op == "conv" || op == "pool")
      return x.shape.size() == 4 && chooseWindow(step, x);
    else if (op == "map")
      chooseChain(step);
    else if (op == "reduce")
      n["average"] = number("flag");
    else if (op == "partsums")
      return chooseParts(step, x);
    else if (op == "window")
      n["from"] = number("from"), n["stride"] = number("stride"), n["rows"] = rows();
    else if (op == "concat")
      step.operands.push_back(another(x));
    else if (op == "lanes")
      n["lanes"] = lanes(), n["from"] = number("rows") % x.lanes();
    else if (op == "convert")
      n["type"] = int64_t(type());
    else if (op == "unflatten")
      n["height"] = number("edge");
    else if (op == "constant")
      return false; // they come with zip and concat
    if (op == "linear")
      n["bias"] = number("flag"), n["relu"] = number("flag");
    return true;
  }

  bool chooseParts(Step &step, const Value &x) {
    constexpr int64_t kMostSweeps = 4000; // a part takes one for each row
    std::vector<int64_t> parts;
    for (int64_t n = 1; n <= x.lanes() && n * x.elements() / x.lanes() <= kMostSweeps; ++n)
      if (x.lanes() % n == 0)
        parts.push_back(n);
    if (parts.empty())
      return false;
    auto &n = step.numbers;
    n["parts"] = draw.of(parts), n["lanes"] = lanes(), n["runs"] = number("flag");
    n["weights"] = number("flag") ? number("weights") : 0; // 0: ones
    // A tile of weights for each part, and for each row if they are not ones, in one hemisphere.
    const int64_t tiles = n["parts"] * (n["weights"] ? x.elements() / x.lanes() : 1),
                  group = machine.mxm.columnsPerInstall,
                  rows = (n["lanes"] + group - 1) / group * group * byteWidth(x.type);
    return 2 * tiles * rows <= int64_t(machine.memory.slices) * machine.rowsPerSlice();
  }

  bool chooseProduct(Step &step, const Value &x) {
    std::vector<unsigned> fit;
    for (unsigned v = 0; v < values.size(); ++v)
      if (valueOf({"product", {}, {}}, {x, values[v]}, nullptr))
        fit.push_back(v);
    if (fit.empty())
      return false;
    step.operands.push_back(draw.of(fit));
    return true;
  }

  bool chooseWindow(Step &step, const Value &x) {
    auto &n = step.numbers;
    n["height"] = number("kernel"), n["width"] = number("kernel"), n["stride"] = number("stride");
    const int64_t pad = number("pad");
    n["pad"] = std::min({pad, n["height"] - 1, n["width"] - 1});
    if (step.operation == "pool") {
      n["average"] = number("flag");
      return true;
    }
    n["dilation"] = number("dilation"), n["groups"] = number("groups");
    n["weights"] = number("weights"), n["lanes"] = lanes();
    n["bias"] = number("flag"), n["relu"] = number("flag");
    const int64_t groups = n["groups"] ? n["groups"] : x.shape[1];
    if (x.shape[1] % groups)
      return false;
    n["lanes"] = (n["lanes"] + groups - 1) / groups * groups;
    const std::optional<Value> y = valueOf(step, {x}, nullptr);
    if (y && draw.oneIn(3))
      step.operands.push_back(another(*y));
    return y.has_value();
  }

  void chooseChain(Step &step) {
    const int64_t length = number("chain");
    for (int64_t k = 0; k < length; ++k)
      step.numbers["o" + std::to_string(k)] = number("scalar");
  }

  /// One head: projections, scores, softmax, weighted sum.
  bool attention(unsigned x) {
    const Value v = values[x];
    if (v.shape.size() != 2 || v.type == ElementType::Int8)
      return false;
    const int64_t head = lanes();
    const size_t before = values.size();
    auto projection = [&](const char *op, const char *size, int64_t seed) {
      return append({op, {x}, {{size, head}, {"weights", seed}}});
    };
    const auto q = projection("linear", "lanes", 1), k = projection("linear", "lanes", 2),
               vT = projection("swapped", "rows", 3);
    std::optional<unsigned> made;
    if (q && k && vT)
      made = append({"product", {*q, *k}, {}});
    if (made)
      made = append({"softmax", {*made}, {}});
    if (made)
      made = append({"product", {*made, *vT}, {}});
    if (!made)
      recipe.steps.resize(before), values.resize(before);
    return made.has_value();
  }

  /// Sums over lanes in changing types: planes and buffers go from 16-bit pairs to single planes and
  /// back, while all sums of one type share a tile of ones.
  bool alternate(unsigned x) {
    const Value v = values[x];
    if (v.shape.size() != 2)
      return false;
    const size_t before = values.size();
    std::optional<unsigned> made = x;
    for (int64_t turns = number("alternations"); turns > 0 && made; --turns) {
      const ElementType next = type();
      if (values[*made].type != next)
        made = append({"convert", {*made}, {{"type", int64_t(next)}}});
      if (made)
        made = append({"sums", {*made}, {}});
    }
    if (!made)
      recipe.steps.resize(before), values.resize(before);
    return made.has_value();
  }

  Draw &draw;
  const Machine &machine;
  std::vector<int64_t> laneBounds, rowBounds;
  Recipe recipe;
  std::vector<Value> values;
};

} // namespace

int64_t memoryRows(const forms::KernelGraph &graph, const Machine &machine) {
  int64_t rows = 0;
  for (const forms::Tensor &t : graph.tensors) {
    const int64_t lanes = t.shape[t.laneDim], width = machine.lanes();
    rows += forms::elementCount(t) / lanes * ((lanes + width - 1) / width) * byteWidth(t.type);
  }
  return rows;
}

int64_t memoryRows(const Machine &machine) {
  return int64_t(machine.pes()) * kHemispheres * machine.memory.slices * machine.rowsPerSlice();
}

Recipe randomGraph(Draw &draw, const Machine &machine) {
  for (;;) {
    Recipe recipe = GraphDraw(draw, machine).run();
    Expected<forms::KernelGraph> graph = realise(recipe);
    if (graph && 2 * memoryRows(*graph, machine) <= memoryRows(machine))
      return recipe;
  }
}

} // namespace millrace::test
