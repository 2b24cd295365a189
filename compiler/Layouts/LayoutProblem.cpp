// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/LayoutProblem.h"

#include "compiler/Forms/HostDims.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/Materialize.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace millrace::layouts {

namespace {

/// Why a tensor has the plain layout alone; null: it may have another, as one kernel makes it, for
/// kernels that stream it.
const char *whyNotFree(const forms::Uses &uses, const KernelGraph &graph, unsigned t) {
  const Tensor &tensor = graph.tensors[t];
  if (tensor.role == TensorRole::Constant)
    return "it is a constant";
  if (tensor.role == TensorRole::Output)
    return "the host reads it";
  if (tensor.shape.size() < 2)
    return "it is one row";
  if (uses.onHost[t] && !uses.fromHost[t])
    return "a host step takes or gives it";
  if (uses.fromHost[t])
    return forms::hostDims(tensor) ? nullptr : "the host writes it in another order";
  return uses.writers[t].size() == 1 ? nullptr : "several kernels write it";
}

std::vector<const char *> whyNotFree(const KernelGraph &graph) {
  const forms::Uses uses(graph);
  std::vector<const char *> why;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    why.push_back(whyNotFree(uses, graph, t));
  const auto bind = [&](unsigned t, const char *reason) {
    if (!why[t])
      why[t] = reason;
  };
  for (const Kernel &kernel : graph.kernels) {
    std::set<unsigned> written;
    for (const forms::Result &r : kernel.results)
      if (!written.insert(r.access.tensor).second)
        bind(r.access.tensor, "its kernel writes it in parts");
    for (const Term &term : kernel.terms)
      bind(term.w.tensor, "a kernel installs it");
    for (const Access &operand : kernel.operands)
      if (operand.lookup) {
        bind(operand.tensor, "a kernel looks up rows of it");
        bind(operand.lookup->tensor, "it holds indices of rows");
      }
  }
  return why;
}

/// The access is the result's own index, or an index of 0 in dimensions of a single one.
bool meets(const KernelGraph &graph, const Kernel &kernel, const Access &access,
           const Access &result) {
  const Tensor &mine = graph.tensors[access.tensor], &theirs = graph.tensors[result.tensor];
  if (mine.shape.size() != theirs.shape.size() || mine.laneDim != theirs.laneDim ||
      mine.shape[mine.laneDim] != theirs.shape[theirs.laneDim])
    return false;
  for (unsigned d = 0; d < mine.shape.size(); ++d) {
    if (access.index[d].offset != result.index[d].offset)
      return false;
    bool same = true;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      same = same && (kernel.loops[l].extent == 1 ||
                      coefficient(access.index[d], l) == coefficient(result.index[d], l));
    if (!same && (mine.shape[d] != 1 || d == mine.laneDim))
      return false;
  }
  return true;
}

struct Sets { ///< union-find
  std::vector<unsigned> parent;
  explicit Sets(size_t n) : parent(n) { std::iota(parent.begin(), parent.end(), 0u); }
  unsigned find(unsigned x) { return parent[x] == x ? x : parent[x] = find(parent[x]); }
  void join(unsigned x, unsigned y) { parent[find(x)] = find(y); }
};

/// Bytes of a kernel's constant weights as it is, but for what was seen before: equal ones are
/// stored once. What is installed of a value is no weight.
WeightBytes plainWeights(const KernelGraph &graph, const Kernel &kernel, int64_t vector,
                         std::set<unsigned> &seen) {
  WeightBytes bytes;
  for (const Term &term : kernel.terms) {
    const Tensor &w = graph.tensors[term.w.tensor];
    if (w.role != TensorRole::Constant || !seen.insert(term.w.tensor).second)
      continue;
    const int64_t lanes = w.shape[w.laneDim], rows = elementCount(w) / lanes;
    bytes += {rows * ((lanes + vector - 1) / vector) * vector * byteWidth(w.type),
              rows * lanes * byteWidth(w.type)};
  }
  return bytes;
}

int64_t extents(const Tensor &tensor) {
  int64_t rows = 1;
  for (unsigned d = 0; d < tensor.shape.size(); ++d)
    if (d != tensor.laneDim)
      rows *= tensor.shape[d];
  return rows;
}

} // namespace

