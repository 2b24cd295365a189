// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/HeadPlan.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Simplify.h"

#include "arch/spec/Types.h"

#include <algorithm>

namespace millrace::forms {

namespace {

/// wholeLoop(), beside loops of a single step.
std::optional<unsigned> whole(const Kernel &kernel, AffineIndex index, int64_t extent,
                              LoopKind kind) {
  if (index.terms.size() > 1)
    std::erase_if(index.terms,
                  [&](const auto &term) { return kernel.loops[term.first].extent == 1; });
  return wholeLoop(kernel, index, extent, kind);
}

} // namespace

bool isUsed(const Access &access, unsigned loop) {
  return std::any_of(access.index.begin(), access.index.end(),
                     [&](const AffineIndex &i) { return coefficient(i, loop) != 0; });
}

std::optional<unsigned> dimOf(const KernelGraph &graph, const Kernel &kernel, const Access &access,
                              unsigned loop) {
  std::optional<unsigned> dim;
  for (unsigned d = 0; d < access.index.size(); ++d) {
    if (coefficient(access.index[d], loop) == 0)
      continue;
    if (dim || whole(kernel, access.index[d], graph.tensors[access.tensor].shape[d],
                     kernel.loops[loop].kind) != loop)
      return std::nullopt;
    dim = d;
  }
  return dim;
}

bool isInOneLoop(const Access &access, unsigned head, unsigned lane, int64_t lanes) {
  return std::all_of(access.index.begin(), access.index.end(), [&](const AffineIndex &index) {
    return coefficient(index, head) == lanes * coefficient(index, lane);
  });
}

struct HeadPlanner::Search {
  HeadPlan plan;
  std::optional<unsigned> writer;
  std::vector<unsigned> toVisit;
  bool repeats = false; ///< constants that are streamed
};

HeadPlanner::HeadPlanner(const KernelGraph &graph)
    : graph(graph), uses(graph), isLookedUp(graph.tensors.size(), false) {
  for (const Kernel &kernel : graph.kernels)
    for (const Access &operand : kernel.operands)
      if (operand.lookup)
        isLookedUp[operand.lookup->tensor] = isLookedUp[operand.tensor] = true;
}

std::optional<HeadPlan> HeadPlanner::plan(unsigned tensor, unsigned dim,
                                          std::optional<unsigned> writer) const {
  const Tensor &its = graph.tensors[tensor];
  Search search{{its.shape[dim], its.shape[its.laneDim], {}, {}}, writer, {}};
  if (!add(search, tensor, dim))
    return std::nullopt;
  while (!search.toVisit.empty()) {
    const unsigned kernel = search.toVisit.back();
    search.toVisit.pop_back();
    if (!visit(search, kernel))
      return std::nullopt;
  }
  // Columns of each head alone are vectors of their own to what is installed, and one vector to the
  // constant.
  if (search.repeats && !search.writer && sweeps(search.plan))
    return std::nullopt;
  return search.plan;
}

bool HeadPlanner::sweeps(const HeadPlan &plan) const {
  return std::any_of(plan.loops.begin(), plan.loops.end(), [&](const auto &its) {
    const auto &[kernel, loops] = its;
    return !loops.areJoined && graph.kernels[kernel].loops[loops.lane].kind == LoopKind::Parallel;
  });
}

const AffineIndex &HeadPlanner::laneIndex(const Access &access) const {
  return access.index[graph.tensors[access.tensor].laneDim];
}

bool HeadPlanner::add(Search &search, unsigned number, unsigned dim) const {
  const auto [at, isNew] = search.plan.dims.insert({number, dim});
  if (!isNew)
    return at->second == dim;
  const Tensor &tensor = graph.tensors[number];
  if (tensor.role != TensorRole::Intermediate || dim == tensor.laneDim || uses.onHost[number] ||
      isLookedUp[number] || tensor.shape[dim] != search.plan.heads ||
      tensor.shape[tensor.laneDim] != search.plan.lanes || uses.writers[number].size() != 1)
    return false;
  for (const std::vector<unsigned> *list : {&uses.writers[number], &uses.readers[number]})
    search.toVisit.insert(search.toVisit.end(), list->begin(), list->end());
  return true;
}

/// The dimension other than the lanes that the loop moves alone, through all heads.
std::optional<unsigned> HeadPlanner::headDim(const Kernel &kernel, const Access &access,
                                             unsigned head) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  const std::optional<unsigned> dim = dimOf(graph, kernel, access, head);
  return dim && *dim != tensor.laneDim ? dim : std::nullopt;
}

