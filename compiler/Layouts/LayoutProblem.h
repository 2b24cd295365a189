// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which layout each tensor has: a problem, solvers, and a check. Tensors whose lanes meet in one
// vector (a sum of two, say) have one layout between them: they are one variable. A kernel is a
// factor over the variables of its tensors, with a cost for each choice that it can work in.
#pragma once

#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/KernelLayout.h"

#include "arch/spec/Expected.h"

#include <limits>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

namespace millrace::layouts {

/// Tensors of one layout, and the layouts that they may have; the first is plain.
struct Variable {
  std::vector<unsigned> tensors;
  std::vector<Layout> candidates; ///< of tensors[0]; the others' follow from it
};

/// A kernel with tensors that may have other layouts than the plain one.
struct Factor {
  unsigned kernel = 0;
  std::vector<unsigned> variables; ///< different ones
};

/// One candidate per variable.
using Choice = std::vector<unsigned>;

/// What a move takes beside the vectors that it sweeps, in cycles: it is waited for, and where that
/// is what a model is bound by, fewer vectors are no gain. With 150, GoogLeNet in int8 took 6 %
/// more cycles for 7 % fewer vectors.
constexpr double kMoveStep = 600;

/// Cycles that a byte is worth where memory is short.
struct Prices {
  double weightByte = 0;
  /// Per variable and candidate: what its tensors cost at the places of the order at which memory
  /// is short; empty: nothing.
  std::vector<std::vector<double>> values;
};

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// What kernels cost in the layouts that were asked for, and what was chosen: for all graphs of one
/// machine.
struct CostCache {
  struct Known {
    double cycles = 0;
    WeightBytes weights;
  };
  std::map<std::string, unsigned> kinds; ///< of factors, by all that their cost depends on
  std::vector<std::unordered_map<uint64_t, Known>> known; ///< per kind: by candidates
  /// Of single terms, which depend on few of their kernel's layouts: by what they do depend on.
  std::unordered_map<std::string, std::optional<TermCost>> terms;
  std::map<std::string, int64_t> termShapes;
  std::unordered_map<std::string, DimRows> rows; ///< of KnownRows
  /// Choices of least cost, by all that they depend on: graphs are formed more than once.
  std::map<std::string, Choice> choices;
};

class LayoutProblem {
public:
  /// `cache`: of other graphs for the same machine; none: one of its own. `moves`: kernels that
  /// move a tensor to another of its shape; they cost nothing where both have the same layout, and
  /// else kMoveStep beside what they keep busy. `sparesRoom`: values count beside the weights.
  LayoutProblem(const KernelGraph &graph, const Machine &machine,
                std::shared_ptr<CostCache> cache = nullptr, std::set<unsigned> moves = {},
                bool sparesRoom = false);

  const KernelGraph &graph;
  const Machine &machine;
  const bool sparesRoom;
  std::vector<bool> fromHost; ///< per tensor, as in forms::Uses
  std::vector<Variable> variables;
  std::vector<Factor> factors;
  /// Per tensor: why it is in no variable, so that it is plain for good; null if it is in one.
  std::vector<const char *> whyPlain;

  /// The layout of every tensor. `choice` of 0 everywhere: all plain.
  std::vector<Layout> layoutsOf(const Choice &choice) const;
  /// What a factor's kernel costs, for one candidate of each of its variables: cycles that it needs
  /// at least, and `bytePrice` for each byte of weights. kImpossible if it cannot work in them.
  /// Computed once for each different kernel and choice.
  double cost(size_t factor, const std::vector<unsigned> &candidates, double bytePrice = 0) const;
  double cost(const Choice &choice, const Prices &prices = {}) const; ///< the sum
  /// The same with the kernels that no variable concerns, to compare graphs that compute the same.
  double graphCost(const Choice &choice) const;
  /// All that a choice of least cost depends on, for this cache; and what is known by that.
  std::string signature() const;
  std::map<std::string, Choice> &knownChoices() const { return cache->choices; }
  /// Bytes of the weights of all kernels, those that no variable concerns too.
  int64_t weightBytes(const Choice &choice) const;
  /// How many there may be: what is left is for activations, and for weights in both hemispheres.
  int64_t mostWeightBytes() const;
  /// How many lie in both hemispheres, so that all engines share a kernel's rows.
  int64_t twiceWeightBytes() const;
  /// Bytes of the rows of all values alive at each place of the order, each stored once.
  std::vector<int64_t> liveBytes(const Choice &choice) const;
  /// Bytes beyond what the weights may take or, where room is spared, beyond what weights and
  /// values may take together; at most 0 if they fit.
  int64_t excessBytes(const Choice &choice) const;
  /// `places`: at each place of the order, the part of a byte's price that values pay there.
  Prices pricesOf(double byte, const std::vector<double> &places) const;
  /// The same for a kernel, whole.
  std::optional<Cost> costOf(size_t factor, const std::vector<unsigned> &candidates) const;
  /// The variable of a tensor; -1: plain for good.
  int variableOf(unsigned tensor) const { return variableNumbers[tensor]; }

private:
  std::vector<Layout> plain;        ///< per tensor
  std::vector<int> variableNumbers; ///< per tensor; -1: plain for good
  std::vector<forms::Life> lives;   ///< per tensor
  std::set<unsigned> moves;
  std::vector<unsigned> kinds;                  ///< per factor: equal ones cost the same
  std::vector<std::vector<int64_t>> termShapes; ///< per kernel and term: equal ones cost the same
  std::shared_ptr<CostCache> cache;
  WeightBytes otherWeights; ///< of kernels that are no factor
  double otherCycles = 0;   ///< of them, where they can be told
  const CostCache::Known &look(size_t factor, const std::vector<unsigned> &candidates) const;