LayoutProblem::LayoutProblem(const KernelGraph &graph, const Machine &machine,
                             std::shared_ptr<CostCache> shared, std::set<unsigned> moves,
                             bool sparesRoom)
    : graph(graph), machine(machine), sparesRoom(sparesRoom), fromHost(forms::Uses(graph).fromHost),
      lives(forms::livesOf(graph)), moves(std::move(moves)),
      cache(shared ? std::move(shared) : std::make_shared<CostCache>()) {
  for (const Tensor &tensor : graph.tensors)
    plain.push_back(Layout::plain(tensor));
  pads = padsOf(graph);
  for (const Kernel &kernel : graph.kernels)
    for (const Term &term : kernel.terms)
      if (fromHost[term.a.tensor] && !forms::endsWithHost(graph.tensors[term.a.tensor]))
        pads[term.a.tensor] = std::nullopt;
  findHalos();
  groupRuns = findGroupRuns();
  findVariables();
  std::set<unsigned> seen; // constants that are counted
  for (const Kernel &kernel : graph.kernels) {
    termShapes.emplace_back();
    for (const Term &term : kernel.terms)
      termShapes.back().push_back(
          cache->termShapes.try_emplace(shapeOf(kernel, term), int64_t(cache->termShapes.size()))
              .first->second);
  }
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    Factor factor{k, {}};
    auto add = [&](unsigned t) {
      if (variableNumbers[t] >= 0 && !std::count(factor.variables.begin(), factor.variables.end(),
                                                 unsigned(variableNumbers[t])))
        factor.variables.push_back(unsigned(variableNumbers[t]));
    };
    for (const forms::Result &r : kernel.results)
      add(r.access.tensor);
    for (const Term &term : kernel.terms)
      add(term.a.tensor);
    for (const Access &operand : kernel.operands)
      add(operand.tensor);
    if (factor.variables.empty() && this->moves.contains(k))
      continue;
    if (factor.variables.empty()) {
      otherWeights += plainWeights(graph, kernel, machine.lanes(), seen);
      const LayoutOf layouts = [&](unsigned t) -> const Layout & { return plain[t]; };
      if (const std::optional<Cost> cost = costOf(kernel, layouts))
        otherCycles += cost->cycles(graph, kernel, machine);
    } else {
      factors.push_back(factor);
      kinds.push_back(
          cache->kinds.emplace(shapeOf(factor), unsigned(cache->kinds.size())).first->second);
      cache->known.resize(cache->kinds.size());
    }
  }
}

/// Of a variable with tensors that the host writes and such as kernels make of them: layouts that
/// the host may write and that have a place for every element that is made.
void LayoutProblem::keepPossible(Variable &variable) const {
  const double most = mostRepetition(variable);
  std::erase_if(variable.candidates, [&](const Layout &layout) {
    return std::any_of(variable.tensors.begin(), variable.tensors.end(), [&](unsigned t) {
      const Layout its = memberLayout(variable, t, layout);
      return fromHost[t] ? layout.runs.length || its.repetition(graph.tensors[t]) > most
                         : !its.verify(graph.tensors[t]).empty();
    });
  });
}

