// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A recipe's steps that multiply: products, convolutions, and what takes its sums along lanes.
#include "tests/contract/Realiser.h"

#include <utility>

namespace millrace::test::recipes {

void Realiser::realiseContraction() {
  const std::string &op = step().operation;
  const Value &x = valueAt(0);
  if (op == "linear")
    makeLinear();
  else if (op == "product")
    makeProduct();
  else if (op == "swapped")
    multiply(randomConstant({step()("rows"), x.lanes()}, x.type, 1, weightScale(x.type, x.lanes()),
                            step()("weights")),
             operand(0), tensors[at_], spread(x.type, x.lanes()));
  else if (op == "transpose")
    multiply(selection(x.lanes(), x.lanes(), 0, x.type), operand(0), tensors[at_], 1);
  else if (op == "lanes")
    multiply(operand(0), selection(step()("lanes"), x.lanes(), step()("from", 0), x.type),
             tensors[at_], 1);
  else if (op == "sums") // every kernel of one type and width takes the same tile of ones
    multiply(operand(0), splat({x.lanes(), x.lanes()}, x.type, 1), tensors[at_],
             1 / float(x.lanes()));
  else if (op == "partsums")
    makePartSums();
  else if (op == "conv")
    makeConv();
  else if (op == "softmax")
    makeSoftmax();
  else if (op == "layernorm")
    makeLayerNorm();
}

void Realiser::makeEmbedding() {
  const int64_t rows = step()("rows"), lanes = step()("lanes"), table = step()("table");
  const unsigned ids =
      addTensor(graph, name() + ".ids", {rows, 1}, ElementType::Int32, 1, TensorRole::Input);
  graph.tensors[ids].hostType = "int64";
  graph.tensors[ids].hostShape = {rows};
  graph.tensors[ids].hostExtent = table;
  KernelBuilder build(graph);
  const unsigned token = build.loop(rows), lane = build.loop(lanes);
  Access row{randomConstant({table, lanes}, ElementType::Fp16, 1, 1, step()("weights")),
             {fixed(0), at(lane)},
             0};
  row.lookup = Lookup{0, ids, {at(token), fixed(0)}};
  build.store(build.load(row), {tensors[at_], {at(token), at(lane)}, 0});
  build.finish(name());
}

void Realiser::makeLinear() {
  const Value &x = valueAt(0);
  const int64_t k = x.lanes(), n = step()("lanes");
  const unsigned w = randomConstant({n, k}, x.type, 1, weightScale(x.type, k), step()("weights"));
  KernelBuilder build(graph);
  std::vector<AffineIndex> a, r;
  for (size_t dim = 0; dim + 1 < x.shape.size(); ++dim)
    r.push_back(at(build.loop(x.shape[dim])));
  a = r;
  const unsigned column = build.loop(n), depth = build.loop(k, LoopKind::Contracted);
  a.push_back(at(depth)), r.push_back(at(column));
  build.term({operand(0), a, 0}, {w, {at(column), at(depth)}, 0}, x.elements() * n);
  unsigned value = sum(build, spread(x.type, k));
  if (step()("bias", 0)) {
    const unsigned bias = randomConstant({n}, ElementType::Fp32, 0, 1, step()("weights"));
    value = build.op(AluOp::AddF32, {value, build.operand({bias, {at(column)}, 0})});
  }
  if (step()("relu", 0))
    value = build.op(AluOp::MaxF32, {value, build.constant(0)});
  build.store(value, {tensors[at_], r, 0});
  build.finish(name());
}

void Realiser::makeProduct() {
  const Value &x = valueAt(0);
  multiply(operand(0), operand(1), tensors[at_],
           x.type == ElementType::Int8 ? spread(x.type, x.lanes())
                                       : 1 / std::sqrt(float(x.lanes())));
}

void Realiser::multiply(unsigned a, unsigned w, unsigned result, float scale) {
  KernelBuilder build(graph);
  std::vector<AffineIndex> batch;
  const std::vector<int64_t> &shape = graph.tensors[a].shape;
  if (shape.size() == 3)
    batch.push_back(at(build.loop(shape[0])));
  const int64_t depth = shape.back(), rows = shape[shape.size() - 2],
                columns = graph.tensors[w].shape[shape.size() - 2];
  const unsigned m = build.loop(rows), n = build.loop(columns),
                 k = build.loop(depth, LoopKind::Contracted);
  auto index = [&](unsigned row, unsigned lane) {
    std::vector<AffineIndex> list = batch;
    list.push_back(at(row)), list.push_back(at(lane));
    return list;
  };
  build.term({a, index(m, k), 0}, {w, index(n, k), 0}, rows * columns * depth);
  build.store(sum(build, scale), {result, index(m, n), 0});
  build.finish(name());
}

/// As statistics of groups of channels: the rows of a part add up in the MXM, or run in the VXM. In
/// fp32, too, which hides no rounding.
void Realiser::makePartSums() {
  const Value &x = valueAt(0);
  const int64_t size = x.lanes() / result().shape[0], lanes = result().shape[1];
  KernelBuilder build(graph);
  const unsigned part = build.loop(result().shape[0]), lane = build.loop(lanes);
  const unsigned depth = build.loop(size, LoopKind::Contracted);
  bool runs = step()("runs", 0);
  std::vector<AffineIndex> a, w{at(lane), at(depth)};
  std::vector<int64_t> shape{lanes, size};
  for (size_t dim = 0; dim < x.shape.size(); ++dim) {
    if (dim == x.laneDim()) {
      a.push_back({0, {{part, size}, {depth, 1}}});
    } else if (x.shape.size() == 4 && dim == 0) {
      a.push_back(fixed(0));
    } else if (std::exchange(runs, false)) {
      a.push_back(at(build.loop(x.shape[dim], LoopKind::Running)));
    } else {
      const unsigned row = build.loop(x.shape[dim], LoopKind::Contracted);
      a.push_back(at(row)), w.push_back(at(row));
      shape.push_back(x.shape[dim]);
    }
  }
  const int64_t seed = step()("weights", 0), count = x.elements() / result().shape[0];
  const unsigned weights = seed ? randomConstant(shape, x.type, 1, weightScale(x.type, count), seed)
                                : splat(shape, x.type, 1);
  build.term({operand(0), a, 0}, {weights, w, 0}, 0);
  unsigned value = build.accumulator();
  if (step()("runs", 0))
    value = build.reduce(x.type == ElementType::Int8 ? AluOp::AddI32 : AluOp::AddF32, value);
  if (x.type == ElementType::Int8)
    value = build.op(AluOp::CvtI32F32, {value});
  const Access to{tensors[at_], {at(part), at(lane)}, 0};
  Access inFull = to;
  inFull.tensor =
      addTensor(graph, name() + ".sums", result().shape, ElementType::Fp32, 1, TensorRole::Output);
  build.storeBits(value, inFull);
  const float scale = seed ? spread(x.type, count) : 1 / float(count);
  build.store(build.op(AluOp::MulF32, {value, build.constant(scale)}), to);
  build.finish(name());
}

void Realiser::makeConv() {
  const Value &x = valueAt(0), &y = result();
  const int64_t groups = step()("groups") ? step()("groups") : x.shape[1];
  const int64_t inGroup = x.shape[1] / groups, filters = y.shape[1] / groups;
  const int64_t ky = step()("height"), kx = step()("width"), depth = inGroup * ky * kx;
  const int64_t stride = step()("stride"), dilation = step()("dilation"), pad = step()("pad", 0);
  const unsigned w = randomConstant({y.shape[1], inGroup, ky, kx}, x.type, 1,
                                    weightScale(x.type, depth), step()("weights"));
  KernelBuilder build(graph);
  const unsigned g = build.loop(groups), f = build.loop(filters), oy = build.loop(y.shape[2]),
                 ox = build.loop(y.shape[3]), c = build.loop(inGroup, LoopKind::Contracted),
                 ty = build.loop(ky, LoopKind::Contracted),
                 tx = build.loop(kx, LoopKind::Contracted);
  const AffineIndex filter{0, {{g, filters}, {f, 1}}};
  build.term({operand(0),
              {fixed(0),
               {0, {{g, inGroup}, {c, 1}}},
               window(oy, stride, ty, dilation, -pad),
               window(ox, stride, tx, dilation, -pad)},
              0},
             {w, {filter, at(c), at(ty), at(tx)}, 0}, y.elements() * depth);
  unsigned value = sum(build, spread(x.type, depth));
  if (step()("bias", 0)) {
    const unsigned bias = randomConstant({y.shape[1]}, ElementType::Fp32, 0, 1, step()("weights"));
    value = build.op(AluOp::AddF32, {value, build.operand({bias, {filter}, 0})});
  }
  const std::vector<AffineIndex> point = {fixed(0), filter, at(oy), at(ox)};
  if (step().operands.size() == 2)
    value = build.op(AluOp::AddF32, {value, build.load({operand(1), point, 0})});
  if (step()("relu", 0))
    value = build.op(AluOp::MaxF32, {value, build.constant(0)});
  build.store(value, {tensors[at_], point, 0});
  build.finish(name());
}

void Realiser::makeSoftmax() {
  const ElementType type = result().type;
  const int64_t rows = result().shape[0], lanes = result().lanes();
  const unsigned x = operand(0);
  const unsigned most = intermediate("max", {rows}, type, 0),
                 diagonal = intermediate("max.diag", {rows, rows}, type),
                 p = intermediate("exp", {rows, lanes}, type),
                 inverse = intermediate("1/sum", {rows, lanes}, ElementType::Fp32);
  const unsigned eye = selection(lanes, lanes, 0, type), eyeRows = selection(rows, rows, 0, type);

  KernelBuilder build(graph);
  unsigned i = build.loop(rows), j = build.loop(lanes, LoopKind::Running),
           k = build.loop(lanes, LoopKind::Contracted);
  build.term({eye, {at(j), at(k)}, 0}, {x, {at(i), at(k)}, 0}, 0);
  build.store(build.reduce(AluOp::MaxF32, build.accumulator()), {most, {at(i)}, 0});
  build.finish(name() + ".max");

  i = build.loop(rows), j = build.loop(rows);
  const unsigned onDiagonal = build.load({eyeRows, {at(i), at(j)}, 0});
  build.store(
      build.op(AluOp::SelectF32, {onDiagonal, build.load({most, {at(j)}, 0}), build.constant(0)}),
      {diagonal, {at(i), at(j)}, 0});
  build.finish(name() + ".diagonal");

  i = build.loop(rows), j = build.loop(lanes), k = build.loop(rows, LoopKind::Contracted);
  build.term({diagonal, {at(i), at(k)}, 0}, {splat({lanes, rows}, type, -1), {at(j), at(k)}, 0}, 0);
  const unsigned shifted =
      build.op(AluOp::AddF32, {build.accumulator(), build.load({x, {at(i), at(j)}, 0})});
  build.store(build.op(AluOp::ExpF32, {shifted}), {p, {at(i), at(j)}, 0});
  build.finish(name() + ".exp");

  i = build.loop(rows), j = build.loop(lanes), k = build.loop(lanes, LoopKind::Contracted);
  build.term({p, {at(i), at(k)}, 0}, {splat({lanes, lanes}, type, 1), {at(j), at(k)}, 0}, 0);
  build.store(build.op(AluOp::RcpF32, {build.accumulator()}), {inverse, {at(i), at(j)}, 0});
  build.finish(name() + ".sum");

  i = build.loop(rows), j = build.loop(lanes);
  build.store(build.op(AluOp::MulF32, {build.load({p, {at(i), at(j)}, 0}),
                                       build.operand({inverse, {at(i), at(j)}, 0})}),
              {tensors[at_], {at(i), at(j)}, 0});
  build.finish(name() + ".scale");
}

/// Squares as the sum of two bf16 terms, as the former has them.
void Realiser::makeLayerNorm() {
  const ElementType type = result().type;
  const std::vector<int64_t> shape = result().shape;
  const int64_t rows = shape[0], lanes = shape[1];
  const unsigned d = intermediate("centred", shape, type),
                 high = intermediate("square.hi", shape, ElementType::Bf16),
                 low = intermediate("square.lo", shape, ElementType::Bf16);
  const unsigned onesB = splat({lanes, lanes}, ElementType::Bf16, 1);

  KernelBuilder build(graph);
  unsigned m = build.loop(rows), n = build.loop(lanes), k = build.loop(lanes, LoopKind::Contracted);
  build.term({operand(0), {at(m), at(k)}, 0}, {splat({lanes, lanes}, type, 1), {at(n), at(k)}, 0},
             0);
  const unsigned mean =
      build.op(AluOp::MulF32, {build.accumulator(), build.constant(1.0f / float(lanes))});
  const unsigned centred =
      build.op(AluOp::SubF32, {build.load({operand(0), {at(m), at(n)}, 0}), mean});
  const unsigned square = build.op(AluOp::MulF32, {centred, centred});
  const unsigned squareHigh = build.op(AluOp::CvtF32Bf16, {square});
  const unsigned rest =
      build.op(AluOp::SubF32, {square, build.op(AluOp::CvtBf16F32, {squareHigh})});
  build.store(centred, {d, {at(m), at(n)}, 0});
  build.storeBits(squareHigh, {high, {at(m), at(n)}, 0});
  build.store(rest, {low, {at(m), at(n)}, 0});
  build.finish(name() + ".centre");

  m = build.loop(rows), n = build.loop(lanes), k = build.loop(lanes, LoopKind::Contracted);
  for (unsigned part : {high, low})
    build.term({part, {at(m), at(k)}, 0}, {onesB, {at(n), at(k)}, 0}, 0);
  const unsigned variance =
      build.op(AluOp::MulF32, {build.accumulator(), build.constant(1.0f / float(lanes))});
  const unsigned scale =
      build.op(AluOp::RsqrtF32, {build.op(AluOp::AddF32, {variance, build.constant(1e-2f)})});
  build.store(build.op(AluOp::MulF32, {build.load({d, {at(m), at(n)}, 0}), scale}),
              {tensors[at_], {at(m), at(n)}, 0});
  build.finish(name() + ".normalise");
}

} // namespace millrace::test::recipes
