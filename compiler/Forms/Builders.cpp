// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Builders.h"

#include <algorithm>
#include <cmath>

namespace millrace::forms {

std::vector<float> randomValues(size_t count, unsigned seed, float scale) {
  uint64_t state = 0x9e3779b97f4a7c15ull * (seed + 1);
  std::vector<float> values(count);
  for (float &value : values) { // xorshift64*
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    value = scale * (float((state * 0x2545f4914f6cdd1dull) >> 40) / float(1 << 23) - 1);
  }
  return values;
}

/// Indices in [-extent, extent): the first and the last row from either side, then any.
static std::vector<uint8_t> randomIndices(const Tensor &tensor, unsigned seed) {
  const int64_t extent = tensor.hostExtent, corners[] = {extent - 1, -extent, 0, -1};
  std::vector<float> values = randomValues(size_t(elementCount(tensor)), seed, float(extent));
  std::vector<uint8_t> bytes(4 * values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t any = std::clamp(int64_t(std::floor(values[i])), -extent, extent - 1);
    const auto index = int32_t(i < 4 ? corners[i] : any);
    std::memcpy(&bytes[4 * i], &index, 4);
  }
  return bytes;
}

std::map<unsigned, std::vector<uint8_t>> randomInputs(const KernelGraph &graph, unsigned seed) {
  std::map<unsigned, std::vector<uint8_t>> inputs;
  for (unsigned i = 0; i < graph.tensors.size(); ++i)
    if (const Tensor &tensor = graph.tensors[i]; tensor.role == TensorRole::Input) {
      if (tensor.hostExtent) {
        inputs[i] = randomIndices(tensor, seed + i);
        continue;
      }
      bool integer = tensor.type == ElementType::Int8 || tensor.type == ElementType::UInt8;
      inputs[i] = encodeAll(
          tensor.type, randomValues(size_t(elementCount(tensor)), seed + i, integer ? 127 : 1));
    }
  return inputs;
}

namespace {

/// Scale that keeps sums of k products near 1, or int8 sums inside int8 after requantisation.
float weightScale(ElementType type, int64_t k) {
  return type == ElementType::Int8 ? 127.0f : 1.7f / std::sqrt(float(k));
}

/// Bias, optional residual, ReLU and the store of a contraction's sum. `channel` is the result's
/// lane loop.
struct Epilogue {
  KernelGraph &graph;
  ElementType type;
  int64_t k, n;
  bool bias, relu;
  unsigned seed;

