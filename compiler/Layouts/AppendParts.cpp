// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/AppendParts.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Moves.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/SplitParts.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace millrace::layouts {

using forms::Access;
using forms::AffineIndex;
using forms::at;
using forms::Kernel;
using forms::KernelBuilder;
using forms::KernelGraph;
using forms::LoopKind;
using forms::Tensor;
using forms::TensorRole;
using forms::Uses;

namespace {

/// Lanes [from, from + count) of a tensor.
struct Lanes {
  unsigned tensor = 0;
  int64_t from = 0, count = 0;
  auto operator<=>(const Lanes &) const = default;
};

/// What lies in a vector, side by side from lane 0 on.
using Content = std::vector<Lanes>;

int64_t lanesOf(const Content &content) {
  int64_t sum = 0;
  for (const Lanes &lanes : content)
    sum += lanes.count;
  return sum;
}

double operationsOf(const Kernel &kernel) {
  return double(std::count_if(kernel.nodes.begin(), kernel.nodes.end(), [](const forms::Node &n) {
    return n.kind == forms::Node::Kind::Op;
  }));
}

Content firstOf(const Content &content, size_t parts) {
  return {content.begin(), content.begin() + ptrdiff_t(parts)};
}

/// A map from some lanes of one tensor, row by row, to lanes [to, to + part.count) of a
/// concatenation.
struct PartMap {
  unsigned number = 0, result = 0; ///< of the kernel in the graph, of its results
  Kernel kernel;                   ///< a map whose loops are the dimensions of the concatenation
  unsigned operand = 0;            ///< that reads the part
  Lanes part;
  int64_t to = 0;
};

/// Lanes of one concatenation that maps alike fill: as many as a vector has, or what is left.
struct Window {
  unsigned tensor = 0;
  std::vector<PartMap> maps; ///< of parts that it has lanes of, by `to`
  int64_t to = 0;
  Content content;
};

/// Windows side by side.
using Run = std::vector<Window>;

class Appender {
public:
  Appender(KernelGraph &graph, const Machine &machine) : graph(graph), machine(machine) {}
  unsigned run();

private:
  KernelGraph &graph;
  const Machine &machine;
  std::map<Content, unsigned> vectors;           ///< that hold a content
  std::map<Lanes, int64_t> widths;               ///< lanes of all that begin with these
  std::map<std::vector<int64_t>, unsigned> ones; ///< matrices that move lanes
  std::vector<Kernel> made;                      ///< since the last window
  unsigned appended = 0;

