// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of a recipe's steps, as the former would make them: lanes stay where they are through
// the VXM, what lies elsewhere is brought there by contractions with 0/1 matrices.
#include "compiler/Forms/Builders.h"
#include "tests/contract/Recipe.h"

#include <cmath>
#include <tuple>

namespace millrace::test {
namespace {

using namespace forms;

class Realiser {
public:
  Realiser(const Recipe &recipe, std::vector<Value> values)
      : recipe(recipe), values(std::move(values)) {}

  Expected<KernelGraph> run();

private:
  void realise();
  void realiseContraction();
  void makeInput();
  void makeEmbedding();
  void makeLinear();
  void makeProduct();
  /// result = a w^T, scaled, over the last two dimensions; `a` and `w` may share a first one.
  void multiply(unsigned a, unsigned w, unsigned result, float scale);
  void makeConv();
  void makeMap();
  void makePool();
  void makeReduce();
  void makeCopy(int64_t stride, int64_t from);
  void makeConcat();
  void makeReshape();
  void makeSoftmax();
  void makeLayerNorm();
  void makeParts();

  /// Parallel loops over a value, and its element there.
  Access everyPoint(KernelBuilder &build, unsigned tensor);
  unsigned randomConstant(std::vector<int64_t> shape, ElementType type, unsigned laneDim,
                          float scale, int64_t seed);
  /// w[rows, lanes]: 1 where lane = row + from.
  unsigned selection(int64_t rows, int64_t lanes, int64_t from, ElementType type);
  unsigned splat(std::vector<int64_t> shape, ElementType type, float value);
  unsigned intermediate(const char *what, std::vector<int64_t> shape, ElementType type,
                        unsigned laneDim = 1) {
    return addTensor(graph, name() + "." + what, std::move(shape), type, laneDim);
  }
  /// The contraction's sum in fp32, times `scale`.
  unsigned sum(KernelBuilder &build, float scale);
  /// int8 products grow with the square root of their number; fp16 ones are kept near 1.
  float spread(ElementType type, int64_t k) const {
    return type == ElementType::Int8 ? 1 / (64 * std::sqrt(float(k))) : 1;
  }
  float weightScale(ElementType type, int64_t k) const {
    return type == ElementType::Int8 ? 127 : 1.7f / std::sqrt(float(k));
  }
  unsigned scalar(KernelBuilder &build, unsigned v, int64_t which);

  const Step &step() const { return recipe.steps[at_]; }
  std::string name() const { return "s" + std::to_string(at_); }
  unsigned operand(size_t which) const { return tensors[step().operands[which]]; }
  const Value &valueAt(size_t which) const { return values[step().operands[which]]; }
  const Value &result() const { return values[at_]; }

