// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/PackPixels.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

/// A contraction of one tensor with constants, pixel by pixel: what it reads along the image's
/// width and the lanes.
struct Pixelwise {
  unsigned kernel = 0;
  unsigned lane = 0, x = 0,
           channel = 0;        ///< loops: the result's lanes and columns, the contracted lanes
  std::optional<unsigned> tap; ///< contracted loop along the width
  int64_t stride = 1, dilation = 1, offset = 0;
};

/// Pixels in a row, and lanes from one to the next.
struct Packing {
  int64_t pixels = 1, pitch = 0;
};

/// Lanes [from, to) of row block + o of a packed tensor, all that one group of passes needs.
struct Block {
  int64_t o = 0, first = 0, last = 0; ///< first and last pixel in the block
};

int64_t floorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/// The index without loops of a single step.
AffineIndex plain(const Kernel &kernel, const AffineIndex &index) {
  AffineIndex out{index.offset, {}};
  for (auto [l, c] : index.terms)
    if (kernel.loops[l].extent > 1)
      out.terms.push_back({l, c});
  return out;
}
std::optional<unsigned> singleLoop(const Kernel &kernel, const AffineIndex &index, int64_t extent,
                                   LoopKind kind) {
  return wholeLoop(kernel, plain(kernel, index), extent, kind);
}

class PixelPacker {
public:
  PixelPacker(KernelGraph &graph, const Machine &machine) : graph(graph), machine(machine) {}
  std::vector<std::string> run();

private:
  struct Chain {
    Pixelwise producer, window;
    std::vector<Pixelwise> consumers;
    unsigned first = 0, second = 0; ///< tensors
  };

  KernelGraph &graph;
  const Machine &machine;

  bool isImage(unsigned tensor) const;
  std::vector<unsigned> kernelsWith(unsigned tensor, bool reading) const;
  std::optional<Pixelwise> readerOf(unsigned kernel, unsigned tensor) const;
  bool writesPixels(const Pixelwise &p) const;
  std::optional<Chain> chainAt(unsigned kernel) const;

  Packing packingOf(unsigned tensor, int64_t pixels) const;
  int64_t passes(ElementType type, int64_t from, int64_t to) const;
  std::vector<Block> blocksOf(const Pixelwise &p, int64_t in, int64_t out) const;
  int64_t taps(const Pixelwise &p) const;
  int64_t vectors(const Pixelwise &p, int64_t in, int64_t out) const;
  int64_t vectors(const Chain &chain, int64_t pixels) const;

  void reshape(unsigned tensor, const Packing &packing);
  unsigned repeated(const Kernel &kernel, const Access &access, unsigned lane,
                    const Packing &packing);
  void rewriteWriter(const Pixelwise &p, Packing in, Packing out);
  void rewriteReader(const Pixelwise &p, Packing in);
};

/// [1, C, H, W] between kernels, channels along the lanes.
bool PixelPacker::isImage(unsigned tensor) const {
  const Tensor &t = graph.tensors[tensor];
  if (t.role != TensorRole::Intermediate || t.shape.size() != 4 || t.shape[0] != 1 ||
      t.laneDim != 1)
    return false;
  return std::none_of(graph.hostCalls.begin(), graph.hostCalls.end(), [&](const HostCall &call) {
    return std::count(call.inputs.begin(), call.inputs.end(), tensor) ||
           std::count(call.outputs.begin(), call.outputs.end(), tensor);
  });
}

std::vector<unsigned> PixelPacker::kernelsWith(unsigned tensor, bool reading) const {
  std::vector<unsigned> list;
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    bool found = false;
    if (!reading)
      for (const Result &r : kernel.results)
        found |= r.access.tensor == tensor;
    else {
      for (const Access &a : kernel.operands)
        found |= a.tensor == tensor;
      for (const Term &t : kernel.terms)
        found |= t.a.tensor == tensor || t.w.tensor == tensor;
    }
    if (found)
      list.push_back(k);
  }
  return list;
}