void LayoutProblem::findVariables() {
  whyPlain = whyNotFree(graph);
  std::vector<bool> free;
  for (const char *why : whyPlain)
    free.push_back(!why);
  Sets sets(graph.tensors.size());
  for (const Kernel &kernel : graph.kernels) {
    const Access &result = kernel.results.front().access;
    auto join = [&](const Access &access) {
      // Neighbours that a window reads, too, are not where the result is.
      for (const Access &other : kernel.operands)
        if (other.tensor == access.tensor && !meets(graph, kernel, other, result))
          return;
      if (free[access.tensor] && free[result.tensor] &&
          (fromHost[access.tensor] ||
           graph.tensors[access.tensor].role == TensorRole::Intermediate) &&
          meets(graph, kernel, access, result))
        sets.join(access.tensor, result.tensor);
    };
    for (const forms::Result &r : kernel.results)
      join(r.access);
    for (const Access &operand : kernel.operands)
      join(operand);
  }
  spreadHalos([&](unsigned tensor) { return free[tensor] ? int(sets.find(tensor)) : -1; });
  std::map<unsigned, Variable> byRoot;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (free[t])
      byRoot[sets.find(t)].tensors.push_back(t);
  findReaches(byRoot);
  variableNumbers.assign(graph.tensors.size(), -1);
  for (auto &[root, variable] : byRoot) {
    // The one with the most rows leads.
    std::stable_sort(variable.tensors.begin(), variable.tensors.end(), [&](unsigned x, unsigned y) {
      return extents(graph.tensors[x]) > extents(graph.tensors[y]);
    });
    for (unsigned t : variable.tensors)
      if (nearWindows.contains(t))
        peers[t] = variable.tensors;
  }
  for (auto &[root, variable] : byRoot) {
    const auto isMade = [&](unsigned t) { return !fromHost[t]; };
    const auto made =
        size_t(std::count_if(variable.tensors.begin(), variable.tensors.end(), isMade));
    variable.candidates.push_back(plain[variable.tensors.front()]);
    if (made > 0)
      addCandidates(variable);
    // Fewer where there are others beside them: kernels of two such tensors would have more choices
    // than are looked through.
    const Tensor &lead = graph.tensors[variable.tensors.front()];
    const bool hasFewLanes = lead.shape[lead.laneDim] * 16 <= machine.lanes();
    if (made < variable.tensors.size())
      addWindows(variable, made > 0 ? 64 : 96);
    else if (hasFewLanes)
      addWindows(variable, 24);
    if (made > 0 && (made < variable.tensors.size() || hasFewLanes))
      keepPossible(variable);
    if (variable.candidates.size() < 2) {
      const Tensor &tensor = graph.tensors[variable.tensors.front()];
      const bool isWide = tensor.shape[tensor.laneDim] * 2 >
                          std::min<int64_t>(machine.lanes(), machine.mxm.columns);
      for (unsigned t : variable.tensors)
        whyPlain[t] =
            isWide ? "its lanes fill more than half of a vector" : "no other layout of it is known";
      continue;
    }
    for (unsigned t : variable.tensors)
      variableNumbers[t] = int(variables.size());
    variables.push_back(std::move(variable));
  }
}

/// What the layout of the variable's first tensor means for another: the same slots in its
/// dimensions, or in those of one index that index in every slot.
Layout LayoutProblem::memberLayout(const Variable &variable, unsigned tensor,
                                   const Layout &layout) const {
  const Tensor &lead = graph.tensors[variable.tensors.front()], &member = graph.tensors[tensor];
  Layout its = layout;
  for (unsigned d = 0; d < its.dims.size(); ++d)
    if (member.shape[d] != lead.shape[d])
      its.dims[d] = {1, 1, layout.dims[d].slots, 0, 0, layout.dims[d].pitch};
  return its;
}

std::vector<Layout> LayoutProblem::layoutsOf(const Choice &choice) const {
  std::vector<Layout> layouts = plain;
  for (size_t v = 0; v < variables.size(); ++v)
    if (choice[v])
      for (unsigned t : variables[v].tensors)
        layouts[t] = memberLayout(variables[v], t, variables[v].candidates[choice[v]]);
  return layouts;
}

namespace {

void appendNumbers(std::string &text, std::initializer_list<int64_t> numbers) {
  for (int64_t n : numbers)
    text += std::to_string(n) + ",";
}

void append(std::string &text, const AffineIndex &index) {
  appendNumbers(text, {index.offset});
  for (auto [l, c] : index.terms)
    appendNumbers(text, {l, c});
  text += ";";
}

void append(std::string &text, const Layout &layout) {
  for (const DimLayout &d : layout.dims)
    appendNumbers(text, {d.rows, d.rowStep, d.slots, d.slotStep, d.start, d.pitch});
  appendNumbers(text, {layout.laneDim, layout.runs.length, layout.runs.pitch, layout.lanes});
}

} // namespace

void append(std::vector<int64_t> &numbers, const Layout &layout) {
  for (const DimLayout &d : layout.dims)
    numbers.insert(numbers.end(), {d.rows, d.rowStep, d.slots, d.slotStep, d.start, d.pitch});
  numbers.insert(numbers.end(), {layout.runs.length, layout.runs.pitch, layout.lanes});
}

