// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/UniformRows.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Simplify.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

namespace millrace::forms {
namespace {

/// The first `lanes` elements of each row, if all of a row's are equal. Rows are contiguous.
std::optional<std::vector<uint8_t>> beginsOfRows(const Tensor &tensor, int64_t lanes) {
  const size_t width = byteWidth(tensor.type), row = size_t(tensor.shape[tensor.laneDim]) * width;
  std::vector<uint8_t> begins;
  begins.reserve(tensor.data.size() / row * size_t(lanes) * width);
  for (size_t from = 0; from < tensor.data.size(); from += row) {
    const uint8_t *data = &tensor.data[from];
    if (std::memcmp(data, data + width, row - width) != 0)
      return std::nullopt;
    begins.insert(begins.end(), data, data + size_t(lanes) * width);
  }
  return begins;
}

bool readsRows(const Tensor &tensor, const Access &access) {
  for (size_t d = 0; d < access.index.size(); ++d)
    if (d != tensor.laneDim && !access.index[d].terms.empty())
      return true;
  return false;
}

} // namespace

unsigned shortenUniformRows(KernelGraph &graph, const Machine &machine) {
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  std::map<unsigned, std::optional<unsigned>> shortened; // of every constant that was looked at
  unsigned count = 0;
  const auto shorten = [&](unsigned index) -> std::optional<unsigned> {
    const auto [known, isNew] = shortened.try_emplace(index, std::nullopt);
    const Tensor &whole = graph.tensors[index];
    if (!isNew || whole.role != TensorRole::Constant || whole.splat || whole.uniform ||
        whole.laneDim + 1 != whole.shape.size() || whole.shape[whole.laneDim] <= vector)
      return known->second;
    std::optional<std::vector<uint8_t>> begins = beginsOfRows(whole, vector);
    if (!begins)
      return std::nullopt;
    std::vector<int64_t> shape = whole.shape;
    shape.back() = vector;
    known->second = addTensor(graph, whole.name + ".uniform", std::move(shape), whole.type,
                              whole.laneDim, TensorRole::Constant);
    Tensor &tensor = graph.tensors.back();
    tensor.data = std::move(*begins);
    tensor.uniform = true;
    ++count;
    return known->second;
  };
  for (Kernel &kernel : graph.kernels)
    for (Access &operand : kernel.operands) {
      if (operand.lookup || !readsRows(graph.tensors[operand.tensor], operand) ||
          !staysInside(graph, kernel, operand))
        continue;
      if (const std::optional<unsigned> uniform = shorten(operand.tensor)) {
        operand.tensor = *uniform;
        operand.index.back() = fixed(0);
      }
    }
  if (count)
    dropUnneeded(graph);
  return count;
}

} // namespace millrace::forms