/// How `kernel` reads `tensor`, if it is its one contraction with constant weights and all it does
/// with it.
std::optional<Pixelwise> PixelPacker::readerOf(unsigned k, unsigned tensor) const {
  const Kernel &kernel = graph.kernels[k];
  if (kernel.terms.size() != 1 || kernel.results.size() != 1 || looksUp(kernel))
    return std::nullopt;
  const Term &term = kernel.terms[0];
  const Tensor &image = graph.tensors[tensor], &weights = graph.tensors[term.w.tensor];
  const Access &result = kernel.results[0].access;
  const Tensor &out = graph.tensors[result.tensor];
  if (term.a.tensor != tensor || weights.role != TensorRole::Constant || image.shape.size() != 4 ||
      image.laneDim != 1 || out.shape.size() != 4 || out.laneDim != 1)
    return std::nullopt;
  for (const Access &o : kernel.operands)
    if (o.tensor == tensor)
      return std::nullopt;
  auto channel = singleLoop(kernel, term.a.index[1], image.shape[1], LoopKind::Contracted);
  auto lane = singleLoop(kernel, result.index[1], out.shape[1], LoopKind::Parallel);
  auto x = singleLoop(kernel, result.index[3], out.shape[3], LoopKind::Parallel);
  if (!channel || !lane || !x)
    return std::nullopt;
  Pixelwise p{k, *lane, *x, *channel, std::nullopt, 0, 1, term.a.index[3].offset};
  for (auto [l, c] : plain(kernel, term.a.index[3]).terms) {
    if (l == *x && c > 0)
      p.stride = c;
    else if (kernel.loops[l].kind == LoopKind::Contracted && l != *channel && !p.tap && c > 0)
      p.tap = l, p.dilation = c;
    else
      return std::nullopt;
  }
  // Weights of the lane and of contracted loops; elsewhere the loops of the width do not appear.
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].extent > 1 && kernel.loops[l].kind == LoopKind::Parallel && l != *lane &&
        usesLoop(term.w, l))
      return std::nullopt;
  for (unsigned d : {0u, 2u})
    for (auto [l, c] : plain(kernel, term.a.index[d]).terms)
      if (l == *x || l == *channel || l == *lane || (p.tap && l == *p.tap))
        return std::nullopt;
  return p.stride > 0 ? std::optional(p) : std::nullopt;
}

/// Its result may be packed: nothing but constants per lane comes in after the sum.
bool PixelPacker::writesPixels(const Pixelwise &p) const {
  const Kernel &kernel = graph.kernels[p.kernel];
  const Access &result = kernel.results[0].access;
  for (const Access &o : kernel.operands) {
    if (graph.tensors[o.tensor].role != TensorRole::Constant)
      return false;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (l != p.lane && kernel.loops[l].extent > 1 && usesLoop(o, l))
        return false;
  }
  for (unsigned d : {0u, 2u})
    for (auto [l, c] : plain(kernel, result.index[d]).terms)
      if (l == p.x || l == p.lane)
        return false;
  return isImage(result.tensor) && kernelsWith(result.tensor, false).size() == 1;
}

std::optional<PixelPacker::Chain> PixelPacker::chainAt(unsigned k) const {
  if (graph.kernels[k].terms.size() != 1)
    return std::nullopt;
  Chain chain;
  chain.first = graph.kernels[k].terms[0].a.tensor;
  if (!isImage(chain.first) || kernelsWith(chain.first, true) != std::vector<unsigned>{k})
    return std::nullopt;
  std::optional<Pixelwise> window = readerOf(k, chain.first);
  const std::vector<unsigned> writers = kernelsWith(chain.first, false);
  if (!window || !window->tap || writers.size() != 1 ||
      graph.kernels[writers[0]].terms.size() != 1 || !writesPixels(*window))
    return std::nullopt;
  std::optional<Pixelwise> producer =
      readerOf(writers[0], graph.kernels[writers[0]].terms[0].a.tensor);
  if (!producer || !writesPixels(*producer))
    return std::nullopt;
  chain.producer = *producer;
  chain.window = *window;
  chain.second = graph.kernels[k].results[0].access.tensor;
  for (unsigned user : kernelsWith(chain.second, true)) {
    std::optional<Pixelwise> p = readerOf(user, chain.second);
    if (!p || p->tap || p->stride != 1 || p->offset)
      return std::nullopt;
    chain.consumers.push_back(*p);
  }
  return chain.consumers.empty() ? std::nullopt : std::optional(chain);
}