/// Factors of equal text have equal candidates and costs.
std::string LayoutProblem::shapeOf(const Factor &factor) const {
  const Kernel &kernel = graph.kernels[factor.kernel];
  std::string text;
  for (const forms::Loop &loop : kernel.loops)
    appendNumbers(text, {loop.extent, int64_t(loop.kind)});
  auto add = [&](const char *what, const Access &access) {
    const Tensor &tensor = graph.tensors[access.tensor];
    text += what;
    appendNumbers(text, {int64_t(tensor.type), int64_t(tensor.role), tensor.laneDim,
                         access.lookup ? 1 : 0,
                         variableNumbers[access.tensor] < 0
                             ? -1
                             : std::find(factor.variables.begin(), factor.variables.end(),
                                         unsigned(variableNumbers[access.tensor])) -
                                   factor.variables.begin()});
    for (int64_t extent : tensor.shape)
      appendNumbers(text, {extent});
    for (const AffineIndex &index : access.index)
      append(text, index);
  };
  for (const forms::Result &r : kernel.results)
    add("r", r.access);
  for (const Term &term : kernel.terms)
    add("a", term.a), add("w", term.w);
  for (const Access &operand : kernel.operands)
    add("o", operand);
  int64_t operations = 0;
  for (const forms::Node &node : kernel.nodes)
    operations += node.kind == forms::Node::Kind::Op || node.kind == forms::Node::Kind::Reduce;
  appendNumbers(text, {operations, moves.contains(factor.kernel)});
  for (unsigned v : factor.variables)
    for (const Layout &layout : variables[v].candidates)
      append(text, layout);
  return text;
}

/// Terms of equal text cost the same in equal layouts of their tensor and of the first result, with
/// equal row loops. Loops that are summed over have the numbers in which the term names them.
std::string LayoutProblem::shapeOf(const Kernel &kernel, const Term &term) const {
  std::string text;
  std::vector<unsigned> numbers(kernel.loops.size(), 0);
  unsigned count = 0;
  const auto number = [&](unsigned l) {
    if (numbers[l])
      return numbers[l];
    appendNumbers(text, {kernel.loops[l].extent, int64_t(kernel.loops[l].kind)});
    return numbers[l] = ++count;
  };
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind != LoopKind::Contracted)
      number(l);
  for (const Access *access : {&kernel.results.front().access, &term.a}) {
    const Tensor &tensor = graph.tensors[access->tensor];
    appendNumbers(text, {int64_t(tensor.type), tensor.laneDim});
    for (int64_t extent : tensor.shape)
      appendNumbers(text, {extent});
    for (const AffineIndex &index : access->index) {
      AffineIndex own = index;
      for (auto &[l, c] : own.terms)
        l = number(l);
      append(text, own);
    }
  }
  appendNumbers(text, {int64_t(graph.tensors[term.w.tensor].type)});
  return text;
}

std::optional<Cost> LayoutProblem::costOf(size_t f, const std::vector<unsigned> &candidates) const {
  const Factor &factor = factors[f];
  const Kernel &kernel = graph.kernels[factor.kernel];
  // Of the kernel's own tensors: a variable may have hundreds.
  std::vector<std::pair<unsigned, Layout>> own;
  forms::forEachAccess(kernel, [&](const Access &access) {
    const unsigned t = access.tensor;
    const auto isOfT = [t](const auto &known) { return known.first == t; };
    const auto place = std::find(factor.variables.begin(), factor.variables.end(),
                                 unsigned(variableNumbers[t])); // of none: not found
    if (place == factor.variables.end() || std::any_of(own.begin(), own.end(), isOfT))
      return;
    if (const unsigned c = candidates[size_t(place - factor.variables.begin())])
      own.push_back({t, memberLayout(variables[*place], t, variables[*place].candidates[c])});
  });
  const LayoutOf layouts = [&](unsigned t) -> const Layout & {
    for (const auto &[tensor, layout] : own)
      if (tensor == t)
        return layout;
    return plain[t];
  };
  return costOf(kernel, layouts);
}

