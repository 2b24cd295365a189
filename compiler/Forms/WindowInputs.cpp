// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A convolution that reads an image of few channels would use a few lanes of every row. The host
// writes such an input in another order instead: a row holds `rows` image rows of a window wide
// enough for `pixels` results, all channels. The weights become a band: the same row serves
// `pixels` results, each with the weights shifted by the stride.
#include "compiler/Forms/Build.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <optional>

namespace millrace::forms {

namespace {

/// One spatial dimension of a convolution's input index: stride * result + tap + offset.
struct Window {
  unsigned result = 0, tap = 0;
  int64_t stride = 0, offset = 0;
};

struct Stem {
  unsigned kernel = 0, channel = 0; ///< channel: the contracted loop
  Window y, x;
};

/// How the host lays the input out.
struct Packing {
  int64_t rows = 0, pixels = 0; ///< image rows in a row, results served by it
  int64_t width = 0;            ///< image columns in a row
  int64_t passes = 0;
};

std::optional<Window> windowOf(const Kernel &kernel, const AffineIndex &index) {
  if (index.terms.size() != 2)
    return std::nullopt;
  auto result = index.terms[0], tap = index.terms[1];
  if (kernel.loops[result.first].kind == LoopKind::Contracted)
    std::swap(result, tap);
  if (kernel.loops[result.first].kind != LoopKind::Parallel ||
      kernel.loops[tap.first].kind != LoopKind::Contracted || tap.second != 1 || result.second < 1)
    return std::nullopt;
  return Window{result.first, tap.first, result.second, index.offset};
}

/// The one kernel that reads `tensor`, if it is a convolution N = 1, C, H, W with constant weights.
std::optional<Stem> stemOf(const KernelGraph &graph, unsigned tensor) {
  unsigned reads = 0, reader = 0;
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    for (const Term &term : graph.kernels[k].terms)
      reads += (term.a.tensor == tensor) + (term.w.tensor == tensor),
          reader = term.a.tensor == tensor ? k : reader;
    for (const Access &access : graph.kernels[k].operands)
      reads += access.tensor == tensor;
  }
  for (const HostCall &call : graph.hostCalls)
    reads += unsigned(std::count(call.inputs.begin(), call.inputs.end(), tensor));
  const Tensor &input = graph.tensors[tensor];
  if (reads != 1 || input.shape.size() != 4 || input.shape[0] != 1 || graph.kernels.empty())
    return std::nullopt;
  const Kernel &kernel = graph.kernels[reader];
  if (kernel.terms.size() != 1 || kernel.terms[0].a.tensor != tensor)
    return std::nullopt;
  const Term &term = kernel.terms[0];
  const Tensor &weights = graph.tensors[term.w.tensor];
  auto y = windowOf(kernel, term.a.index[2]), x = windowOf(kernel, term.a.index[3]);
  const AffineIndex &channel = term.a.index[1];
  if (!y || !x || weights.role != TensorRole::Constant || weights.splat ||
      weights.shape.size() != 4 || channel.terms.size() != 1 || channel.offset != 0 ||
      kernel.loops[channel.terms[0].first].kind != LoopKind::Contracted)
    return std::nullopt;
  // Weights [filter, channel, ky, kx], read at exactly these loops.
  auto isLoop = [](const AffineIndex &index, unsigned loop) {
    return index.offset == 0 && index.terms.size() == 1 &&
           index.terms[0] == std::pair<unsigned, int64_t>(loop, 1);
  };
  if (!isLoop(term.w.index[1], channel.terms[0].first) || !isLoop(term.w.index[2], y->tap) ||
      !isLoop(term.w.index[3], x->tap) || term.w.index[0].terms.size() != 1)
    return std::nullopt;
  return Stem{reader, channel.terms[0].first, *y, *x};
}

/// The host may write every element three times on average (docs/spec, R15).
constexpr double kMostRepetition = 3;

/// The packing with the fewest vectors per result: of those, the one that repeats least.
std::optional<Packing> bestPacking(const Kernel &kernel, const Stem &stem, int64_t channels,
                                   int64_t lanes) {
  int64_t taps = kernel.loops[stem.y.tap].extent, tapsX = kernel.loops[stem.x.tap].extent;
  int64_t columns = kernel.loops[stem.x.result].extent, stride = stem.y.stride;
  std::optional<Packing> best;
  double least = 0;
  for (int64_t rows = 1; rows < taps + stride;
       rows += rows == 1 && stride > 1 ? stride - 1 : stride)
    for (int64_t pixels = 1; pixels <= columns; ++pixels) {
      int64_t width = stem.x.stride * (pixels - 1) + tapsX;
      double repetition = std::max(1.0, double(rows) / double(stride)) * double(width) /
                          double(stem.x.stride * pixels);
      if (columns % pixels != 0 || rows * width * channels > lanes || repetition > kMostRepetition)
        continue;
      int64_t passes = (taps + rows - 1) / rows;
      if (best && (passes > best->passes || (passes == best->passes && repetition >= least)))
        continue;
      best = Packing{rows, pixels, width, passes};
      least = repetition;
    }
  return best;
}

/// Element [filter, channel, ky, kx] of the weights at lane l = (row, column, channel) of pass
/// `pass` for result `pixel`.
std::vector<uint8_t> band(const Tensor &weights, const Packing &packing, int64_t stride) {
  int64_t filters = weights.shape[0], channels = weights.shape[1], taps = weights.shape[2],
          tapsX = weights.shape[3];
  unsigned bytes = byteWidth(weights.type);
  std::vector<uint8_t> out(
      size_t(packing.pixels * filters * packing.passes * packing.rows * packing.width * channels) *
      bytes);
  size_t to = 0;
  for (int64_t pixel = 0; pixel < packing.pixels; ++pixel)
    for (int64_t pass = 0; pass < packing.passes; ++pass)
      for (int64_t f = 0; f < filters; ++f)
        for (int64_t row = 0; row < packing.rows; ++row)
          for (int64_t column = 0; column < packing.width; ++column)
            for (int64_t c = 0; c < channels; ++c, to += bytes) {
              int64_t ky = pass * packing.rows + row, kx = column - pixel * stride;
              if (ky < taps && kx >= 0 && kx < tapsX)
                std::copy_n(
                    &weights.data[size_t(((f * channels + c) * taps + ky) * tapsX + kx) * bytes],
                    bytes, &out[to]);
            }
  return out;
}

class Rewriter {
public:
  Rewriter(KernelGraph &graph, unsigned input, const Stem &stem, const Packing &packing)
      : graph(graph), input(input), stem(stem), packing(packing),
        kernel(graph.kernels[stem.kernel]) {}
  void run();

private:
  void layOutInput(const Access &a);
  AffineIndex renumber(const AffineIndex &index) const;

