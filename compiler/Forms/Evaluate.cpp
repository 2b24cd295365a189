// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Evaluate.h"

#include "arch/isa/semantics/Alu.h"
#include "compiler/Forms/Contract.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

namespace millrace::forms {

namespace {

using Point = std::vector<int64_t>;

/// Rows handled together: enough to reuse packed weights, few enough for every thread to get some.
constexpr size_t kRowsPerChunk = 32;

/// Runs one kernel. A *row* is a point of all parallel loops but the vector loop.
class KernelRun {
public:
  KernelRun(const KernelGraph &graph, unsigned number, std::vector<TensorBytes> &tensors,
            const EvaluateOptions &options)
      : graph(graph), kernel(graph.kernels[number]), tensors(tensors) {
    threads = options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency());
    chooseVectorLoop();
    width = vectorLoop < 0 ? 1 : kernel.loops[size_t(vectorLoop)].extent;
    for (unsigned loop = 0; loop < kernel.loops.size(); ++loop)
      if (kernel.loops[loop].kind == LoopKind::Running)
        runningLoops.push_back(loop);
    forEachPoint(kernel, runningLoops, [&](const Point &point) {
      running.push_back(point);
      return true;
    });
    findReduced();
    if (!kernel.terms.empty())
      contraction.emplace(graph, kernel, tensors,
                          options.passes ? options.passes(number) : std::vector<Pass>(),
                          vectorLoop);
  }
  void run();

private:
  void chooseVectorLoop();
  bool suitsTerms(unsigned loop) const;
  void findReduced();
  void runRows(const std::vector<Point> &rows);
  void runChunk(const std::vector<Point> &rows, size_t from, size_t to);
  void evaluateNode(unsigned node, const Point &point, const uint32_t *accumulators,
                    std::vector<uint32_t> &values);
  void load(const Access &access, const Point &point, uint32_t *out) const;
  void store(const Result &result, const Point &point, const uint32_t *values);
  int64_t lookUp(const Lookup &lookup, const Point &point) const;
  template <class Move> void walk(const Access &access, const Point &point, const Move &move) const;

  const KernelGraph &graph;
  const Kernel &kernel;
  std::vector<TensorBytes> &tensors;
  unsigned threads = 1;
  int vectorLoop = -1;
  int64_t width = 1;
  std::vector<unsigned> runningLoops;
  std::vector<Point> running;       ///< points of the running loops; one of zeros without any
  std::vector<bool> afterReduction; ///< per node: runs once per parallel point
  std::optional<Contraction> contraction;
};

/// The columns of a contraction are shared by all its rows, so their loop must not index an a; nor
/// may it move an index that is looked up.
bool KernelRun::suitsTerms(unsigned loop) const {
  for (const Term &term : kernel.terms)
    if (usesLoop(term.a, loop))
      return false;
  for (const Access &access : kernel.operands)
    if (access.lookup && usesLoop(Access{access.lookup->tensor, access.lookup->index, 0}, loop))
      return false;
  return true;
}

void KernelRun::chooseVectorLoop() {
  int64_t best = 0;
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop) {
    if (kernel.loops[loop].kind != LoopKind::Parallel || !suitsTerms(loop) ||
        kernel.loops[loop].extent <= best)
      continue;
    vectorLoop = int(loop);
    best = kernel.loops[loop].extent;
  }
}

void KernelRun::findReduced() {
  for (const Node &node : kernel.nodes) {
    bool after = node.kind == Node::Kind::Reduce;
    for (unsigned arg : node.args)
      after |= afterReduction[arg];
    afterReduction.push_back(after);
  }
  // Without running loops everything runs once; with them, a result that depends on no Reduce would
  // be a mistake.
}

/// The index that a lookup finds.
int64_t KernelRun::lookUp(const Lookup &lookup, const Point &point) const {
  const int64_t element =
      linearOffset(graph.tensors[lookup.tensor], Access{lookup.tensor, lookup.index, 0}, point);
  int32_t index = 0; // as every access outside its tensor
  if (element >= 0)
    std::memcpy(&index, tensors[lookup.tensor].data() + 4 * element, sizeof index);
  return index;
}

