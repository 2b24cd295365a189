// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/PackWindows.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <map>
#include <optional>

namespace millrace::forms {
namespace {

/// index = coefficient * loop + tap * dilation + offset, or what of it there is.
struct WindowIndex {
  unsigned loop = 0;
  std::optional<unsigned> tap;
  int64_t stride = 1, dilation = 1, offset = 0;
};

std::optional<WindowIndex> windowIndex(const Kernel &kernel, const AffineIndex &index) {
  WindowIndex w;
  w.offset = index.offset;
  bool hasLoop = false;
  for (auto [l, c] : index.terms) {
    const bool contracted = kernel.loops[l].kind == LoopKind::Contracted;
    if (contracted ? w.tap.has_value() : hasLoop)
      return std::nullopt;
    if (contracted) {
      w.tap = l;
      w.dilation = c;
    } else {
      w.loop = l;
      w.stride = c;
      hasLoop = true;
    }
  }
  return hasLoop && w.stride > 0 && w.dilation > 0 ? std::optional(w) : std::nullopt;
}

/// A map that combines taps of one tensor along one row dimension.
struct Pooling {
  unsigned kernel = 0, from = 0, to = 0;
  unsigned dim = 0; ///< dimension along which the taps differ
  int64_t stride = 1;
  std::vector<int64_t> offsets; ///< of each operand, in their order
};

/// What is packed: convolution, column pooling, row pooling.
struct Chain {
  unsigned convolution = 0;
  Pooling columns, rows;
  WindowIndex y, x;               ///< of the convolution's input
  unsigned lane = 0, channel = 0; ///< loops
  int64_t filters = 0, channels = 0, kernelHeight = 1, kernelWidth = 1, height = 0,
          width = 0; ///< of its result
};

/// Kernels that read a tensor.
std::vector<unsigned> readers(const KernelGraph &graph, unsigned tensor) {
  std::vector<unsigned> list;
  for (unsigned k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    bool reads = std::any_of(kernel.operands.begin(), kernel.operands.end(),
                             [&](const Access &a) { return a.tensor == tensor; });
    for (const Term &t : kernel.terms)
      reads |= t.a.tensor == tensor || t.w.tensor == tensor;
    if (reads)
      list.push_back(k);
  }
  return list;
}

bool onHost(const KernelGraph &graph, unsigned tensor) {
  return std::any_of(graph.hostCalls.begin(), graph.hostCalls.end(), [&](const HostCall &call) {
    return std::count(call.inputs.begin(), call.inputs.end(), tensor) ||
           std::count(call.outputs.begin(), call.outputs.end(), tensor);
  });
}

std::optional<Pooling> poolingOf(const KernelGraph &graph, unsigned tensor) {
  const std::vector<unsigned> users = readers(graph, tensor);
  if (users.size() != 1 || graph.tensors[tensor].role != TensorRole::Intermediate ||
      onHost(graph, tensor))
    return std::nullopt;
  Pooling p;
  p.kernel = users[0];
  p.from = tensor;
  const Kernel &kernel = graph.kernels[p.kernel];
  if (!kernel.terms.empty() || kernel.results.size() != 1 || kernel.operands.size() < 2)
    return std::nullopt;
  p.to = kernel.results[0].access.tensor;
  const Access &first = kernel.operands[0], &result = kernel.results[0].access;
  std::optional<unsigned> dim;
  for (const Access &a : kernel.operands) {
    if (a.tensor != tensor || a.pad != first.pad || a.lookup)
      return std::nullopt;
    for (unsigned d = 0; d < a.index.size(); ++d) {
      if (a.index[d].terms != first.index[d].terms)
        return std::nullopt;
      if (a.index[d].offset != first.index[d].offset) {
        if (dim && *dim != d)
          return std::nullopt;
        dim = d;
      }
    }
  }
  if (!dim || *dim == graph.tensors[tensor].laneDim || first.index[*dim].terms.size() != 1)
    return std::nullopt;
  p.dim = *dim;
  p.stride = first.index[*dim].terms[0].second;
  for (unsigned d = 0; d < first.index.size();
       ++d) // elsewhere the pooling keeps indices as they are
    if (d != p.dim && (first.index[d].terms != result.index[d].terms ||
                       first.index[d].offset != result.index[d].offset))
      return std::nullopt;
  if (result.index[p.dim].terms !=
          std::vector<std::pair<unsigned, int64_t>>{{first.index[p.dim].terms[0].first, 1}} ||
      result.index[p.dim].offset)
    return std::nullopt;
  for (const Access &a : kernel.operands)
    p.offsets.push_back(a.index[p.dim].offset);
  return p;
}

std::optional<Chain> chainOf(const KernelGraph &graph, unsigned k) {
  const Kernel &kernel = graph.kernels[k];
  if (kernel.terms.size() != 1 || kernel.results.size() != 1)
    return std::nullopt;
  const Access &a = kernel.terms[0].a, &w = kernel.terms[0].w;
  const Tensor &input = graph.tensors[a.tensor], &weights = graph.tensors[w.tensor];
  if (input.role != TensorRole::Input || !input.hostLoops.empty() || input.shape.size() != 4 ||
      input.shape[0] != 1 || input.laneDim != 1 || weights.role != TensorRole::Constant ||
      readers(graph, a.tensor).size() != 1 || onHost(graph, a.tensor))
    return std::nullopt;
  Chain chain;
  chain.convolution = k;
  std::optional<WindowIndex> y = windowIndex(kernel, a.index[2]),
                             x = windowIndex(kernel, a.index[3]);
  const Access &result = kernel.results[0].access;
  if (!y || !x || y->loop == x->loop || a.index[1].terms.size() != 1 ||
      a.index[1].terms[0].second != 1 ||
      kernel.loops[a.index[1].terms[0].first].kind != LoopKind::Contracted ||
      result.index.size() != 4 || result.index[1].terms.size() != 1 || result.index[1].offset ||
      y->dilation != 1)
    return std::nullopt;
  chain.y = *y;
  chain.x = *x;
  chain.channel = a.index[1].terms[0].first;
  chain.lane = result.index[1].terms[0].first;
  const Tensor &out = graph.tensors[result.tensor];
  chain.filters = out.shape[1];
  chain.channels = input.shape[1];
  chain.height = out.shape[2];
  chain.width = out.shape[3];
  chain.kernelHeight = y->tap ? kernel.loops[*y->tap].extent : 1;
  chain.kernelWidth = x->tap ? kernel.loops[*x->tap].extent : 1;
  for (const Access &o : kernel.operands) { // per-filter constants only
    if (graph.tensors[o.tensor].role != TensorRole::Constant || o.lookup)
      return std::nullopt;
    for (const AffineIndex &i : o.index)
      for (auto [l, c] : i.terms)
        if (l != chain.lane)
          return std::nullopt;
  }
  std::optional<Pooling> columns = poolingOf(graph, result.tensor);
  if (!columns || columns->dim != 3)
    return std::nullopt;
  std::optional<Pooling> rows = poolingOf(graph, columns->to);
  if (!rows || rows->dim != 2)
    return std::nullopt;
  chain.columns = *columns;
  chain.rows = *rows;
  return chain;
}

/// Rewrites one chain with `pixels` pooled pixels in a row.
class Packer {
public:
  Packer(KernelGraph &graph, const Chain &chain, int64_t pixels)
      : graph(graph), c(chain), px(pixels), convolution(graph.kernels[chain.convolution]),
        columns(graph.kernels[chain.columns.kernel]), rows(graph.kernels[chain.rows.kernel]) {
    first = *std::min_element(c.columns.offsets.begin(), c.columns.offsets.end());
    last = *std::max_element(c.columns.offsets.begin(), c.columns.offsets.end());
    pooledWidth = graph.tensors[c.columns.to].shape[3];
    pooledHeight = graph.tensors[c.rows.to].shape[2];
    blocks = (pooledWidth + px - 1) / px;
    groups = c.height + (c.kernelHeight + c.y.stride - 1) / c.y.stride - 1;
  }