  const Recipe &recipe;
  std::vector<Value> values;
  std::vector<unsigned> tensors; ///< by step
  KernelGraph graph;
  size_t at_ = 0; ///< the step that is being made
  std::map<std::tuple<std::string, std::vector<int64_t>, ElementType, unsigned, int64_t>, unsigned>
      constants;
};

Expected<KernelGraph> Realiser::run() {
  std::vector<bool> isOutput(values.size(), true);
  for (const Step &s : recipe.steps)
    for (unsigned o : s.operands)
      isOutput[o] = false;
  for (unsigned o : recipe.outputs)
    isOutput[o] = true;
  graph.name = "random";
  for (at_ = 0; at_ < recipe.steps.size(); ++at_) {
    const std::string &op = step().operation;
    if (op == "input" || op == "constant") {
      makeInput();
      continue;
    }
    tensors.push_back(addTensor(graph, name(), result().shape, result().type, result().laneDim(),
                                isOutput[at_] ? TensorRole::Output : TensorRole::Intermediate));
    realise();
  }
  if (graph.kernels.empty())
    return Error{"the recipe has no operation"};
  if (const std::string wrong = graph.verify(); !wrong.empty())
    return Error{wrong};
  return graph;
}

void Realiser::realise() {
  const std::string &op = step().operation;
  if (op == "embedding")
    makeEmbedding();
  else if (op == "map" || op == "affine" || op == "zip" || op == "convert")
    makeMap();
  else if (op == "pool")
    makePool();
  else if (op == "reduce")
    makeReduce();
  else if (op == "window")
    makeCopy(step()("stride"), step()("from", 0));
  else if (op == "concat")
    makeConcat();
  else if (op == "flatten" || op == "unflatten")
    makeReshape();
  else if (op == "parts")
    makeParts();
  else
    realiseContraction();
}

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
  else if (op == "conv")
    makeConv();
  else if (op == "softmax")
    makeSoftmax();
  else if (op == "layernorm")
    makeLayerNorm();
}

Access Realiser::everyPoint(KernelBuilder &build, unsigned tensor) {
  Access access{tensor, {}, 0};
  const std::vector<int64_t> &shape = graph.tensors[tensor].shape;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    access.index.push_back(shape.size() == 4 && dim == 0 ? fixed(0) : at(build.loop(shape[dim])));
  return access;
}

unsigned Realiser::randomConstant(std::vector<int64_t> shape, ElementType type, unsigned laneDim,
                                  float scale, int64_t seed) {
  auto [it, isNew] = constants.try_emplace({"random", shape, type, laneDim, seed}, 0);
  if (isNew) {
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    it->second = addConstant(graph, "w" + std::to_string(graph.tensors.size()), shape, type,
                             laneDim, randomValues(size_t(count), unsigned(seed), scale));
  }
  return it->second;
}

unsigned Realiser::selection(int64_t rows, int64_t lanes, int64_t from, ElementType type) {
  auto [it, isNew] = constants.try_emplace({"selection", {rows, lanes}, type, 1, from}, 0);
  if (isNew) {
    std::vector<float> bits(size_t(rows * lanes), 0);
    for (int64_t row = 0; row < rows; ++row)
      bits[size_t(row * lanes + row + from)] = 1;
    it->second = addConstant(graph, "select" + std::to_string(graph.tensors.size()), {rows, lanes},
                             type, 1, bits);
  }
  return it->second;
}

unsigned Realiser::splat(std::vector<int64_t> shape, ElementType type, float value) {
  auto [it, isNew] = constants.try_emplace({"splat", shape, type, 1, int64_t(value)}, 0);
  if (isNew)
    it->second =
        addSplat(graph, "splat" + std::to_string(graph.tensors.size()), shape, type, 1, value);
  return it->second;
}

unsigned Realiser::sum(KernelBuilder &build, float scale) {
  unsigned value = build.accumulator();
  const Term &term = build.kernel().terms[0];
  if (graph.tensors[term.a.tensor].type == ElementType::Int8)
    value = build.op(AluOp::CvtI32F32, {value});
  return scale == 1 ? value : build.op(AluOp::MulF32, {value, build.constant(scale)});
}

void Realiser::makeInput() {
  const bool isInput = step().operation == "input";
  const Value &v = result();
  if (isInput)
    tensors.push_back(addTensor(graph, name(), v.shape, v.type, v.laneDim(), TensorRole::Input));
  else
    tensors.push_back(randomConstant(v.shape, v.type, v.laneDim(),
                                     v.type == ElementType::Int8 ? 127 : 1, step()("weights")));
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

unsigned Realiser::scalar(KernelBuilder &build, unsigned v, int64_t which) {
  auto number = [&](float value) { return build.constant(value); };
  switch (which) {
  case 0:
    return build.op(AluOp::MaxF32, {v, number(0)});
  case 1:
    return build.op(AluOp::NegF32, {v});
  case 2:
    return build.op(AluOp::AbsF32, {v});
  case 3:
    return build.op(AluOp::TanhF32, {v});
  case 4:
    return build.op(AluOp::SigmoidF32, {v});
  case 5:
    return build.op(AluOp::ExpF32, {build.op(AluOp::MinF32, {v, number(2)})});
  case 6:
    return build.op(AluOp::SqrtF32, {build.op(AluOp::AbsF32, {v})});
  case 7:
    return build.op(AluOp::RcpF32,
                    {build.op(AluOp::AddF32, {build.op(AluOp::AbsF32, {v}), number(1)})});
  case 8:
    return build.op(AluOp::MulF32, {v, number(0.75f)});
  case 9:
    return build.op(AluOp::AddF32, {v, number(0.25f)});
  case 10: {
    const unsigned isNegative = build.op(AluOp::LtF32, {v, number(0)});
    return build.op(AluOp::SelectF32, {isNegative, build.op(AluOp::MulF32, {v, number(0.1f)}), v});
  }
  default: {
    const unsigned erf = build.op(AluOp::ErfF32, {build.op(AluOp::MulF32, {v, number(0.7f)})});
    return build.op(AluOp::MulF32, {v, build.op(AluOp::AddF32, {erf, number(1)})});
  }
  }
}

void Realiser::makeMap() {
  const std::string &op = step().operation;
  KernelBuilder build(graph);
  Access to = everyPoint(build, tensors[at_]), from = to;
  from.tensor = operand(0);
  unsigned value = build.load(from);
  if (op == "zip") {
    constexpr AluOp combine[] = {AluOp::AddF32, AluOp::SubF32, AluOp::MaxF32, AluOp::MinF32,
                                 AluOp::MulF32};
    Access other = to;
    other.tensor = operand(1);
    value = build.op(combine[step()("combine", 0) % 5], {value, build.load(other)});
  } else if (op == "affine") {
    const int64_t n = result().lanes(), seed = step()("weights");
    const AffineIndex lane = to.index[result().laneDim()];
    for (AluOp one : {AluOp::MulF32, AluOp::AddF32}) {
      const unsigned c =
          randomConstant({n}, ElementType::Fp32, 0, 1, seed + (one == AluOp::AddF32));
      value = build.op(one, {value, build.operand({c, {lane}, 0})});
    }
  } else if (op == "convert") {
    const bool was = valueAt(0).type == ElementType::Int8, is = result().type == ElementType::Int8;
    if (was != is) // quantised by 1/64
      value = build.op(AluOp::MulF32, {value, build.constant(is ? 64 : 1.0f / 64)});
  } else {
    for (const auto &[name, which] : step().numbers)
      value = scalar(build, value, which);
  }
  build.store(value, to);
  build.finish(name());
}

void Realiser::makePool() {
  const Value &x = valueAt(0), &y = result();
  const bool average = step()("average", 0);
  const int64_t ky = step()("height"), kx = step()("width"), stride = step()("stride"),
                pad = step()("pad", 0);
  KernelBuilder build(graph);
  const unsigned c = build.loop(y.shape[1]), oy = build.loop(y.shape[2]),
                 ox = build.loop(y.shape[3]);
  const uint32_t outside = encode(x.type, average ? 0 : -INFINITY);
  unsigned value = 0;
  for (int64_t tap = 0; tap < ky * kx; ++tap) {
    const unsigned next = build.load(
        {operand(0),
         {fixed(0), at(c), at(oy, stride, tap / kx - pad), at(ox, stride, tap % kx - pad)},
         outside});
    value = tap == 0 ? next : build.op(average ? AluOp::AddF32 : AluOp::MaxF32, {value, next});
  }
  if (average)
    value = build.op(AluOp::MulF32, {value, build.constant(1.0f / float(ky * kx))});
  build.store(value, {tensors[at_], {fixed(0), at(c), at(oy), at(ox)}, 0});
  build.finish(name());
}

/// Over all rows, in the running form.
void Realiser::makeReduce() {
  const Value &x = valueAt(0);
  KernelBuilder build(graph);
  Access from{operand(0), {}, 0}, to{tensors[at_], {}, 0};
  int64_t count = 1;
  for (size_t dim = 0; dim < x.shape.size(); ++dim) {
    const bool runs = x.shape[dim] != result().shape[dim];
    const AffineIndex index =
        x.shape.size() == 4 && dim == 0
            ? fixed(0)
            : at(build.loop(x.shape[dim], runs ? LoopKind::Running : LoopKind::Parallel));
    count *= runs ? x.shape[dim] : 1;
    from.index.push_back(index);
    to.index.push_back(runs ? fixed(0) : index);
  }
  unsigned value = build.load(from);
  const bool average = step()("average", 0);
  if (count > 1)
    value = build.reduce(average ? AluOp::AddF32 : AluOp::MaxF32, value);
  if (average)
    value = build.op(AluOp::MulF32, {value, build.constant(1.0f / float(count))});
  build.store(value, to);
  build.finish(name());
}

/// Rows from `from` on, every `stride`th, zeros outside.
void Realiser::makeCopy(int64_t stride, int64_t from) {
  KernelBuilder build(graph);
  const Access to = everyPoint(build, tensors[at_]);
  Access source = to;
  source.tensor = operand(0);
  AffineIndex &row = source.index[to.index.size() == 4 ? 2 : to.index.size() - 2];
  row.terms[0].second = stride, row.offset = from;
  build.store(build.load(source), to);
  build.finish(name());
}

void Realiser::makeConcat() {
  int64_t row = 0;
  for (size_t part = 0; part < 2; ++part) {
    KernelBuilder build(graph);
    const Access from = everyPoint(build, operand(part));
    Access to = from;
    const size_t dim = to.index.size() == 4 ? 2 : to.index.size() - 2;
    to.tensor = tensors[at_], to.index[dim].offset = row;
    build.store(build.load(from), to);
    build.finish(name() + (part ? ".tail" : ".head"));
    row += valueAt(part).shape[dim];
  }
}

/// Between an image and a matrix with a row per pixel.
void Realiser::makeReshape() {
  const bool flat = step().operation == "flatten";
  const std::vector<int64_t> &image = flat ? valueAt(0).shape : result().shape;
  KernelBuilder build(graph);
  const unsigned c = build.loop(image[1]), y = build.loop(image[2]), x = build.loop(image[3]);
  Access pixel{flat ? operand(0) : tensors[at_], {fixed(0), at(c), at(y), at(x)}, 0};
  Access row{flat ? tensors[at_] : operand(0), {{0, {{y, image[3]}, {x, 1}}}, at(c)}, 0};
  build.store(build.load(flat ? pixel : row), flat ? row : pixel);
  build.finish(name());
}

void Realiser::makeParts() {
  const Value &v = result();
  const unsigned other =
      addTensor(graph, name() + ".other", v.shape, v.type, v.laneDim(), TensorRole::Output);
  KernelBuilder build(graph);
  const Access to = everyPoint(build, tensors[at_]);
  Access from = to, second = to;
  from.tensor = operand(0), second.tensor = other;
  const unsigned value = build.load(from);
  build.store(build.op(AluOp::MaxF32, {value, build.constant(0)}), to);
  build.store(build.op(AluOp::MinF32, {value, build.constant(0)}), second);
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

} // namespace

Expected<forms::KernelGraph> realise(const Recipe &recipe) {
  Expected<std::vector<Value>> values = valuesOf(recipe);
  if (!values)
    return values.takeError();
  return Realiser(recipe, *values).run();
}

} // namespace millrace::test
