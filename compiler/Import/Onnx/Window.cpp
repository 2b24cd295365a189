// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Window.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Padding for auto_pad SAME_UPPER and SAME_LOWER: as many outputs as ceil(inputs / stride).
void padSame(Window &window, ArrayRef<int64_t> spatial, bool upper) {
  for (size_t i = 0; i < window.rank(); ++i) {
    int64_t outputs = (spatial[i] + window.strides[i] - 1) / window.strides[i];
    int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
    int64_t total = std::max<int64_t>(0, (outputs - 1) * window.strides[i] + reach - spatial[i]);
    window.low[i] = upper ? total / 2 : total - total / 2;
    window.high[i] = total - window.low[i];
  }
}

Status countOutputs(NodeImporter &node, Window &window, ArrayRef<int64_t> spatial, bool roundsUp) {
  for (size_t i = 0; i < window.rank(); ++i) {
    int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
    int64_t padded = spatial[i] + window.low[i] + window.high[i], stride = window.strides[i];
    if (padded < reach)
      return node.error("its window reaches over " + std::to_string(reach) +
                        " elements of dimension " + std::to_string(i + 2) + ", which has " +
                        std::to_string(padded) + " with padding");
    int64_t outputs = (padded - reach + (roundsUp ? stride - 1 : 0)) / stride + 1;
    // A window that would begin in the padding at the end does not count.
    if (roundsUp && (outputs - 1) * stride >= spatial[i] + window.low[i])
      --outputs;
    window.outputs.push_back(outputs);
    window.extra.push_back(std::max<int64_t>(0, (outputs - 1) * stride + reach - padded));
  }
  return Success{};
}

} // namespace

Expected<Window> readWindow(NodeImporter &node, ArrayRef<int64_t> spatial,
                            ArrayRef<int64_t> kernel) {
  size_t rank = spatial.size();
  Shape ones(rank, 1), zeros(2 * rank, 0);
  Window window;
  window.kernel = node.getInts("kernel_shape", kernel);
  window.strides = node.getInts("strides", ones);
  window.dilations = node.getInts("dilations", ones);
  Shape pads = node.getInts("pads", zeros);
  if (window.kernel.size() != rank || window.strides.size() != rank ||
      window.dilations.size() != rank || pads.size() != 2 * rank)
    return node.error("its window attributes do not fit " + std::to_string(rank) +
                      " spatial dimensions");
  auto isPositive = [](int64_t value) { return value > 0; };
  if (!llvm::all_of(window.strides, isPositive) || !llvm::all_of(window.dilations, isPositive) ||
      !llvm::all_of(window.kernel, isPositive) ||
      llvm::any_of(pads, [](int64_t pad) { return pad < 0; }))
    return node.error("kernel, strides and dilations must be positive and pads not negative");
  constexpr int64_t kMost = int64_t(1) << 31; // products of two stay in range
  for (const Shape *values : {&window.kernel, &window.strides, &window.dilations, &pads})
    for (int64_t value : *values)
      if (value >= kMost)
        return node.error("kernel, strides, dilations and pads must be below 2^31, but one is " +
                          std::to_string(value));
  window.low.assign(pads.begin(), pads.begin() + static_cast<int64_t>(rank));
  window.high.assign(pads.begin() + static_cast<int64_t>(rank), pads.end());
  std::string automatic = node.getString("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER")
    padSame(window, spatial, automatic == "SAME_UPPER");
  if (automatic == "VALID") {
    window.low.assign(rank, 0);
    window.high.assign(rank, 0);
  }
  if (Status counted = countOutputs(node, window, spatial, node.getInt("ceil_mode", 0) != 0);
      !counted)
    return counted.takeError();
  return window;
}

Value padWindow(NodeImporter &node, Value input, const Window &window, Value scalar) {
  Shape low{0, 0}, high{0, 0};
  for (size_t i = 0; i < window.rank(); ++i) {
    low.push_back(window.low[i]);
    high.push_back(window.high[i] + window.extra[i]);
  }
  return node.t.pad(input, low, high, scalar);
}

DenseIntElementsAttr windowAttribute(NodeImporter &node, ArrayRef<int64_t> values) {
  return node.t.ops().getI64TensorAttr(values);
}

AffineExpr windowIndex(NodeImporter &node, unsigned position, unsigned tap, int64_t stride,
                       int64_t dilation) {
  Scalars &b = node.t.ops();
  return b.getAffineDimExpr(position) * stride + b.getAffineDimExpr(tap) * dilation;
}

} // namespace millrace::onnx_import