  /// Input pixels of one packed row, and how far the next one begins.
  int64_t windowPixels() const {
    return c.x.stride * (c.columns.stride * (px - 1) + last - first) +
           (c.kernelWidth - 1) * c.x.dilation + 1;
  }
  int64_t blockStep() const { return c.x.stride * c.columns.stride * px; }
  int64_t laneCount() const { return c.y.stride * windowPixels() * c.channels; }
  double repeats() const { return double(windowPixels()) / double(blockStep()); }

  /// New kernels in place of the three old ones: numbers in the graph, in order.
  std::vector<unsigned> run() {
    packInput();
    std::vector<unsigned> phases, made;
    for (size_t t = 0; t < c.columns.offsets.size(); ++t)
      made.push_back(addPhase(t, phases));
    const unsigned wide =
        addTensor(graph, columns.name + ".packed", {c.height, blocks, px * c.filters},
                  graph.tensors[c.columns.to].type, 2);
    made.push_back(addLaneWise(
        columns, wide,
        [&](size_t t, unsigned y, unsigned b, unsigned n) {
          return Access{phases[t], {at(y), at(b), at(n)}, columns.operands[t].pad};
        },
        c.height));
    const unsigned pooled =
        addTensor(graph, rows.name + ".packed", {pooledHeight, blocks, px * c.filters},
                  graph.tensors[c.rows.to].type, 2);
    made.push_back(addLaneWise(
        rows, pooled,
        [&](size_t t, unsigned y, unsigned b, unsigned n) {
          return Access{
              wide, {at(y, c.rows.stride, c.rows.offsets[t]), at(b), at(n)}, rows.operands[t].pad};
        },
        pooledHeight));
    for (int64_t i = 0; i < px; ++i)
      made.push_back(addUnpack(pooled, i));
    return made;
  }

private:
  KernelGraph &graph;
  Chain c;
  int64_t px;
  Kernel convolution, columns, rows; ///< copies: the graph grows meanwhile
  int64_t first = 0, last = 0, pooledWidth = 0, pooledHeight = 0, blocks = 0, groups = 0;

