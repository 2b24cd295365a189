// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A convolution that reads an image of few channels would use a few lanes of every row. The host
// writes such an input in another order instead: a row holds some image rows of a window that is
// wide and high enough for a block of results, all channels. The weights become a band: one row
// serves every result of the block, each with the weights shifted by the stride.
#include "compiler/Forms/Rewritings/WindowInputs.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <optional>
#include <tuple>

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

/// How the host lays the input out. All in image rows and columns of the input.
struct Packing {
  int64_t unit = 1;            ///< a row of the tensor begins every `unit` image rows
  int64_t rows = 0, width = 0; ///< image rows and columns that it holds
  int64_t high = 1, wide = 1;  ///< results of a block: below and beside each other
  int64_t passes = 0,
          apart = 1; ///< rows of the tensor that a result needs, each `apart` from the one before
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
  if (kernel.terms.size() != 1 || kernel.terms[0].a.tensor != tensor || looksUp(kernel))
    return std::nullopt;
  const Term &term = kernel.terms[0];
  const Tensor &weights = graph.tensors[term.w.tensor];
  auto y = windowOf(kernel, term.a.index[2]), x = windowOf(kernel, term.a.index[3]);
  const AffineIndex &channel = term.a.index[1];
  if (!y || !x || weights.role != TensorRole::Constant || weights.shape.size() != 4 ||
      channel.terms.size() != 1 || channel.offset != 0 ||
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

/// The packing with the fewest vectors per result; of those, the one with
/// the lowest block, then that which repeats least.
std::optional<Packing> bestPacking(const Kernel &kernel, const Stem &stem, int64_t channels,
                                   int64_t lanes) {
  auto extent = [&](unsigned loop) { return kernel.loops[loop].extent; };
  std::optional<Packing> best;
  double least = 0;
  auto consider = [&](Packing p) {
    int64_t needed = stem.y.stride * (p.high - 1) + extent(stem.y.tap);
    p.width = stem.x.stride * (p.wide - 1) + extent(stem.x.tap);
    p.apart = p.rows / p.unit;
    p.passes =
        1 + std::max<int64_t>(0, needed - p.rows + p.unit * p.apart - 1) / (p.unit * p.apart);
    double repetition =
        double(p.rows) / double(p.unit) * double(p.width) / double(stem.x.stride * p.wide);
    if (p.rows * p.width * channels > lanes || repetition > kMostRepetition)
      return;
    auto cost = [](const Packing &q, double repeats) {
      return std::tuple(q.passes, q.high, repeats); // rows in order: the next layer begins early
    };
    if (best && cost(p, repetition) >= cost(*best, least))
      return;
    best = p;
    least = repetition;
  };
  for (int64_t wide = 1; wide <= extent(stem.x.result); ++wide) {
    if (extent(stem.x.result) % wide != 0)
      continue;
    consider({1, 1, 0, 1, wide, 0, 1}); // one image row at a time
    for (int64_t high = 1; high <= extent(stem.y.result); ++high) {
      int64_t unit = stem.y.stride * high, needed = unit - stem.y.stride + extent(stem.y.tap);
      for (int64_t rows = unit; rows <= needed && extent(stem.y.result) % high == 0; ++rows)
        consider({unit, rows, 0, high, wide, 0, 1});
    }
  }
  return best;
}

/// The weights [filter, channel, ky, kx] as [below, beside, pass, filter, lane], lane = (row,
/// column, channel): zero where a result does not see the lane. Rows that two passes hold count in
/// the first.
std::vector<uint8_t> band(const Tensor &weights, const Packing &packing, const Stem &stem) {
  int64_t filters = weights.shape[0], channels = weights.shape[1];
  int64_t taps = weights.shape[2], tapsX = weights.shape[3], step = packing.unit * packing.apart;
  unsigned bytes = byteWidth(weights.type);
  int64_t lanes = packing.rows * packing.width * channels;
  std::vector<uint8_t> out(size_t(packing.high * packing.wide * packing.passes * filters * lanes) *
                           bytes);
  size_t to = 0;
  for (int64_t block = 0; block < packing.high * packing.wide * packing.passes * filters; ++block) {
    int64_t f = block % filters, pass = block / filters % packing.passes;
    int64_t beside = block / filters / packing.passes % packing.wide;
    int64_t below = block / filters / packing.passes / packing.wide;
    for (int64_t lane = 0; lane < lanes; ++lane, to += bytes) {
      int64_t c = lane % channels, column = lane / channels % packing.width;
      int64_t row = lane / channels / packing.width;
      int64_t ky = step * pass + row - stem.y.stride * below, kx = column - stem.x.stride * beside;
      bool isNew = pass == 0 || row >= packing.rows - step;
      if (isNew && ky >= 0 && ky < taps && kx >= 0 && kx < tapsX) {
        int64_t from = weights.splat ? 0 : ((f * channels + c) * taps + ky) * tapsX + kx;
        std::copy_n(&weights.data[size_t(from) * bytes], bytes, &out[to]);
      }
    }
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
  void layOutInput(uint32_t pad);
  unsigned addLoop(int64_t extent, LoopKind kind);
  AffineIndex renumber(const AffineIndex &index) const;

  KernelGraph &graph;
  unsigned input;
  Stem stem;
  Packing packing;
  Kernel &kernel;
  std::vector<Loop> loops;
  std::vector<unsigned> number; ///< old loop to new
  unsigned below = 0,
           beside = 0; ///< new loops over the results of a block, where there are several
};

void Rewriter::layOutInput(uint32_t pad) {
  Tensor &tensor = graph.tensors[input];
  int64_t channels = tensor.shape[1], perBlock = stem.y.stride * packing.high / packing.unit;
  int64_t blocks = kernel.loops[stem.y.result].extent / packing.high;
  int64_t rows = (blocks - 1) * perBlock + packing.apart * (packing.passes - 1) + 1;
  int64_t columns = kernel.loops[stem.x.result].extent / packing.wide;
  tensor.hostShape = tensor.shape;
  tensor.shape = {rows, columns, packing.rows * packing.width * channels};
  tensor.laneDim = 2;
  tensor.hostLoops = {{rows, 0, 1, 2, packing.unit},
                      {columns, 1, 1, 3, stem.x.stride * packing.wide},
                      {packing.rows, 2, packing.width * channels, 2, 1},
                      {packing.width, 2, channels, 3, 1},
                      {channels, 2, 1, 1, 1}};
  tensor.hostStart = {0, 0, stem.y.offset, stem.x.offset};
  tensor.hostFill = pad;
}

unsigned Rewriter::addLoop(int64_t extent, LoopKind kind) {
  loops.push_back({extent, kind});
  return unsigned(loops.size() - 1);
}

AffineIndex Rewriter::renumber(const AffineIndex &index) const {
  AffineIndex out{index.offset, {}};
  for (auto [loop, coefficient] : index.terms) {
    bool isY = loop == stem.y.result, isX = loop == stem.x.result;
    int64_t size = isY ? packing.high : isX ? packing.wide : 1;
    out.terms.push_back({number[loop], coefficient * size});
    if (size > 1)
      out.terms.push_back({isY ? below : beside, coefficient});
  }
  return out;
}

void Rewriter::run() {
  Term &term = kernel.terms[0];
  layOutInput(term.a.pad);
  number.resize(kernel.loops.size());
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop)
    if (kernel.loops[loop].kind != LoopKind::Contracted)
      number[loop] = addLoop(kernel.loops[loop].extent, kernel.loops[loop].kind);
  unsigned y = number[stem.y.result], x = number[stem.x.result];
  loops[y].extent /= packing.high;
  loops[x].extent /= packing.wide;
  if (packing.high > 1)
    below = addLoop(packing.high, LoopKind::Parallel);
  if (packing.wide > 1)
    beside = addLoop(packing.wide, LoopKind::Parallel);
  int64_t width = graph.tensors[input].shape[2];
  unsigned pass = addLoop(packing.passes, LoopKind::Contracted);
  unsigned lane = addLoop(width, LoopKind::Contracted);

  const Tensor weights = graph.tensors[term.w.tensor];
  unsigned banded = addTensor(graph, weights.name + ".band",
                              {packing.high, packing.wide, packing.passes, weights.shape[0], width},
                              weights.type, 4, TensorRole::Constant);
  graph.tensors[banded].data = band(weights, packing, stem);
  AffineIndex block{0, {{y, stem.y.stride * packing.high / packing.unit}, {pass, packing.apart}}};
  term.w = {banded,
            {packing.high > 1 ? at(below) : fixed(0), packing.wide > 1 ? at(beside) : fixed(0),
             at(pass), renumber(term.w.index[0]), at(lane)},
            0};
  term.a = {input, {block, at(x), at(lane)}, 0};
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