/// Where an activation takes a part of the lanes, pixels keep to one part each.
Packing PixelPacker::packingOf(unsigned tensor, int64_t pixels) const {
  const Tensor &t = graph.tensors[tensor];
  const MxmFormatSpec *format = machine.mxm.format(t.type);
  if (pixels == 1 || int64_t(format->lanesPerPass) >= int64_t(machine.lanes()))
    return {pixels, t.shape[1]};
  return {pixels, int64_t(machine.lanes()) / pixels};
}

/// Activations of one vector that lanes [from, to) need.
int64_t PixelPacker::passes(ElementType type, int64_t from, int64_t to) const {
  const int64_t lanes = machine.lanes(), step = machine.mxm.format(type)->lanesPerPass;
  std::set<std::pair<int64_t, int64_t>> parts;
  for (int64_t l = from; l < to; ++l)
    parts.insert({l / lanes, l % lanes / step});
  return int64_t(parts.size());
}

std::vector<Block> PixelPacker::blocksOf(const Pixelwise &p, int64_t in, int64_t out) const {
  const int64_t tapCount = p.tap ? graph.kernels[p.kernel].loops[*p.tap].extent : 1;
  std::map<int64_t, Block> blocks;
  for (int64_t j = 0; j < out; ++j)
    for (int64_t t = 0; t < tapCount; ++t) {
      const int64_t pixel = p.stride * j + p.dilation * t + p.offset, o = floorDiv(pixel, in),
                    i = pixel - o * in;
      Block &b = blocks.try_emplace(o, Block{o, i, i}).first->second;
      b.first = std::min(b.first, i);
      b.last = std::max(b.last, i);
    }
  std::vector<Block> list;
  for (const auto &[o, block] : blocks)
    list.push_back(block);
  return list;
}

/// Contracted points besides the width and the lanes.
int64_t PixelPacker::taps(const Pixelwise &p) const {
  const Kernel &kernel = graph.kernels[p.kernel];
  int64_t count = 1;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Contracted && l != p.channel && l != p.tap)
      count *= kernel.loops[l].extent;
  return count;
}

/// Vectors through the MXM with `in` pixels in a row of what it reads and `out` of what it writes.
int64_t PixelPacker::vectors(const Pixelwise &p, int64_t in, int64_t out) const {
  const Kernel &kernel = graph.kernels[p.kernel];
  const unsigned source = kernel.terms[0].a.tensor;
  const Tensor &a = graph.tensors[source], &result = graph.tensors[kernel.results[0].access.tensor];
  const Packing packing = packingOf(source, in);
  const int64_t lanes = int64_t(machine.lanes()),
                columns = out > 1 ? 1 : (result.shape[1] + lanes - 1) / lanes;
  int64_t sum = 0;
  for (const Block &b : blocksOf(p, in, out))
    sum += passes(a.type, b.first * packing.pitch, b.last * packing.pitch + a.shape[1]);
  return result.shape[2] * (result.shape[3] / out) * taps(p) * sum * columns;
}

int64_t PixelPacker::vectors(const Chain &chain, int64_t px) const {
  int64_t sum = vectors(chain.producer, 1, px) + vectors(chain.window, px, px);
  for (const Pixelwise &p : chain.consumers) {
    const Packing packing = packingOf(chain.second, px);
    const Tensor &t = graph.tensors[chain.second];
    const int64_t all = vectors(p, 1, 1), each = passes(t.type, 0, t.shape[1]);
    for (int64_t j = 0; j < px; ++j)
      sum += all / each / px * passes(t.type, j * packing.pitch, j * packing.pitch + t.shape[1]);
  }
  return sum;
}

void PixelPacker::reshape(unsigned tensor, const Packing &packing) {
  Tensor &t = graph.tensors[tensor];
  t.shape = {t.shape[0], t.shape[2], t.shape[3] / packing.pixels, packing.pixels * packing.pitch};
  t.laneDim = 3;
}