  void packInput() {
    const Access &a = convolution.terms[0].a;
    Tensor &t = graph.tensors[a.tensor];
    const int64_t height = c.y.stride, width = windowPixels();
    t.hostShape = t.shape;
    t.shape = {groups, blocks, laneCount()};
    t.laneDim = 2;
    t.hostLoops = {{groups, 0, 1, 2, c.y.stride},
                   {blocks, 1, 1, 3, blockStep()},
                   {height, 2, width * c.channels, 2, 1},
                   {width, 2, c.channels, 3, 1},
                   {c.channels, 2, 1, 1, 1}};
    t.hostStart = {0, 0, c.y.offset, c.x.stride * first + c.x.offset};
    t.hostFill = a.pad;
  }

  /// Weights of one phase: result lane (i, f), row group p, contracted lane (r, j, c).
  unsigned addWeights(size_t tap, int64_t groupsPerWindow) {
    const Access &w = convolution.terms[0].w;
    const Tensor source = graph.tensors[w.tensor];
    const unsigned bytes = byteWidth(source.type);
    const int64_t lanes = laneCount(), width = windowPixels();
    const unsigned packed =
        addTensor(graph, source.name + ".packed" + std::to_string(tap),
                  {px * c.filters, groupsPerWindow, lanes}, source.type, 2, TensorRole::Constant);
    std::vector<uint8_t> data(size_t(px * c.filters * groupsPerWindow * lanes) * bytes, 0);
    std::vector<int64_t> point(convolution.loops.size(), 0);
    for (int64_t i = 0; i < px; ++i) {
      const int64_t start = c.x.stride * (c.columns.stride * i + c.columns.offsets[tap] - first);
      for (int64_t f = 0; f < c.filters; ++f)
        for (int64_t dy = 0; dy < c.kernelHeight; ++dy)
          for (int64_t dx = 0; dx < c.kernelWidth; ++dx)
            for (int64_t ch = 0; ch < c.channels; ++ch) {
              point[c.lane] = f;
              point[c.channel] = ch;
              if (c.y.tap)
                point[*c.y.tap] = dy;
              if (c.x.tap)
                point[*c.x.tap] = dx;
              const int64_t element = source.splat ? 0 : linearOffset(source, w, point);
              const int64_t lane =
                  (dy % c.y.stride * width + start + dx * c.x.dilation) * c.channels + ch;
              const int64_t target =
                  ((i * c.filters + f) * groupsPerWindow + dy / c.y.stride) * lanes + lane;
              std::copy_n(&source.data[size_t(element) * bytes], bytes,
                          &data[size_t(target) * bytes]);
            }
    }
    graph.tensors[packed].data = std::move(data);
    return packed;
  }