  unsigned channelConstant(KernelBuilder &build, const char *name, unsigned channel,
                           std::vector<float> values) const {
    unsigned tensor = addConstant(graph, name, {n}, ElementType::Fp32, 0, values);
    return build.operand({tensor, {at(channel)}, 0});
  }
  unsigned sum(KernelBuilder &build, unsigned channel) const {
    unsigned value = build.accumulator();
    if (type == ElementType::Int8) {
      std::vector<float> scales = randomValues(size_t(n), seed + 90, 0.25f);
      for (float &scale : scales)
        scale = (1 + scale) / (127.0f * std::sqrt(float(k)));
      value = build.op(AluOp::CvtI32F32, {value});
      value = build.op(AluOp::MulF32, {value, channelConstant(build, "scale", channel, scales)});
    }
    if (bias)
      value = build.op(AluOp::AddF32, {value, channelConstant(build, "bias", channel,
                                                              randomValues(size_t(n), seed + 91))});
    return value;
  }
  unsigned finish(KernelBuilder &build, unsigned value) const {
    return relu ? build.op(AluOp::MaxF32, {value, build.constant(0)}) : value;
  }
};

/// y = relu(x w^T + bias), appended to `graph`.
void appendMatmul(KernelGraph &graph, const MatmulSpec &spec, unsigned x, unsigned y,
                  const std::string &name) {
  unsigned w =
      addConstant(graph, name + ".w", {spec.n, spec.k}, spec.type, 1,
                  randomValues(size_t(spec.n * spec.k), spec.seed, weightScale(spec.type, spec.k)));
  KernelBuilder build(graph);
  unsigned m = build.loop(spec.m), n = build.loop(spec.n),
           k = build.loop(spec.k, LoopKind::Contracted);
  build.term({x, {at(m), at(k)}, 0}, {w, {at(n), at(k)}, 0}, spec.m * spec.n * spec.k);
  Epilogue epilogue{graph, spec.type, spec.k, spec.n, spec.bias, spec.relu, spec.seed};
  build.store(epilogue.finish(build, epilogue.sum(build, n)), {y, {at(m), at(n)}, 0});
  build.finish(name);
}

} // namespace

KernelGraph buildMatmul(const MatmulSpec &spec) {
  KernelGraph graph;
  graph.name = "matmul";
  unsigned x = addTensor(graph, "x", {spec.m, spec.k}, spec.type, 1, TensorRole::Input);
  unsigned y = addTensor(graph, "y", {spec.m, spec.n}, spec.type, 1, TensorRole::Output);
  appendMatmul(graph, spec, x, y, "matmul");
  return graph;
}

KernelGraph buildPerceptron(int64_t rows, int64_t width, int64_t layers, ElementType type,
                            unsigned seed) {
  KernelGraph graph;
  graph.name = "perceptron";
  unsigned x = addTensor(graph, "x", {rows, width}, type, 1, TensorRole::Input);
  for (int64_t layer = 0; layer < layers; ++layer) {
    bool last = layer + 1 == layers;
    std::string name = "layer" + std::to_string(layer);
    unsigned y = addTensor(graph, last ? "y" : name + ".y", {rows, width}, type, 1,
                           last ? TensorRole::Output : TensorRole::Intermediate);
    appendMatmul(graph, {rows, width, width, type, true, !last, seed + unsigned(layer)}, x, y,
                 name);
    x = y;
  }
  return graph;
}

KernelGraph buildConv(const ConvSpec &spec) {
  KernelGraph graph;
  graph.name = "conv";
  int64_t group = spec.channels / spec.groups, filters = spec.filters / spec.groups;
  int64_t outHeight = (spec.height + 2 * spec.pad - spec.kernel) / spec.stride + 1;
  int64_t outWidth = (spec.width + 2 * spec.pad - spec.kernel) / spec.stride + 1;
  int64_t k = group * spec.kernel * spec.kernel;
  unsigned x = addTensor(graph, "x", {1, spec.channels, spec.height, spec.width}, spec.type, 1,
                         TensorRole::Input);
  unsigned w =
      addConstant(graph, "w", {spec.filters, group, spec.kernel, spec.kernel}, spec.type, 1,
                  randomValues(size_t(spec.filters * k), spec.seed, weightScale(spec.type, k)));
  std::vector<int64_t> shape = {1, spec.filters, outHeight, outWidth};
  unsigned y = addTensor(graph, "y", shape, spec.type, 1, TensorRole::Output);

  KernelBuilder build(graph);
  unsigned g = build.loop(spec.groups), f = build.loop(filters), oy = build.loop(outHeight),
           ox = build.loop(outWidth);
  unsigned c = build.loop(group, LoopKind::Contracted);
  unsigned ky = build.loop(spec.kernel, LoopKind::Contracted),
           kx = build.loop(spec.kernel, LoopKind::Contracted);
  AffineIndex filter{0, {{g, filters}, {f, 1}}};
  build.term({x,
              {fixed(0),
               {0, {{g, group}, {c, 1}}},
               window(oy, spec.stride, ky, 1, -spec.pad),
               window(ox, spec.stride, kx, 1, -spec.pad)},
              0},
             {w, {filter, at(c), at(ky), at(kx)}, 0}, spec.filters * outHeight * outWidth * k);
  // Biases and scales are indexed by the whole filter number.
  Epilogue epilogue{graph, spec.type, k, spec.filters, false, spec.relu, spec.seed};
  unsigned value = build.accumulator();
  auto channelConstant = [&](const char *name, std::vector<float> values) {
    unsigned tensor = addConstant(graph, name, {spec.filters}, ElementType::Fp32, 0, values);
    return build.operand({tensor, {filter}, 0});
  };
  if (spec.type == ElementType::Int8) {
    value = build.op(AluOp::CvtI32F32, {value});
    std::vector<float> scales = randomValues(size_t(spec.filters), spec.seed + 90, 0.25f);
    for (float &scale : scales)
      scale = (1 + scale) / (127.0f * std::sqrt(float(k)));
    value = build.op(AluOp::MulF32, {value, channelConstant("scale", scales)});
  }
  if (spec.bias)
    value = build.op(
        AluOp::AddF32,
        {value, channelConstant("bias", randomValues(size_t(spec.filters), spec.seed + 91))});
  std::vector<AffineIndex> point = {fixed(0), filter, at(oy), at(ox)};
  if (spec.residual) {
    unsigned r = addTensor(graph, "r", shape, spec.type, 1, TensorRole::Input);
    value = build.op(AluOp::AddF32, {value, build.load({r, point, 0})});
  }
  build.store(epilogue.finish(build, value), {y, point, 0});
  build.finish("conv");
  return graph;
}

KernelGraph buildMaxPool(int64_t channels, int64_t height, int64_t width, int64_t kernel,
                         int64_t stride, int64_t pad, ElementType type) {
  KernelGraph graph;
  graph.name = "maxpool";
  int64_t outHeight = (height + 2 * pad - kernel) / stride + 1,
          outWidth = (width + 2 * pad - kernel) / stride + 1;
  unsigned x = addTensor(graph, "x", {1, channels, height, width}, type, 1, TensorRole::Input);
  unsigned y =
      addTensor(graph, "y", {1, channels, outHeight, outWidth}, type, 1, TensorRole::Output);
  KernelBuilder build(graph);
  unsigned c = build.loop(channels), oy = build.loop(outHeight), ox = build.loop(outWidth);
  uint32_t lowest = encode(type, -INFINITY);
  unsigned best = 0;
  for (int64_t ky = 0; ky < kernel; ++ky)
    for (int64_t kx = 0; kx < kernel; ++kx) {
      unsigned tap = build.load(
          {x, {fixed(0), at(c), at(oy, stride, ky - pad), at(ox, stride, kx - pad)}, lowest});
      best = ky + kx == 0 ? tap : build.op(AluOp::MaxF32, {best, tap});
    }
  build.store(best, {y, {fixed(0), at(c), at(oy), at(ox)}, 0});
  build.finish("maxpool");
  return graph;
}

KernelGraph buildEmbedding(const EmbeddingSpec &spec) {
  KernelGraph graph;
  graph.name = "embedding";
  const auto size = [](int64_t x, int64_t y) { return size_t(x * y); };
  unsigned y =
      addTensor(graph, "y", {spec.tokens, spec.width}, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  unsigned token = build.loop(spec.tokens), lane = build.loop(spec.width);
  auto lookUp = [&](const char *table, const char *indices, const char *type, int64_t rows,
                    unsigned seed) {
    unsigned ids =
        addTensor(graph, indices, {spec.tokens, 1}, ElementType::Int32, 1, TensorRole::Input);
    graph.tensors[ids].hostType = type;
    graph.tensors[ids].hostShape = {spec.tokens};
    graph.tensors[ids].hostExtent = rows;
    unsigned constant = addConstant(graph, table, {rows, spec.width}, ElementType::Fp16, 1,
                                    randomValues(size(rows, spec.width), seed));
    Access row{constant, {fixed(0), at(lane)}, 0};
    row.lookup = Lookup{0, ids, {at(token), fixed(0)}};
    return build.load(row);
  };
  unsigned sum = lookUp("words", "ids", "int64", spec.rows, spec.seed);
  if (spec.segments)
    sum = build.op(AluOp::AddF32,
                   {sum, lookUp("segments", "kinds", "int32", spec.segments, spec.seed + 1)});
  if (spec.positions) {
    unsigned positions =
        addConstant(graph, "positions", {spec.tokens, spec.width}, ElementType::Fp16, 1,
                    randomValues(size(spec.tokens, spec.width), spec.seed + 2));
    sum = build.op(AluOp::AddF32, {sum, build.load({positions, {at(token), at(lane)}, 0})});
  }
  build.store(sum, {y, {at(token), at(lane)}, 0});
  build.finish("embedding");
  return graph;
}

KernelGraph buildLayerNorm(int64_t rows, int64_t width, float epsilon, unsigned seed) {
  KernelGraph graph;
  graph.name = "layernorm";
  std::vector<int64_t> shape = {rows, width};
  unsigned x = addTensor(graph, "x", shape, ElementType::Fp16, 1, TensorRole::Input);
  unsigned y = addTensor(graph, "y", shape, ElementType::Fp16, 1, TensorRole::Output);
  unsigned d = addTensor(graph, "centred", shape, ElementType::Fp16, 1);
  unsigned high = addTensor(graph, "square.hi", shape, ElementType::Bf16, 1);
  unsigned low = addTensor(graph, "square.lo", shape, ElementType::Bf16, 1);
  unsigned ones16 = addSplat(graph, "ones.fp16", {width, width}, ElementType::Fp16, 1, 1);
  unsigned onesB = addSplat(graph, "ones.bf16", {width, width}, ElementType::Bf16, 1, 1);
  unsigned gamma =
      addConstant(graph, "gamma", {width}, ElementType::Fp32, 0, randomValues(size_t(width), seed));
  unsigned beta = addConstant(graph, "beta", {width}, ElementType::Fp32, 0,
                              randomValues(size_t(width), seed + 1));

  KernelBuilder build(graph);
  unsigned m = build.loop(rows), n = build.loop(width), k = build.loop(width, LoopKind::Contracted);
  build.term({x, {at(m), at(k)}, 0}, {ones16, {at(n), at(k)}, 0}, 0);
  unsigned mean =
      build.op(AluOp::MulF32, {build.accumulator(), build.constant(1.0f / float(width))});
  unsigned centred = build.op(AluOp::SubF32, {build.load({x, {at(m), at(n)}, 0}), mean});
  unsigned square = build.op(AluOp::MulF32, {centred, centred});
  unsigned squareHigh = build.op(narrowFromF32(ElementType::Bf16), {square});
  unsigned rest = build.op(AluOp::SubF32, {square, build.op(AluOp::CvtBf16F32, {squareHigh})});
  build.store(centred, {d, {at(m), at(n)}, 0});
  build.storeBits(squareHigh, {high, {at(m), at(n)}, 0});
  build.store(rest, {low, {at(m), at(n)}, 0});
  build.finish("centre");

  m = build.loop(rows), n = build.loop(width), k = build.loop(width, LoopKind::Contracted);
  build.term({high, {at(m), at(k)}, 0}, {onesB, {at(n), at(k)}, 0}, 0);
  build.term({low, {at(m), at(k)}, 0}, {onesB, {at(n), at(k)}, 0}, 0);
  unsigned variance =
      build.op(AluOp::MulF32, {build.accumulator(), build.constant(1.0f / float(width))});
  unsigned scale =
      build.op(AluOp::RsqrtF32, {build.op(AluOp::AddF32, {variance, build.constant(epsilon)})});
  unsigned value = build.op(AluOp::MulF32, {build.load({d, {at(m), at(n)}, 0}), scale});
  value = build.op(AluOp::MulF32, {value, build.operand({gamma, {at(n)}, 0})});
  value = build.op(AluOp::AddF32, {value, build.operand({beta, {at(n)}, 0})});
  build.store(value, {y, {at(m), at(n)}, 0});
  build.finish("normalise");
  return graph;
}

namespace {

/// result[m, n] = scale * sum over k of a[m, k] w[n, k].
void appendProduct(KernelGraph &graph, unsigned a, unsigned w, unsigned result, float scale,
                   const char *name) {
  KernelBuilder build(graph);
  int64_t depth = graph.tensors[a].shape[1];
  unsigned m = build.loop(graph.tensors[a].shape[0]), n = build.loop(graph.tensors[w].shape[0]);
  unsigned k = build.loop(depth, LoopKind::Contracted);
  build.term({a, {at(m), at(k)}, 0}, {w, {at(n), at(k)}, 0},
             build.kernel().loops[m].extent * build.kernel().loops[n].extent * depth);
  unsigned value = build.accumulator();
  if (scale != 1)
    value = build.op(AluOp::MulF32, {value, build.constant(scale)});
  build.store(value, {result, {at(m), at(n)}, 0});
  build.finish(name);
}

} // namespace

KernelGraph buildAttention(int64_t tokens, int64_t width, int64_t head, bool causal,
                           unsigned seed) {
  KernelGraph graph;
  graph.name = "attention";
  constexpr ElementType fp16 = ElementType::Fp16;
  float spread = weightScale(fp16, width);
  unsigned x = addTensor(graph, "x", {tokens, width}, fp16, 1, TensorRole::Input);
  unsigned y = addTensor(graph, "y", {tokens, head}, fp16, 1, TensorRole::Output);
  unsigned weights[3], parts[3];
  const char *const names[] = {"q", "k", "v^T"};
  for (unsigned i = 0; i < 3; ++i) {
    weights[i] = addConstant(graph, std::string("w.") + names[i], {head, width}, fp16, 1,
                             randomValues(size_t(head * width), seed + i, spread));
    parts[i] = i < 2 ? addTensor(graph, names[i], {tokens, head}, fp16, 1)
                     : addTensor(graph, names[i], {head, tokens}, fp16, 1);
  }
  unsigned q = parts[0], k = parts[1], vT = parts[2];
  appendProduct(graph, x, weights[0], q, 1 / std::sqrt(float(head)), "q");
  appendProduct(graph, x, weights[1], k, 1, "k");
  appendProduct(graph, weights[2], x, vT, 1, "v^T"); // roles swapped: lanes are tokens

  std::vector<int64_t> square = {tokens, tokens};
  std::vector<float> mask(size_t(tokens * tokens)), maskT = mask, eye = mask;
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < tokens; ++j) {
      mask[size_t(i * tokens + j)] = maskT[size_t(j * tokens + i)] =
          causal && j > i ? -10000.0f : 0.0f;
      eye[size_t(i * tokens + j)] = i == j;
    }
  unsigned maskC = addConstant(graph, "mask", square, fp16, 1, mask);
  unsigned maskTC = addConstant(graph, "mask^T", square, fp16, 1, maskT);
  unsigned eyeC = addConstant(graph, "eye", square, fp16, 1, eye);
  unsigned minus = addSplat(graph, "minus", square, fp16, 1, -1);
  unsigned ones = addSplat(graph, "ones", {head, tokens}, fp16, 1,
                           1); // the sum comes in the lanes of the result
  unsigned m = addTensor(graph, "max", {tokens}, fp16, 0),
           diagonal = addTensor(graph, "max.diag", square, fp16, 1);
  unsigned p = addTensor(graph, "exp", square, fp16, 1),
           inverse = addTensor(graph, "1/sum", {tokens, head}, ElementType::Fp32, 1);

  KernelBuilder build(graph);
  unsigned i = build.loop(tokens), j = build.loop(tokens, LoopKind::Running),
           c = build.loop(head, LoopKind::Contracted);
  build.term({k, {at(j), at(c)}, 0}, {q, {at(i), at(c)}, 0}, 0);
  unsigned score =
      build.op(AluOp::AddF32, {build.accumulator(), build.load({maskTC, {at(j), at(i)}, 0})});
  build.store(build.reduce(AluOp::MaxF32, score), {m, {at(i)}, 0});
  build.finish("max");

  i = build.loop(tokens), j = build.loop(tokens);
  unsigned onDiagonal = build.load({eyeC, {at(i), at(j)}, 0});
  build.store(
      build.op(AluOp::SelectF32, {onDiagonal, build.load({m, {at(j)}, 0}), build.constant(0)}),
      {diagonal, {at(i), at(j)}, 0});
  build.finish("diagonal");

  i = build.loop(tokens), j = build.loop(tokens), c = build.loop(head, LoopKind::Contracted);
  unsigned t = build.loop(tokens, LoopKind::Contracted);
  build.term({q, {at(i), at(c)}, 0}, {k, {at(j), at(c)}, 0}, tokens * tokens * head);
  build.term({diagonal, {at(i), at(t)}, 0}, {minus, {at(j), at(t)}, 0}, 0);
  score = build.op(AluOp::AddF32, {build.accumulator(), build.load({maskC, {at(i), at(j)}, 0})});
  build.store(build.op(AluOp::ExpF32, {score}), {p, {at(i), at(j)}, 0});
  build.finish("exp");

  i = build.loop(tokens), c = build.loop(head), t = build.loop(tokens, LoopKind::Contracted);
  build.term({p, {at(i), at(t)}, 0}, {ones, {at(c), at(t)}, 0}, 0);
  build.store(build.op(AluOp::RcpF32, {build.accumulator()}), {inverse, {at(i), at(c)}, 0});
  build.finish("1/sum");

  i = build.loop(tokens), c = build.loop(head), t = build.loop(tokens, LoopKind::Contracted);
  build.term({p, {at(i), at(t)}, 0}, {vT, {at(c), at(t)}, 0}, tokens * tokens * head);
  build.store(
      build.op(AluOp::MulF32, {build.accumulator(), build.operand({inverse, {at(i), at(c)}, 0})}),
      {y, {at(i), at(c)}, 0});
  build.finish("pv");
  return graph;
}

} // namespace millrace::forms
