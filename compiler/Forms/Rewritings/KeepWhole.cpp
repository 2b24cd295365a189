// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/KeepWhole.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/RowMoves.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace millrace::forms {
namespace {

/// Lanes [from, to) of a tensor.
struct Lanes {
  unsigned tensor = 0;
  int64_t from = 0, to = 0;
  auto operator<=>(const Lanes &) const = default;
};

/// Tensors whose lanes meet one by one, all of each.
struct Class {
  bool isOther = false;    ///< somebody takes its lanes in a way that is not known here
  std::set<int64_t> edges; ///< where lanes begin that lie in vectors of their own
  std::map<unsigned, std::vector<Lanes>> parts; ///< of tensors that several kernels write
  std::set<Lanes> slices;                       ///< that maps read
  std::set<unsigned> kernels;                   ///< that touch it
};

std::optional<unsigned> laneLoop(const KernelGraph &graph, const Kernel &kernel,
                                 const Access &access) {
  const AffineIndex &lanes = access.index[graph.tensors[access.tensor].laneDim];
  const std::optional<unsigned> loop = onlyLoop(kernel, lanes);
  return loop && coefficient(lanes, *loop) == 1 ? loop : std::nullopt;
}

Lanes lanesOf(const KernelGraph &graph, const Kernel &kernel, const Access &access) {
  const auto [low, high] = rangeOf(kernel, access.index[graph.tensors[access.tensor].laneDim]);
  return {access.tensor, low, high + 1};
}

/// How kernels meet lanes, and what they keep busy.
class Torn {
public:
  Torn(const KernelGraph &graph, const Machine &machine)
      : graph(graph), machine(machine), uses(graph),
        vector(std::min<int64_t>(machine.lanes(), machine.mxm.columns)),
        parent(graph.tensors.size()) {
    std::iota(parent.begin(), parent.end(), 0u);
    join();
    for (unsigned k = 0; k < graph.kernels.size(); ++k)
      note(k);
    noteParts();
    for (auto &[root, its] : classes)
      findEdges(its, graph.tensors[root]);
  }
  /// What kernels keep busy as lanes are torn apart, in cycles.
  double tornCycles();
  /// Choices: each has those before it, and more.
  std::vector<std::vector<unsigned>> choices();
  const Class &classOf(unsigned root) const { return classes.at(root); }
  /// What a product keeps busy that moves lanes.
  double moveCycles(const Lanes &lanes) const;

private:
  const KernelGraph &graph;
  const Machine &machine;
  const Uses uses;
  const int64_t vector;
  std::vector<unsigned> parent; ///< per tensor: union-find of classes
  std::map<unsigned, Class> classes;