/// The loops that step through heads and lanes of what merges, the same for all its accesses.
std::optional<HeadPlan::Loops> HeadPlanner::loopsOf(const HeadPlan &plan,
                                                    const Kernel &kernel) const {
  std::optional<Loops> loops;
  bool areSame = true;
  forEachAccess(kernel, [&](const Access &access) {
    const auto its = plan.dims.find(access.tensor);
    if (its == plan.dims.end())
      return;
    std::optional<unsigned> head, lane;
    for (LoopKind kind : {LoopKind::Parallel, LoopKind::Contracted}) {
      head = head ? head : whole(kernel, access.index[its->second], plan.heads, kind);
      lane = lane ? lane : whole(kernel, laneIndex(access), plan.lanes, kind);
    }
    areSame = areSame && head && lane && (!loops || (loops->head == head && loops->lane == lane));
    if (areSame)
      loops = Loops{*head, *lane, false};
  });
  return areSame ? loops : std::nullopt;
}

bool HeadPlanner::canLayOut(const Kernel &kernel, const Access &access, bool isFactor) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  const std::optional<unsigned> lane = onlyLoop(kernel, laneIndex(access));
  return tensor.role == TensorRole::Constant && !access.lookup &&
         (!isFactor || (lane && kernel.loops[*lane].kind == LoopKind::Contracted &&
                        dimOf(graph, kernel, access, *lane) == tensor.laneDim));
}

bool HeadPlanner::canRepeat(const Kernel &kernel, const Access &access, const Loops &loops) const {
  return canRepeat(kernel, access, loops, kMostRepeated);
}

bool HeadPlanner::canRepeat(const Kernel &kernel, const Access &access, const Loops &loops,
                            unsigned depth) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  const std::optional<unsigned> dim = dimOf(graph, kernel, access, loops.lane);
  if (!dim || isUsed(access, loops.head) || access.lookup)
    return false;
  return tensor.role == TensorRole::Constant ||
         (*dim == tensor.laneDim && canRepeat(access.tensor, depth));
}

bool HeadPlanner::canRepeat(unsigned number, unsigned depth) const {
  const Tensor &tensor = graph.tensors[number];
  if (depth == 0 || tensor.role != TensorRole::Intermediate || uses.writers[number].size() != 1)
    return false;
  const Kernel &writer = graph.kernels[uses.writers[number].front()];
  std::optional<unsigned> lane;
  for (const Result &result : writer.results)
    if (result.access.tensor == number)
      lane = lane ? std::nullopt
                  : whole(writer, laneIndex(result.access), tensor.shape[tensor.laneDim],
                          LoopKind::Parallel);
  if (!lane)
    return false;
  const Loops loops{unsigned(writer.loops.size()), *lane, true}; // a loop that is not there yet
  const auto repeats = [&](const Access &access) {
    return !usesLoop(access, *lane) || canRepeat(writer, access, loops, depth - 1);
  };
  return std::all_of(writer.terms.begin(), writer.terms.end(),
                     [&](const Term &term) {
                       const Tensor &w = graph.tensors[term.w.tensor];
                       return !usesLoop(term.a, *lane) &&
                              (!usesLoop(term.w, *lane) ||
                               (w.role == TensorRole::Constant && repeats(term.w)));
                     }) &&
         std::all_of(writer.operands.begin(), writer.operands.end(), repeats);
}

/// Can the two loops be one? What keeps them apart is merged, too, where that can be.
bool HeadPlanner::joins(Search &search, unsigned number, const Loops &loops) const {
  const Kernel &kernel = graph.kernels[number];
  const auto joins = [&](const Access &access, bool isFactor) {
    if (search.plan.dims.count(access.tensor) ||
        isInOneLoop(access, loops.head, loops.lane, search.plan.lanes))
      return true;
    const std::optional<unsigned> dim = headDim(kernel, access, loops.head);
    if (dim &&
        whole(kernel, laneIndex(access), search.plan.lanes, kernel.loops[loops.lane].kind) ==
            loops.lane &&
        graph.tensors[access.tensor].role == TensorRole::Intermediate)
      return add(search, access.tensor, *dim);
    return search.writer &&
           (canLayOut(kernel, access, isFactor) || canRepeat(kernel, access, loops, kMostRepeated));
  };
  return std::all_of(kernel.terms.begin(), kernel.terms.end(),
                     [&](const Term &term) {
                       return search.writer == number ||
                              (joins(term.a, true) && joins(term.w, true));
                     }) &&
         std::all_of(kernel.operands.begin(), kernel.operands.end(),
                     [&](const Access &access) { return joins(access, false); }) &&
         std::all_of(kernel.results.begin(), kernel.results.end(), [&](const Result &result) {
           return graph.tensors[result.access.tensor].role != TensorRole::Constant &&
                  joins(result.access, false);
         });
}

