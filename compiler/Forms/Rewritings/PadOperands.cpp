// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/PadOperands.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace millrace::forms {
namespace {

/// Where the copy begins in its source and how large it is, per dimension.
struct Reach {
  std::vector<int64_t> first, shape;
  auto operator<=>(const Reach &) const = default;
};

/// All of the tensor, and in dimension `dim` what the access reaches beyond it.
void extend(Reach &reach, const Kernel &kernel, const Access &access, size_t dim) {
  const auto [low, high] = rangeOf(kernel, access.index[dim]);
  reach.first[dim] = std::min<int64_t>(0, low);
  reach.shape[dim] = std::max(reach.shape[dim], high + 1) - reach.first[dim];
}

Reach rowsOf(const KernelGraph &graph, const Kernel &kernel, const Access &w) {
  const Tensor &tensor = graph.tensors[w.tensor];
  Reach reach{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
  for (size_t d = 0; d < tensor.shape.size() && tensor.role != TensorRole::Constant; ++d)
    if (d != tensor.laneDim)
      extend(reach, kernel, w, d);
  return reach;
}

Reach lanesOf(const KernelGraph &graph, const Kernel &kernel, const Access &a) {
  const Tensor &tensor = graph.tensors[a.tensor];
  Reach reach{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
  for (auto [loop, step] : a.index[tensor.laneDim].terms)
    if (kernel.loops[loop].kind == LoopKind::Parallel && kernel.loops[loop].extent > 1) {
      extend(reach, kernel, a, tensor.laneDim);
      break;
    }
  return reach;
}

/// Loops over the copy's rows, which are rows of the source: lanes are left to the caller.
void addRowLoops(KernelBuilder &build, const Reach &reach, unsigned lane, Access &from,
                 Access &to) {
  for (size_t d = 0; d < reach.shape.size(); ++d) {
    if (d == lane) {
      from.index.push_back(fixed(0));
      to.index.push_back(fixed(0));
      continue;
    }
    const unsigned loop = build.loop(reach.shape[d]);
    from.index.push_back(at(loop, 1, reach.first[d]));
    to.index.push_back(at(loop));
  }
}

void copyRows(KernelBuilder &build, const Tensor &source, const Reach &reach, Access from,
              Access to) {
  addRowLoops(build, reach, source.laneDim, from, to);
  const unsigned lane = build.loop(reach.shape[source.laneDim]);
  from.index[source.laneDim] = to.index[source.laneDim] = at(lane);
  build.storeBits(build.operand(from), to);
}

/// Lanes come into place by a product with a shifted identity.
void copyLanes(KernelGraph &graph, KernelBuilder &build, const Tensor &source, const Reach &reach,
               Access from, Access to) {
  const unsigned lane = source.laneDim;
  const int64_t extent = reach.shape[lane], width = source.shape[lane], first = reach.first[lane];
  addRowLoops(build, reach, lane, from, to);
  std::vector<float> identity(size_t(extent * width), 0), inside(size_t(extent), 0);
  for (int64_t p = 0; p < extent; ++p)
    if (const int64_t k = p + first; k >= 0 && k < width)
      identity[size_t(p * width + k)] = inside[size_t(p)] = 1;
  const unsigned p = build.loop(extent), k = build.loop(width, LoopKind::Contracted);
  const unsigned shift =
      addConstant(graph, source.name + ".shift", {extent, width}, source.type, 1, identity);
  const uint32_t pad = std::exchange(from.pad, 0);
  from.index[lane] = at(k);
  to.index[lane] = at(p);
  build.term(from, {shift, {at(p), at(k)}, 0}, 0);
  unsigned value = build.accumulator();
  if (pad) {
    const uint32_t bits = source.type == ElementType::Int8 ? uint32_t(int32_t(int8_t(pad)))
                                                           : bitsOf(decode(source.type, pad));
    const unsigned mask =
        addConstant(graph, source.name + ".inside", {extent}, ElementType::Fp32, 0, inside);
    value = build.op(AluOp::SelectF32,
                     {build.operand({mask, {at(p)}, 0}), value, build.immediate(bits)});
  }
  if (source.type == ElementType::Int8)
    build.storeBits(build.op(AluOp::CvtI32I8, {value}), to);
  else
    build.store(value, to);
}

class Padder {
public:
  explicit Padder(KernelGraph &graph) : graph(graph) {}
  unsigned run();

private:
  KernelGraph &graph;
  std::map<std::tuple<unsigned, uint32_t, Reach>, unsigned> copies;
  size_t place = 0; ///< in the order

  void redirect(Access &access, const Reach &reach, bool lanes);
};

/// Lets the access read a copy, written before the kernel at hand, if it leaves its tensor. The
/// kernel may move in memory; the access is a copy, too.
void Padder::redirect(Access &access, const Reach &reach, bool lanes) {
  const Tensor source = graph.tensors[access.tensor];
  if (reach.shape == source.shape)
    return;
  const auto [known, isNew] = copies.try_emplace({access.tensor, access.pad, reach}, 0);
  if (isNew) {
    known->second =
        addTensor(graph, source.name + ".padded", reach.shape, source.type, source.laneDim);
    KernelBuilder build(graph);
    const Access from{access.tensor, {}, access.pad}, to{known->second, {}, 0};
    if (lanes)
      copyLanes(graph, build, source, reach, from, to);
    else
      copyRows(build, source, reach, from, to);
    build.finish(source.name + ".padded");
    std::rotate(graph.order.begin() + ptrdiff_t(place), graph.order.end() - 1, graph.order.end());
    ++place;
  }
  access.tensor = known->second;
  for (size_t d = 0; d < reach.first.size(); ++d)
    access.index[d].offset -= reach.first[d];
}

unsigned Padder::run() {
  for (place = 0; place < graph.order.size(); ++place) {
    const auto [isHost, number] = graph.order[place];
    for (size_t t = 0; !isHost && t < graph.kernels[number].terms.size(); ++t) {
      Term term = graph.kernels[number].terms[t];
      redirect(term.w, rowsOf(graph, graph.kernels[number], term.w), false);
      redirect(term.a, lanesOf(graph, graph.kernels[number], term.a), true);
      graph.kernels[number].terms[t] = std::move(term);
    }
  }
  return unsigned(copies.size());
}

} // namespace

unsigned padOperands(KernelGraph &graph) { return Padder(graph).run(); }

} // namespace millrace::forms
