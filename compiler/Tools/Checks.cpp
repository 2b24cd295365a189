// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Checks.h"

#include "arch/spec/Facts.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace millrace::driver {

/// How many indices of one dimension an access certainly reaches: those of its longest loop, with
/// the other loops in their middle.
static int64_t reached(const forms::Kernel &kernel, const forms::AffineIndex &index,
                       int64_t shape) {
  int64_t first = index.offset, extent = 1, step = 0;
  for (auto [loop, coefficient] : index.terms) {
    const int64_t length = kernel.loops[loop].extent;
    first += length / 2 * coefficient;
    if (length > extent)
      extent = length, step = coefficient;
  }
  if (!step)
    return 1;
  first -= extent / 2 * step;
  if (step < 0)
    first += (extent - 1) * step, step = -step;
  const int64_t before = first < 0 ? (-first + step - 1) / step : 0;
  const int64_t within = first < shape ? (shape - 1 - first) / step + 1 : 0;
  return std::max<int64_t>(1, std::min(extent, within) - before);
}

/// Rows of memory that these indices of a tensor take: a vector per byte, however few of its lanes
/// are used.
static uint64_t rowsOf(const forms::Tensor &tensor, const std::vector<int64_t> &indices,
                       const Machine &machine) {
  uint64_t rows = byteWidth(tensor.type);
  for (size_t d = 0; d < indices.size(); ++d)
    rows *= d == tensor.laneDim ? (uint64_t(indices[d]) + machine.lanes() - 1) / machine.lanes()
                                : uint64_t(indices[d]);
  return rows;
}

/// What an access certainly needs in memory. 0 where a loop moves two indices: then it says
/// nothing.
static uint64_t rowsOf(const forms::Kernel &kernel, const forms::Access &access,
                       const forms::Tensor &tensor, const Machine &machine) {
  std::vector<int64_t> indices;
  std::vector<bool> moves(kernel.loops.size(), false);
  for (size_t d = 0; d < access.index.size(); ++d) {
    for (auto [loop, coefficient] : access.index[d].terms) {
      if (moves[loop])
        return 0;
      moves[loop] = true;
    }
    indices.push_back(reached(kernel, access.index[d], tensor.shape[d]));
  }
  return rowsOf(tensor, indices, machine);
}

/// Bytes of what is installed that must be stored. Long runs of zeros along the lanes are left out:
/// bands, and groups of channels, have most of their tensor full of them.
static uint64_t installedBytes(const forms::Tensor &tensor) {
  const size_t width = byteWidth(tensor.type), lanes = size_t(tensor.shape[tensor.laneDim]),
               longRun = std::min<size_t>(8, lanes);
  size_t step = width; // from one lane to the next
  for (size_t d = tensor.laneDim + 1; d < tensor.shape.size(); ++d)
    step *= size_t(tensor.shape[d]);
  size_t zeros = 0;
  for (size_t outer = 0; outer < tensor.data.size(); outer += lanes * step)
    for (size_t column = outer; column < outer + step; column += width) {
      size_t run = 0;
      for (size_t k = 0; k <= lanes; ++k) {
        const uint8_t *at = tensor.data.data() + column + k * step;
        if (k < lanes && std::all_of(at, at + width, [](uint8_t b) { return b == 0; })) {
          ++run;
          continue;
        }
        zeros += run < longRun ? 0 : run;
        run = 0;
      }
    }
  return tensor.data.size() - zeros * width;
}

Status checkFits(const forms::KernelGraph &graph, const Machine &machine) {
  std::vector<uint64_t> rows(graph.tensors.size(), 0); // of every tensor, at least
  std::vector<bool> installedOnly(graph.tensors.size(), true);
  for (const forms::Kernel &kernel : graph.kernels) {
    for (const forms::Access &operand : kernel.operands)
      installedOnly[operand.tensor] = false;
    for (const forms::Term &term : kernel.terms)
      installedOnly[term.a.tensor] = false;
    auto read = [&](const forms::Access &access) {
      if (!access.lookup)
        rows[access.tensor] = std::max(
            rows[access.tensor], rowsOf(kernel, access, graph.tensors[access.tensor], machine));
    };
    for (const forms::Access &operand : kernel.operands)
      read(operand);
    for (const forms::Term &term : kernel.terms)
      read(term.a), read(term.w);
    for (const forms::Result &result : kernel.results) { // results are written whole
      const forms::Tensor &tensor = graph.tensors[result.access.tensor];
      rows[result.access.tensor] = rowsOf(tensor, tensor.shape, machine);
    }
  }
  uint64_t constants = 0, inputs = 0, outputs = 0; // bytes
  std::vector<size_t> installed;                   // of the constants
  std::pair<uint64_t, std::string> most;           // what must be there at one time, beside them
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const forms::Tensor &tensor = graph.tensors[t];
    const uint64_t bytes = rows[t] * machine.lanes();
    switch (tensor.role) {
    case forms::TensorRole::Constant: // installed weights share rows; one repeated element may, too
      if (!rows[t] || tensor.splat)
        break;
      constants += tensor.data.size();
      if (installedOnly[t])
        installed.push_back(t);
      break;
    case forms::TensorRole::Input:
      inputs += bytes;
      break;
    case forms::TensorRole::Output:
      outputs += bytes;
      break;
    case forms::TensorRole::Intermediate:
      most = std::max(most, {bytes, "'" + tensor.name + "'"});
    }
  }
  most = std::max({most, {inputs, "its inputs"}, {outputs, "its outputs"}});
  const uint64_t present = factsOf(machine).capacityBytes * machine.pes();
  for (size_t i = 0; constants + most.first > present && i < installed.size(); ++i)
    constants -= graph.tensors[installed[i]].data.size() -
                 installedBytes(graph.tensors[installed[i]]); // zeros are looked for if they matter
  const uint64_t needed = constants + most.first;
  if (needed <= present)
    return Success{};
  const auto mebibytes = [](uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f MiB", double(bytes) / (1 << 20));
    return std::string(text);
  };
  return Error{"its constants take " + mebibytes(constants) + " and " + most.second + " " +
               mebibytes(most.first) + " in vectors of " + std::to_string(machine.lanes()) +
               " lanes, the memory of all PEs has " + mebibytes(present) + ": " +
               mebibytes(needed - present) +
               " too little; use a machine with more memory or more PEs"};
}

} // namespace millrace::driver
