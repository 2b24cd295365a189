// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/Explanation.h"

#include "compiler/Layouts/LeastCost.h"

#include <algorithm>
#include <cmath>

namespace millrace::layouts {

namespace {

/// The name that people know: of the ONNX value, if the tensor holds one.
std::string nameOf(const Tensor &tensor) {
  return !tensor.value.empty()      ? tensor.value
         : !tensor.hostName.empty() ? tensor.hostName
                                    : tensor.name;
}

LayoutText textOf(const Layout &layout, const Tensor &tensor) {
  int64_t rows = 1;
  for (unsigned d = 0; d < layout.dims.size(); ++d)
    rows *= d == layout.laneDim ? 1 : layout.dims[d].rows;
  const bool isPlain = layout.isPlain(tensor);
  return {isPlain ? "plain" : layout.text(), isPlain, rows, layout.lanes};
}

/// Places that hold an element, for each element. Of an input the host writes what is read: less
/// than one in a dimension of which not all is.
double storedTimes(const Layout &layout, const Tensor &tensor) {
  double times = 1;
  for (unsigned d = 0; d < layout.dims.size(); ++d) {
    if (d == layout.laneDim)
      continue;
    int64_t places = 0;
    for (int64_t row = 0; row < layout.dims[d].rows; ++row)
      for (int64_t slot = 0; slot < layout.dims[d].slots; ++slot) {
        const int64_t index = layout.dims[d].indexAt(row, slot);
        places += index >= 0 && index < tensor.shape[d];
      }
    times *= std::max(1.0, double(places) / double(tensor.shape[d]));
  }
  return times;
}

class Explainer {
public:
  Explainer(const LayoutProblem &problem, const Choice &choice);

  Explanation explain(const std::function<void(size_t, size_t)> &progress);

private:
  using Allowed = std::vector<bool>; ///< per candidate of a variable

  const LayoutProblem &problem;
  const Choice &chosen;
  const Joints joints;
  const std::vector<std::vector<size_t>> around;
  const Priced least;
  const int64_t chosenBytes, mostBytes;
  bool isExact = true;
  std::optional<Elimination> elimination;

