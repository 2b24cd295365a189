// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What has to change together where heads of an attention, each of so many lanes, are to lie side
// by side in rows: tensors with a dimension of heads and the loops of all kernels that meet them.
#pragma once

#include "compiler/Forms/Uses.h"

#include <map>
#include <optional>
#include <tuple>

namespace millrace::forms {

/// The loop moves an index of the access itself.
bool isUsed(const Access &access, unsigned loop);
/// The dimension that the loop alone moves, step by step through all of it, if it moves no other.
std::optional<unsigned> dimOf(const KernelGraph &graph, const Kernel &kernel, const Access &access,
                              unsigned loop);
/// A step of `head` is `lanes` steps of `lane`, wherever the access takes either.
bool isInOneLoop(const Access &access, unsigned head, unsigned lane, int64_t lanes);

struct HeadPlan {
  /// The loops that step through heads and through the lanes of one.
  struct Loops {
    unsigned head, lane;
    bool
        areJoined; ///< they become one; else each head is a step, on lanes beside those of the last
  };
  int64_t heads, lanes;              ///< lanes of one head
  std::map<unsigned, unsigned> dims; ///< per tensor: its dimension of heads
  std::map<unsigned, Loops> loops;   ///< per kernel that meets one of them
};

class HeadPlanner {
public:
  static constexpr unsigned kMostRepeated = 8; ///< kernels one after the other, made again

  explicit HeadPlanner(const KernelGraph &graph);

  /// What has to merge with dimension `dim` of the tensor, if that can be. Exact: no product and no
  /// sum changes. With `writer`, the tensor's, that kernel's terms are the caller's to change, and
  /// what does not step through heads as a plan has it may be laid out anew (constants) or made
  /// again for each head (maps and products of constants). Without, that holds for constants that
  /// are streamed alone.
  std::optional<HeadPlan> plan(unsigned tensor, unsigned dim,
                               std::optional<unsigned> writer = std::nullopt) const;

  /// Can each element of the constant that the access meets be written down once more, by the loops
  /// of the access (layOutHeads)?
  bool canLayOut(const Kernel &kernel, const Access &access, bool isFactor) const;

  /// Can lanes that the loop steps through be had as often as there are heads (Repeater)?
  bool canRepeat(const Kernel &kernel, const Access &access, const HeadPlan::Loops &loops) const;

  /// Some kernel sums each head into columns of its own.
  bool sweeps(const HeadPlan &plan) const;

private:
  struct Search;
  using Loops = HeadPlan::Loops;

  bool add(Search &search, unsigned tensor, unsigned dim) const;
  bool visit(Search &search, unsigned kernel) const;
  std::optional<Loops> loopsOf(const HeadPlan &plan, const Kernel &kernel) const;
  std::optional<unsigned> headDim(const Kernel &kernel, const Access &access, unsigned head) const;
  bool joins(Search &search, unsigned kernel, const Loops &loops) const;
  bool mergesToo(Search &search, const Kernel &kernel, const Access &access, const Loops &loops,
                 bool canRepeat) const;
  bool sumsWithin(Search &search, const Kernel &kernel, const Loops &loops) const;
  bool sweepsHeads(const Kernel &kernel, const Loops &loops) const;
  bool canRepeat(const Kernel &kernel, const Access &access, const Loops &loops,
                 unsigned depth) const;
  bool canRepeat(unsigned tensor, unsigned depth) const;
  const AffineIndex &laneIndex(const Access &access) const;

  const KernelGraph &graph;
  Uses uses;
  std::vector<bool> isLookedUp;
};

/// Takes a loop that moves nothing any more out of the kernel.
void eraseLoop(Kernel &kernel, unsigned loop);

/// A constant with a dimension for each loop that moves the access, and one for heads and lanes
/// together; `isFactor`: its own lanes are those that are summed.
Access layOutHeads(KernelGraph &graph, const Kernel &kernel, const Access &access,
                   const HeadPlan::Loops &loops, bool isFactor);

/// Cuts the plan's dimension of heads, and the loops along it, in two: `group` heads are the inner
/// one, which the plan then speaks of. `group` divides the heads.
void splitHeads(KernelGraph &graph, HeadPlan &plan, int64_t group);

/// What was made again for each head: by tensor, dimension and number of heads.
using Repeats = std::map<std::tuple<unsigned, unsigned, int64_t>, unsigned>;

/// Has lanes once for each head, as HeadPlanner::canRepeat() allows.
class Repeater {
public:
  Repeater(KernelGraph &graph, int64_t heads, Repeats &repeated)
      : graph(graph), heads(heads), repeated(repeated) {}

  /// The access to what `lane` steps through, once for each head.
  Access repeat(const Kernel &kernel, Access access, unsigned lane);
  unsigned repeatConstant(unsigned tensor, unsigned dim);

private:
  KernelGraph &graph;
  const int64_t heads;
  Repeats &repeated;

  unsigned repeatMade(unsigned tensor);
};

/// Lets the heads lie side by side, as planned.
void joinHeads(KernelGraph &graph, const HeadPlan &plan, Repeats &repeats);

} // namespace millrace::forms
