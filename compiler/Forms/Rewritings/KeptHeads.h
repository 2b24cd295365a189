// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which tensors and kernels keepHeads() changes, and how.
#pragma once

#include "compiler/Forms/Rewritings/HeadPlan.h"
#include "compiler/Forms/Uses.h"

#include "arch/spec/Machine.h"

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace millrace::forms {

/// Heads of so many lanes, of which `group` lie in one vector.
struct Heads {
  int64_t count = 0, lanes = 0, group = 0;
};

/// How a kernel goes through heads that lie side by side.
enum class HeadWay : uint8_t {
  Joins,  ///< heads and lanes of results become one loop, and those of what is summed
  Within, ///< sums over the lanes of one head of two tensors
  Across, ///< sums over heads and lanes, in one loop then
  Brings, ///< maps heads that lie apart, each several times in turn: now by a product
};

struct HeadStep {
  HeadWay way = HeadWay::Joins;
  unsigned head = 0, lane = 0;   ///< loops
  std::set<unsigned> summed;     ///< Joins: loops over the lanes of one head
  std::vector<unsigned> tensors; ///< side by side that it touches
  unsigned shared = 0;           ///< Brings: loop over heads that lie apart; `head`: their times
  unsigned operand = 0;          ///< Brings: that reads them
};

/// What would lie side by side, of all tensors with so many heads of so many lanes.
class KeptHeads {
public:
  KeptHeads(const KernelGraph &graph, const Machine &machine, const Heads &heads);

  std::map<unsigned, unsigned> dims;  ///< per tensor that lies side by side: of its heads
  std::map<unsigned, HeadStep> steps; ///< per kernel that meets one
  Heads heads;
  double saves = 0; ///< vectors, as far as they can be told

  /// Who meets the tensor otherwise reads the heads apart.
  bool isAlsoApart(unsigned tensor) const;

private:
  const KernelGraph &graph;
  const Machine &machine;
  Uses uses;
  HeadPlanner planner;
  std::vector<bool> isBanned; ///< per tensor: has to stay as it is

  void grow();
  bool ban();
  void keepWhatPays();
  std::optional<HeadStep> stepOf(const Kernel &kernel) const;
  std::optional<HeadStep> joins(const Kernel &kernel, unsigned head, unsigned lane) const;
  std::optional<HeadStep> sumsWithin(const Kernel &kernel) const;
  std::optional<HeadStep> sumsAcross(const Kernel &kernel) const;
  std::optional<HeadStep> brings(const Kernel &kernel) const;
  bool canLayOut(const Kernel &kernel, const Access &access, const HeadStep &step,
                 bool isFactor) const;
  bool joinsTerm(const Kernel &kernel, const Term &term, HeadStep &step) const;
  bool joinsOperand(const Kernel &kernel, const Access &access, HeadStep &step) const;
  bool isMadeOfOthers(unsigned tensor, unsigned depth) const;
  std::optional<unsigned> headDim(const Kernel &kernel, const Access &access, unsigned head,
                                  unsigned lane) const;
  bool meets(const Kernel &kernel, const Access &access, unsigned head, unsigned lane) const;
  int64_t passes(ElementType type, int64_t from, int64_t lanes) const;
  double saved(unsigned number, const HeadStep &step) const;
  double costApart(unsigned tensor) const;
};

} // namespace millrace::forms