/// Sums of many tensors are terms of one kernel, and combinations of their layouts are many more
/// than what one of them costs in its own.
std::optional<Cost> LayoutProblem::costOf(const Kernel &kernel, const LayoutOf &layouts) const {
  const std::optional<KernelLayout> layout = KernelLayout::of(graph, kernel, machine, layouts);
  if (!layout)
    return std::nullopt;
  // Of the key: the term's shape, what all terms have in common, the layout of the term's tensor.
  std::vector<int64_t> numbers{0};
  if (!kernel.terms.empty())
    append(numbers, layouts(kernel.results.front().access.tensor));
  for (const RowLoop &row : layout->rowLoops()) {
    numbers.insert(numbers.end(), {row.period, int64_t(row.runs.size())});
    numbers.insert(numbers.end(), row.runs.begin(), row.runs.end());
  }
  const size_t common = numbers.size();
  std::string key;
  const std::vector<int64_t> &shapes = termShapes[size_t(&kernel - graph.kernels.data())];
  return layouts::costOf(graph, kernel, machine, *layout, layouts, [&](size_t t) {
    numbers.resize(common);
    numbers[0] = shapes[t];
    append(numbers, layouts(kernel.terms[t].a.tensor));
    key.assign(reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(int64_t));
    if (const auto known = cache->terms.find(key); known != cache->terms.end())
      return known->second;
    return cache->terms
        .emplace(key,
                 termCostOf(graph, kernel, machine, *layout, layouts, t, {&cache->rows, shapes[t]}))
        .first->second;
  });
}

/// Is the factor a move between equal layouts?
bool LayoutProblem::movesNothing(size_t f, const std::vector<unsigned> &candidates) const {
  const Factor &factor = factors[f];
  if (!moves.contains(factor.kernel))
    return false;
  const Kernel &kernel = graph.kernels[factor.kernel];
  const auto layoutIn = [&](unsigned t) {
    const auto place = std::find(factor.variables.begin(), factor.variables.end(),
                                 unsigned(variableNumbers[t])); // of none: not found
    const unsigned c =
        place == factor.variables.end() ? 0 : candidates[size_t(place - factor.variables.begin())];
    return c ? memberLayout(variables[*place], t, variables[*place].candidates[c]) : plain[t];
  };
  return layoutIn(kernel.terms[0].a.tensor) == layoutIn(kernel.results[0].access.tensor);
}

const CostCache::Known &LayoutProblem::look(size_t f,
                                            const std::vector<unsigned> &candidates) const {
  const Factor &factor = factors[f];
  uint64_t key = 0;
  for (size_t i = 0; i < candidates.size(); ++i)
    key = key * variables[factor.variables[i]].candidates.size() + candidates[i];
  auto [found, fresh] = cache->known[kinds[f]].try_emplace(key);
  if (!fresh)
    return found->second;
  CostCache::Known &entry = found->second;
  const Kernel &kernel = graph.kernels[factor.kernel];
  if (movesNothing(f, candidates)) {
    entry = {};
  } else if (const std::optional<Cost> cost = costOf(f, candidates)) {
    entry = {cost->cycles(graph, kernel, machine), cost->weights};
    if (moves.contains(factor.kernel))
      entry.cycles += kMoveStep;
  } else {
    const bool allPlain =
        std::all_of(candidates.begin(), candidates.end(), [](unsigned c) { return c == 0; });
    entry.cycles = allPlain ? 0 : kImpossible; // a kernel of another kind, and as it is
    std::set<unsigned> own;
    entry.weights = plainWeights(graph, kernel, machine.lanes(), own);
  }
  return entry;
}

double LayoutProblem::cost(size_t f, const std::vector<unsigned> &candidates,
                           double bytePrice) const {
  const CostCache::Known &entry = look(f, candidates);
  return entry.cycles + bytePrice * double(bytesOf(entry.weights));
}

double LayoutProblem::cost(const Choice &choice, const Prices &prices) const {
  double sum = 0;
  for (size_t v = 0; v < prices.values.size(); ++v)
    sum += prices.values[v][choice[v]];
  for (size_t f = 0; f < factors.size(); ++f) {
    std::vector<unsigned> own;
    for (unsigned v : factors[f].variables)
      own.push_back(choice[v]);
    sum += cost(f, own, prices.weightByte);
  }
  return sum;
}

/// A factor's kind says what the candidates of its variables are.
std::string LayoutProblem::signature() const {
  std::string text;
  appendNumbers(text, {otherWeights.whole, int64_t(variables.size())});
  for (size_t f = 0; f < factors.size(); ++f) {
    appendNumbers(text, {kinds[f]});
    for (unsigned v : factors[f].variables)
      appendNumbers(text, {v});
    text += ";";
  }
  return text;
}