/// One sum per head: its columns come from weights of its own, made at run time, and its rows of
/// the other operand from anywhere but other lanes.
bool HeadPlanner::sweepsHeads(const Kernel &kernel, const Loops &loops) const {
  return kernel.operands.empty() && !kernel.terms.empty() && kernel.results.size() == 1 &&
         std::all_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
           return graph.tensors[term.w.tensor].role != TensorRole::Constant &&
                  usesLoop(term.w, loops.lane) && coefficient(laneIndex(term.a), loops.head) == 0;
         });
}

bool HeadPlanner::mergesToo(Search &search, const Kernel &kernel, const Access &access,
                            const Loops &loops, bool canRepeat) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  if (whole(kernel, laneIndex(access), search.plan.lanes, LoopKind::Contracted) != loops.lane)
    return false;
  if (tensor.role == TensorRole::Constant && canRepeat) {
    search.repeats = true;
    return !isUsed(access, loops.head) &&
           dimOf(graph, kernel, access, loops.lane) == tensor.laneDim;
  }
  const std::optional<unsigned> dim = headDim(kernel, access, loops.head);
  return dim && add(search, access.tensor, *dim);
}

/// Sums over the lanes of one head: both factors merge. Constants that meet all heads alike are
/// repeated along the lanes: what is streamed takes no more sweeps for that.
bool HeadPlanner::sumsWithin(Search &search, const Kernel &kernel, const Loops &loops) const {
  // Lanes of a result that are heads take different rows of what is streamed: that is no repeat.
  const bool canRepeat = std::ranges::none_of(kernel.results, [&](const Result &result) {
    return coefficient(laneIndex(result.access), loops.head) != 0;
  });
  return std::all_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
    return (!usesLoop(term.a, loops.lane) && !usesLoop(term.w, loops.lane)) ||
           (mergesToo(search, kernel, term.a, loops, canRepeat || search.writer) &&
            mergesToo(search, kernel, term.w, loops, search.writer.has_value()));
  });
}

bool HeadPlanner::visit(Search &search, unsigned number) const {
  const Kernel &kernel = graph.kernels[number];
  std::optional<Loops> loops = loopsOf(search.plan, kernel);
  if (!loops)
    return false;
  const LoopKind head = kernel.loops[loops->head].kind, lane = kernel.loops[loops->lane].kind;
  if (head == LoopKind::Parallel && lane == LoopKind::Contracted) {
    if (!sumsWithin(search, kernel, *loops))
      return false;
  } else if (head != lane) {
    return false;
  } else if (head == LoopKind::Contracted || search.writer == number ||
             !sweepsHeads(kernel, *loops)) {
    if (!joins(search, number, *loops))
      return false;
    loops->areJoined = true;
  }
  const auto [at, isNew] = search.plan.loops.insert({number, *loops});
  return at->second.head == loops->head && at->second.lane == loops->lane &&
         at->second.areJoined == loops->areJoined;
}

Access layOutHeads(KernelGraph &graph, const Kernel &kernel, const Access &access,
                   const HeadPlan::Loops &loops, bool isFactor) {
  const Tensor from = graph.tensors[access.tensor];
  std::vector<unsigned> order, last{loops.head, loops.lane};
  if (isFactor)
    last.push_back(*onlyLoop(kernel, access.index[from.laneDim]));
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (isUsed(access, l) && std::find(last.begin(), last.end(), l) == last.end())
      order.push_back(l);
  order.insert(order.end(), last.begin(), last.end());
  const unsigned width = byteWidth(from.type);
  std::vector<uint8_t> data;
  forEachPoint(kernel, order, [&](const std::vector<int64_t> &point) {
    const int64_t element = linearOffset(from, access, point);
    for (unsigned b = 0; b < width; ++b)
      data.push_back(element < 0 ? uint8_t(access.pad >> (8 * b))
                                 : from.data[size_t(from.splat ? 0 : element) * width + b]);
    return true;
  });
  const int64_t lanes = kernel.loops[loops.lane].extent;
  Access to{0, {}, 0};
  std::vector<int64_t> shape;
  for (unsigned l : order) {
    if (l == loops.head)
      continue;
    to.index.push_back(l == loops.lane ? AffineIndex{0, {{loops.head, lanes}, {loops.lane, 1}}}
                                       : at(l));
    shape.push_back(kernel.loops[l].extent *
                    (l == loops.lane ? kernel.loops[loops.head].extent : 1));
  }
  to.tensor = addTensor(graph, from.name, shape, from.type, unsigned(shape.size() - 1),
                        TensorRole::Constant);
  graph.tensors[to.tensor].data = std::move(data);
  return to;
}

