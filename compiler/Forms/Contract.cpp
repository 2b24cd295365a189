// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Contract.h"

#include "arch/isa/semantics/Alu.h"
#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace millrace::forms {

/// Every fp16 or bf16 value, by its bits.
static std::vector<float> decodeTable(ElementType type, size_t count) {
  std::vector<float> table(count);
  for (size_t i = 0; i < count; ++i)
    table[i] = decode(type, uint32_t(i));
  return table;
}

static const std::vector<float> &tableOf(ElementType type) {
  static const std::vector<float> tables[kElementTypes] = {
      decodeTable(ElementType::Int8, 256),   decodeTable(ElementType::UInt8, 256),  {},
      decodeTable(ElementType::Fp16, 65536), decodeTable(ElementType::Bf16, 65536), {},
      decodeTable(ElementType::E4M3, 256),   decodeTable(ElementType::E5M2, 256)};
  return tables[unsigned(type)];
}

Contraction::Contraction(const KernelGraph &graph, const Kernel &kernel,
                         const std::vector<TensorBytes> &tensors, std::vector<Pass> passes,
                         int vectorLoop)
    : graph(graph), kernel(kernel), tensors(tensors), vectorLoop(vectorLoop),
      passes(std::move(passes)) {
  width = vectorLoop < 0 ? 1 : kernel.loops[size_t(vectorLoop)].extent;
  panels = (width + kPanel - 1) / kPanel;
  integer = graph.tensors[kernel.terms[0].a.tensor].type == ElementType::Int8;
}

bool Contraction::packsForEach(unsigned loop) const {
  return std::any_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
    const AffineIndex &lanes = term.a.index[graph.tensors[term.a.tensor].laneDim];
    return usesLoop(term.w, loop) || (!passes.empty() && coefficient(lanes, loop));
  });
}

/// The steps of all passes for the given values of the loops of packsForEach.
void Contraction::setSections(const std::vector<int64_t> &point) {
  steps.clear();
  sections.clear();
  gathersA.clear();
  gathersW.clear();
  if (passes.empty())
    for (unsigned term = 0; term < kernel.terms.size(); ++term)
      addTerm(term);
  for (const Pass &pass : passes)
    addPass(pass, point);
  for (const Section &section : sections) {
    gathersA.push_back(prepare(kernel.terms[section.term].a, section.from, section.to));
    gathersW.push_back(prepare(kernel.terms[section.term].w, section.from, section.to));
  }
  weights.assign(size_t(panels * kPanel) * steps.size(), 0);
}

/// All contracted points of a term in one section.
void Contraction::addTerm(unsigned term) {
  std::vector<unsigned> loops;
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop)
    if (kernel.loops[loop].kind == LoopKind::Contracted && usesLoop(kernel.terms[term].a, loop))
      loops.push_back(loop);
  const int64_t from = int64_t(steps.size());
  forEachPoint(kernel, loops, [&](const std::vector<int64_t> &step) {
    steps.push_back(step);
    return true;
  });
  sections.push_back({from, int64_t(steps.size()), term});
}

void Contraction::addPass(const Pass &pass, const std::vector<int64_t> &point) {
  const Access &a = kernel.terms[pass.term].a;
  const AffineIndex &lanes = a.index[graph.tensors[a.tensor].laneDim];
  std::vector<int64_t> step(kernel.loops.size(), 0);
  int64_t lane = lanes.offset; // of the lane loop's 0
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop)
    if (kernel.loops[loop].kind == LoopKind::Contracted && loop != pass.laneLoop)
      step[loop] = pass.point[loop];
  for (auto [loop, coefficient] : lanes.terms)
    if (loop != pass.laneLoop)
      lane += coefficient *
              (kernel.loops[loop].kind == LoopKind::Contracted ? step[loop] : point[loop]);
  const int64_t extent = pass.laneLoop ? kernel.loops[*pass.laneLoop].extent : 1;
  const int64_t from = std::max<int64_t>(0, pass.firstLane - lane),
                to = std::min(extent, pass.endLane - lane);
  if (from >= to)
    return;
  const int64_t first = int64_t(steps.size());
  for (int64_t k = from; k < to; ++k) {
    if (pass.laneLoop)
      step[*pass.laneLoop] = k;
    steps.push_back(step);
  }
  sections.push_back({first, int64_t(steps.size()), pass.term, pass.half});
}

Contraction::Gather Contraction::prepare(const Access &access, int64_t from, int64_t to) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  size_t rank = access.index.size();
  Gather gather;
  gather.low.assign(rank, INT64_MAX);
  gather.high.assign(rank, INT64_MIN);
  for (int64_t step = from; step < to; ++step) {
    int64_t linear = 0;
    for (size_t dim = 0; dim < rank; ++dim) {
      int64_t index = 0;
      for (auto [loop, coefficient] : access.index[dim].terms)
        if (kernel.loops[loop].kind == LoopKind::Contracted)
          index += coefficient * steps[size_t(step)][loop];
      gather.stepIndex.push_back(index);
      gather.low[dim] = std::min(gather.low[dim], index);
      gather.high[dim] = std::max(gather.high[dim], index);
      linear = linear * tensor.shape[dim] + index;
    }
    gather.stepLinear.push_back(linear);
  }
  return gather;
}

double Contraction::read(const Access &access, int64_t offset) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  unsigned bytes = byteWidth(tensor.type);
  uint32_t bits = access.pad;
  if (offset >= 0)
    std::memcpy(&(bits = 0), &tensors[access.tensor][size_t(tensor.splat ? 0 : offset) * bytes],
                bytes);
  return double(tableOf(tensor.type)[bits & (bytes == 1 ? 0xff : 0xffff)]);
}