/// A constant per lane, once per pixel of a row; lanes of no pixel are zero.
unsigned PixelPacker::repeated(const Kernel &kernel, const Access &access, unsigned lane,
                               const Packing &packing) {
  const Tensor source = graph.tensors[access.tensor];
  const unsigned bytes = byteWidth(source.type);
  const unsigned tensor =
      addTensor(graph, source.name + ".packed", {packing.pixels * packing.pitch}, source.type, 0,
                TensorRole::Constant);
  std::vector<uint8_t> data(size_t(packing.pixels * packing.pitch) * bytes, 0);
  std::vector<int64_t> point(kernel.loops.size(), 0);
  for (int64_t n = 0; n < packing.pixels * packing.pitch; ++n) {
    point[lane] = n % packing.pitch;
    if (point[lane] >= kernel.loops[lane].extent)
      continue;
    const int64_t element = source.splat ? 0 : linearOffset(source, access, point);
    for (unsigned b = 0; b < bytes; ++b)
      data[size_t(n) * bytes + b] =
          element < 0 ? uint8_t(access.pad >> 8 * b) : source.data[size_t(element) * bytes + b];
  }
  graph.tensors[tensor].data = std::move(data);
  return tensor;
}

/// A contraction that writes `out` pixels a row: one term per block of input pixels that its window
/// meets.
void PixelPacker::rewriteWriter(const Pixelwise &p, Packing in, Packing out) {
  const Kernel old = graph.kernels[p.kernel];
  const Term &term = old.terms[0];
  const Tensor weights = graph.tensors[term.w.tensor];
  const unsigned bytes = byteWidth(weights.type);
  Kernel kernel = old;
  kernel.terms.clear();
  // The loop of the lanes now runs over pixels and lanes, that of the width over rows of pixels;
  // the contracted loops of tap and channel give way to one loop per term.
  const int64_t filters = old.loops[p.lane].extent, channels = old.loops[p.channel].extent;
  kernel.loops[p.lane].extent = out.pixels * out.pitch;
  kernel.loops[p.x].extent /= out.pixels;
  kernel.loops[p.channel].extent = 1;
  if (p.tap)
    kernel.loops[*p.tap].extent = 1;
  std::vector<unsigned> kept; // other contracted loops
  for (unsigned l = 0; l < old.loops.size(); ++l)
    if (old.loops[l].kind == LoopKind::Contracted && old.loops[l].extent > 1 && l != p.channel &&
        l != p.tap)
      kept.push_back(l);
  int64_t points = 1;
  for (unsigned l : kept)
    points *= old.loops[l].extent;
  const int64_t tapCount = p.tap ? old.loops[*p.tap].extent : 1;
  for (const Block &block : blocksOf(p, in.pixels, out.pixels)) {
    const int64_t from = block.first * in.pitch,
                  lanes = (block.last - block.first) * in.pitch + channels;
    const unsigned loop = unsigned(kernel.loops.size());
    kernel.loops.push_back({lanes, LoopKind::Contracted});
    std::vector<int64_t> shape{out.pixels * out.pitch};
    Access w{0, {at(p.lane)}, 0};
    for (unsigned l : kept) {
      shape.push_back(old.loops[l].extent);
      w.index.push_back(at(l));
    }
    shape.push_back(lanes);
    w.index.push_back(at(loop));
    w.tensor = addTensor(graph, weights.name + ".band" + std::to_string(block.o), shape,
                         weights.type, unsigned(shape.size() - 1), TensorRole::Constant);
    std::vector<uint8_t> data(size_t(out.pixels * out.pitch * points * lanes) * bytes, 0);
    std::vector<int64_t> point(old.loops.size(), 0);
    for (int64_t j = 0; j < out.pixels; ++j)
      for (int64_t t = 0; t < tapCount; ++t) {
        const int64_t pixel = p.stride * j + p.dilation * t + p.offset;
        if (floorDiv(pixel, in.pixels) != block.o)
          continue;
        const int64_t start = (pixel - block.o * in.pixels) * in.pitch - from;
        if (p.tap)
          point[*p.tap] = t;
        for (int64_t f = 0; f < filters; ++f)
          for (int64_t k = 0; k < points; ++k) {
            int64_t rest = k;
            for (size_t i = kept.size(); i-- > 0; rest /= old.loops[kept[i]].extent)
              point[kept[i]] = rest % old.loops[kept[i]].extent;
            point[p.lane] = f;
            for (int64_t c = 0; c < channels; ++c) {
              point[p.channel] = c;
              const int64_t element = weights.splat ? 0 : linearOffset(weights, term.w, point);
              const int64_t target = ((j * out.pitch + f) * points + k) * lanes + start + c;
              std::copy_n(&weights.data[size_t(element) * bytes], bytes,
                          &data[size_t(target) * bytes]);
            }
          }
      }
    graph.tensors[w.tensor].data = std::move(data);
    const AffineIndex column = at(p.x, p.stride * out.pixels / in.pixels, block.o),
                      lane = at(loop, 1, from);
    const AffineIndex batch = plain(old, term.a.index[0]), y = plain(old, term.a.index[2]);
    Access a = term.a;
    if (in.pixels > 1)
      a.index = {batch, y, column, lane};
    else
      a.index = {batch, lane, y, column};
    kernel.terms.push_back({a, w, kernel.terms.empty() ? term.macs : 0});
  }
  for (Access &o : kernel.operands)
    if (usesLoop(o, p.lane))
      o = {repeated(old, o, p.lane, out), {at(p.lane)}, 0};
  Access &result = kernel.results[0].access;
  result.index = {result.index[0], result.index[2], at(p.x), at(p.lane)};
  graph.kernels[p.kernel] = std::move(kernel);
}