  KernelGraph &graph;
  unsigned input;
  Stem stem;
  Packing packing;
  Kernel &kernel;
  std::vector<unsigned> number; ///< old loop to new
  unsigned pixel = 0;           ///< the new loop over results of one row
};

void Rewriter::layOutInput(const Access &a) {
  Tensor &tensor = graph.tensors[input];
  int64_t channels = tensor.shape[1], perBlock = std::max<int64_t>(1, packing.rows / stem.y.stride);
  int64_t results = kernel.loops[stem.y.result].extent,
          columns = kernel.loops[stem.x.result].extent / packing.pixels;
  bool byRow =
      packing.rows < stem.y.stride; // a tensor row per image row, else per block of `stride`
  int64_t blocks = byRow ? (results - 1) * stem.y.stride + packing.passes
                         : results + perBlock * (packing.passes - 1);
  tensor.hostShape = tensor.shape;
  tensor.shape = {blocks, columns, packing.rows * packing.width * channels};
  tensor.laneDim = 2;
  tensor.hostLoops = {{blocks, 0, 1, 2, byRow ? 1 : stem.y.stride},
                      {columns, 1, 1, 3, stem.x.stride * packing.pixels},
                      {packing.rows, 2, packing.width * channels, 2, 1},
                      {packing.width, 2, channels, 3, 1},
                      {channels, 2, 1, 1, 1}};
  tensor.hostStart = {0, 0, stem.y.offset, stem.x.offset};
  tensor.hostFill = a.pad;
}

AffineIndex Rewriter::renumber(const AffineIndex &index) const {
  AffineIndex out{index.offset, {}};
  for (auto [loop, coefficient] : index.terms) {
    if (loop != stem.x.result) {
      out.terms.push_back({number[loop], coefficient});
      continue;
    }
    out.terms.push_back({number[loop], coefficient * packing.pixels});
    if (packing.pixels > 1)
      out.terms.push_back({pixel, coefficient});
  }
  return out;
}

void Rewriter::run() {
  Term &term = kernel.terms[0];
  layOutInput(term.a);
  std::vector<Loop> loops;
  number.resize(kernel.loops.size());
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop) {
    if (kernel.loops[loop].kind == LoopKind::Contracted)
      continue;
    number[loop] = unsigned(loops.size());
    loops.push_back(kernel.loops[loop]);
  }
  loops[number[stem.x.result]].extent /= packing.pixels;
  if (packing.pixels > 1) {
    pixel = unsigned(loops.size());
    loops.push_back({packing.pixels, LoopKind::Parallel});
  }
  unsigned pass = unsigned(loops.size()), lane = pass + 1;
  int64_t width = graph.tensors[input].shape[2];
  loops.push_back({packing.passes, LoopKind::Contracted});
  loops.push_back({width, LoopKind::Contracted});