void splitHeads(KernelGraph &graph, HeadPlan &plan, int64_t group) {
  if (group == plan.heads)
    return;
  for (auto &[number, loops] : plan.loops) {
    Kernel &kernel = graph.kernels[number];
    const unsigned inner = splitLoop(kernel, loops.head, {plan.heads / group, group, group});
    forEachAccess(kernel, [&](Access &access) {
      if (const auto its = plan.dims.find(access.tensor); its != plan.dims.end()) {
        access.index[its->second] = at(loops.head);
        access.index.insert(access.index.begin() + its->second + 1, at(inner));
      }
    });
    loops.head = inner;
  }
  for (auto &[number, dim] : plan.dims) {
    Tensor &tensor = graph.tensors[number];
    tensor.shape[dim] /= group;
    tensor.shape.insert(tensor.shape.begin() + dim + 1, group);
    tensor.laneDim += tensor.laneDim > dim ? 1 : 0;
    ++dim;
  }
  plan.heads = group;
}

void eraseLoop(Kernel &kernel, unsigned loop) {
  kernel.loops.erase(kernel.loops.begin() + loop);
  const auto renumber = [&](std::vector<AffineIndex> &index) {
    for (AffineIndex &i : index) {
      std::erase_if(i.terms, [&](const auto &term) { return term.first == loop; });
      for (auto &[its, c] : i.terms)
        its -= its > loop ? 1 : 0;
    }
  };
  forEachAccess(kernel, [&](Access &access) {
    renumber(access.index);
    if (access.lookup)
      renumber(access.lookup->index);
  });
}

Access Repeater::repeat(const Kernel &kernel, Access access, unsigned lane) {
  const unsigned dim = *dimOf(graph, kernel, access, lane);
  access.tensor = graph.tensors[access.tensor].role == TensorRole::Constant
                      ? repeatConstant(access.tensor, dim)
                      : repeatMade(access.tensor);
  return access;
}

unsigned Repeater::repeatConstant(unsigned number, unsigned dim) {
  if (const auto known = repeated.find({number, dim, heads}); known != repeated.end())
    return known->second;
  Tensor tensor = graph.tensors[number];
  if (!tensor.splat) {
    size_t run = byteWidth(tensor.type);
    for (size_t d = dim; d < tensor.shape.size(); ++d)
      run *= size_t(tensor.shape[d]);
    std::vector<uint8_t> data;
    data.reserve(tensor.data.size() * size_t(heads));
    for (size_t at = 0; at < tensor.data.size(); at += run)
      for (int64_t head = 0; head < heads; ++head)
        data.insert(data.end(), tensor.data.begin() + ptrdiff_t(at),
                    tensor.data.begin() + ptrdiff_t(at + run));
    tensor.data = std::move(data);
  }
  tensor.shape[dim] *= heads;
  tensor.value.clear();
  graph.tensors.push_back(std::move(tensor));
  return repeated[{number, dim, heads}] = unsigned(graph.tensors.size() - 1);
}