  /// A per-filter constant, once per pixel of a row.
  unsigned addRepeated(const Access &access) {
    const Tensor source = graph.tensors[access.tensor];
    const unsigned bytes = byteWidth(source.type);
    const unsigned repeated = addTensor(graph, source.name + ".packed", {px * c.filters},
                                        source.type, 0, TensorRole::Constant);
    std::vector<uint8_t> data;
    std::vector<int64_t> point(convolution.loops.size(), 0);
    for (int64_t n = 0; n < px * c.filters; ++n) {
      point[c.lane] = n % c.filters;
      const int64_t element = source.splat ? 0 : linearOffset(source, access, point);
      data.insert(data.end(), &source.data[size_t(element) * bytes],
                  &source.data[size_t(element) * bytes] + bytes);
    }
    graph.tensors[repeated].data = std::move(data);
    return repeated;
  }

  bool outside(int64_t block, int64_t i, int64_t offset) const {
    const int64_t x = c.columns.stride * (block * px + i) + offset;
    return x < 0 || x >= c.width;
  }

  unsigned addPhase(size_t tap, std::vector<unsigned> &phases) {
    const int64_t groupsPerWindow = (c.kernelHeight + c.y.stride - 1) / c.y.stride;
    const ElementType type = graph.tensors[c.columns.from].type;
    const unsigned result = addTensor(graph, convolution.name + ".phase" + std::to_string(tap),
                                      {c.height, blocks, px * c.filters}, type, 2);
    phases.push_back(result);
    const unsigned weights = addWeights(tap, groupsPerWindow);
    KernelBuilder build(graph);
    const unsigned n = build.loop(px * c.filters), y = build.loop(c.height), b = build.loop(blocks),
                   p = build.loop(groupsPerWindow, LoopKind::Contracted),
                   l = build.loop(laneCount(), LoopKind::Contracted);
    const int64_t share = convolution.terms[0].macs / int64_t(c.columns.offsets.size());
    build.term({convolution.terms[0].a.tensor, {{0, {{y, 1}, {p, 1}}}, at(b), at(l)}},
               {weights, {at(n), at(p), at(l)}},
               tap ? share
                   : convolution.terms[0].macs - share * int64_t(c.columns.offsets.size() - 1));
    std::vector<unsigned> placed;
    for (const Node &node : convolution.nodes) {
      switch (node.kind) {
      case Node::Kind::Accumulator:
        placed.push_back(build.accumulator());
        break;
      case Node::Kind::Operand:
        placed.push_back(build.operand({addRepeated(convolution.operands[node.index]), {at(n)}}));
        break;
      case Node::Kind::Immediate:
        placed.push_back(build.immediate(node.bits));
        break;
      default: {
        std::vector<unsigned> args;
        for (unsigned a : node.args)
          args.push_back(placed[a]);
        placed.push_back(build.op(node.op, args));
      }
      }
    }
    unsigned value = placed[convolution.results[0].node];
    bool anyOutside = false;
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t i = 0; i < px; ++i)
        anyOutside |= outside(block, i, c.columns.offsets[tap]);
    if (anyOutside) // pixels that the image does not have: what the pooling reads there
      value = build.op(AluOp::SelectF32, {build.operand({addMask(tap), {at(b), at(n)}}), value,
                                          build.immediate(columns.operands[tap].pad)});
    build.storeBits(value, {result, {at(y), at(b), at(n)}});
    return build.finish(convolution.name + ".phase" + std::to_string(tap), convolution.provenance);
  }

  unsigned addMask(size_t tap) {
    const unsigned mask =
        addTensor(graph, convolution.name + ".inside" + std::to_string(tap),
                  {blocks, px * c.filters}, ElementType::UInt8, 1, TensorRole::Constant);
    std::vector<uint8_t> data;
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t n = 0; n < px * c.filters; ++n)
        data.push_back(!outside(block, n / c.filters, c.columns.offsets[tap]));
    graph.tensors[mask].data = std::move(data);
    return mask;
  }

  /// The pooling kernel on packed rows, taps given by `tapAt`.
  template <class F>
  unsigned addLaneWise(const Kernel &kernel, unsigned to, F tapAt, int64_t height) {
    KernelBuilder build(graph);
    const unsigned n = build.loop(px * c.filters), y = build.loop(height), b = build.loop(blocks);
    std::vector<unsigned> placed;
    for (const Node &node : kernel.nodes) {
      if (node.kind == Node::Kind::Operand) {
        placed.push_back(build.operand(tapAt(node.index, y, b, n)));
      } else if (node.kind == Node::Kind::Immediate) {
        placed.push_back(build.immediate(node.bits));
      } else {
        std::vector<unsigned> args;
        for (unsigned a : node.args)
          args.push_back(placed[a]);
        placed.push_back(build.op(node.op, args));
      }
    }
    build.storeBits(placed[kernel.results[0].node], {to, {at(y), at(b), at(n)}});
    return build.finish(kernel.name + ".packed", kernel.provenance);
  }