  unsigned find(unsigned tensor) {
    while (parent[tensor] != tensor)
      tensor = parent[tensor] = parent[parent[tensor]];
    return tensor;
  }
  bool isWhole(const Lanes &lanes) const {
    const Tensor &t = graph.tensors[lanes.tensor];
    return lanes.from == 0 && lanes.to == t.shape[t.laneDim];
  }
  void join();
  void note(unsigned number);
  void noteParts();
  bool canKeep(const Class &its) const;
  int64_t vectorsOf(const Lanes &lanes, int64_t most, const Class *broken);
  double cyclesOf(const Kernel &kernel, const Class *broken);
  double engines(const Tensor &tensor) const;
  /// Lanes that a pass takes.
  int64_t passOf(const Tensor &tensor) const {
    const MxmFormatSpec *format = machine.mxm.format(tensor.type);
    return format ? format->lanesPerPass : vector;
  }
  double moveCycles(const Class &its) const;
  double saved(const Class &its);
  static void findEdges(Class &its, const Tensor &like);
  double rowsOf(const Tensor &tensor) const {
    return double(elementCount(tensor)) / double(tensor.shape[tensor.laneDim]);
  }
};

/// What a kernel reads lane by lane, and what it makes.
void Torn::join() {
  for (const Kernel &kernel : graph.kernels) {
    const Access &first = kernel.results.front().access;
    const auto meet = [&](const Access &access) {
      const std::optional<unsigned> loop = laneLoop(graph, kernel, access);
      if (loop && loop == laneLoop(graph, kernel, first) &&
          graph.tensors[access.tensor].role != TensorRole::Constant &&
          isWhole(lanesOf(graph, kernel, access)) && isWhole(lanesOf(graph, kernel, first)))
        parent[find(access.tensor)] = find(first.tensor);
    };
    for (const Access &operand : kernel.operands)
      meet(operand);
    for (const Result &r : kernel.results)
      meet(r.access);
  }
}

/// What a kernel does with the lanes of the classes that it touches.
void Torn::note(unsigned number) {
  const Kernel &kernel = graph.kernels[number];
  const auto classOf = [&](const Access &access) -> Class & {
    Class &its = classes[find(access.tensor)];
    its.kernels.insert(number);
    return its;
  };
  const std::optional<unsigned> lane = laneLoop(graph, kernel, kernel.results.front().access);
  for (const Result &r : kernel.results) {
    Class &its = classOf(r.access);
    const std::optional<unsigned> own = laneLoop(graph, kernel, r.access);
    its.isOther |= !own || own != lane || kernel.loops[*own].kind != LoopKind::Parallel;
  }
  for (const Access &operand : kernel.operands) {
    const Tensor &t = graph.tensors[operand.tensor];
    if (t.role == TensorRole::Constant && !operand.lookup)
      continue;
    Class &its = classOf(operand);
    const Lanes lanes = lanesOf(graph, kernel, operand);
    if (operand.lookup || !lane || laneLoop(graph, kernel, operand) != lane || lanes.from < 0 ||
        lanes.to > t.shape[t.laneDim])
      its.isOther = true;
    else if (lanes.from > 0) // one that begins with the whole ends within a vector of that
      its.slices.insert(lanes);
    if (operand.lookup)
      classOf({operand.lookup->tensor, operand.lookup->index, 0}).isOther = true;
  }
  for (const Term &term : kernel.terms) {
    const bool isConstant = graph.tensors[term.w.tensor].role == TensorRole::Constant;
    if (graph.tensors[term.a.tensor].role != TensorRole::Constant) {
      Class &its = classOf(term.a);
      const std::optional<unsigned> along = laneLoop(graph, kernel, term.a);
      its.isOther |= !isConstant || !along || kernel.loops[*along].kind != LoopKind::Contracted;
    }
    if (!isConstant)
      classOf(term.w).isOther = true;
  }
}

/// What the kernels that write a tensor write of it: all rows of some lanes each.
void Torn::noteParts() {
  for (unsigned t = 0; t < graph.tensors.size(); ++t) {
    const Tensor &tensor = graph.tensors[t];
    Class &its = classes[find(t)];
    its.isOther |= uses.onHost[t] && !uses.fromHost[t];
    if (uses.writers[t].size() < 2)
      continue;
    std::vector<Lanes> &parts = its.parts[t];
    for (unsigned k : uses.writers[t])
      for (const Result &r : graph.kernels[k].results) {
        if (r.access.tensor != t)
          continue;
        for (unsigned d = 0; d < tensor.shape.size(); ++d) {
          const std::optional<unsigned> loop = onlyLoop(graph.kernels[k], r.access.index[d]);
          its.isOther |= d != tensor.laneDim && tensor.shape[d] > 1 &&
                         (!loop || graph.kernels[k].loops[*loop].extent != tensor.shape[d] ||
                          r.access.index[d].offset);
        }
        parts.push_back(lanesOf(graph, graph.kernels[k], r.access));
      }
    std::sort(parts.begin(), parts.end());
    int64_t end = 0;
    for (const Lanes &part : parts) {
      its.isOther |= part.from != end;
      end = part.to;
    }
    its.isOther |= end != tensor.shape[tensor.laneDim];
  }
}

bool Torn::canKeep(const Class &its) const {
  const auto isPlain = [&](unsigned t) {
    const Tensor &tensor = graph.tensors[t];
    return tensor.role == TensorRole::Intermediate && layouts::canMove(graph, machine, t) &&
           (tensor.type == ElementType::Int8 || byteWidth(tensor.type) == 2);
  };
  return !its.isOther && !its.edges.empty() &&
         std::all_of(its.parts.begin(), its.parts.end(),
                     [&](const auto &of) { return isPlain(of.first); }) &&
         std::all_of(its.slices.begin(), its.slices.end(),
                     [&](const Lanes &slice) { return isPlain(slice.tensor); });
}

/// Vectors of `most` lanes each that the lanes take; of a class that is `broken`, parts apart.
int64_t Torn::vectorsOf(const Lanes &lanes, int64_t most, const Class *broken) {
  int64_t vectors = 0, from = lanes.from;
  if (broken && &classes.at(find(lanes.tensor)) == broken)
    for (auto edge = broken->edges.upper_bound(from);
         edge != broken->edges.end() && *edge < lanes.to; from = *edge++)
      vectors += (*edge - from + most - 1) / most;
  return vectors + (lanes.to - from + most - 1) / most;
}

double Torn::engines(const Tensor &tensor) const {
  const MxmFormatSpec *format = machine.mxm.format(tensor.type);
  return double(kHemispheres * machine.pes() *
                std::max(1u, machine.mxm.planes / (format ? format->planes : 1)));
}

/// About what a kernel keeps busy.
double Torn::cyclesOf(const Kernel &kernel, const Class *broken) {
  const Lanes made = lanesOf(graph, kernel, kernel.results.front().access);
  const std::optional<unsigned> lane = laneLoop(graph, kernel, kernel.results.front().access);
  double rows = double(vectorsOf(made, vector, broken)), operations = 0, cycles = 0;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (l != lane && kernel.loops[l].kind != LoopKind::Contracted)
      rows *= double(kernel.loops[l].extent);
  for (const Node &node : kernel.nodes)
    operations += node.kind == Node::Kind::Op || node.kind == Node::Kind::Reduce;
  cycles = rows * operations / double(machine.vxm.alus * machine.pes());
  for (const Term &term : kernel.terms) {
    const Tensor &a = graph.tensors[term.a.tensor];
    auto sweeps = double(vectorsOf(lanesOf(graph, kernel, term.a), passOf(a), broken));
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (kernel.loops[l].kind == LoopKind::Contracted && usesLoop(term.a, l) &&
          !coefficient(term.a.index[a.laneDim], l))
        sweeps *= double(kernel.loops[l].extent);
    cycles += rows * sweeps / engines(a);
  }
  return cycles;
}

double Torn::moveCycles(const Lanes &lanes) const {
  const Tensor &t = graph.tensors[lanes.tensor];
  const int64_t part = passOf(t);
  return rowsOf(t) * double((lanes.to - lanes.from + part - 1) / part) / engines(t);
}

double Torn::moveCycles(const Class &its) const {
  constexpr double kStep = 150; // from a move's first row to the first of who reads it
  double cycles = 0;
  for (const auto &[tensor, parts] : its.parts) {
    cycles += kStep + rowsOf(graph.tensors[tensor]) / double(machine.vxm.alus * machine.pes());
    for (const Lanes &part : parts)
      cycles += moveCycles(part);
  }
  for (const Lanes &slice : its.slices)
    cycles += kStep + moveCycles(slice);
  return cycles;
}

/// What its kernels keep busy beside what they would if its lanes were whole.
double Torn::saved(const Class &its) {
  double cycles = 0;
  for (unsigned k : its.kernels)
    cycles += cyclesOf(graph.kernels[k], &its) - cyclesOf(graph.kernels[k], nullptr);
  return cycles;
}

double Torn::tornCycles() {
  double cycles = 0;
  for (const auto &[root, its] : classes)
    if (!its.isOther && !its.edges.empty())
      cycles += saved(its);
  return cycles;
}

void Torn::findEdges(Class &its, const Tensor &like) {
  for (const auto &[tensor, parts] : its.parts)
    for (const Lanes &part : parts)
      its.edges.insert(part.from);
  for (const Lanes &slice : its.slices)
    its.edges.insert(slice.from);
  its.edges.erase(0);
  its.edges.erase(like.shape[like.laneDim]);
}

std::vector<std::vector<unsigned>> Torn::choices() {
  std::vector<std::pair<double, unsigned>> worth; // what it saves for each cycle of moves
  for (const auto &[root, its] : classes)
    if (canKeep(its))
      worth.push_back({saved(its) / moveCycles(its), root});
  std::stable_sort(worth.begin(), worth.end(),
                   [](const auto &x, const auto &y) { return x.first > y.first; });
  std::vector<std::vector<unsigned>> all{{}};
  for (const double least : {2.0, 1.5, 1.25, 1.0, 0.8}) { // parts apart may be packed, or not moved
    std::vector<unsigned> roots;
    for (const auto &[ratio, root] : worth)
      if (ratio > least)
        roots.push_back(root);
    if (roots.size() > all.back().size())
      all.push_back(std::move(roots));
  }
  return all;
}

/// Adds moves to a graph.
class Mover {
public:
  explicit Mover(KernelGraph &graph) : graph(graph), uses(graph) {}
  /// Returns how many.
  unsigned keep(const Class &its) {
    for (const auto &[tensor, parts] : its.parts)
      gather(tensor, parts);
    for (const Lanes &slice : its.slices)
      takeOut(slice);
    return unsigned(its.parts.size() + its.slices.size());
  }

private:
  KernelGraph &graph;
  const Uses uses;