  const Tensor &leadOf(unsigned v) const {
    return problem.graph.tensors[problem.variables[v].tensors.front()];
  }
  double pricedCost(const Choice &choice) const { return problem.cost(choice, least.prices); }
  std::vector<unsigned> own(size_t factor, const Choice &choice) const;
  std::optional<Choice> bestWith(unsigned v, const Allowed &allowed) const;
  std::optional<Choice> byElimination(unsigned v, const Allowed &allowed) const;
  std::optional<Choice> byExchange(unsigned v, const Allowed &allowed) const;
  Alternative alternative(unsigned v, const Choice &other) const;
  std::vector<std::string> blockers(unsigned v, const Allowed &allowed) const;
  std::vector<KernelChange> changes(const Choice &other) const;
  std::optional<Replica> replica(unsigned v) const;
  bool reads(size_t factor, unsigned v) const;
  TensorExplanation explain(unsigned v) const;
};

Explainer::Explainer(const LayoutProblem &problem, const Choice &choice)
    : problem(problem), chosen(choice), joints(problem), around(factorsAround(problem)),
      least(leastCost(problem)), chosenBytes(problem.weightBytes(choice)),
      mostBytes(problem.mostWeightBytes()) {
  CostTables tables = costTables(problem, joints, least.prices);
  isExact = tables.isExact;
  elimination.emplace(joints.sizes(), std::move(tables.tables), joints.valuesOf(choice),
                      kLargestElimination);
  isExact = isExact && elimination->isComplete();
  elimination->findMarginals();
}

std::vector<unsigned> Explainer::own(size_t factor, const Choice &choice) const {
  std::vector<unsigned> candidates;
  for (unsigned u : problem.factors[factor].variables)
    candidates.push_back(choice[u]);
  return candidates;
}

std::optional<Choice> Explainer::byElimination(unsigned v, const Allowed &allowed) const {
  const unsigned joint = joints.jointOf(v);
  if (elimination->isLeftOut(joint))
    return std::nullopt;
  double cheapest = kImpossible;
  unsigned best = 0;
  for (unsigned value = 0; value < joints.sizeOf(joint); ++value)
    if (allowed[joints.candidateIn(v, value)])
      if (const double extra = elimination->extra(joint, value); extra < cheapest)
        cheapest = extra, best = value;
  if (cheapest == kImpossible)
    return std::nullopt;
  return joints.choiceOf(elimination->bestWith(joint, best));
}

/// The allowed candidate that is best beside all others as they are.
std::optional<Choice> Explainer::byExchange(unsigned v, const Allowed &allowed) const {
  Choice choice = chosen, best = chosen;
  double cheapest = kImpossible;
  for (unsigned c = 0; c < allowed.size(); ++c) {
    choice[v] = c;
    if (!allowed[c])
      continue;
    if (const double cost = costAround(problem, v, around[v], choice, least.prices);
        cost < cheapest)
      cheapest = cost, best[v] = c;
  }
  return cheapest < kImpossible ? std::optional(best) : std::nullopt;
}

/// The best choice with one of the allowed candidates; nothing if none was found.
std::optional<Choice> Explainer::bestWith(unsigned v, const Allowed &allowed) const {
  std::optional<Choice> best = byElimination(v, allowed);
  if (isExact)
    return best;
  double cheapest = kImpossible;
  std::optional<Choice> found;
  for (std::optional<Choice> choice : {std::move(best), byExchange(v, allowed)}) {
    if (const double cost = choice ? pricedCost(*choice) : kImpossible; cost < cheapest)
      cheapest = cost, found = std::move(choice);
  }
  return found;
}

/// Kernels that can work with none of the allowed candidates, whatever the others are; of those
/// with few enough choices.
std::vector<std::string> Explainer::blockers(unsigned v, const Allowed &allowed) const {
  std::vector<std::string> kernels;
  std::vector<unsigned> sizes;
  for (const Variable &variable : problem.variables)
    sizes.push_back(unsigned(variable.candidates.size()));
  for (size_t f : around[v]) {
    const std::vector<unsigned> &variables = problem.factors[f].variables;
    size_t choices = 1;
    for (unsigned u : variables)
      choices *= sizes[u];
    if (choices > kLargestTable)
      continue;
    bool isPossible = false;
    Choice choice(sizes.size(), 0);
    forEachValue(sizes, variables, choice, [&] {
      isPossible =
          isPossible || (allowed[choice[v]] && problem.cost(f, own(f, choice)) < kImpossible);
    });
    if (!isPossible)
      kernels.push_back(problem.graph.kernels[problem.factors[f].kernel].name);
  }
  return kernels;
}

std::vector<KernelChange> Explainer::changes(const Choice &other) const {
  struct Change {
    size_t factor;
    double now, then;
    double difference() const { return std::abs(then - now); }
  };
  std::vector<Change> changes;
  for (size_t f = 0; f < problem.factors.size(); ++f) {
    const Change change{f, problem.cost(f, own(f, chosen)), problem.cost(f, own(f, other))};
    if (change.difference() > 0)
      changes.push_back(change);
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change &x, const Change &y) {
    return x.difference() > y.difference();
  });
  if (changes.size() > kMostChanges)
    changes.resize(kMostChanges);
  std::vector<KernelChange> list;
  const auto costOf = [&](size_t f, const Choice &choice) {
    return problem.costOf(f, own(f, choice)).value_or(Cost());
  };
  for (const Change &c : changes) {
    const Kernel &kernel = problem.graph.kernels[problem.factors[c.factor].kernel];
    list.push_back({kernel.name, kernel.provenance, c.now, c.then, costOf(c.factor, chosen),
                    costOf(c.factor, other)});
  }
  return list;
}

Alternative Explainer::alternative(unsigned v, const Choice &other) const {
  Alternative a;
  a.layout = textOf(problem.variables[v].candidates[other[v]], leadOf(v));
  a.extraCycles = problem.cost(other) - problem.cost(chosen);
  const int64_t bytes = problem.weightBytes(other);
  a.extraWeightBytes = bytes - chosenBytes;
  a.fits = problem.excessBytes(other) <= 0;
  a.isExact = isExact;
  for (unsigned u = 0; u < other.size(); ++u)
    if (u != v && other[u] != chosen[u])
      a.others.push_back(nameOf(leadOf(u)));
  a.kernels = changes(other);
  a.otherCycles = a.extraCycles;
  for (const KernelChange &k : a.kernels)
    a.otherCycles -= k.otherCycles - k.cycles;
  return a;
}

bool Explainer::reads(size_t factor, unsigned v) const {
  const Kernel &kernel = problem.graph.kernels[problem.factors[factor].kernel];
  const std::vector<unsigned> &tensors = problem.variables[v].tensors;
  const auto isOne = [&](const Access &access) {
    return std::count(tensors.begin(), tensors.end(), access.tensor) > 0;
  };
  return std::any_of(kernel.operands.begin(), kernel.operands.end(), isOne) ||
         std::any_of(kernel.terms.begin(), kernel.terms.end(),
                     [&](const Term &term) { return isOne(term.a); });
}

std::optional<Replica> Explainer::replica(unsigned v) const {
  const std::vector<Layout> &candidates = problem.variables[v].candidates;
  Replica replica{storedTimes(candidates[chosen[v]], leadOf(v)), {}, {}};
  if (replica.elements <= 1)
    return std::nullopt;
  Allowed once;
  for (const Layout &layout : candidates)
    once.push_back(storedTimes(layout, leadOf(v)) <= 1);
  for (size_t f : around[v]) {
    Choice choice = chosen;
    bool isPossible = !reads(f, v);
    for (choice[v] = 0; choice[v] < once.size() && !isPossible; ++choice[v])
      isPossible = once[choice[v]] && problem.cost(f, own(f, choice)) < kImpossible;
    if (!isPossible)
      replica.forcedBy.push_back(problem.graph.kernels[problem.factors[f].kernel].name);
  }
  if (const std::optional<Choice> other = bestWith(v, once))
    replica.once = alternative(v, *other);
  return replica;
}

TensorExplanation Explainer::explain(unsigned v) const {
  const Variable &variable = problem.variables[v];
  TensorExplanation e;
  for (unsigned t : variable.tensors)
    e.tensors.push_back(nameOf(problem.graph.tensors[t]));
  e.shape = leadOf(v).shape;
  e.chosen = textOf(variable.candidates[chosen[v]], leadOf(v));
  e.candidates = unsigned(variable.candidates.size());
  e.cycles = costAround(problem, v, around[v], chosen);
  Allowed allowed(variable.candidates.size(), true);
  allowed[chosen[v]] = false;
  if (const std::optional<Choice> other = bestWith(v, allowed))
    e.runnerUp = alternative(v, *other);
  else
    e.blockers = blockers(v, allowed);
  if (!e.chosen.isPlain && e.runnerUp && !e.runnerUp->layout.isPlain) {
    allowed.assign(allowed.size(), false);
    allowed[0] = true;
    if (const std::optional<Choice> other = bestWith(v, allowed))
      e.ifPlain = alternative(v, *other);
  }
  e.replica = replica(v);
  return e;
}

Explanation Explainer::explain(const std::function<void(size_t, size_t)> &progress) {
  Explanation e;
  e.cycles = problem.graphCost(chosen);
  e.plainCycles = problem.graphCost(Choice(chosen.size(), 0));
  e.leastCycles = problem.graphCost(least.choice);
  e.weightBytes = chosenBytes;
  e.mostWeightBytes = mostBytes;
  e.cyclesPerWeightByte = least.prices.weightByte;
  std::vector<unsigned> order; // as the first kernels of the variables are
  for (unsigned v = 0; v < problem.variables.size(); ++v)
    order.push_back(v);
  std::stable_sort(order.begin(), order.end(),
                   [&](unsigned x, unsigned y) { return around[x].front() < around[y].front(); });
  for (unsigned v : order) {
    if (progress)
      progress(e.tensors.size(), order.size());
    e.tensors.push_back(explain(v));
  }
  for (unsigned t = 0; t < problem.whyPlain.size(); ++t) {
    const Tensor &tensor = problem.graph.tensors[t];
    if (problem.whyPlain[t] && tensor.role != TensorRole::Constant)
      e.plain.push_back({nameOf(tensor), problem.whyPlain[t], tensor.shape});
  }
  return e;
}

} // namespace

Explanation explain(const LayoutProblem &problem, const Choice &choice,
                    const std::function<void(size_t, size_t)> &progress) {
  return Explainer(problem, choice).explain(progress);
}

} // namespace millrace::layouts
