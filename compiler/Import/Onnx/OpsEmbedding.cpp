// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// com.microsoft: EmbedLayerNormalization.
#include "compiler/Import/Onnx/Gather.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Normalization.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// The number of unmasked positions of each row: sum over the sequence of a B x S mask.
Value countMask(NodeImporter &node) {
  TensorBuilder &t = node.t;
  if (!node.has(7))
    return t.splat({node.shape(0)[0]}, t.ops().getI32Type(), 0);
  return t.reduceSum(node.in(7), {1});
}

/// Inputs: ids (B x S), segments, word table, position table, segment table, gamma, beta, mask,
/// position ids. Results: the normalised sum of embeddings, the mask counts, the sum.
Status importEmbedLayerNorm(NodeImporter &node) {
  TensorBuilder &t = node.t;
  if (node.getInt("mask_index_type", 0) != 0 && node.wants(1) && node.has(7) &&
      node.getInt("mask_index_type", 0) != 1)
    return node.error("mask_index_type " + std::to_string(node.getInt("mask_index_type", 0)) +
                      " is not supported");
  const int64_t tokens = node.shape(0)[1], width = node.shape(2)[1];
  for (const size_t table : {3, 4})
    if (node.has(table) && node.shape(table)[1] != width)
      return node.error("its tables have " + std::to_string(width) + " and " +
                        std::to_string(node.shape(table)[1]) + " columns");
  for (const size_t numbers : {1, 8})
    if (node.has(numbers) && node.shape(numbers)[1] != tokens)
      return node.error("input " + std::to_string(numbers) + " has " +
                        std::to_string(node.shape(numbers)[1]) + " tokens, the ids have " +
                        std::to_string(tokens));
  if (!node.has(8) && node.shape(3)[0] < tokens)
    return node.error("its table of positions has " + std::to_string(node.shape(3)[0]) +
                      " rows for " + std::to_string(tokens) + " tokens");
  if (node.shape(5)[0] != width || node.shape(6)[0] != width)
    return node.error("its scale and shift do not have " + std::to_string(width) + " elements");
  SmallVector<Value> parts{gather(t, node.in(2), node.in(0), 0)};
  if (node.has(8))
    parts.push_back(gather(t, node.in(3), node.in(8), 0));
  else
    parts.push_back(t.sliceAxis(node.in(3), 0, 0, tokens));
  if (node.has(1) && node.has(4))
    parts.push_back(gather(t, node.in(4), node.in(1), 0));
  Value sum = t.map(parts, elementTypeOf(parts[0]), [](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value result = a.add(x[0], x[1]);
    return x.size() == 3 ? a.add(result, x[2]) : result;
  });
  LayerNorm norm = layerNorm(t, sum, 2, node.getFloat("epsilon", 1e-12), node.in(5), node.in(6));
  if (node.wants(1))
    node.set(1, countMask(node), HostType::Int32);
  if (node.wants(2))
    node.set(2, sum, node.inType(2));
  return node.done(norm.result, node.inType(2));
}

} // namespace

void addEmbeddingOps(HandlerTable &table) {
  table["com.microsoft:EmbedLayerNormalization"] = needing(
      {0, 2, 3, 5, 6}, typed({indices(0, 2), indices(1, 2), reals(2, 2), reals(3, 2), reals(4, 2),
                              reals(5, 1), reals(6, 1), indices(7, 2), indices(8, 2)},
                             importEmbedLayerNorm));
}

} // namespace millrace::onnx_import
