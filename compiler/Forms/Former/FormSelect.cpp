// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lanes that lie apart or elsewhere. A lane stays where it is on its way through the VXM, and a and
// w of a product meet lane by lane; where the model asks for something else, a contraction with a
// 0/1 matrix brings lanes into place.
#include "compiler/Forms/Former/Former.h"

#include <numeric>

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
  SmallVector<int64_t> lanes;
  for (int64_t p = 0; p < extent; ++p)
    lanes.push_back(first + stride * p);
  Linear begin = rest;
  begin.offset = leaves ? 0 : rest.offset + below;
  return selections[key] = emitSelection(space, tensor, begin, span, lanes, *parts, shape,
                                         leaves ? pad : std::nullopt);
}

/// Lanes that lie evenly are read in whole steps, with what lies between: the odd lanes of a row
/// would cut it elsewhere than the even ones do, and both together into pieces of two.
void Former::readWholeSteps(const LoopSpace &space, int64_t width, Linear &begin, int64_t &span,
                            MutableArrayRef<int64_t> lanes) {
  int64_t step = 0;
  bool isInside = true;
  for (int64_t lane : lanes) {
    step = std::gcd(step, lane - lanes.front());
    isInside &= lane >= 0 && lane < span;
  }
  const auto [low, high] = space.range(begin);
  for (auto [loop, coefficient] : begin.terms)
    isInside &= step == 0 || coefficient % step == 0;
  if (step < 2 || !isInside || low < 0)
    return;
  const int64_t before = low % step, after = (step - (before + span) % step) % step;
  if (high + span + after > width)
    return;
  begin.offset -= before;
  span += before + after;
  for (int64_t &lane : lanes)
    lane += before;
}

