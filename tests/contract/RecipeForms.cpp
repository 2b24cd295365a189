// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of a recipe's steps, as the former would make them: lanes stay where they are through
// the VXM, what lies elsewhere is brought there by contractions with 0/1 matrices.
#include "tests/contract/Realiser.h"

namespace millrace::test::recipes {

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

} // namespace millrace::test::recipes

namespace millrace::test {

Expected<forms::KernelGraph> realise(const Recipe &recipe) {
  Expected<std::vector<Value>> values = valuesOf(recipe);
  if (!values)
    return values.takeError();
  return recipes::Realiser(recipe, *values).run();
}

} // namespace millrace::test