/// Calls move(lane, element offset or -1) along the vector loop.
template <class Move>
void KernelRun::walk(const Access &access, const Point &point, const Move &move) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  thread_local std::vector<int64_t> base, step; // per dimension; allocated once
  int64_t linear = 0, stride = 0;
  bool inside = true;
  size_t rank = access.index.size();
  base.resize(rank), step.resize(rank);
  for (size_t dim = 0; dim < rank; ++dim) {
    base[dim] = access.index[dim].offset;
    if (access.lookup && access.lookup->dim == dim)
      base[dim] += lookUp(*access.lookup, point);
    step[dim] = 0;
    for (auto [loop, coefficient] : access.index[dim].terms)
      (int(loop) == vectorLoop ? step[dim] : base[dim]) +=
          int(loop) == vectorLoop ? coefficient : coefficient * point[loop];
    int64_t last = base[dim] + step[dim] * (width - 1);
    inside &= std::min(base[dim], last) >= 0 && std::max(base[dim], last) < tensor.shape[dim];
    linear = linear * tensor.shape[dim] + base[dim];
    stride = stride * tensor.shape[dim] + step[dim];
  }
  for (int64_t lane = 0; lane < width; ++lane) {
    bool valid = true;
    for (size_t dim = 0; dim < rank && !inside && valid; ++dim) {
      int64_t index = base[dim] + lane * step[dim];
      valid = index >= 0 && index < tensor.shape[dim];
    }
    move(lane, valid ? linear + lane * stride : -1);
  }
}

void KernelRun::load(const Access &access, const Point &point, uint32_t *out) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  unsigned bytes = byteWidth(tensor.type);
  const uint8_t *data = tensors[access.tensor].data();
  walk(access, point, [&](int64_t lane, int64_t offset) {
    uint32_t bits = access.pad;
    if (offset >= 0) {
      bits = 0;
      std::memcpy(&bits, data + (tensor.splat ? 0 : offset) * bytes, bytes);
    }
    out[lane] = bits;
  });
}

void KernelRun::store(const Result &result, const Point &point, const uint32_t *values) {
  unsigned bytes = byteWidth(graph.tensors[result.access.tensor].type);
  uint8_t *data = tensors[result.access.tensor].data();
  walk(result.access, point, [&](int64_t lane, int64_t offset) {
    if (offset >= 0)
      std::memcpy(data + offset * bytes, &values[lane], bytes);
  });
}

void KernelRun::evaluateNode(unsigned number, const Point &point, const uint32_t *accumulators,
                             std::vector<uint32_t> &values) {
  const Node &node = kernel.nodes[number];
  uint32_t *out = &values[size_t(number) * size_t(width)];
  auto arg = [&](size_t i) {
    return i < node.args.size() ? &values[node.args[i] * size_t(width)] : nullptr;
  };
  switch (node.kind) {
  case Node::Kind::Accumulator:
    std::copy_n(accumulators, width, out);
    return;
  case Node::Kind::Operand:
    load(kernel.operands[node.index], point, out);
    return;
  case Node::Kind::Immediate:
    std::fill_n(out, width, node.bits);
    return;
  case Node::Kind::Op:
    semantics::applyAlu(node.op, arg(0), arg(1), arg(2), out, size_t(width));
    return;
  case Node::Kind::Reduce:
    return; // runChunk
  }
}

void KernelRun::runChunk(const std::vector<Point> &rows, size_t from, size_t to) {
  size_t columns = size_t(width), steps = running.size();
  std::vector<Point> points;
  for (size_t row = from; row < to; ++row)
    for (const Point &step : running) {
      points.push_back(rows[row]);
      for (unsigned loop : runningLoops)
        points.back()[loop] = step[loop];
    }
  std::vector<uint32_t> accumulators, values(kernel.nodes.size() * columns);
  if (contraction) {
    accumulators.resize(points.size() * columns);
    contraction->run(points, accumulators.data());
  }
  for (size_t row = 0; row < to - from; ++row) {
    for (size_t step = 0; step < steps; ++step) {
      size_t at = row * steps + step;
      const uint32_t *sums = contraction ? &accumulators[at * columns] : nullptr;
      for (unsigned node = 0; node < kernel.nodes.size(); ++node) {
        if (!afterReduction[node]) {
          evaluateNode(node, points[at], sums, values);
        } else if (kernel.nodes[node].kind == Node::Kind::Reduce) {
          const uint32_t *x = &values[kernel.nodes[node].args[0] * columns];
          uint32_t *sum = &values[node * columns];
          if (step == 0)
            std::copy_n(x, columns, sum);
          else
            semantics::applyAlu(kernel.nodes[node].op, sum, x, nullptr, sum, columns);
        }
      }
    }
    for (unsigned node = 0; node < kernel.nodes.size(); ++node)
      if (afterReduction[node])
        evaluateNode(node, points[row * steps], nullptr, values);
    for (const Result &result : kernel.results)
      store(result, points[row * steps], &values[result.node * columns]);
  }
}

void KernelRun::runRows(const std::vector<Point> &rows) {
  size_t chunk = std::max<size_t>(1, kRowsPerChunk / running.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t from; (from = next.fetch_add(chunk)) < rows.size();)
      runChunk(rows, from, std::min(rows.size(), from + chunk));
  };
  std::vector<std::thread> pool;
  if (rows.size() > chunk)
    for (unsigned i = 1; i < threads; ++i)
      pool.emplace_back(work);
  work();
  for (std::thread &thread : pool)
    thread.join();
}