/// A contraction of single pixels: each pixel of a row is a step of a loop along the lanes.
void PixelPacker::rewriteReader(const Pixelwise &p, Packing in) {
  Kernel &kernel = graph.kernels[p.kernel];
  const unsigned pixel = unsigned(kernel.loops.size());
  kernel.loops.push_back({in.pixels, LoopKind::Parallel});
  kernel.loops[p.x].extent /= in.pixels;
  auto split = [&](Access &access) {
    for (AffineIndex &index : access.index)
      for (size_t i = 0, n = index.terms.size(); i < n; ++i)
        if (index.terms[i].first == p.x) {
          index.terms.push_back({pixel, index.terms[i].second});
          index.terms[i].second *= in.pixels;
        }
  };
  for (Access &o : kernel.operands)
    split(o);
  for (Result &r : kernel.results)
    split(r.access);
  Access &a = kernel.terms[0].a;
  for (AffineIndex &index : kernel.terms[0].w.index)
    index = plain(kernel, index);
  a.index = {plain(kernel, a.index[0]),
             plain(kernel, a.index[2]),
             at(p.x),
             {0, {{pixel, in.pitch}, {p.channel, 1}}}};
}

std::vector<std::string> PixelPacker::run() {
  std::vector<std::string> report;
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    std::optional<Chain> chain = chainAt(k);
    if (!chain || !machine.mxm.format(graph.tensors[chain->first].type) ||
        graph.tensors[chain->first].type != graph.tensors[chain->second].type)
      continue;
    const Tensor &first = graph.tensors[chain->first], &second = graph.tensors[chain->second];
    const int64_t before = vectors(*chain, 1), lanes = int64_t(machine.lanes());
    int64_t best = 1, least = before;
    for (int64_t px = 2; px * std::max(first.shape[1], second.shape[1]) <= lanes; ++px)
      if (first.shape[3] % px == 0 && second.shape[3] % px == 0)
        if (int64_t cost = vectors(*chain, px); cost < least)
          least = cost, best = px;
    if (best == 1)
      continue;
    report.push_back(graph.kernels[k].name + ": " + std::to_string(best) + " pixels a row, " +
                     std::to_string(least) + " vectors instead of " + std::to_string(before));
    const Packing a = packingOf(chain->first, best), b = packingOf(chain->second, best);
    rewriteWriter(chain->producer, {1, 0}, a);
    rewriteWriter(chain->window, a, b);
    for (const Pixelwise &p : chain->consumers)
      rewriteReader(p, b);
    reshape(chain->first, a);
    reshape(chain->second, b);
  }
  return report;
}

} // namespace

std::vector<std::string> packPixels(KernelGraph &graph, const Machine &machine) {
  return PixelPacker(graph, machine).run();
}

} // namespace millrace::forms