double LayoutProblem::graphCost(const Choice &choice) const { return otherCycles + cost(choice); }

int64_t LayoutProblem::weightBytes(const Choice &choice) const {
  int64_t sum = bytesOf(otherWeights);
  for (size_t f = 0; f < factors.size(); ++f) {
    std::vector<unsigned> own;
    for (unsigned v : factors[f].variables)
      own.push_back(choice[v]);
    sum += bytesOf(look(f, own).weights);
  }
  return sum;
}

int64_t LayoutProblem::twiceWeightBytes() const { return int64_t(double(memoryBytes()) * 0.4); }

/// Where they do not lie in both hemispheres as it is, or hardly, packing may add a tenth.
int64_t LayoutProblem::mostWeightBytes() const {
  const auto one = int64_t(double(memoryBytes()) * 0.8),
             least = weightBytes(Choice(variables.size(), 0));
  return std::max({least, twiceWeightBytes(), std::min(one, least + least / 10)});
}

int64_t LayoutProblem::memoryBytes() const {
  return int64_t(machine.pes()) * kHemispheres * machine.memory.slices * machine.rowsPerSlice() *
         machine.lanes();
}

/// Bytes of the rows that hold a tensor.
int64_t LayoutProblem::bytesOf(unsigned tensor, const Layout &layout) const {
  int64_t rows = (layout.lanes + machine.lanes() - 1) / machine.lanes();
  for (unsigned d = 0; d < layout.dims.size(); ++d)
    rows *= layout.dims[d].rows;
  return rows * machine.lanes() * byteWidth(graph.tensors[tensor].type);
}

std::vector<int64_t> LayoutProblem::liveBytes(const Choice &choice) const {
  const std::vector<Layout> layouts = layoutsOf(choice);
  std::vector<int64_t> bytes(graph.order.size(), 0);
  for (unsigned t = 0; t < layouts.size(); ++t)
    if (graph.tensors[t].role != TensorRole::Constant)
      for (size_t at = lives[t].first; at < lives[t].end; ++at)
        bytes[at] += bytesOf(t, layouts[t]);
  return bytes;
}

/// Where weights and values take most of the memory, a place for each row is found seldom.
int64_t LayoutProblem::excessBytes(const Choice &choice) const {
  constexpr double kMost = 0.8;
  const int64_t weights = weightBytes(choice);
  int64_t excess = weights - mostWeightBytes();
  if (sparesRoom)
    for (const int64_t values : liveBytes(choice))
      excess = std::max(excess, weights + values - int64_t(kMost * double(memoryBytes())));
  return excess;
}

Prices LayoutProblem::pricesOf(double byte, const std::vector<double> &places) const {
  Prices prices{byte, {}};
  for (const Variable &variable : variables) {
    std::vector<double> &its = prices.values.emplace_back(variable.candidates.size(), 0);
    for (unsigned t : variable.tensors) {
      double part = 0;
      for (size_t at = lives[t].first; at < lives[t].end; ++at)
        part += places[at];
      for (size_t c = 0; part > 0 && c < its.size(); ++c)
        its[c] +=
            byte * part * double(bytesOf(t, memberLayout(variable, t, variable.candidates[c])));
    }
  }
  return prices;
}

Status verify(const LayoutProblem &problem, const Choice &choice) {
  if (choice.size() != problem.variables.size())
    return Error{"the layouts name " + std::to_string(choice.size()) + " of " +
                 std::to_string(problem.variables.size()) + " variables"};
  for (size_t v = 0; v < choice.size(); ++v)
    if (choice[v] >= problem.variables[v].candidates.size())
      return Error{"variable " + std::to_string(v) + " has no layout " + std::to_string(choice[v])};
  const std::vector<Layout> layouts = problem.layoutsOf(choice);
  for (size_t t = 0; t < layouts.size(); ++t)
    if (!layouts[t].isPlain(problem.graph.tensors[t]))
      if (std::string wrong = layouts[t].verify(problem.graph.tensors[t], !problem.fromHost[t]);
          !wrong.empty())
        return Error{wrong};
  if (problem.cost(choice) == kImpossible)
    return Error{"a kernel cannot work in the layouts of its tensors"};
  return Success{};
}

} // namespace millrace::layouts
