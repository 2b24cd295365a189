// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference for kernel graphs: plain loops over every kernel with the rounding points of the
// machine (docs/spec/machine.md, Numerics) and none of its schedule. Simulator outputs are compared
// with this.
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Forms/Kernel.h"

#include <functional>
#include <map>
#include <optional>

namespace millrace::forms {

using TensorBytes = std::vector<uint8_t>; ///< row major in the tensor's type

/// One pass of the MXM: lanes [firstLane, endLane) of a term's a for one value of all contracted
/// loops but `laneLoop`; its products are summed exactly and rounded once to fp32.
struct Pass {
  unsigned term = 0;
  std::vector<int64_t> point;         ///< value of each loop; only those of contracted loops count
  std::optional<unsigned> laneLoop;   ///< the contracted loop along the lanes, if there is one
  int64_t firstLane = 0, endLane = 0; ///< of a's tensor
  /// 0 or 1: a kernel whose K is split adds up the passes of each half, then one sum to the other.
  unsigned half = 0;
};

struct EvaluateOptions {
  unsigned threads = 0; ///< 0: as many as the CPU has
  /// The passes of a kernel in the order in which their sums are added in fp32. Together they cover
  /// every contracted point once; lanes that a column does not multiply count nothing. None or an
  /// empty answer: one pass per term.
  std::function<std::vector<Pass>(unsigned kernel)> passes;
  /// Runs a host call: reads tensors' bytes and leaves what it gives in the host's order. Without
  /// it, a host call is an error.
  std::function<Status(const HostCall &, std::vector<TensorBytes> &)> host;
};

/// What the host writes as its tensor lies on the grid, from elements of the tensor's type in the host's order
/// (`hostLoops`); indices that count from the end (`hostExtent`) come out positive.
TensorBytes layOut(const Tensor &tensor, const TensorBytes &host);

/// Runs the graph. `inputs` holds every Input by tensor number: elements of the tensor's type in
/// the host's order. Returns the bytes of all tensors. Errors: a missing input or one of the wrong
/// size, a host call that fails.
Expected<std::vector<TensorBytes>> evaluate(const KernelGraph &graph,
                                            const std::map<unsigned, TensorBytes> &inputs,
                                            const EvaluateOptions &options = {});

/// Runs one kernel on tensors that hold their bytes already.
void evaluateKernel(const KernelGraph &graph, unsigned kernel, std::vector<TensorBytes> &tensors,
                    const EvaluateOptions &options = {});

} // namespace millrace::forms
