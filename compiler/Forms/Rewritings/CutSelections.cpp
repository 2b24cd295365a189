// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/CutSelections.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

constexpr size_t kMostPieces = 16; ///< kernels that one may become

/// Loops that walk along the diagonal of every term's identity matrix.
struct Diagonal {
  unsigned row = 0;  ///< parallel
  unsigned lane = 0; ///< contracted, of as many steps
};

std::vector<unsigned> movingLoops(const Kernel &kernel, const Access &access) {
  std::vector<unsigned> loops;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].extent > 1 && usesLoop(access, l))
      loops.push_back(l);
  return loops;
}

/// The parallel loop that moves a row of `a` by one and nothing of `w`.
std::optional<unsigned> rowLoop(const KernelGraph &graph, const Kernel &kernel, const Term &term,
                                int64_t extent) {
  for (unsigned l = 0; l < kernel.loops.size(); ++l) {
    if (kernel.loops[l] != Loop{extent, LoopKind::Parallel} || usesLoop(term.w, l))
      continue;
    unsigned moved = 0;
    for (unsigned d = 0; d < term.a.index.size(); ++d)
      moved += coefficient(term.a.index[d], l) == 0 ? 0
               : coefficient(term.a.index[d], l) == 1 && d != graph.tensors[term.a.tensor].laneDim
                   ? 1
                   : 2;
    if (moved == 1)
      return l;
  }
  return std::nullopt;
}

/// Is the constant zero wherever the two loops are not at the same step?
bool isDiagonal(const KernelGraph &graph, const Kernel &kernel, const Term &term,
                const Diagonal &loops) {
  const Tensor &matrix = graph.tensors[term.a.tensor];
  const unsigned bytes = byteWidth(matrix.type);
  bool is = !matrix.splat;
  forEachPoint(kernel, movingLoops(kernel, term.a), [&](const std::vector<int64_t> &point) {
    const int64_t element = linearOffset(matrix, term.a, point);
    const auto *data = matrix.data.data() + size_t(std::max<int64_t>(0, element)) * bytes;
    is = is && element >= 0 &&
         (point[loops.row] == point[loops.lane] ||
          std::all_of(data, data + bytes, [](uint8_t byte) { return byte == 0; }));
    return is;
  });
  return is;
}

std::optional<Diagonal> diagonalOf(const KernelGraph &graph, const Kernel &kernel) {
  std::optional<Diagonal> all;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind != LoopKind::Parallel && kernel.loops[l].extent > 1) {
      if (all || kernel.loops[l].kind == LoopKind::Running)
        return std::nullopt;
      all = Diagonal{0, l};
    }
  if (!all || kernel.terms.empty() || looksUp(kernel))
    return std::nullopt;
  for (const Term &term : kernel.terms) {
    const Tensor &a = graph.tensors[term.a.tensor], &w = graph.tensors[term.w.tensor];
    if (a.role != TensorRole::Constant || w.role == TensorRole::Constant ||
        coefficient(term.a.index[a.laneDim], all->lane) != 1 ||
        coefficient(term.w.index[w.laneDim], all->lane) != 1)
      return std::nullopt;
    const std::optional<unsigned> row =
        rowLoop(graph, kernel, term, kernel.loops[all->lane].extent);
    if (!row || (&term != &kernel.terms.front() && *row != all->row))
      return std::nullopt;
    all->row = *row;
    if (!isDiagonal(graph, kernel, term, *all))
      return std::nullopt;
  }
  return all;
}

/// The kernel at a few steps of a loop.
void restrict(Kernel &kernel, unsigned loop, int64_t from, int64_t count) {
  const auto move = [&](Access &access) {
    for (AffineIndex &index : access.index)
      index.offset += coefficient(index, loop) * from;
  };
  for (Term &term : kernel.terms) {
    move(term.a);
    move(term.w);
  }
  for (Access &operand : kernel.operands)
    move(operand);
  for (Result &result : kernel.results)
    move(result.access);
  kernel.loops[loop].extent = count;
}

class Cutter {
public:
  Cutter(const KernelGraph &graph, const Kernel &kernel, const Diagonal &loops, int64_t part)
      : kernel(kernel), loops(loops), part(part) {
    for (const Term &term : kernel.terms)
      windows.push_back(term.w.index[graph.tensors[term.w.tensor].laneDim]);
  }

  /// The pieces, none of which crosses from one part into the next; none if the kernel does not, or
  /// would become too many.
  std::vector<Kernel> cut() const {
    std::vector<unsigned> moving; // loops that begin windows elsewhere in a part
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (l != loops.lane && kernel.loops[l].extent > 1 &&
          std::any_of(windows.begin(), windows.end(),
                      [&](const AffineIndex &w) { return coefficient(w, l) % part != 0; }))
        moving.push_back(l);
    std::vector<Kernel> pieces;
    bool crosses = false;
    forEachPoint(kernel, moving, [&](const std::vector<int64_t> &point) {
      Kernel own = kernel;
      for (unsigned l : moving)
        restrict(own, l, point[l], 1);
      const std::set<int64_t> ends = endsAt(point);
      int64_t from = 0;
      for (int64_t end : ends) {
        pieces.push_back(own);
        restrict(pieces.back(), loops.row, from, end - from);
        restrict(pieces.back(), loops.lane, from, end - from);
        from = end;
      }
      crosses = crosses || ends.size() > 1;
      return pieces.size() <= kMostPieces;
    });
    return crosses && pieces.size() <= kMostPieces ? pieces : std::vector<Kernel>();
  }

private:
  const Kernel &kernel;
  const Diagonal loops;
  const int64_t part;
  std::vector<AffineIndex> windows; ///< of what is installed: its lanes, per term

  /// Steps along the diagonal at which a piece ends, the last one included.
  std::set<int64_t> endsAt(const std::vector<int64_t> &point) const {
    const int64_t extent = kernel.loops[loops.lane].extent;
    std::set<int64_t> ends{extent};
    for (const AffineIndex &window : windows) {
      int64_t first = window.offset;
      for (auto [l, step] : window.terms)
        first += step * point[l];
      for (int64_t step = part - first % part; step < extent; step += part)
        ends.insert(step);
    }
    return ends;
  }
};

} // namespace

unsigned cutSelections(KernelGraph &graph, const Machine &machine) {
  unsigned cut = 0;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [isHost, number] : graph.order) {
    order.push_back({isHost, number});
    if (isHost || graph.kernels[number].terms.empty())
      continue;
    const Kernel kernel = graph.kernels[number];
    const MxmFormatSpec *format =
        machine.mxm.format(graph.tensors[kernel.terms.front().a.tensor].type);
    const std::optional<Diagonal> loops =
        format ? diagonalOf(graph, kernel) : std::optional<Diagonal>();
    if (!loops)
      continue;
    const std::vector<Kernel> pieces = Cutter(graph, kernel, *loops, format->lanesPerPass).cut();
    for (size_t p = 0; p < pieces.size(); ++p) {
      if (p)
        order.push_back({false, unsigned(graph.kernels.size())});
      Kernel &piece = p ? graph.kernels.emplace_back() : graph.kernels[number];
      piece = pieces[p];
      for (size_t t = 0; p && t < piece.terms.size(); ++t)
        piece.terms[t].macs = 0; // the first has them all
    }
    cut += !pieces.empty();
  }
  graph.order = std::move(order);
  return cut;
}

} // namespace millrace::forms