void KernelRun::run() {
  std::vector<unsigned> weightLoops, rowLoops;
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop) {
    if (kernel.loops[loop].kind != LoopKind::Parallel || int(loop) == vectorLoop)
      continue;
    const bool packs = contraction && contraction->packsForEach(loop);
    (packs ? weightLoops : rowLoops).push_back(loop);
  }
  forEachPoint(kernel, weightLoops, [&](const Point &outer) {
    if (contraction)
      contraction->packWeights(outer, threads);
    std::vector<Point> rows;
    forEachPoint(kernel, rowLoops, [&](const Point &inner) {
      rows.push_back(inner);
      for (unsigned loop : weightLoops)
        rows.back()[loop] = outer[loop];
      return true;
    });
    runRows(rows);
    return true;
  });
}

} // namespace

void evaluateKernel(const KernelGraph &graph, unsigned kernel, std::vector<TensorBytes> &tensors,
                    const EvaluateOptions &options) {
  KernelRun(graph, kernel, tensors, options).run();
}

/// Indices as the host passes them on: none is negative.
static TensorBytes countFromEnd(const Tensor &tensor, TensorBytes host) {
  for (size_t at = 0; at + 4 <= host.size(); at += 4) {
    int32_t index = 0;
    std::memcpy(&index, &host[at], sizeof index);
    index += index < 0 ? int32_t(tensor.hostExtent) : 0;
    std::memcpy(&host[at], &index, sizeof index);
  }
  return host;
}

TensorBytes layOut(const Tensor &tensor, const TensorBytes &host) {
  if (tensor.hostExtent)
    return countFromEnd(tensor, host);
  if (tensor.hostLoops.empty())
    return host;
  unsigned bytes = byteWidth(tensor.type);
  TensorBytes out(size_t(elementCount(tensor)) * bytes);
  std::vector<int64_t> step(tensor.hostLoops.size(), 0);
  for (;;) {
    std::vector<int64_t> from = tensor.hostStart, to(tensor.shape.size(), 0);
    for (size_t i = 0; i < step.size(); ++i) {
      if (tensor.hostLoops[i].hostStep)
        from[tensor.hostLoops[i].hostDim] += step[i] * tensor.hostLoops[i].hostStep;
      to[tensor.hostLoops[i].dim] += step[i] * tensor.hostLoops[i].step;
    }
    int64_t source = 0, target = 0;
    bool inside = true;
    for (size_t dim = 0; dim < from.size(); ++dim) {
      inside &= from[dim] >= 0 && from[dim] < tensor.hostShape[dim];
      source = source * tensor.hostShape[dim] + from[dim];
    }
    for (size_t dim = 0; dim < to.size(); ++dim)
      target = target * tensor.shape[dim] + to[dim];
    std::memcpy(&out[size_t(target) * bytes],
                inside ? &host[size_t(source) * bytes]
                       : reinterpret_cast<const uint8_t *>(&tensor.hostFill),
                bytes);
    size_t i = step.size();
    while (i > 0 && ++step[i - 1] == tensor.hostLoops[i - 1].extent)
      step[--i] = 0;
    if (i == 0)
      return out;
  }
}

Expected<std::vector<TensorBytes>> evaluate(const KernelGraph &graph,
                                            const std::map<unsigned, TensorBytes> &inputs,
                                            const EvaluateOptions &options) {
  std::vector<TensorBytes> tensors(graph.tensors.size());
  for (unsigned i = 0; i < graph.tensors.size(); ++i) {
    const Tensor &tensor = graph.tensors[i];
    size_t bytes = size_t(elementCount(tensor)) * byteWidth(tensor.type);
    if (!tensor.hostLoops.empty()) {
      bytes = byteWidth(tensor.type);
      for (int64_t extent : tensor.hostShape)
        bytes *= size_t(extent);
    }
    if (tensor.role == TensorRole::Constant)
      tensors[i] = tensor.data;
    else if (tensor.role != TensorRole::Input)
      tensors[i].resize(bytes);
    else if (auto input = inputs.find(i); input == inputs.end() || input->second.size() != bytes)
      return Error{"input '" + tensor.name + "' needs " + std::to_string(bytes) + " bytes, got " +
                   std::to_string(input == inputs.end() ? 0 : input->second.size())};
    else
      tensors[i] = layOut(tensor, input->second);
  }
  for (auto [isHost, index] : graph.order) {
    if (!isHost) {
      evaluateKernel(graph, index, tensors, options);
      continue;
    }
    if (!options.host)
      return Error{"host call '" + graph.hostCalls[index].name + "' has nobody to run it"};
    const HostCall &call = graph.hostCalls[index];
    if (Status status = options.host(call, tensors); !status)
      return status.takeError();
    for (unsigned t : call.outputs)
      tensors[t] = layOut(graph.tensors[t], tensors[t]);
  }
  return tensors;
}

} // namespace millrace::forms
