// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/ViewInputs.h"

#include "compiler/Forms/HostDims.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace::forms {
namespace {

/// Loops of a single step aside.
bool isSame(const Kernel &kernel, const AffineIndex &x, const AffineIndex &y) {
  if (x.offset != y.offset)
    return false;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].extent > 1 && coefficient(x, l) != coefficient(y, l))
      return false;
  return true;
}

/// Elements of the host's that lie in the view, without what lies beside those.
int64_t elementsOf(const Tensor &view) {
  int64_t elements = 1;
  for (const HostLoop &loop : view.hostLoops) {
    int64_t inside = loop.hostStep ? 0 : loop.extent;
    for (int64_t i = 0; loop.hostStep && i < loop.extent; ++i) {
      const int64_t at = view.hostStart[loop.hostDim] + i * loop.hostStep;
      inside += at >= 0 && at < view.hostShape[loop.hostDim];
    }
    elements *= inside;
  }
  return elements;
}

/// An input as a map may read it, with the dimensions of the map's result.
struct View {
  Tensor tensor;
  std::vector<AffineIndex> index;
};

class Viewer {
public:
  Viewer(KernelGraph &graph, const Machine &machine) : graph(graph), machine(machine) {}
  unsigned view();

private:
  KernelGraph &graph;
  const Machine &machine;

  std::optional<View> viewOf(const Kernel &kernel, const Access &access) const;
};

/// What the access reads; nothing where that is a tensor with the dimensions of the result already,
/// or where the host cannot write it so.
std::optional<View> Viewer::viewOf(const Kernel &kernel, const Access &access) const {
  const Access &result = kernel.results.front().access;
  const Tensor &from = graph.tensors[access.tensor], &to = graph.tensors[result.tensor];
  if (from.role != TensorRole::Input || from.hostName.empty() || access.lookup ||
      (from.hostLoops.empty() && from.hostShape != from.shape))
    return std::nullopt;
  const std::optional<std::vector<HostDim>> dims = hostDims(from);
  if (!dims || to.shape[to.laneDim] * 2 > std::min<int64_t>(machine.lanes(), machine.mxm.columns))
    return std::nullopt;
  Tensor view = from;
  view.name = from.name + ".view";
  view.shape.assign(to.shape.size(), 1);
  view.laneDim = to.laneDim;
  view.value.clear();
  view.uniform = false; // along its own lanes
  view.hostLoops.clear();
  view.hostStart = from.hostStart;
  view.hostStart.resize(view.hostShape.size(), 0);
  if (!staysInside(graph, kernel, access)) {
    if (!endsWithHost(from))
      return std::nullopt;
    for (unsigned e = 0; e < access.index.size(); ++e) { // beside what lies nowhere is nothing
      const auto [low, high] = rangeOf(kernel, access.index[e]);
      if (!(*dims)[e].step && (low < 0 || high >= from.shape[e]))
        return std::nullopt;
    }
    view.hostFill = access.pad;
  }
  for (unsigned e = 0; e < access.index.size(); ++e)
    if (const auto [dim, step] = (*dims)[e]; step)
      view.hostStart[dim] += access.index[e].offset * step;
  std::vector<AffineIndex> index(to.shape.size());
  std::set<unsigned> moving; // loops that move it, as they move the result
  for (unsigned d = 0; d < to.shape.size(); ++d) {
    if (to.shape[d] == 1)
      continue;
    const std::optional<unsigned> loop =
        wholeLoop(kernel, result.index[d], to.shape[d], LoopKind::Parallel);
    if (!loop)
      return std::nullopt;
    std::optional<unsigned> by; // a dimension of the input
    for (unsigned e = 0; e < access.index.size(); ++e)
      if (coefficient(access.index[e], *loop)) {
        if (by)
          return std::nullopt;
        by = e;
      }
    if (!by && d == to.laneDim)
      return std::nullopt;
    if (!by)
      continue;
    moving.insert(*loop);
    index[d] = result.index[d];
    view.shape[d] = to.shape[d];
    view.hostLoops.push_back({to.shape[d], d, 1, (*dims)[*by].dim,
                              coefficient(access.index[*by], *loop) * (*dims)[*by].step});
  }
  if (view.hostLoops.empty()) // a single element, not the host's first
    view.hostLoops.push_back({1, to.laneDim, 1, 0, 0});
  bool isView = from.shape != view.shape || from.laneDim != view.laneDim;
  for (unsigned e = 0; e < access.index.size(); ++e) {
    for (auto [l, c] : access.index[e].terms)
      if (kernel.loops[l].extent > 1 && !moving.contains(l))
        return std::nullopt;
    isView = isView || !isSame(kernel, access.index[e], index[e]);
  }
  if (!isView)
    return std::nullopt;
  return View{std::move(view), std::move(index)};
}

unsigned Viewer::view() {
  const Uses uses(graph);
  struct Site {
    Access *operand;
    View view;
  };
  std::map<std::string, std::vector<Site>> sites; // by input
  std::map<const Access *, bool> isReplaced;
  for (Kernel &kernel : graph.kernels)
    for (Access &operand : kernel.operands)
      if (!uses.onHost[operand.tensor])
        if (std::optional<View> view = viewOf(kernel, operand)) {
          isReplaced[&operand] = true;
          sites[view->tensor.hostName].push_back({&operand, *std::move(view)});
        }
  std::vector<bool> isRead(graph.tensors.size()); // otherwise
  for (const Kernel &kernel : graph.kernels)
    forEachAccess(kernel, [&](const Access &access) {
      if (!isReplaced.contains(&access))
        isRead[access.tensor] = true;
    });
  unsigned added = 0;
  for (auto &[name, its] : sites) {
    int64_t before = 0, after = 0; // elements that the host writes
    for (unsigned t = 0; t < isRead.size(); ++t)
      if (const Tensor &tensor = graph.tensors[t];
          tensor.role == TensorRole::Input && tensor.hostName == name) {
        before += uses.readers[t].empty() ? 0 : elementCount(tensor);
        after += isRead[t] ? elementCount(tensor) : 0;
      }
    std::vector<Tensor> views;
    for (const Site &site : its)
      if (std::find(views.begin(), views.end(), site.view.tensor) == views.end())
        views.push_back(site.view.tensor);
    for (const Tensor &view : views)
      after += elementsOf(view);
    if (after > std::max(before, kMostRepetition * hostElementCount(views.front())))
      continue;
    const auto first = unsigned(graph.tensors.size());
    for (Site &site : its) {
      const auto known = std::find(views.begin(), views.end(), site.view.tensor);
      *site.operand = {first + unsigned(known - views.begin()), std::move(site.view.index), 0};
    }
    added += unsigned(views.size());
    graph.tensors.insert(graph.tensors.end(), views.begin(), views.end());
  }
  return added;
}

} // namespace

unsigned viewInputs(KernelGraph &graph, const Machine &machine) {
  return Viewer(graph, machine).view();
}

} // namespace millrace::forms
