// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/ChangeLayouts.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/LeastCost.h"
#include "compiler/Layouts/Materialize.h"
#include "compiler/Layouts/RowMoves.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

namespace millrace::layouts {

using forms::Uses;

namespace {

/// A tensor that may be moved, for readers that take the copy.
struct Site {
  unsigned tensor = 0;
  std::vector<unsigned> readers;
  double gain = 0; ///< cycles, if all kernels around had their best layouts
};

/// A graph with moves, if some are worth it, the best choice for it or else for the one without,
/// and a line per tensor that is moved.
struct Changed {
  std::optional<KernelGraph> graph;
  Choice choice;
  std::vector<std::string> lines;
};

/// Of all cycles, what a round must be able to gain.
constexpr double kLeastShare = 0.005;

bool isOperand(const Kernel &kernel, unsigned tensor) {
  return std::any_of(kernel.operands.begin(), kernel.operands.end(),
                     [&](const Access &operand) { return operand.tensor == tensor; });
}

/// Does a kernel write rows of the tensor block by block, in two loops? It takes no layout for them
/// but the plain one.
bool isInBlocks(const KernelGraph &graph, const Kernel &writer, unsigned tensor) {
  for (const forms::Result &result : writer.results)
    for (unsigned d = 0; result.access.tensor == tensor && d < result.access.index.size(); ++d)
      if (const auto &terms = result.access.index[d].terms;
          d != graph.tensors[tensor].laneDim &&
          std::count_if(terms.begin(), terms.end(),
                        [&](const auto &term) { return writer.loops[term.first].extent > 1; }) > 1)
        return true;
  return false;
}

/// Does a kernel multiply by what is made at run time? It takes no layout but the plain one,
/// either.
bool installsValues(const KernelGraph &graph, const Kernel &kernel) {
  return std::any_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
    return graph.tensors[term.w.tensor].role != TensorRole::Constant;
  });
}

class Changer {
public:
  Changer(const KernelGraph &graph, const Machine &machine, const std::shared_ptr<CostCache> &cache)
      : graph(graph), machine(machine), cache(cache), uses(graph) {}

  /// Tries to move those of the tensors from which most may be gained that were not tried before,
  /// and notes them; nothing where there is too little left. `known`: the best choice for the
  /// graph as it is.
  std::optional<Changed> change(std::set<unsigned> &tried,
                                const std::optional<Choice> &known) const;

private:
  const KernelGraph &graph;
  const Machine &machine;
  const std::shared_ptr<CostCache> cache;
  const Uses uses;

  std::vector<Site> sitesOf(const LayoutProblem &problem, const Choice &choice) const;
  std::optional<Site> siteOf(const LayoutProblem &problem, unsigned tensor) const;
  double leastMove(unsigned tensor) const;
  static double mostGained(const LayoutProblem &problem, const std::vector<Site> &sites);
  KernelGraph withMoves(const std::vector<Site> &sites, std::set<unsigned> &moves) const;
  std::vector<Site> worthwhile(const std::vector<Site> &sites) const;
};

/// Readers whose lanes meet the tensor's get a copy; all of them where those of what writes it do,
/// or where what writes it takes the plain layout alone.
std::optional<Site> Changer::siteOf(const LayoutProblem &problem, unsigned t) const {
  if (problem.variableOf(t) < 0 || graph.tensors[t].role != TensorRole::Intermediate ||
      uses.fromHost[t] || !canMove(graph, machine, t) || uses.readers[t].empty())
    return std::nullopt;
  const std::optional<uint32_t> pad = padOf(graph, t); // lies beside its elements, perhaps
  const ElementType type = graph.tensors[t].type;
  if (!pad || (type != ElementType::Int8 && !std::isfinite(forms::decode(type, *pad))))
    return std::nullopt;
  const Kernel &writer = graph.kernels[uses.writers[t].front()];
  const bool isHeld =
      std::any_of(writer.operands.begin(), writer.operands.end(),
                  [&](const Access &operand) { return problem.variableOf(operand.tensor) >= 0; }) ||
      isInBlocks(graph, writer, t) || installsValues(graph, writer);
  Site site{t, {}, 0};
  for (unsigned k : uses.readers[t])
    if (isHeld || isOperand(graph.kernels[k], t))
      site.readers.push_back(k);
  return site.readers.empty() ? std::nullopt : std::optional(std::move(site));
}

/// Cycles that a move takes at least, its vectors full.
double Changer::leastMove(unsigned t) const {
  const MxmFormatSpec &format = *machine.mxm.format(graph.tensors[t].type);
  return double(elementCount(graph.tensors[t])) /
         double(format.lanesPerPass * machine.pes() * kHemispheres *
                (machine.mxm.planes / format.planes));
}

/// Those where kernels around lose more by layouts that suit others than a move takes: most first.
std::vector<Site> Changer::sitesOf(const LayoutProblem &problem, const Choice &choice) const {
  std::vector<double> excess(problem.variables.size(), 0); // per variable, of its kernels
  for (size_t f = 0; f < problem.factors.size(); ++f) {
    const std::vector<unsigned> &variables = problem.factors[f].variables;
    size_t entries = 1;
    std::vector<unsigned> sizes(problem.variables.size(), 1), own;
    for (unsigned v : variables) {
      sizes[v] = unsigned(problem.variables[v].candidates.size());
      entries *= sizes[v];
      own.push_back(choice[v]);
    }
    if (entries > kLargestTable)
      continue;
    double least = problem.cost(f, own);
    const double chosen = least;
    Values values(problem.variables.size(), 0);
    forEachValue(sizes, variables, values, [&] {
      std::vector<unsigned> its;
      for (unsigned v : variables)
        its.push_back(values[v]);
      least = std::min(least, problem.cost(f, its));
    });
    for (unsigned v : variables)
      excess[v] += chosen - least;
  }
  std::vector<Site> sites;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (std::optional<Site> site = siteOf(problem, t)) {
      site->gain = excess[size_t(problem.variableOf(t))] - leastMove(t);
      if (site->gain > 0)
        sites.push_back(std::move(*site));
    }
  std::stable_sort(sites.begin(), sites.end(),
                   [](const Site &x, const Site &y) { return x.gain > y.gain; });
  return sites;
}