  void gather(unsigned tensor, const std::vector<Lanes> &parts);
  void takeOut(const Lanes &slice);
  /// A tensor of so many lanes of each row of another.
  unsigned addLanes(const Tensor &like, const std::string &name, int64_t lanes) {
    std::vector<int64_t> shape = like.shape;
    shape[like.laneDim] = lanes;
    return addTensor(graph, name, std::move(shape), like.type, like.laneDim);
  }
  /// Lanes of a tensor on their way to lanes of another, from `to` on.
  struct Move {
    Lanes from;
    int64_t to = 0;
  };
  void move(const std::vector<Move> &moves, unsigned to);
};

/// Products with ones and zeros, behind whoever writes what they move.
void Mover::move(const std::vector<Move> &moves, unsigned to) {
  const Tensor whole = graph.tensors[to];
  const int64_t lanes = whole.shape[whole.laneDim];
  KernelBuilder build(graph);
  Access result{to, {}, 0};
  for (int64_t extent : whole.shape)
    result.index.push_back(at(build.loop(extent)));
  for (const auto &[from, first] : moves) {
    const int64_t count = from.to - from.from;
    std::vector<float> ones(size_t(lanes * count), 0);
    for (int64_t lane = 0; lane < count; ++lane)
      ones[size_t((first + lane) * count + lane)] = 1;
    const unsigned select = addConstant(graph, "select", {lanes, count}, whole.type, 1, ones);
    const unsigned c = build.loop(count, LoopKind::Contracted);
    Access a{from.tensor, result.index, 0};
    a.index[whole.laneDim] = at(c, 1, from.from);
    build.term(a, {select, {result.index[whole.laneDim], at(c)}, 0}, 0);
  }
  build.storeMoved(result);
  const auto writes = [&](const auto &place) {
    const auto isMoved = [&](const Result &r) {
      return std::any_of(moves.begin(), moves.end(),
                         [&](const Move &its) { return its.from.tensor == r.access.tensor; });
    };
    return !place.first && std::any_of(graph.kernels[place.second].results.begin(),
                                       graph.kernels[place.second].results.end(), isMoved);
  };
  const auto last = std::find_if(graph.order.rbegin(), graph.order.rend(), writes);
  graph.order.insert(last.base(), {false, unsigned(graph.kernels.size())});
  build.kernel().name = whole.name;
  graph.kernels.push_back(std::move(build.kernel()));
}

/// Several kernels write tensors of their own, a move puts them together.
void Mover::gather(unsigned tensor, const std::vector<Lanes> &parts) {
  const Tensor whole = graph.tensors[tensor];
  std::vector<Move> moves;
  for (const Lanes &part : parts) {
    const unsigned own =
        addLanes(whole, whole.name + ".part" + std::to_string(moves.size()), part.to - part.from);
    for (unsigned k : uses.writers[tensor])
      for (Result &r : graph.kernels[k].results)
        if (r.access.tensor == tensor && lanesOf(graph, graph.kernels[k], r.access) == part) {
          r.access.tensor = own;
          r.access.index[whole.laneDim].offset -= part.from;
        }
    moves.push_back({{own, 0, part.to - part.from}, part.from});
  }
  move(moves, tensor);
}

/// Maps read the slice as a tensor of its own, which a move makes.
void Mover::takeOut(const Lanes &slice) {
  const Tensor whole = graph.tensors[slice.tensor];
  const unsigned out = addLanes(whole, whole.name + ".slice", slice.to - slice.from);
  for (unsigned k : uses.readers[slice.tensor])
    for (Access &operand : graph.kernels[k].operands)
      if (operand.tensor == slice.tensor && lanesOf(graph, graph.kernels[k], operand) == slice) {
        operand.tensor = out;
        operand.index[whole.laneDim].offset -= slice.from;
      }
  move({{slice, 0}}, out);
}

} // namespace

unsigned keepWhole(KernelGraph &graph, const Machine &machine,
                   const std::function<double(KernelGraph)> &cost) {
  Torn torn(graph, machine);
  const std::vector<std::vector<unsigned>> choices = torn.choices();
  const auto keep = [&](KernelGraph &to, const std::vector<unsigned> &roots) {
    Mover mover(to);
    unsigned moves = 0;
    for (unsigned root : roots)
      moves += mover.keep(torn.classOf(root));
    return moves;
  };
  const std::vector<unsigned> *best = &choices.front();
  double least = 0;
  for (const std::vector<unsigned> &choice : choices) {
    if (choices.size() == 1)
      break;
    KernelGraph kept = graph;
    keep(kept, choice);
    const double its = cost(std::move(kept));
    if (choice.empty() || its < least) {
      best = &choice;
      least = its;
    }
  }
  return keep(graph, *best);
}

double tornCycles(const KernelGraph &graph, const Machine &machine) {
  return Torn(graph, machine).tornCycles();
}

double moveCycles(const KernelGraph &graph, const Machine &machine, unsigned tensor,
                  int64_t lanes) {
  return Torn(graph, machine).moveCycles({tensor, 0, lanes});
}

} // namespace millrace::forms