  /// Pixel i of every packed row to rows of its own.
  unsigned addUnpack(unsigned pooled, int64_t i) {
    const Tensor target = graph.tensors[c.rows.to];
    const ElementType type = target.type;
    if (i == 0)
      unit = addTensor(graph, rows.name + ".unit", {c.filters, c.filters}, type, 1,
                       TensorRole::Constant);
    if (i == 0) {
      const unsigned bytes = byteWidth(type);
      const uint32_t one = type == ElementType::Int8 ? 1 : encode(type, 1);
      std::vector<uint8_t> data(size_t(c.filters * c.filters) * bytes, 0);
      for (int64_t f = 0; f < c.filters; ++f)
        for (unsigned k = 0; k < bytes; ++k)
          data[size_t(f * c.filters + f) * bytes + k] = uint8_t(one >> 8 * k);
      graph.tensors[unit].data = std::move(data);
    }
    KernelBuilder build(graph);
    const unsigned f = build.loop(c.filters), y = build.loop(pooledHeight),
                   b = build.loop((pooledWidth - i + px - 1) / px),
                   l = build.loop(c.filters, LoopKind::Contracted);
    build.term({pooled, {at(y), at(b), at(l, 1, i * c.filters)}}, {unit, {at(f), at(l)}}, 0);
    const unsigned value = type == ElementType::Int8
                               ? build.op(AluOp::CvtI32I8, {build.accumulator()})
                               : build.op(narrowFromF32(type), {build.accumulator()});
    build.storeBits(value, {c.rows.to, {fixed(0), at(f), at(y), at(b, px, i)}});
    return build.finish(rows.name + ".unpack" + std::to_string(i), rows.provenance);
  }
  unsigned unit = 0;
};

} // namespace

std::vector<std::string> packWindows(KernelGraph &graph, const Machine &machine,
                                     const PackOptions &options) {
  std::vector<std::string> packed;
  const size_t count = graph.kernels.size();
  const std::vector<std::pair<bool, unsigned>> oldOrder = graph.order;
  std::vector<bool> gone(count, false);
  std::map<unsigned, std::vector<unsigned>> instead; // old kernel -> new ones
  for (unsigned k = 0; k < count; ++k) {
    std::optional<Chain> chain = chainOf(graph, k);
    const MxmFormatSpec *format =
        chain ? machine.mxm.format(graph.tensors[graph.kernels[k].terms[0].a.tensor].type)
              : nullptr;
    if (!chain || !format)
      continue;
    int64_t best = 0;
    for (int64_t px = 1; px * chain->filters <= int64_t(machine.lanes()) && px <= 16; ++px) {
      Packer trial(graph, *chain, px);
      if (trial.laneCount() <= int64_t(format->lanesPerPass) &&
          trial.repeats() <= options.mostRepeats)
        best = px;
    }
    if (best < 2)
      continue;
    Packer packer(graph, *chain, best);
    packed.push_back(graph.kernels[k].name + ": " + std::to_string(best) +
                     " pooled pixels a row, " + std::to_string(packer.laneCount()) +
                     " lanes of input windows, each input element " +
                     std::to_string(packer.repeats()).substr(0, 4) + " times");
    instead[k] = packer.run();
    gone[k] = gone[chain->columns.kernel] = gone[chain->rows.kernel] = true;
  }
  if (packed.empty())
    return packed;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : oldOrder) {
    if (!host && instead.count(index))
      for (unsigned k : instead[index])
        order.push_back({false, k});
    if (host || index >= gone.size() || !gone[index])
      order.push_back({host, index});
  }
  // Drop the kernels that are gone, and renumber.
  std::vector<unsigned> number(graph.kernels.size(), 0);
  std::vector<Kernel> kept;
  for (unsigned k = 0; k < graph.kernels.size(); ++k)
    if (k >= gone.size() || !gone[k]) {
      number[k] = unsigned(kept.size());
      kept.push_back(std::move(graph.kernels[k]));
    }
  graph.kernels = std::move(kept);
  graph.order.clear();
  for (auto [host, index] : order)
    graph.order.push_back({host, host ? index : number[index]});
  return packed;
}

} // namespace millrace::forms