  int64_t vector() const { return std::min<int64_t>(machine.lanes(), machine.mxm.columns); }
  std::optional<Kernel> mapOfResult(unsigned kernel, unsigned result) const;
  std::optional<PartMap> partMap(unsigned number, unsigned result, const Uses &uses) const;
  bool areAlike(const PartMap &x, const PartMap &y) const;
  std::vector<Run> runsOf(unsigned tensor, const Uses &uses) const;
  void keepWorthwhile(std::vector<Run> &runs, const Uses &uses) const;
  unsigned vectorOf(const Content &content);
  unsigned mover(int64_t width, const Lanes &lanes, int64_t to, ElementType type);
  Kernel mapOf(const Window &window);
};

/// Does a kernel store the same bits in both places?
bool storesAlike(const KernelGraph &graph, const Kernel &kernel, const forms::Result &x,
                 const forms::Result &y) {
  const ElementType type = graph.tensors[x.access.tensor].type;
  if (type != graph.tensors[y.access.tensor].type)
    return false;
  if (x.node == y.node)
    return true;
  if (type != ElementType::Fp16 && type != ElementType::Bf16)
    return false;
  auto argument = [&](unsigned n, AluOp op) {
    const forms::Node &node = kernel.nodes[n];
    return node.kind == forms::Node::Kind::Op && node.op == op && node.args.size() == 1
               ? std::optional(node.args[0])
               : std::nullopt;
  };
  const std::optional<unsigned> wide = argument(y.node, forms::narrowFromF32(type));
  return wide && argument(*wide, forms::widenToF32(type)) == x.node;
}

/// What computes one result, as a map whose loops are the dimensions of the result's tensor; of
/// several results that hold the same, a copy of one that is stored whole.
std::optional<Kernel> Appender::mapOfResult(unsigned number, unsigned index) const {
  const Kernel &kernel = graph.kernels[number];
  const forms::Result &result = kernel.results[index];
  const Tensor &whole = graph.tensors[result.access.tensor];
  Kernel map;
  if (kernel.results.size() == 1) {
    map = forms::asMap(graph, kernel);
    if (!map.terms.empty())
      return std::nullopt;
  } else {
    const auto other =
        std::find_if(kernel.results.begin(), kernel.results.end(), [&](const forms::Result &r) {
          const Tensor &t = graph.tensors[r.access.tensor];
          return &r != &result && t.role == TensorRole::Intermediate &&
                 t.shape.size() == whole.shape.size() && t.laneDim == whole.laneDim &&
                 rangeOf(kernel, r.access.index[t.laneDim]) ==
                     std::pair<int64_t, int64_t>(0, t.shape[t.laneDim] - 1) &&
                 storesAlike(graph, kernel, r, result);
        });
    if (other == kernel.results.end() || byteWidth(whole.type) != 2)
      return std::nullopt;
    map = {kernel.name, kernel.provenance, kernel.loops, {}, {other->access}, {}, {result}};
    map.nodes = {{forms::Node::Kind::Operand, 0, 0, {}, {}},
                 {forms::Node::Kind::Op, 0, 0, forms::widenToF32(whole.type), {0}},
                 {forms::Node::Kind::Op, 0, 0, forms::narrowFromF32(whole.type), {1}}};
    map.results.front().node = 2;
  }
  std::vector<forms::Loop> loops(whole.shape.size(), forms::Loop{1, LoopKind::Parallel});
  std::map<unsigned, unsigned> dims; // by loop
  const Access &to = map.results.front().access;
  for (unsigned d = 0; d < whole.shape.size(); ++d) {
    const std::optional<unsigned> loop = onlyLoop(map, to.index[d]);
    const auto [low, high] = rangeOf(map, to.index[d]);
    if (low != high && (!loop || map.loops[*loop].kind != LoopKind::Parallel ||
                        coefficient(to.index[d], *loop) != 1 || !dims.emplace(*loop, d).second))
      return std::nullopt;
    if (d != whole.laneDim && (low != 0 || high != whole.shape[d] - 1))
      return std::nullopt;
    loops[d].extent = high - low + 1;
  }
  for (unsigned l = 0; l < map.loops.size(); ++l)
    if (map.loops[l].extent > 1 && !dims.contains(l) &&
        (kernel.results.size() == 1 || usesLoop(map.operands.front(), l)))
      return std::nullopt;
  forms::forEachAccess(map, [&](Access &access) {
    for (AffineIndex &i : access.index) {
      AffineIndex its{i.offset, {}};
      for (auto [l, c] : i.terms)
        if (map.loops[l].extent > 1)
          its.terms.push_back({dims.at(l), c});
      i = its;
    }
    // A single lane has a loop, too, to become one of several.
    const Tensor &its = graph.tensors[access.tensor];
    if (loops[whole.laneDim].extent == 1 && its.role != TensorRole::Constant &&
        its.shape.size() == whole.shape.size() && its.laneDim == whole.laneDim)
      access.index[its.laneDim] = at(its.laneDim, 1, access.index[its.laneDim].offset);
  });
  map.loops = std::move(loops);
  return map;
}

/// The result, if it is a map that takes lanes of one tensor to as many of a concatenation, and
/// whatever else it reads is one constant for all rows.
std::optional<PartMap> Appender::partMap(unsigned number, unsigned result, const Uses &uses) const {
  if (std::any_of(graph.kernels[number].operands.begin(), graph.kernels[number].operands.end(),
                  [](const Access &operand) { return operand.lookup.has_value(); }))
    return std::nullopt;
  std::optional<Kernel> kernel = mapOfResult(number, result);
  if (!kernel)
    return std::nullopt;
  const Access &to = kernel->results.front().access;
  const Tensor &whole = graph.tensors[to.tensor];
  const unsigned lane = whole.laneDim;
  PartMap map{number, result, *kernel, 0, {}, to.index[lane].offset};
  bool found = false;
  for (unsigned o = 0; o < kernel->operands.size(); ++o) {
    const Access &operand = kernel->operands[o];
    const Tensor &source = graph.tensors[operand.tensor];
    if (source.role == TensorRole::Constant) {
      for (unsigned l = 0; l < kernel->loops.size(); ++l)
        if (l != lane && usesLoop(operand, l))
          return std::nullopt;
      continue;
    }
    if (found || source.role != TensorRole::Intermediate || source.unbounded ||
        uses.onHost[operand.tensor] || !machine.mxm.format(source.type) || source.laneDim != lane ||
        source.shape.size() != whole.shape.size())
      return std::nullopt;
    for (unsigned d = 0; d < whole.shape.size(); ++d)
      if (d != lane && (source.shape[d] != whole.shape[d] || operand.index[d] != to.index[d]))
        return std::nullopt;
    const AffineIndex &index = operand.index[lane];
    if (index.terms != to.index[lane].terms || index.offset < 0 ||
        index.offset + kernel->loops[lane].extent > source.shape[lane])
      return std::nullopt;
    map.operand = o;
    map.part = {operand.tensor, index.offset, kernel->loops[lane].extent};
    found = true;
  }
  return found ? std::optional(map) : std::nullopt;
}

/// Do they compute the same, but for the lanes and what constants hold for them?
bool Appender::areAlike(const PartMap &x, const PartMap &y) const {
  const Kernel &a = x.kernel, &b = y.kernel;
  if (x.operand != y.operand || a.nodes != b.nodes || a.operands.size() != b.operands.size() ||
      a.results.front().node != b.results.front().node)
    return false;
  for (unsigned o = 0; o < a.operands.size(); ++o)
    if (graph.tensors[a.operands[o].tensor].type != graph.tensors[b.operands[o].tensor].type)
      return false;
  return true;
}

/// The runs of maps that write neighbouring lanes alike, each cut into windows.
std::vector<Run> Appender::runsOf(unsigned tensor, const Uses &uses) const {
  std::vector<PartMap> maps;
  for (unsigned k : uses.writers[tensor])
    for (unsigned r = 0; r < graph.kernels[k].results.size(); ++r)
      if (graph.kernels[k].results[r].access.tensor == tensor)
        if (const std::optional<PartMap> map = partMap(k, r, uses))
          maps.push_back(*map);
  std::sort(maps.begin(), maps.end(),
            [](const PartMap &x, const PartMap &y) { return x.to < y.to; });
  std::vector<Run> runs;
  for (size_t from = 0, to; from < maps.size(); from = to) {
    Run &windows = runs.emplace_back();
    for (to = from + 1; to < maps.size() &&
                        maps[to].to == maps[to - 1].to + maps[to - 1].part.count &&
                        areAlike(maps[from], maps[to]);)
      ++to;
    const int64_t end = maps[to - 1].to + maps[to - 1].part.count;
    for (int64_t at = maps[from].to; at < end; at += vector()) {
      Window window{tensor, {}, at, {}};
      for (size_t m = from; m < to; ++m) {
        const PartMap &map = maps[m];
        const int64_t first = std::max(at, map.to),
                      last = std::min(at + vector(), map.to + map.part.count);
        if (first >= last)
          continue;
        window.maps.push_back(map);
        window.content.push_back({map.part.tensor, map.part.from + first - map.to, last - first});
      }
      windows.push_back(std::move(window));
    }
  }
  return runs;
}

/// Keeps runs with a vector whose parts take less time to append than to read one by one. A part by
/// itself takes half a vector for each row, as rows of few lanes are packed: of a sweep for who
/// reads it, and of the map's operations.
void Appender::keepWorthwhile(std::vector<Run> &runs, const Uses &uses) const {
  std::map<Lanes, double> saved; // cycles per row, by what a vector begins with
  std::set<Content> known;
  for (const Run &run : runs)
    for (const Window &w : run) {
      const Content &c = w.content;
      const MxmFormatSpec &format = *machine.mxm.format(graph.tensors[c.front().tensor].type);
      const double sweep = 1.0 / (kHemispheres * (machine.mxm.planes / format.planes)),
                   operation = 1.0 / machine.vxm.alus;
      double map = operation * operationsOf(w.maps.front().kernel);
      for (unsigned k : uses.readers[w.tensor]) // that are cut like what they read
        map += graph.kernels[k].terms.empty() ? operation * operationsOf(graph.kernels[k]) : 0;
      const int64_t part = format.lanesPerPass, sweeps = (lanesOf(c) + part - 1) / part;
      double &its = saved[c.front()];
      its += double(c.size()) / 2 * (sweep + map) - (double(sweeps) * sweep + map);
      constexpr double kAdd = 3; // operations: widen, add, narrow
      for (size_t n = c.size(); n > 1 && known.insert(firstOf(c, n)).second; --n)
        its -= (n == 2 ? 2 : 1) * sweep + kAdd * operation;
    }
  std::erase_if(runs, [&](const Run &run) {
    return std::none_of(run.begin(), run.end(),
                        [&](const Window &w) { return saved.at(w.content.front()) > 0; });
  });
}

/// The matrix that takes lanes to lanes [to, to + count) of `width`.
unsigned Appender::mover(int64_t width, const Lanes &lanes, int64_t to, ElementType type) {
  unsigned &tensor =
      ones.try_emplace({width, lanes.count, to, int64_t(type)}, unsigned(graph.tensors.size()))
          .first->second;
  if (tensor == graph.tensors.size()) {
    std::vector<float> values(size_t(width * lanes.count), 0.0f);
    for (int64_t l = 0; l < lanes.count; ++l)
      values[size_t((to + l) * lanes.count + l)] = 1;
    addConstant(graph, "append." + std::to_string(to), {width, lanes.count}, type, 1, values);
  }
  return tensor;
}

/// The tensor whose first lanes are the content.
unsigned Appender::vectorOf(const Content &content) {
  const Lanes &first = content.front();
  const Tensor like = graph.tensors[first.tensor];
  if (content.size() == 1 && first.from == 0 && first.count == like.shape[like.laneDim])
    return first.tensor;
  if (const auto found = vectors.find(content); found != vectors.end())
    return found->second;
  size_t before = content.size() - 1; // parts that a vector has
  while (before > 0 && !vectors.contains(firstOf(content, before)))
    --before;
  std::vector<int64_t> shape = like.shape;
  const int64_t width = widths.at(first);
  shape[like.laneDim] = width;
  const unsigned result = addTensor(graph, like.name + ".and" + std::to_string(content.size() - 1),
                                    shape, like.type, like.laneDim);
  KernelBuilder build(graph);
  Access to{result, {}, 0};
  for (int64_t extent : shape)
    to.index.push_back(at(build.loop(extent)));
  int64_t lane = 0;
  for (size_t p = 0; p < content.size(); ++p) {
    if (p >= before) {
      Access part{content[p].tensor, to.index, 0};
      const unsigned k = build.loop(content[p].count, LoopKind::Contracted);
      part.index[like.laneDim] = at(k, 1, content[p].from);
      build.term(part, {mover(width, content[p], lane, like.type), {to.index[like.laneDim], at(k)}},
                 0);
      ++appended;
    }
    lane += content[p].count;
  }
  unsigned value = build.accumulator();
  if (like.type == ElementType::Int8)
    value = build.op(AluOp::CvtI32F32, {value});
  if (before)
    value = build.op(AluOp::AddF32,
                     {value, build.load({vectors.at(firstOf(content, before)), to.index, 0})});
  build.store(value, to);
  build.finish(graph.tensors[result].name);
  made.push_back(std::move(graph.kernels.back()));
  graph.kernels.pop_back();
  graph.order.pop_back();
  return vectors[content] = result;
}

/// All maps of the window as one.
Kernel Appender::mapOf(const Window &window) {
  const PartMap &first = window.maps.front();
  const unsigned laneDim = graph.tensors[window.tensor].laneDim;
  Kernel kernel = first.kernel;
  kernel.loops[laneDim].extent = lanesOf(window.content);
  kernel.results.front().access.index[laneDim].offset = window.to;
  for (unsigned o = 0; o < kernel.operands.size(); ++o) {
    Access &operand = kernel.operands[o];
    if (o == first.operand) {
      operand.tensor = vectorOf(window.content);
      operand.index[laneDim].offset = 0;
      continue;
    }
    const bool isSame = std::all_of(window.maps.begin(), window.maps.end(), [&](const PartMap &m) {
      return m.kernel.operands[o] == operand && !usesLoop(operand, laneDim);
    });
    if (isSame)
      continue;
    const Tensor like = graph.tensors[operand.tensor];
    const unsigned bytes = byteWidth(like.type);
    const int64_t lanes = kernel.loops[laneDim].extent;
    std::vector<uint8_t> data;
    for (const PartMap &map : window.maps) {
      const Kernel &its = map.kernel;
      const Access &access = its.operands[o];
      const Tensor &constant = graph.tensors[access.tensor];
      std::vector<int64_t> point(its.loops.size(), 0);
      for (int64_t l = std::max(map.to, window.to);
           l < std::min(map.to + map.part.count, window.to + lanes); ++l) {
        point[laneDim] = l - map.to;
        uint32_t bits = access.pad;
        if (const int64_t element = linearOffset(constant, access, point); element >= 0)
          std::memcpy(&bits, &constant.data[constant.splat ? 0 : size_t(element) * bytes], bytes);
        for (unsigned b = 0; b < bytes; ++b)
          data.push_back(uint8_t(bits >> 8 * b));
      }
    }
    operand = {addTensor(graph, like.name + ".joined", {lanes}, like.type, 0, TensorRole::Constant),
               {at(laneDim)},
               0};
    graph.tensors[operand.tensor].data = std::move(data);
  }
  return kernel;
}

unsigned Appender::run() {
  const Uses uses(graph);
  std::vector<Run> runs;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (graph.tensors[t].role != TensorRole::Constant && uses.writers[t].size() > 1)
      std::ranges::move(runsOf(t, uses), std::back_inserter(runs));
  keepWorthwhile(runs, uses);
  for (const Run &run : runs)
    for (const Window &w : run)
      widths[w.content.front()] = std::max(widths[w.content.front()], lanesOf(w.content));
  // Each run behind the last of the kernels that it takes the place of.
  std::map<std::pair<unsigned, unsigned>, const Run *> runOf; // by kernel and result
  std::map<const Run *, size_t> left;                         // results that are still to come
  for (const Run &run : runs)
    for (const Window &w : run)
      for (const PartMap &m : w.maps)
        left[&run] += runOf.emplace(std::pair(m.number, m.result), &run).second;
  std::vector<Kernel> kernels;
  std::vector<std::pair<bool, unsigned>> order;
  auto add = [&](Kernel kernel) {
    order.push_back({false, unsigned(kernels.size())});
    kernels.push_back(std::move(kernel));
  };
  for (auto [host, index] : graph.order) {
    if (host) {
      order.push_back({true, index});
      continue;
    }
    Kernel kernel = graph.kernels[index];
    kernel.results.clear();
    std::vector<const Run *> complete;
    for (unsigned r = 0; r < graph.kernels[index].results.size(); ++r)
      if (const auto found = runOf.find({index, r}); found == runOf.end())
        kernel.results.push_back(graph.kernels[index].results[r]);
      else if (--left[found->second] == 0)
        complete.push_back(found->second);
    if (!kernel.results.empty())
      add(std::move(kernel));
    for (const Run *run : complete)
      for (const Window &w : *run) {
        Kernel map = mapOf(w);
        for (Kernel &each : made)
          add(std::move(each));
        made.clear();
        add(std::move(map));
      }
  }
  graph.kernels = std::move(kernels);
  graph.order = std::move(order);
  // What is now nothing but maps of vectors is a tensor for each: a copy need not be made.
  for (const Run &run : runs)
    if (run.size() > 1)
      splitTensor(graph, run.front().tensor, machine);
  return appended;
}

} // namespace

unsigned appendParts(KernelGraph &graph, const Machine &machine) {
  return Appender(graph, machine).run();
}

} // namespace millrace::layouts