  const Tensor weights = graph.tensors[term.w.tensor];
  unsigned banded = addTensor(graph, weights.name + ".band",
                              {packing.pixels, packing.passes, weights.shape[0], width},
                              weights.type, 3, TensorRole::Constant);
  graph.tensors[banded].data = band(weights, packing, stem.x.stride);
  AffineIndex filter = renumber(term.w.index[0]);
  bool byRow = packing.rows < stem.y.stride;
  AffineIndex block{0,
                    {{number[stem.y.result], byRow ? stem.y.stride : 1},
                     {pass, byRow ? 1 : std::max<int64_t>(1, packing.rows / stem.y.stride)}}};
  term.w = {banded, {packing.pixels > 1 ? at(pixel) : fixed(0), at(pass), filter, at(lane)}, 0};
  term.a = {input, {block, at(number[stem.x.result]), at(lane)}, 0};
  for (Access &access : kernel.operands)
    for (AffineIndex &index : access.index)
      index = renumber(index);
  for (Result &result : kernel.results)
    for (AffineIndex &index : result.access.index)
      index = renumber(index);
  kernel.loops = std::move(loops);
}

} // namespace

void windowInputs(KernelGraph &graph, int64_t lanes) {
  for (unsigned tensor = 0; tensor < graph.tensors.size(); ++tensor) {
    const Tensor &input = graph.tensors[tensor];
    if (input.role != TensorRole::Input || !input.hostLoops.empty())
      continue;
    std::optional<Stem> stem = stemOf(graph, tensor);
    if (!stem)
      continue;
    int64_t reach = lanes / byteWidth(input.type); // what an activation multiplies in one cycle
    constexpr int64_t kFewChannels = 8; // of the lanes, at least one in eight would be used
    std::optional<Packing> packing =
        bestPacking(graph.kernels[stem->kernel], *stem, input.shape[1], reach);
    if (packing && input.shape[1] * kFewChannels <= reach)
      Rewriter(graph, tensor, *stem, *packing).run();
  }
}

} // namespace millrace::forms
