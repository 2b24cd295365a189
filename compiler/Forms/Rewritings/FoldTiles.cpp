// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/FoldTiles.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/WholeVectors.h"

#include <algorithm>
#include <optional>

namespace millrace::forms {
namespace {

/// The one loop along the lanes of all that a kernel sums, whole rows of one tensor or of the two
/// parts of one.
std::optional<unsigned> summedLoop(const KernelGraph &graph, const Kernel &kernel) {
  if (kernel.terms.empty() || kernel.terms.size() > 2)
    return std::nullopt;
  const Term &first = kernel.terms[0];
  const Tensor &row = graph.tensors[first.a.tensor];
  const std::optional<unsigned> loop =
      wholeLoop(kernel, first.a.index[row.laneDim], row.shape[row.laneDim], LoopKind::Contracted);
  if (!loop ||
      (row.type != ElementType::Bf16 && (row.type != ElementType::Fp16 || kernel.terms.size() > 1)))
    return std::nullopt;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind != LoopKind::Parallel && l != *loop && kernel.loops[l].extent > 1)
      return std::nullopt;
  for (const Term &term : kernel.terms) {
    const Tensor &a = graph.tensors[term.a.tensor], &w = graph.tensors[term.w.tensor];
    if (term.macs || !w.splat || w.role != TensorRole::Constant || term.w != first.w ||
        a.role == TensorRole::Constant || a.shape != row.shape || a.laneDim != row.laneDim ||
        a.type != row.type || term.a.index != first.a.index || term.a.pad)
      return std::nullopt;
  }
  const auto uses = [&](const Access &access) {
    return std::count_if(access.index.begin(), access.index.end(),
                         [&](const AffineIndex &index) { return coefficient(index, *loop) != 0; });
  };
  return uses(first.a) == 1 && uses(first.w) == 1 ? loop : std::nullopt;
}

/// Does a kernel square what this one stores? The square takes in the error of the sum as often as
/// the mean is larger than what is left of it.
bool isSquared(const KernelGraph &graph, const Kernel &sum) {
  const auto isOfSum = [&](const Access &operand) {
    return std::any_of(sum.results.begin(), sum.results.end(), [&](const Result &result) {
      return result.access.tensor == operand.tensor;
    });
  };
  return std::any_of(graph.kernels.begin(), graph.kernels.end(), [&](const Kernel &kernel) {
    return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const Node &node) {
      if (node.kind != Node::Kind::Op || node.op != AluOp::MulF32 || node.args[0] != node.args[1])
        return false;
      const Node &squared = kernel.nodes[node.args[0]];
      return squared.kind == Node::Kind::Operand && isOfSum(kernel.operands[squared.index]);
    });
  });
}

class TileFolder {
public:
  TileFolder(KernelGraph &graph, unsigned number, unsigned loop, const Machine &machine)
      : graph(graph), kernel(graph.kernels[number]), loop(loop), machine(machine),
        row(graph.tensors[kernel.terms[0].a.tensor]),
        vector(std::min<int64_t>(machine.lanes(), machine.mxm.columns)),
        isInParts(kernel.terms.size() == 2 || isSquared(graph, kernel)) {}

  /// The kernel that sums what is folded; nothing where that takes no less.
  std::optional<Kernel> folded() {
    const int64_t lanes = row.shape[row.laneDim], tiles = lanes / vector, most = mostTiles();
    const MxmFormatSpec *format = machine.mxm.format(row.type);
    if (tiles < 2 || most < 2 || !format || !saves(std::min(tiles, most), *format))
      return std::nullopt;
    Kernel sum = kernel;
    sum.terms.clear();
    sum.loops[loop].extent = vector;
    for (int64_t from = 0; from < tiles; from += most)
      add(sum, from, std::min(most, tiles - from));
    if (const int64_t rest = lanes % vector) {
      sum.loops.push_back({rest, LoopKind::Contracted});
      for (const Term &term : kernel.terms)
        addTerm(sum, term.a.tensor, unsigned(sum.loops.size() - 1), tiles * vector, 1);
    }
    return sum;
  }

private:
  KernelGraph &graph;
  const Kernel kernel;
  const unsigned loop;
  const Machine &machine;
  const Tensor row;
  const int64_t vector;
  const bool isInParts; ///< a folded vector is kept as two, of its high and its low bits

  /// Vectors that one map adds: each is widened and added; streams bring two bytes of each.
  int64_t mostTiles() const {
    constexpr int64_t kStreams = 32;
    const bool unbounded =
        std::any_of(kernel.terms.begin(), kernel.terms.end(),
                    [&](const Term &term) { return graph.tensors[term.a.tensor].unbounded; });
    const int64_t parts = int64_t(kernel.terms.size()), // operations on what is stored:
        rounding = !isInParts  ? 2
                   : unbounded ? 6
                               : 4;
    return std::min((int64_t(machine.vxm.alus) - rounding + 1) / (2 * parts),
                    kStreams / (2 * parts));
  }