  /// What windows over single channels read beside a result, in rows of the tensor.
  struct Halo {
    int64_t before = 0, after = 0, step = 1; ///< step: from one result to the next
    auto operator<=>(const Halo &) const = default;
  };
  std::map<unsigned, std::vector<Halo>> halos; ///< per tensor that they read: per dimension
  struct Window {
    unsigned tensor = 0, result = 0;
    std::vector<Halo> halo;
  };
  std::vector<Window> windows; ///< in the order of kernels
  /// The same with what windows over their results read beside those.
  std::map<unsigned, std::vector<Halo>> reaches;

  std::vector<std::optional<uint32_t>> pads;       ///< per tensor: padOf()
  std::set<unsigned> nearWindows;                  ///< tensors that such windows read or write
  std::map<unsigned, std::vector<unsigned>> peers; ///< those of one layout, the leading one first
  std::set<unsigned> inLongSums;                   ///< tensors that sums of many terms read
  std::map<unsigned, std::set<int64_t>> groupRuns; ///< lanes in a run, per tensor of groups

  static void widen(std::map<unsigned, std::vector<Halo>> &all, unsigned tensor,
                    const std::vector<Halo> &halo);
  bool movesNothing(size_t factor, const std::vector<unsigned> &candidates) const;
  void findHalos();
  void spreadHalos(const std::function<int(unsigned)> &variableOf);
  void findReaches(const std::map<unsigned, Variable> &variables);
  void findVariables();
  void addCandidates(Variable &variable) const;
  std::map<unsigned, std::set<int64_t>> findGroupRuns() const;
  void addRuns(Variable &variable) const;
  Halo farthest(const std::map<unsigned, std::vector<Halo>> &all,
                const std::vector<unsigned> &tensors, unsigned dim) const;
  std::set<int64_t> windowBands(const std::vector<unsigned> &tensors, unsigned dim) const;
  std::set<int64_t> bandsOfResults(const std::vector<unsigned> &tensors, unsigned dim) const;
  std::set<int64_t> bandsBeside(const std::vector<unsigned> &tensors, unsigned dim) const;
  void addBands(Variable &variable, unsigned dim) const;
  void addWindows(Variable &variable, size_t mostWindows) const;
  double mostRepetition(const Variable &variable) const;
  void keepPossible(Variable &variable) const;
  std::string shapeOf(const Factor &factor) const;
  std::string shapeOf(const Kernel &kernel, const Term &term) const;
  std::optional<Cost> costOf(const Kernel &kernel, const LayoutOf &layouts) const;
  int64_t bytesOf(const WeightBytes &weights) const {
    return sparesRoom ? weights.shared : weights.whole;
  }
  int64_t memoryBytes() const;
  int64_t bytesOf(unsigned tensor, const Layout &layout) const;
  Layout memberLayout(const Variable &variable, unsigned tensor, const Layout &layout) const;
};

struct LayoutSolver {
  std::string name, text; ///< for --help
  Choice (*solve)(const LayoutProblem &problem, uint64_t seed);
};
/// `plain`: every index but the lane dimension's is a row. `exact`: the choice of least cost, by
/// eliminating one variable after the other, while the tables of what is left are small; what they
/// are not small for is improved by exchange. `random`: any choice that all kernels can work in,
/// for tests.
const std::vector<LayoutSolver> &layoutSolvers();
/// Of the choice of the first of them.
double solvedCost(const LayoutProblem &problem);

/// Every kernel can work in the layouts, and every element has a place.
Status verify(const LayoutProblem &problem, const Choice &choice);

} // namespace millrace::layouts