/// out[step * stride] = the access at `point` and each step of the section.
void Contraction::gather(const Access &access, const Gather &gather,
                         const std::vector<int64_t> &point, double *out, int64_t stride) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  size_t rank = access.index.size(), count = gather.stepLinear.size();
  thread_local std::vector<int64_t> base; // per dimension; allocated once
  base.resize(rank);
  int64_t linear = 0;
  bool inside = true;
  for (size_t dim = 0; dim < rank; ++dim) {
    base[dim] = access.index[dim].offset;
    for (auto [loop, coefficient] : access.index[dim].terms)
      if (kernel.loops[loop].kind != LoopKind::Contracted)
        base[dim] += coefficient * point[loop];
    linear = linear * tensor.shape[dim] + base[dim];
    inside &= base[dim] + gather.low[dim] >= 0 && base[dim] + gather.high[dim] < tensor.shape[dim];
  }
  if (inside && !tensor.splat && byteWidth(tensor.type) == 2) { // the common case, without bounds
    const auto &table = tableOf(tensor.type);
    const auto *data = reinterpret_cast<const uint16_t *>(tensors[access.tensor].data()) + linear;
    for (size_t step = 0; step < count; ++step)
      out[int64_t(step) * stride] = double(table[data[gather.stepLinear[step]]]);
    return;
  }
  for (size_t step = 0; step < count; ++step) {
    bool valid = true;
    for (size_t dim = 0; dim < rank && valid; ++dim) {
      int64_t index = base[dim] + gather.stepIndex[step * rank + dim];
      valid = index >= 0 && index < tensor.shape[dim];
    }
    out[int64_t(step) * stride] = read(access, valid ? linear + gather.stepLinear[step] : -1);
  }
}

void Contraction::packWeights(const std::vector<int64_t> &point, unsigned threads) {
  setSections(point);
  auto pack = [&](int64_t first) {
    std::vector<int64_t> at = point;
    for (int64_t column = first; column < width; column += threads) {
      if (vectorLoop >= 0)
        at[size_t(vectorLoop)] = column;
      double *panel = &weights[size_t(column / kPanel * kPanel) * steps.size()];
      for (size_t i = 0; i < sections.size(); ++i)
        gather(kernel.terms[sections[i].term].w, gathersW[i], at,
               panel + sections[i].from * kPanel + column % kPanel, kPanel);
    }
  };
  if (threads > 1 && size_t(width) * steps.size() > 65536) {
    std::vector<std::thread> pool;
    for (unsigned i = 0; i < threads; ++i)
      pool.emplace_back(pack, i);
    for (std::thread &thread : pool)
      thread.join();
    return;
  }
  threads = 1;
  pack(0);
}

/// sums[row][column] over `count` steps; rows of a are `pitch` apart.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
static void multiplyPanel(const double *a, int64_t pitch, const double *w, int64_t count,
                          double (*sums)[kPanel]) {
  double s[4][kPanel] = {};
  for (int64_t k = 0; k < count; ++k)
    for (int row = 0; row < 4; ++row)
      for (int column = 0; column < kPanel; ++column)
        s[row][column] += a[row * pitch + k] * w[k * kPanel + column];
  std::memcpy(sums, s, sizeof s);
}

/// Adds one pass's sum as the accumulator does: int32 modulo 2^32, or rounded once to fp32 and
/// added in fp32.
static uint32_t accumulate(uint32_t accumulator, double sum, bool integer) {
  if (integer)
    return accumulator + uint32_t(int64_t(sum));
  float rounded = float(sum);
  if (rounded == 0)
    rounded = 0; // an exact zero is +0
  return semantics::applyAlu(AluOp::AddF32, accumulator, bitsOf(rounded));
}

void Contraction::run(const std::vector<std::vector<int64_t>> &points,
                      uint32_t *accumulators) const {
  int64_t count = int64_t(steps.size()), rows = int64_t(points.size());
  std::vector<double> a(size_t((rows + 3) / 4 * 4 * count));
  for (int64_t row = 0; row < rows; ++row)
    for (size_t i = 0; i < sections.size(); ++i)
      gather(kernel.terms[sections[i].term].a, gathersA[i], points[size_t(row)],
             &a[size_t(row * count)] + sections[i].from, 1);
  std::vector<uint32_t> sumsOf[2];
  for (std::vector<uint32_t> &its : sumsOf)
    its.assign(size_t(rows * width), 0u);
  for (int64_t row = 0; row < rows; row += 4)
    for (int64_t panel = 0; panel < panels; ++panel)
      for (const Section &section : sections) {
        double sums[4][kPanel];
        multiplyPanel(&a[size_t(row * count + section.from)], count,
                      &weights[size_t((panel * count + section.from) * kPanel)],
                      section.to - section.from, sums);
        for (int64_t i = 0; i < 4 && row + i < rows; ++i)
          for (int64_t j = 0; j < kPanel && panel * kPanel + j < width; ++j) {
            uint32_t &target =
                sumsOf[section.half][size_t((row + i) * width + panel * kPanel + j)];
            target = accumulate(target, sums[i][j], integer);
          }
      }
  const AluOp add = integer ? AluOp::AddI32 : AluOp::AddF32;
  for (size_t i = 0; i < sumsOf[0].size(); ++i) // the sum of no pass is +0
    accumulators[i] = semantics::applyAlu(add, sumsOf[0][i], sumsOf[1][i]);
}

} // namespace millrace::forms