  /// Does a sum take less by more than a step?
  bool saves(int64_t tiles, const MxmFormatSpec &format) const {
    constexpr int64_t kStep = 120; // cycles from reading an operand to reading the result
    int64_t rows = 1;
    for (unsigned d = 0; d < row.shape.size(); ++d)
      rows *= d == row.laneDim ? 1 : row.shape[d];
    const int64_t sweeps = (int64_t(kernel.terms.size()) * tiles - (isInParts ? 2 : 1)) *
                           ((vector + format.lanesPerPass - 1) / int64_t(format.lanesPerPass));
    const int64_t workers =
        std::max(1u, machine.mxm.planes / format.planes * unsigned(kHemispheres));
    return sweeps * rows / workers / machine.pes() > kStep;
  }

  /// Adds the term of a tensor's lanes from `from` on, whose sum is `factor` times what it holds.
  void addTerm(Kernel &sum, unsigned tensor, unsigned along, int64_t from, int64_t factor) {
    Term term = kernel.terms[0];
    term.a.tensor = tensor;
    term.a.index[row.laneDim] = at(along, 1, from);
    Tensor w = graph.tensors[term.w.tensor];
    const float value = decode(w.type, uint32_t(w.data[0] | w.data[1] << 8)) * float(factor);
    for (unsigned d = 0; d < w.shape.size(); ++d)
      if (coefficient(term.w.index[d], loop)) {
        w.shape[d] = sum.loops[along].extent;
        term.w.index[d] = at(along);
      }
    w.type = graph.tensors[tensor].type;
    w.data = encodeAll(w.type, {value});
    const auto known = std::find(graph.tensors.begin(), graph.tensors.end(), w);
    term.w.tensor = unsigned(known - graph.tensors.begin());
    if (known == graph.tensors.end())
      graph.tensors.push_back(std::move(w));
    sum.terms.push_back(std::move(term));
  }

  /// Adds terms for `count` vectors: of their mean, or of two parts of their sum (of their mean, if
  /// 16 bits of one are all that there is).
  void add(Kernel &sum, int64_t first, int64_t count) {
    if (count == 1) {
      for (const Term &term : kernel.terms)
        addTerm(sum, term.a.tensor, loop, first * vector, 1);
      return;
    }
    std::vector<int64_t> shape = row.shape;
    shape[row.laneDim] = vector;
    KernelBuilder build(graph);
    std::vector<AffineIndex> index;
    for (int64_t extent : shape)
      index.push_back(at(build.loop(extent)));
    std::vector<unsigned> level;
    bool unbounded = false;
    for (const Term &term : kernel.terms) {
      unbounded |= graph.tensors[term.a.tensor].unbounded;
      for (int64_t k = 0; k < count; ++k) {
        Access access{term.a.tensor, index, 0};
        access.index[row.laneDim].offset = (first + k) * vector;
        level.push_back(build.load(access));
      }
    }
    while (level.size() > 1) {
      std::vector<unsigned> next;
      for (size_t k = 0; k + 1 < level.size(); k += 2)
        next.push_back(build.op(AluOp::AddF32, {level[k], level[k + 1]}));
      if (level.size() % 2)
        next.push_back(level.back());
      level = next;
    }
    const bool isMean = kernel.terms.size() == 1;
    const auto store = [&](const char *name, unsigned node, bool isBits) {
      const unsigned tensor = addTensor(graph, row.name + name, shape, row.type, row.laneDim);
      graph.tensors[tensor].unbounded = unbounded;
      if (isBits)
        build.storeBits(node, {tensor, index, 0});
      else
        build.store(node, {tensor, index, 0});
      addTerm(sum, tensor, loop, 0, isMean ? count : 1);
    };
    unsigned value = level.front();
    if (isMean) // what stays within the range of its elements
      value = build.op(AluOp::MulF32, {value, build.constant(1 / float(count))});
    if (isInParts) {
      const unsigned high = build.op(narrowFromF32(row.type), {value}),
                     wide = build.op(widenToF32(row.type), {high});
      unsigned low = build.op(AluOp::SubF32, {value, wide});
      if (unbounded) // infinity less itself would be NaN
        low = build.op(AluOp::SelectF32,
                       {build.op(AluOp::NeF32, {value, wide}), low, build.constant(0)});
      store(".folded", high, true);
      store(".folded.low", low, false);
    } else {
      store(".folded", value, false);
    }
    build.finish(kernel.name, kernel.provenance);
  }
};

} // namespace

unsigned foldTiles(KernelGraph &graph, const Machine &machine) {
  unsigned folds = 0;
  const WholeVectors rows(graph, std::min<int64_t>(machine.lanes(), machine.mxm.columns));
  const std::vector<std::pair<bool, unsigned>> order = std::move(graph.order);
  graph.order.clear();
  for (auto [isHost, number] : order) {
    if (!isHost)
      if (const std::optional<unsigned> loop = summedLoop(graph, graph.kernels[number]);
          loop && rows.areIn(graph.kernels[number].terms[0].a.tensor))
        if (std::optional<Kernel> sum = TileFolder(graph, number, *loop, machine).folded()) {
          graph.kernels[number] = std::move(*sum); // its maps go before it
          ++folds;
        }
    graph.order.push_back({isHost, number});
  }
  return folds;
}

} // namespace millrace::forms
