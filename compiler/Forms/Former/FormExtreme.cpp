// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The greatest and the least lane of a row.
#include "compiler/Forms/Former/Former.h"

#include "compiler/Forms/Builders.h"

namespace millrace::forms {

using namespace mlir;

/// Is the greatest of `lanes` lanes found sooner by turning each of `rows` rows than by spreading
/// every lane over a row of its own? Turns wait for each other; spread rows run through an ALU, one
/// every few cycles on each side of the VXM.
static bool turnsSooner(int64_t rows, int64_t lanes) {
  constexpr int64_t kTurn = 250, kPerRow = 2; // cycles
  const int64_t turns = 64 - int64_t(llvm::countl_zero(uint64_t(lanes - 1)));
  return turns * (kTurn + kPerRow * rows) < kPerRow * rows * lanes;
}

/// The greatest or the least lane of every row, in all lanes: of each lane and the one `turned`
/// lanes on, which is of as many lanes, and so on. The MXM turns rows.
std::optional<unsigned> Former::extremeByTurns(unsigned tensor, AluOp combine) {
  auto [entry, isNew] = extremes.try_emplace({tensor, combine}, std::nullopt);
  if (!isNew)
    return entry->second;
  unsigned now = tensor;
  const int64_t lanes = graph.tensors[tensor].shape[graph.tensors[tensor].laneDim];
  for (int64_t covered = 1; covered < lanes;) {
    const int64_t turned = std::min(covered, lanes - covered);
    const std::optional<Parts> parts = partsToSelect(now);
    if (!parts)
      return std::nullopt;
    const Tensor from = graph.tensors[now];
    const unsigned next = addTensor(graph, from.name, from.shape, from.type, from.laneDim);
    KernelBuilder build(graph);
    Access here{now, {}, 0};
    for (int64_t extent : from.shape)
      here.index.push_back(at(build.loop(extent)));
    const AffineIndex lane = here.index[from.laneDim];
    const unsigned along = build.loop(lanes, LoopKind::Contracted);
    SmallVector<int64_t> turn;
    for (int64_t n = 0; n < lanes; ++n)
      turn.push_back((n + turned) % lanes);
    for (auto [part, factor] : parts->terms) {
      Access a = here;
      a.tensor = part;
      a.index[from.laneDim] = at(along);
      build.term(
          a, {selection(turn, lanes, graph.tensors[part].type, factor), {lane, at(along)}, 0}, 0);
    }
    const Scalar there = joined(build, *parts, from.type);
    build.store(build.op(combine, {there.node, build.load(here)}), {next, here.index, 0});
    build.finish(from.name);
    graph.tensors[next].unbounded = graph.tensors[now].unbounded;
    now = next;
    covered += turned;
  }
  return extremes[{tensor, combine}] = now;
}

/// Lanes [0, parts * size) of every row against each other, part by part.
unsigned Former::foldLanes(unsigned tensor, int64_t size, int64_t parts, AluOp combine) {
  constexpr int64_t kAtOnce = 4; // reads of a kernel
  auto [entry, isNew] = folded.try_emplace({tensor, combine}, 0);
  if (!isNew)
    return entry->second;
  const Tensor source = graph.tensors[tensor];
  const auto combined = [&](llvm::ArrayRef<std::pair<unsigned, int64_t>> from) { // first lanes
    std::vector<int64_t> shape = source.shape;
    shape[source.laneDim] = size;
    const unsigned to =
        addTensor(graph, source.name + ".folded", shape, source.type, source.laneDim);
    graph.tensors[to].unbounded = source.unbounded;
    KernelBuilder build(graph);
    Access here{to, {}, 0};
    for (int64_t extent : shape)
      here.index.push_back(at(build.loop(extent)));
    std::optional<unsigned> extreme;
    for (const auto &[part, first] : from) {
      Access its{part, here.index, 0};
      its.index[source.laneDim].offset = first;
      const unsigned loaded = build.load(its);
      extreme = extreme ? build.op(combine, {*extreme, loaded}) : loaded;
    }
    build.store(*extreme, here);
    build.finish(source.name + ".folded");
    return to;
  };
  std::vector<std::pair<unsigned, int64_t>> open;
  for (int64_t part = 0; part < parts; ++part)
    open.emplace_back(tensor, part * size);
  do {
    std::vector<std::pair<unsigned, int64_t>> next;
    for (size_t at = 0; at < open.size(); at += kAtOnce)
      next.emplace_back(
          combined(llvm::ArrayRef(open).slice(at, std::min<size_t>(kAtOnce, open.size() - at))), 0);
    open = std::move(next);
  } while (open.size() > 1);
  return folded[{tensor, combine}] = open.front().first;
}

/// The greatest or the least of lanes [first, first + count) of every row, in `extent` lanes.
std::optional<unsigned> Former::extremeOfFew(unsigned tensor, int64_t first, int64_t count,
                                             int64_t extent, AluOp combine) {
  auto [entry, isNew] = extremesOfFew.try_emplace({tensor, first, extent, combine}, std::nullopt);
  const SmallVector<unsigned, 3> parts =
      isNew ? diagonalsOf(tensor, first, 1, count) : SmallVector<unsigned, 3>();
  if (parts.empty())
    return entry->second;
  const Tensor source = graph.tensors[tensor];
  std::vector<int64_t> shape = source.shape;
  shape[source.laneDim] = extent;
  const unsigned result =
      addTensor(graph, source.name + ".rest", shape, source.type, source.laneDim);
  graph.tensors[result].unbounded = source.unbounded;
  KernelBuilder build(graph);
  Access to{result, {}, 0};
  for (int64_t size : shape)
    to.index.push_back(at(build.loop(size)));
  Access a{0, to.index, 0};
  a.index[source.laneDim] = at(build.loop(count, LoopKind::Running));
  const AffineIndex along = at(build.loop(count, LoopKind::Contracted));
  a.index.push_back(along);
  for (unsigned part : parts) {
    a.tensor = part;
    build.term(a,
               {splat({extent, count}, graph.tensors[a.tensor].type, 1),
                {to.index[source.laneDim], along},
                0},
               0);
  }
  const unsigned extreme = build.reduce(combine, build.accumulator());
  build.store(source.type == ElementType::Int8 ? build.op(AluOp::CvtI32F32, {extreme}) : extreme,
              to);
  build.finish(source.name + ".rest");
  return extremesOfFew[{tensor, first, extent, combine}] = result;
}

/// What is the same in all lanes, of `tensor` or the greatest or the least of it and `other`, in
/// `extent` lanes.
unsigned Former::widen(unsigned tensor, std::optional<unsigned> other, int64_t extent,
                       AluOp combine) {
  auto [entry, isNew] = copiesInLanes.try_emplace({tensor, extent, combine}, 0);
  if (!isNew)
    return entry->second;
  const Tensor source = graph.tensors[tensor];
  std::vector<int64_t> shape = source.shape;
  const int64_t size = shape[source.laneDim];
  shape[source.laneDim] = extent;
  const unsigned result =
      addTensor(graph, source.name + ".wide", shape, source.type, source.laneDim);
  graph.tensors[result].unbounded = source.unbounded;
  const auto copy = [&](int64_t first, int64_t parts, int64_t lanes) {
    KernelBuilder build(graph);
    Access from{tensor, {}, 0};
    for (auto [dim, count] : llvm::enumerate(source.shape))
      from.index.push_back(at(build.loop(dim == source.laneDim ? lanes : count)));
    unsigned value = build.load(from);
    if (other)
      value = build.op(combine, {value, build.load({*other, from.index, 0})});
    Access to{result, from.index, 0};
    AffineIndex &index = to.index[source.laneDim];
    index.offset = first;
    if (parts > 1)
      index.terms.emplace_back(build.loop(parts), size);
    build.store(value, to);
    build.finish(source.name + ".wide");
  };
  copy(0, extent / size, size);
  if (const int64_t rest = extent % size)
    copy(extent - rest, 1, rest);
  return copiesInLanes[{tensor, extent, combine}] = result;
}

/// The greatest or the least lane of a row, in all lanes. First the parts of the row against each
/// other, then the lanes of one part: by turns, or each to a row of its own (a diagonal), spread by
/// ones, and running over those rows.
FailureOr<Scalar> Former::extremeOverLanes(Attempt &attempt, linalg::LinalgOp op,
                                           const Point &index) {
  if (attempt.contracts || attempt.runs)
    return failure();
  Value input = reducedInput(op), result = op->getResult(0);
  Value base = baseOf(input);
  const AffineMap map = op.getIndexingMapsArray()[0];
  if (!map.isProjectedPermutation() || shapeOf(base) != shapeOf(input) ||
      combinedValue(op) != op.getBlock()->getArgument(0))
    return failure();
  const unsigned laneDim = lanesOfReduced(op);
  SmallVector<unsigned> dims = reducedDims(op);
  llvm::sort(dims);
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) // no window
    for (auto [dim, expr] : llvm::enumerate(map.getResults()))
      if (expr.isFunctionOfDim(loop) && op.getStaticLoopRanges()[loop] != shapeOf(input)[dim])
        return failure();
  FailureOr<Stored> value = store(base, laneDim);
  if (failed(value))
    return failure();
  Stored row = *value;
  const ElementType type = graph.tensors[row.tensor].type;
  const bool isFloat = type != ElementType::Int8;
  std::vector<int64_t> shape = graph.tensors[row.tensor].shape;
  SmallVector<unsigned> kept = llvm::to_vector(llvm::seq(0u, unsigned(shapeOf(input).size()))),
                        runs;
  for (unsigned d : dims)
    if (d != laneDim && shapeOf(input)[d] > 1) {
      runs.push_back(d + (row.laneSplit && d > laneDim));
      kept.erase(llvm::find(kept, d));
    }
  if (row.laneSplit) // its parts
    runs.push_back(laneDim);
  const auto dim = unsigned(llvm::find(kept, laneDim) - kept.begin());
  if (!runs.empty()) { // running over all but lanes
    std::vector<int64_t> reduced;
    for (auto [d, extent] : llvm::enumerate(shape))
      if (!llvm::is_contained(runs, unsigned(d)))
        reduced.push_back(extent);
    unsigned tensor = newTensor(result, reduced, dim);
    LogicalResult done = emitKernel(
        result, reduced, dim, {},
        [&](Attempt &inner, const Point &point) -> FailureOr<Scalar> {
          Access from{row.tensor, {}, 0};
          const Linear *next = point.begin();
          for (auto [d, extent] : llvm::enumerate(shape))
            from.index.push_back(
                (llvm::is_contained(runs, unsigned(d))
                     ? inner.space.dimension({op, unsigned(d)}, extent, LoopKind::Running)
                     : *next++)
                    .affine());
          return Scalar{inner.build.reduce(aluOf(combinerOf(op), true), inner.build.load(from)),
                        Scalar::Kind::F32}; // exact for int8, too
        },
        [&](Attempt &inner, const Point &point, Scalar greatest) {
          Access to{tensor, {}, 0};
          for (const Linear &at : point)
            to.index.push_back(at.affine());
          inner.build.store(greatest.node, to);
        });
    if (failed(done))
      return failure();
    row = {tensor, 0};
    shape = reduced;
  }
  const AluOp combine = aluOf(combinerOf(op), isFloat),
              inFloat = aluOf(combinerOf(op), /*isFloat=*/true); // exact for int8, too
  const bool isWide = attempt.laneExtent() > options.lanes;      // the result: more than a vector
  std::optional<Access> rest; // of lanes behind those that are folded
  if (shape[dim] > options.lanes) {
    const int64_t size = partOf(shape[dim], options.lanes), whole = shape[dim] / size;
    if (const int64_t others = shape[dim] - whole * size) {
      const std::optional<unsigned> tensor = extremeOfFew(
          row.tensor, whole * size, others, isWide ? size : attempt.laneExtent(), combine);
      if (!tensor)
        return failure();
      rest.emplace();
      rest->tensor = *tensor;
    }
    row.tensor = foldLanes(row.tensor, size, whole, inFloat);
    shape[dim] = size;
  }
  const int64_t lanes = shape[dim];
  const AffineIndex column = attempt.lane >= 0 ? at(unsigned(attempt.lane)) : fixed(0);
  std::vector<AffineIndex> where; // of the row, and the result's lanes
  AffineMap to = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  for (unsigned i = 0; i < shape.size(); ++i)
    if (const AffineExpr *at = llvm::find(to.getResults(), map.getResult(kept[i])); i == dim)
      where.push_back(column);
    else if (at != to.getResults().end())
      where.push_back(index[size_t(at - to.getResults().begin())].affine());
    else if (shape[i] == 1)
      where.push_back(fixed(0));
  if (where.size() != shape.size())
    return failure();
  const auto withRest = [&](unsigned extreme) {
    if (!rest)
      return Scalar{extreme, isFloat ? Scalar::Kind::F32 : Scalar::Kind::I32};
    rest->index = where;
    if (!isFloat)
      extreme = attempt.build.op(AluOp::CvtI32F32, {extreme});
    return Scalar{attempt.build.op(inFloat, {extreme, attempt.build.load(*rest)}),
                  Scalar::Kind::F32};
  };
  int64_t rows = 1;
  for (int64_t extent : shape)
    rows *= extent;
  rows /= lanes;
  const bool turns = type != ElementType::Int8 && attempt.lane >= 0 && turnsSooner(rows, lanes);
  if (isWide) {
    if (lanes * 2 <= options.lanes && !rest) // copies of few lanes would cut all that meets them
      if (const std::optional<unsigned> all =
              extremeOfFew(row.tensor, 0, lanes, attempt.laneExtent(), combine))
        return Scalar{attempt.build.load({*all, where, 0}), Scalar::Kind::F32};
    std::optional<unsigned> extreme = turns ? extremeByTurns(row.tensor, inFloat) : std::nullopt;
    if (!extreme)
      extreme = extremeOfFew(row.tensor, 0, lanes, lanes, combine);
    if (!extreme)
      return failure();
    const unsigned wide = widen(*extreme, rest ? std::optional(rest->tensor) : std::nullopt,
                                attempt.laneExtent(), inFloat);
    return Scalar{attempt.build.load({wide, where, 0}), Scalar::Kind::F32};
  }
  if (turns && attempt.laneExtent() <= lanes)
    if (std::optional<unsigned> extreme = extremeByTurns(row.tensor, inFloat))
      return withRest(attempt.build.load({*extreme, where, 0}));
  const SmallVector<unsigned, 3> parts = diagonalsOf(row.tensor, 0, 1, lanes);
  if (parts.empty())
    return failure();
  Linear from = attempt.space.dimension({op, 1000}, lanes, LoopKind::Running);
  Linear along = attempt.space.dimension({op, 1001}, lanes, LoopKind::Contracted);
  Access a{0, where, 0};
  a.index[dim] = from.affine();
  a.index.push_back(along.affine());
  for (unsigned part : parts) {
    a.tensor = part; // [..., lane][lane']
    unsigned ones = splat({attempt.laneExtent(), lanes}, graph.tensors[part].type, 1);
    attempt.build.term(a, {ones, {column, along.affine()}, 0}, 0);
  }
  attempt.contracts = attempt.runs = true;
  return withRest(attempt.build.reduce(combine, attempt.build.accumulator()));
}

} // namespace millrace::forms