/// What tensors of one layout lose is gained once.
double Changer::mostGained(const LayoutProblem &problem, const std::vector<Site> &sites) {
  std::map<int, double> gains; // by variable
  for (const Site &site : sites) {
    double &most = gains[problem.variableOf(site.tensor)];
    most = std::max(most, site.gain);
  }
  double sum = 0;
  for (const auto &[variable, gain] : gains)
    sum += gain;
  return sum;
}

/// `moves`: the kernels that move, in the order of sites.
KernelGraph Changer::withMoves(const std::vector<Site> &sites, std::set<unsigned> &moves) const {
  KernelGraph moved = graph;
  for (const Site &site : sites) {
    const Tensor whole = graph.tensors[site.tensor];
    const unsigned copy =
        addTensor(moved, whole.name + ".moved", whole.shape, whole.type, whole.laneDim);
    unsigned dim = whole.laneDim ? 0 : 1;
    const auto number = unsigned(moved.kernels.size());
    moved.kernels.push_back(moveOf(moved, site.tensor, copy, {dim, 1, 0}));
    moves.insert(number);
    for (unsigned k : site.readers) {
      for (Access &operand : moved.kernels[k].operands)
        if (operand.tensor == site.tensor)
          operand.tensor = copy;
      for (Term &term : moved.kernels[k].terms)
        if (term.a.tensor == site.tensor)
          term.a.tensor = copy;
    }
    const auto place = std::find(moved.order.begin(), moved.order.end(),
                                 std::pair(false, uses.writers[site.tensor].front()));
    moved.order.insert(std::next(place), {false, number});
  }
  return moved;
}

/// The sites of which the copy has another layout, if none has to be made where it is the same.
std::vector<Site> Changer::worthwhile(const std::vector<Site> &sites) const {
  std::set<unsigned> moves;
  const KernelGraph moved = withMoves(sites, moves);
  const LayoutProblem problem(moved, machine, cache, moves);
  const std::vector<Layout> layouts = problem.layoutsOf(layoutSolvers().front().solve(problem, 0));
  std::vector<Site> kept;
  for (auto [move, site] = std::pair(moves.begin(), sites.begin()); site != sites.end();
       ++move, ++site)
    if (const Kernel &kernel = moved.kernels[*move];
        layouts[kernel.terms[0].a.tensor] != layouts[kernel.results[0].access.tensor])
      kept.push_back(*site);
  return kept;
}

std::optional<Changed> Changer::change(std::set<unsigned> &tried,
                                       const std::optional<Choice> &known) const {
  const LayoutProblem before(graph, machine, cache);
  const Choice choice = known ? *known : layoutSolvers().front().solve(before, 0);
  const double cost = before.graphCost(choice);
  if (cost <= kMoveStep) // a move takes as long
    return std::nullopt;
  std::vector<Site> sites = sitesOf(before, choice);
  std::erase_if(sites, [&](const Site &site) { return tried.contains(site.tensor); });
  std::set<unsigned> vain = tried;
  for (size_t most : {24u, 6u}) { // fewer where so many are too much for the solver
    sites.resize(std::min(sites.size(), most));
    if (mostGained(before, sites) < std::max(kMoveStep, kLeastShare * cost))
      break;
    for (const Site &site : sites)
      vain.insert(site.tensor);
    const std::vector<Site> kept = worthwhile(sites);
    if (kept.empty())
      continue;
    std::set<unsigned> moves;
    Changed changed{withMoves(kept, moves), {}, {}};
    const LayoutProblem after(*changed.graph, machine, cache);
    changed.choice = layoutSolvers().front().solve(after, 0);
    if (after.graphCost(changed.choice) + kMoveStep * double(kept.size()) >= cost)
      continue;
    for (const Site &site : kept)
      changed.lines.push_back(graph.tensors[site.tensor].name + ": moved to another layout");
    tried.clear(); // they may be worth it now
    return changed;
  }
  if (vain == tried)
    return std::nullopt;
  tried = std::move(vain);
  return Changed{{}, choice, {}};
}

} // namespace

std::vector<std::string> changeLayouts(KernelGraph &graph, const Machine &machine,
                                       const std::shared_ptr<CostCache> &cache) {
  constexpr int kMostRounds = 16, kMostVain = 2;
  std::vector<std::string> lines;
  std::set<unsigned> tried; // tensors, whose numbers stay
  std::optional<Choice> choice;
  for (int round = 0, vain = 0; round < kMostRounds && vain < kMostVain; ++round) {
    std::optional<Changed> changed = Changer(graph, machine, cache).change(tried, choice);
    if (!changed)
      break;
    vain = changed->graph ? 0 : vain + 1;
    if (changed->graph)
      graph = std::move(*changed->graph);
    choice = std::move(changed->choice);
    std::move(changed->lines.begin(), changed->lines.end(), std::back_inserter(lines));
  }
  return lines;
}

} // namespace millrace::layouts