/// Emits the contraction for it: lane p of the result is lane `begin` + lanes[p] of `tensor`, if
/// that is one of the `span` lanes from `begin` on, else zero or `pad`.
unsigned Former::emitSelection(const LoopSpace &space, unsigned tensor, Linear begin, int64_t span,
                               SmallVector<int64_t> lanes, const Parts &parts,
                               std::vector<int64_t> shape, std::optional<float> pad) {
  const Tensor from = graph.tensors[tensor];
  const unsigned lane = from.laneDim;
  readWholeSteps(space, from.shape[lane], begin, span, lanes);
  const auto extent = int64_t(lanes.size());
  unsigned result =
      addTensor(graph, from.name + ".lanes", shape, from.type, unsigned(shape.size() - 1));
  KernelBuilder build(graph);
  Access x{tensor, {}, 0}, to{result, {}, 0};
  x.index.resize(from.shape.size());
  x.index[lane] = fixed(begin.offset);
  for (auto [outer, coefficient] : begin.terms) {
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
  for (auto [part, factor] : parts.terms) {
    x.tensor = part;
    const unsigned matrix = selection(lanes, span, graph.tensors[part].type, factor);
    build.term(x, {matrix, {at(p), at(k)}, 0}, 0);
  }
  if (pad && *pad != 0) {
    std::vector<float> inside;
    for (int64_t k : lanes)
      inside.push_back(k >= 0 && k < span);
    unsigned mask = addConstant(graph, "inside", {extent}, ElementType::Fp32, 0, inside);
    const unsigned value = joined(build, parts, from.type).node;
    build.store(build.op(AluOp::SelectF32,
                         {build.operand({mask, {at(p)}, 0}), value, build.constant(*pad)}),
                to);
  } else {
    storeJoined(build, parts, to);
  }
  build.finish(from.name + ".lanes");
  graph.tensors[result].unbounded = graph.tensors[tensor].unbounded;
  return result;
}

/// The lanes of `tensor` in the order of the result's, where the loops of the result's lane
/// dimension lead to other lanes: a permutation of channels. Its dimensions as those of
/// `selectLanes`, but for the lanes, which are those of the result; nothing if the result's loops
/// do not run through all its lanes, fewer than `leastLoops` of them lead to lanes of the tensor,
/// or an index leaves it. A lane is repeated along a loop that does not lead to another.
std::optional<unsigned> Former::permuteLanes(const Attempt &attempt, unsigned tensor,
                                             const Linear &index, Linear &rest, size_t leastLoops) {
  const Linear &to = attempt.resultLane;
  const Tensor from = graph.tensors[tensor];
  rest = index;
  Linear inside;
  int64_t extent = 1;
  for (auto [loop, coefficient] : to.terms) {
    extent *= attempt.space.loop(loop).extent;
    if (auto found = rest.terms.find(loop); found != rest.terms.end()) {
      inside.terms[loop] = found->second;
      rest.terms.erase(found);
    }
  }
  const auto [low, high] = attempt.space.range(to);
  const auto [least, most] = attempt.space.range(inside);
  rest.offset += least;
  const auto [first, last] = attempt.space.range(rest);
  const std::optional<Parts> parts = partsToSelect(tensor);
  if (to.terms.size() < 2 || inside.terms.size() < leastLoops || low != 0 || high + 1 != extent ||
      (from.role == TensorRole::Input && leastLoops > 1) || first < 0 ||
      last + most - least >= from.shape[from.laneDim] || !parts)
    return std::nullopt;
  SmallVector<int64_t> lanes(size_t(extent), -1);
  for (int64_t point = 0; point < extent; ++point) {
    int64_t left = point, lane = 0, source = -least;
    for (auto [loop, coefficient] : to.terms) {
      const int64_t step = left % attempt.space.loop(loop).extent;
      left /= attempt.space.loop(loop).extent;
      lane += coefficient * step;
      if (auto found = inside.terms.find(loop); found != inside.terms.end())
        source += found->second * step;
    }
    lanes[size_t(lane)] = source;
  }
  std::vector<int64_t> shape, key = {-1, tensor, rest.offset};
  for (auto [loop, coefficient] : rest.terms) {
    shape.push_back(attempt.space.loop(loop).extent);
    key.insert(key.end(), {coefficient, attempt.space.loop(loop).extent});
  }
  key.push_back(-1);
  key.insert(key.end(), lanes.begin(), lanes.end());
  for (unsigned dim = 0; dim < from.shape.size(); ++dim)
    if (dim != from.laneDim)
      shape.push_back(from.shape[dim]);
  shape.push_back(extent);
  if (auto known = selections.find(key); known != selections.end())
    return known->second;
  return selections[key] = emitSelection(attempt.space, tensor, rest, most - least + 1, lanes,
                                         *parts, shape, std::nullopt);
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
  graph.tensors[result].unbounded = graph.tensors[tensor].unbounded;
  return result;
}

/// matrix[p, k] = factor where k == lanes[p]
unsigned Former::selection(ArrayRef<int64_t> lanes, int64_t span, ElementType type, float factor) {
  std::vector<int64_t> key{-2, span, int64_t(type), int64_t(bitsOf(factor))};
  key.insert(key.end(), lanes.begin(), lanes.end());
  auto [entry, isNew] = splats.try_emplace(key, 0);
  if (isNew) {
    std::vector<float> values(lanes.size() * size_t(span), 0);
    for (auto [p, k] : llvm::enumerate(lanes))
      if (k >= 0 && k < span)
        values[p * size_t(span) + size_t(k)] = factor;
    entry->second = addConstant(graph, "select", {int64_t(lanes.size()), span}, type, 1, values);
  }
  return entry->second;
}

/// The same for lanes in their order.
unsigned Former::selection(int64_t extent, ElementType type, float factor) {
  return selection(llvm::to_vector(llvm::seq<int64_t>(0, extent)), extent, type, factor);
}

/// Whether the result's lanes are runs of one loop, and of so few lanes that copies of that length
/// would cut all that meets the result into small pieces; or it is stored not to be cut.
bool Former::hasShortRuns(const Attempt &attempt) const {
  constexpr int64_t kShortRun = 16;
  return attempt.resultLane.terms.size() > 1 &&
         (attempt.laneExtent() < kShortRun || joinedBeside.contains(attempt.root));
}

/// Whether the index moves with one of the loops along the result's lanes.
bool Former::isAlong(const Attempt &attempt, const Linear &index) {
  return llvm::any_of(attempt.resultLane.terms,
                      [&](const auto &term) { return index.uses(term.first); });
}

/// Loads a value that is the same in short runs of the result's lanes (the angles of interleaved
/// pairs), by a matrix that repeats its lanes: rows of one run each would cut the lanes of all that
/// meets the result. Fails if the runs are long or the value does not lie along them, as sums do
/// that are no products: they come in all lanes of a run.
FailureOr<Scalar> Former::loadRepeated(Attempt &attempt, const Resolved &at) {
  const auto runsAlong = [&](const Linear &index) { return isAlong(attempt, index); };
  if (!hasShortRuns(attempt) || at.padded || llvm::count_if(at.index, runsAlong) != 1 ||
      computesSum(at.base, /*orProduct=*/false))
    return failure();
  const auto lane = unsigned(llvm::find_if(at.index, runsAlong) - at.index.begin());
  FailureOr<Stored> source = store(at.base, lane);
  if (failed(source) || source->laneSplit || graph.tensors[source->tensor].laneDim != lane)
    return failure();
  Linear rest;
  const std::optional<unsigned> copy =
      permuteLanes(attempt, source->tensor, at.index[lane], rest, /*leastLoops=*/1);
  return copy ? loadCopy(attempt, *copy, at, lane, rest, attempt.resultLane)
              : FailureOr<Scalar>(failure());
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
  Linear others, along{0, {{unsigned(attempt.lane), 1}}};
  std::optional<unsigned> copy;
  if ((copy = permuteLanes(attempt, source->tensor, at.index[lane], others, /*leastLoops=*/2))) {
    rest = others;
    along = attempt.resultLane;
  }
  if (!copy)
    copy =
        selectLanes(attempt.space, source->tensor, stride, attempt.laneExtent(), rest, pad, false);
  return copy ? loadCopy(attempt, *copy, at, lane, rest, along) : FailureOr<Scalar>(failure());
}

/// Loads what selectLanes() or permuteLanes() made of the value's dimension `lane`: dimensions of
/// the loops of `rest`, the others, and the lanes at `along`.
FailureOr<Scalar> Former::loadCopy(Attempt &attempt, unsigned copy, const Resolved &at,
                                   unsigned lane, const Linear &rest, const Linear &along) {
  Resolved here{at.base, {}, at.padded, at.pad};
  for (auto [loop, coefficient] : rest.terms)
    here.index.push_back(Linear{0, {{loop, 1}}});
  for (auto [dim, index] : llvm::enumerate(at.index))
    if (dim != lane)
      here.index.push_back(index);
  here.index.push_back(along);
  return load(attempt, Stored{copy, 0}, here);
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
                       {selection(extent, graph.tensors[part].type, factor),
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