/// Another tensor with the lanes of this one for each head, and a kernel that makes it.
unsigned Repeater::repeatMade(unsigned number) {
  const unsigned laneDim = graph.tensors[number].laneDim;
  if (const auto known = repeated.find({number, laneDim, heads}); known != repeated.end())
    return known->second;
  const auto writes = [&](const Kernel &kernel) {
    return std::any_of(kernel.results.begin(), kernel.results.end(),
                       [&](const Result &r) { return r.access.tensor == number; });
  };
  const auto writer = unsigned(std::find_if(graph.kernels.begin(), graph.kernels.end(), writes) -
                               graph.kernels.begin());
  Kernel kernel = graph.kernels[writer];
  std::erase_if(kernel.results, [&](const Result &r) { return r.access.tensor != number; });
  const unsigned lane = *onlyLoop(kernel, kernel.results.front().access.index[laneDim]);
  for (Term &term : kernel.terms) {
    term.macs = 0; // counted where it is made first
    if (usesLoop(term.w, lane))
      term.w = repeat(kernel, term.w, lane);
  }
  for (Access &operand : kernel.operands)
    if (usesLoop(operand, lane))
      operand = repeat(kernel, operand, lane);
  Tensor tensor = graph.tensors[number];
  tensor.shape[laneDim] *= heads;
  tensor.value.clear();
  graph.tensors.push_back(std::move(tensor));
  kernel.results.front().access.tensor = unsigned(graph.tensors.size() - 1);
  kernel.loops[lane].extent *= heads;
  dropDeadNodes(kernel);
  graph.kernels.push_back(std::move(kernel));
  const auto after =
      std::find(graph.order.begin(), graph.order.end(), std::pair(false, writer)) + 1;
  graph.order.insert(after, {false, unsigned(graph.kernels.size() - 1)});
  return repeated[{number, laneDim, heads}] = unsigned(graph.tensors.size() - 1);
}

namespace {

class HeadJoiner {
public:
  HeadJoiner(KernelGraph &graph, const HeadPlan &plan, Repeats &repeated)
      : graph(graph), plan(plan), repeater(graph, plan.heads, repeated) {}

  void join() {
    for (const auto &[number, loops] : plan.loops) {
      if (loops.areJoined)
        joinLoops(number, loops);
      else
        setSideBySide(number, loops);
    }
    for (const auto &[number, dim] : plan.dims) {
      Tensor &tensor = graph.tensors[number];
      tensor.shape[tensor.laneDim] *= plan.heads;
      tensor.shape.erase(tensor.shape.begin() + dim);
      tensor.laneDim -= dim < tensor.laneDim ? 1 : 0;
    }
  }

private:
  KernelGraph &graph;
  const HeadPlan &plan;
  Repeater repeater;

  /// Calls f(access, whether it is a factor of a term) for every access.
  template <class F> static void changeAccesses(Kernel &kernel, F f) {
    for (Term &term : kernel.terms)
      f(term.a, true), f(term.w, true);
    for (Access &operand : kernel.operands)
      f(operand, false);
    for (Result &result : kernel.results)
      f(result.access, false);
  }

  /// Each head is a step of the loop, by lanes beside those of the last.
  void setSideBySide(unsigned number, const HeadPlan::Loops &loops) {
    Kernel kernel = graph.kernels[number];
    const bool isSum = kernel.loops[loops.lane].kind == LoopKind::Contracted;
    const auto set = [&](Access &access, bool isFactor) {
      const auto its = plan.dims.find(access.tensor);
      const unsigned laneDim = graph.tensors[access.tensor].laneDim;
      if (its == plan.dims.end() && !(isFactor && isSum && usesLoop(access, loops.lane)))
        return;
      AffineIndex &lane = access.index[laneDim];
      lane.terms.push_back({loops.head, plan.lanes});
      std::sort(lane.terms.begin(), lane.terms.end());
      if (its != plan.dims.end())
        access.index.erase(access.index.begin() + its->second);
      else
        access.tensor = repeater.repeatConstant(access.tensor, laneDim);
    };
    changeAccesses(kernel, set);
    graph.kernels[number] = std::move(kernel);
  }

  /// The loop of the heads becomes part of the loop along the lanes, and is gone.
  void joinLoops(unsigned number, const HeadPlan::Loops &loops) {
    Kernel kernel = graph.kernels[number];
    const auto set = [&](Access &access, bool isFactor) {
      if (const auto its = plan.dims.find(access.tensor); its != plan.dims.end())
        access.index.erase(access.index.begin() + its->second);
      else if (!isInOneLoop(access, loops.head, loops.lane, plan.lanes))
        access = isUsed(access, loops.head) ? layOutHeads(graph, kernel, access, loops, isFactor)
                                            : repeater.repeat(kernel, access, loops.lane);
    };
    changeAccesses(kernel, set);
    kernel.loops[loops.lane].extent *= plan.heads;
    eraseLoop(kernel, loops.head);
    graph.kernels[number] = std::move(kernel);
  }
};

} // namespace

void joinHeads(KernelGraph &graph, const HeadPlan &plan, Repeats &repeats) {
  HeadJoiner(graph, plan, repeats).join();
}

} // namespace millrace::forms
