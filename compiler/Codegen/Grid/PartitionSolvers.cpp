// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Sharding.h"

#include <algorithm>

namespace millrace::grid {
namespace {

/// Bytes of weights that a PE needs to compute every lane tile of the kernel, in both hemispheres.
uint64_t weightBytes(const Context &c, const Kernel &kernel) {
  uint64_t bytes = 0;
  for (const forms::Term &t : kernel.terms) {
    const Tensor &w = c.tensor(t.w.tensor);
    uint64_t elements = 1;
    for (int64_t d : w.shape)
      elements *= uint64_t(d);
    bytes += elements * byteWidth(w.type);
  }
  return bytes * kHemispheres;
}

/// Which kernels' weights every PE holds: small ones, the smallest first, within a third of a PE's
/// memory.
std::vector<bool> everywhereOf(const Context &c) {
  const uint64_t memory = c.rowsOfHemisphere() * kHemispheres * c.machine.lanes();
  std::vector<std::pair<uint64_t, size_t>> bySize;
  for (size_t k = 0; k < c.graph.kernels.size(); ++k)
    bySize.push_back({weightBytes(c, c.graph.kernels[k]), k});
  std::sort(bySize.begin(), bySize.end());
  std::vector<bool> everywhere(c.graph.kernels.size(), false);
  uint64_t sum = 0;
  for (auto [bytes, k] : bySize) {
    sum += bytes;
    everywhere[k] = bytes <= memory / 24 && sum <= memory / 3;
  }
  return everywhere;
}

/// One kernel over the PEs that compute: strips of every tile where weights are everywhere, else
/// runs of units.
std::vector<std::vector<Share>> deal(const PartitionProblem &problem, const Work &w,
                                     bool everywhere) {
  const size_t pes = problem.pes();
  const bool strips = w.roles.running.empty() && everywhere && w.strips >= int64_t(pes);
  std::vector<std::vector<Share>> cut = cutWork(w, pes, strips ? Cut::Strips : Cut::Units);
  std::vector<std::vector<Share>> shares(problem.order.size());
  for (size_t p = 0; p < pes; ++p)
    shares[problem.order[p]] = std::move(cut[p]);
  return shares;
}

Dealing spread(const PartitionProblem &problem) {
  const std::vector<bool> everywhere = everywhereOf(problem.c);
  Dealing shares;
  for (size_t k = 0; k < problem.works.size(); ++k)
    shares.push_back(deal(problem, problem.works[k], everywhere[k]));
  return shares;
}

/// Stages that consecutive kernels fill, each at most `most` vectors and `mostBytes` of weights;
/// one kernel alone may be more.
std::vector<size_t> stagesOf(const std::vector<int64_t> &vectors,
                             const std::vector<uint64_t> &bytes, int64_t most, uint64_t mostBytes) {
  std::vector<size_t> stages;
  int64_t sum = 0;
  uint64_t held = 0;
  size_t stage = 0;
  for (size_t k = 0; k < vectors.size(); ++k) {
    if (k && (sum + vectors[k] > most || held + bytes[k] > mostBytes)) {
      ++stage;
      sum = 0;
      held = 0;
    }
    sum += vectors[k];
    held += bytes[k];
    stages.push_back(stage);
  }
  return stages;
}

Dealing pipeline(const PartitionProblem &problem) {
  const Context &c = problem.c;
  const uint64_t memory = c.rowsOfHemisphere() * kHemispheres * c.machine.lanes();
  std::vector<int64_t> vectors;
  std::vector<uint64_t> bytes;
  for (size_t k = 0; k < problem.works.size(); ++k) {
    vectors.push_back(vectorsOf(c, c.graph.kernels[k], problem.works[k]));
    bytes.push_back(weightBytes(c, c.graph.kernels[k]));
  }
  const auto shortest = [&](uint64_t mostBytes) {
    int64_t low = 0, high = 1; // the shortest longest stage that needs no more stages than PEs
    for (int64_t v : vectors)
      high += v;
    while (low + 1 < high) {
      const int64_t middle = (low + high) / 2;
      const std::vector<size_t> stages = stagesOf(vectors, bytes, middle, mostBytes);
      (stages.empty() || stages.back() < problem.pes() ? high : low) = middle;
    }
    return stagesOf(vectors, bytes, high, mostBytes);
  };
  // Half the memory for weights in both hemispheres; then for weights that are stored once, and
  // more of it.
  std::vector<size_t> stages;
  for (const uint64_t halves : {1, 2, 3})
    if (stages = shortest(memory / 2 * halves); stages.empty() || stages.back() < problem.pes())
      break;
  Dealing shares;
  for (size_t k = 0; k < problem.works.size(); ++k) {
    const Work &w = problem.works[k];
    shares.emplace_back(problem.order.size());
    const size_t place = std::min(stages[k], problem.pes() - 1);
    shares.back()[problem.order[place]] = sharesOf(w, 0, w.units(), std::max<int64_t>(w.strips, 1));
  }
  return shares;
}

} // namespace

const std::vector<PartitionSolver> &partitionSolvers() {
  static const std::vector<PartitionSolver> solvers{
      {"spread", "every kernel over all PEs, or over as many as its weights have room on", spread,
       /*shards=*/true},
      {"pipeline", "consecutive kernels on one PE", pipeline, /*shards=*/false}};
  return solvers;
}

} // namespace millrace::grid
