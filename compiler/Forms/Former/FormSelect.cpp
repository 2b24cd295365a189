// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lanes that lie apart or elsewhere. A lane stays where it is on its way through the VXM, and a and
// w of a product meet lane by lane; where the model asks for something else, a contraction with a
// 0/1 matrix brings lanes into place.
#include "compiler/Forms/Former/Former.h"

namespace millrace::forms {

using namespace mlir;

/// The lanes `stride * p + rest` of `tensor` for p < extent as a tensor of their own. Its
/// dimensions: one per loop of `rest`, the others of `tensor` (neighbouring rows stay neighbours),
/// the lanes. Lanes outside are zero, or `pad`.
std::optional<unsigned> Former::selectLanes(const LoopSpace &space, unsigned tensor, int64_t stride,
                                            int64_t extent, const Linear &rest,
                                            std::optional<float> pad, bool isInstalled) {
  const Tensor from = graph.tensors[tensor];
  unsigned lane = from.laneDim;
  int64_t reach = stride * (extent - 1), width = from.shape[lane];
  int64_t below = std::min<int64_t>(0, reach), above = std::max<int64_t>(0, reach);
  auto [low, high] = space.range(rest);
  bool leaves = low + below < 0 || high + above >= width;
  const bool isInput = !isInstalled && from.role == TensorRole::Input && from.hostLoops.empty() &&
                       from.hostScale == 0 && from.hostShape == from.shape;
  if (!isInput && leaves && !rest.terms.empty())
    return std::nullopt;
  std::vector<int64_t> shape,
      key = {tensor, stride, extent, rest.offset, pad ? int64_t(bitsOf(*pad)) : -1, isInput};
  for (auto [loop, coefficient] : rest.terms) {
    shape.push_back(space.loop(loop).extent);
    key.insert(key.end(), {coefficient, space.loop(loop).extent});
  }
  for (unsigned dim = 0; dim < from.shape.size(); ++dim)
    if (dim != lane)
      shape.push_back(from.shape[dim]);
  shape.push_back(extent);
  if (auto known = selections.find(key); known != selections.end())
    return known->second;
  if (isInput)
    return selections[key] = selectInput(space, tensor, stride, extent, rest, pad.value_or(0));
  const std::optional<Parts> parts = partsToSelect(tensor);
  if (!parts || (from.type == ElementType::Int8 && pad.value_or(0) != 0))
    return std::nullopt;

  // The matrix reads `span` lanes, and result p the lane `first + stride * p` of them.
  int64_t first = leaves ? rest.offset : -below, span = leaves ? width : above - below + 1;
  std::vector<float> inside(size_t(extent), 0);
  for (int64_t p = 0; p < extent; ++p)
    inside[size_t(p)] = first + stride * p >= 0 && first + stride * p < span;
  unsigned result =
      addTensor(graph, from.name + ".lanes", shape, from.type, unsigned(shape.size() - 1));
  KernelBuilder build(graph);
  Access x{tensor, {}, 0}, to{result, {}, 0};
  x.index.resize(from.shape.size());
  x.index[lane] = fixed(leaves ? 0 : rest.offset + below);
  for (auto [outer, coefficient] : rest.terms) {
    unsigned loop = build.loop(space.loop(outer).extent);
    x.index[lane].terms.push_back({loop, coefficient});
    to.index.push_back(at(loop));
  }
  for (unsigned dim = 0; dim < from.shape.size(); ++dim) {
    if (dim == lane)
      continue;
    unsigned loop = build.loop(from.shape[dim]);
    x.index[dim] = at(loop);
    to.index.push_back(at(loop));
  }
  unsigned p = build.loop(extent), k = build.loop(span, LoopKind::Contracted);
  x.index[lane].terms.push_back({k, 1});
  to.index.push_back(at(p));
  for (auto [part, factor] : parts->terms) {
    x.tensor = part;
    const unsigned matrix =
        selection(extent, span, stride, first, graph.tensors[part].type, factor);
    build.term(x, {matrix, {at(p), at(k)}, 0}, 0);
  }
  if (leaves && pad && *pad != 0) {
    unsigned mask = addConstant(graph, "inside", {extent}, ElementType::Fp32, 0, inside);
    const unsigned value = joined(build, *parts, from.type).node;
    build.store(build.op(AluOp::SelectF32,
                         {build.operand({mask, {at(p)}, 0}), value, build.constant(*pad)}),
                to);
  } else {
    storeJoined(build, *parts, to);
  }
  build.finish(from.name + ".lanes");
  if (unbounded.contains(tensor))
    unbounded.insert(result);
  return selections[key] = result;
}

/// The same of an input: the host writes one more copy of it, in that order.
unsigned Former::selectInput(const LoopSpace &space, unsigned tensor, int64_t stride,
                             int64_t extent, const Linear &rest, float pad) {
  Tensor copy = graph.tensors[tensor];
  const unsigned lane = copy.laneDim;
  const std::vector<int64_t> host = copy.hostShape;
  copy.shape.clear();
  copy.hostStart.assign(host.size(), 0);
  copy.hostStart[lane] = rest.offset;
  copy.hostFill = encode(copy.type, pad);
  auto loop = [&](int64_t count, unsigned hostDim, int64_t step) {
    copy.hostLoops.push_back({count, unsigned(copy.shape.size()), 1, hostDim, step});
    copy.shape.push_back(count);
  };
  for (auto [outer, coefficient] : rest.terms)
    loop(space.loop(outer).extent, lane, coefficient);
  for (unsigned dim = 0; dim < host.size(); ++dim)
    if (dim != lane)
      loop(host[dim], dim, 1);
  loop(extent, lane, stride);
  copy.laneDim = unsigned(copy.shape.size() - 1);
  graph.tensors.push_back(std::move(copy));
  const auto result = unsigned(graph.tensors.size() - 1);
  if (unbounded.contains(tensor))
    unbounded.insert(result);
  return result;
}

/// matrix[p, k] = factor where k == stride * p + first
unsigned Former::selection(int64_t extent, int64_t span, int64_t stride, int64_t first,
                           ElementType type, float factor) {
  auto [entry, isNew] = splats.try_emplace(
      {-2, extent, span, stride, first, int64_t(type), int64_t(bitsOf(factor))}, 0);
  if (isNew) {
    std::vector<float> values(size_t(extent * span), 0);
    for (int64_t p = 0; p < extent; ++p)
      if (int64_t k = stride * p + first; k >= 0 && k < span)
        values[size_t(p * span + k)] = factor;
    entry->second = addConstant(graph, "select", {extent, span}, type, 1, values);
  }
  return entry->second;
}

/// Loads a value whose lane index is not the result's.
FailureOr<Scalar> Former::loadSelected(Attempt &attempt, const Resolved &at, unsigned lane) {
  Linear rest = at.index[lane];
  int64_t stride = rest.terms[unsigned(attempt.lane)];
  rest.terms.erase(unsigned(attempt.lane));
  FailureOr<Stored> source = store(at.base, lane);
  if (failed(source) || source->laneSplit || graph.tensors[source->tensor].laneDim != lane)
    return failure();
  std::optional<float> pad;
  if (at.padded)
    pad = isa<FloatAttr>(at.pad) ? float(cast<FloatAttr>(at.pad).getValueAsDouble())
                                 : float(cast<IntegerAttr>(at.pad).getValue().getSExtValue());
  std::optional<unsigned> copy =
      selectLanes(attempt.space, source->tensor, stride, attempt.laneExtent(), rest, pad, false);
  if (!copy)
    return failure();
  Resolved here{at.base, {}, at.padded, at.pad};
  for (auto [loop, coefficient] : rest.terms)
    here.index.push_back(Linear{0, {{loop, 1}}});
  for (auto [dim, index] : llvm::enumerate(at.index))
    if (dim != lane)
      here.index.push_back(index);
  here.index.push_back(Linear{0, {{unsigned(attempt.lane), 1}}});
  return load(attempt, Stored{*copy, 0}, here);
}

/// Loads a value into lanes further on: a contraction with an identity, whose columns lie where the
/// result does.
FailureOr<Scalar> Former::loadShifted(Attempt &attempt, const Resolved &at, unsigned lane) {
  FailureOr<Stored> source = store(at.base, lane);
  if (failed(source) || source->laneSplit || attempt.contracts || at.padded)
    return failure();
  const ElementType type = graph.tensors[source->tensor].type;
  FailureOr<Access> a = access(attempt, *source, at);
  if (failed(a) || graph.tensors[source->tensor].laneDim != lane ||
      !isa<FloatType>(getElementTypeOrSelf(at.base.getType())))
    return failure();
  const std::optional<Parts> parts = partsToSelect(source->tensor);
  if (!parts)
    return failure();
  int64_t extent = attempt.laneExtent();
  Linear along = attempt.space.dimension({nullptr, 1000}, extent, LoopKind::Contracted);
  for (auto &[loop, coefficient] : a->index[lane].terms)
    if (int(loop) == attempt.lane && !along.terms.empty())
      loop = along.terms.begin()->first;
  for (auto [part, factor] : parts->terms) {
    a->tensor = part;
    attempt.build.term(*a,
                       {selection(extent, extent, 1, 0, graph.tensors[part].type, factor),
                        {millrace::forms::at(unsigned(attempt.lane)), along.affine()},
                        0},
                       0);
  }
  attempt.contracts = attempt.isShifted = true;
  return joined(attempt.build, *parts, type);
}

/// Makes the lane index of a run-time operand the contracted loop alone.
void Former::alignOperand(Attempt &attempt, Access &access) {
  unsigned lane = graph.tensors[access.tensor].laneDim;
  Linear rest;
  rest.offset = access.index[lane].offset;
  std::optional<unsigned> contracted;
  for (auto [loop, coefficient] : access.index[lane].terms) {
    if (attempt.space.loop(loop).kind != LoopKind::Contracted)
      rest.terms[loop] = coefficient;
    else if (contracted || coefficient != 1)
      return;
    else
      contracted = loop;
  }
  if (!contracted || (rest.terms.empty() && rest.offset == 0))
    return;
  std::optional<unsigned> copy =
      selectLanes(attempt.space, access.tensor, 1, attempt.space.loop(*contracted).extent, rest,
                  std::nullopt, true);
  if (!copy)
    return;
  access.tensor = *copy;
  access.index.erase(access.index.begin() + lane);
  std::vector<AffineIndex> outer;
  for (auto [loop, coefficient] : rest.terms)
    outer.push_back(at(loop));
  access.index.insert(access.index.begin(), outer.begin(), outer.end());
  access.index.push_back(at(*contracted));
}

} // namespace millrace::forms
