// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Macs.h"

#include "compiler/Import/Onnx/Einsum.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Prepare.h"

#include <map>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Both are no less than 0.
int64_t times(int64_t a, int64_t b) { return b != 0 && a > INT64_MAX / b ? INT64_MAX : a * b; }

int64_t plus(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

int64_t product(ArrayRef<int64_t> extents) {
  int64_t result = 1;
  for (int64_t extent : extents)
    result = times(result, extent);
  return result;
}

ArrayRef<int64_t> resultShape(const NodeImporter &node) {
  return shapeOf(node.results().front().value);
}

/// Outputs x taps of one output: weights [Cout, Cin / group, k...] are input `weights`.
int64_t convolution(const NodeImporter &node, size_t weights) {
  return times(product(resultShape(node)), product(node.shape(weights).drop_front()));
}

/// Each input element meets each tap of its channel's kernels once: weights [Cin, Cout / group,
/// k...].
int64_t transposedConvolution(const NodeImporter &node) {
  return times(product(node.shape(0)), product(node.shape(1).drop_front()));
}

/// Outputs x common extent: the last one of A, or the one before it if `transposes`.
int64_t matmul(const NodeImporter &node, bool transposes) {
  ArrayRef<int64_t> a = node.shape(0);
  if (a.empty())
    return 0;
  return times(product(resultShape(node)), a[a.size() - (transposes && a.size() > 1 ? 2 : 1)]);
}

int64_t einsum(const NodeImporter &node) {
  const Expected<Equation> equation = readEquation(node);
  if (!equation || equation->terms.size() != 2)
    return 0; // refused when it is imported, or one operand, which is not multiplied
  const auto isIn = [](const std::string &letters, char letter) {
    return letters.find(letter) != std::string::npos;
  };
  const bool isSummed = llvm::any_of(equation->terms[0], [&](char letter) {
    return isIn(equation->terms[1], letter) && !isIn(equation->result, letter);
  });
  int64_t all = isSummed ? 1 : 0;
  for (auto [letter, extent] : equation->extents)
    all = times(all, extent);
  return all;
}

/// Q K^T and P V: every query of a head meets every key, along the channels of a key and of a
/// value.
int64_t scores(int64_t batchAndHeads, int64_t queries, int64_t keys, int64_t keySize,
               int64_t valueSize) {
  return product({batchAndHeads, queries, keys, keySize + valueSize});
}

/// com.microsoft: x (B x S x I), weights (I x columns of Q, K and V), past (2 x B x N x P x D).
int64_t packedAttention(const NodeImporter &node, size_t pastAt) {
  ArrayRef<int64_t> x = node.shape(0);
  const int64_t columns = node.shape(1)[1], past = node.has(pastAt) ? node.shape(pastAt)[3] : 0;
  Shape widths = node.getInts("qkv_hidden_sizes");
  if (widths.size() != 3)
    widths.assign(3, columns / 3);
  return plus(product({x[0], x[1], x[2], columns}),
              scores(x[0], x[1], past + x[1], widths[0], widths[2]));
}

/// com.microsoft: query (B x S x N D), key and value (B x T x ...), past key (B x N x P x D).
int64_t multiHeadAttention(const NodeImporter &node) {
  ArrayRef<int64_t> query = node.shape(0), key = node.shape(1), value = node.shape(2);
  const int64_t past = node.has(6) ? node.shape(6)[2] : 0;
  return scores(query[0], query[1], past + key[1], query[2], value[2]);
}

/// com.microsoft: query (B x S x N D, perhaps with keys and values), past key (B x K x P x D).
int64_t groupQueryAttention(const NodeImporter &node) {
  ArrayRef<int64_t> query = node.shape(0);
  const int64_t heads = std::max<int64_t>(node.getInt("num_heads", 1), 1),
                all = node.has(1) ? heads : heads + 2 * node.getInt("kv_num_heads", 1),
                width = query[2] / std::max<int64_t>(all, 1) * heads,
                past = node.has(3) ? node.shape(3)[2] : 0;
  return scores(query[0], query[1], past + query[1], width, width);
}

/// ONNX, from opset 23 on: query (B x N x S x D or B x S x N D), key and value likewise with heads
/// of their own, past key (B x N x P x D). Every head of the query does its own products.
int64_t onnxAttention(const NodeImporter &node) {
  ArrayRef<int64_t> query = node.shape(0), key = node.shape(1), value = node.shape(2);
  const int64_t past = node.has(4) ? node.shape(4)[2] : 0;
  if (query.size() == 4)
    return scores(query[0] * query[1], query[2], past + key[2], query[3], value[3]);
  const int64_t heads = std::max<int64_t>(node.getInt("q_num_heads", 1), 1),
                keyHeads = std::max<int64_t>(node.getInt("kv_num_heads", 1), 1);
  return scores(query[0] * heads, query[1], past + key[1], query[2] / heads, value[2] / keyHeads);
}

using Count = std::function<int64_t(const NodeImporter &)>;

/// By "domain:type", as handlers are.
const std::map<std::string, Count> &counts() {
  static const auto plain = [](const NodeImporter &node) { return matmul(node, false); };
  static const auto transposable = [](const NodeImporter &node) {
    return matmul(node, node.getInt("transA", 0) != 0);
  };
  static const auto packed = [](size_t pastAt) {
    return [pastAt](const NodeImporter &node) { return packedAttention(node, pastAt); };
  };
  static const auto weightsAt = [](size_t input) {
    return [input](const NodeImporter &node) { return convolution(node, input); };
  };
  static const std::map<std::string, Count> table = {
      {":Conv", weightsAt(1)},
      {":ConvInteger", weightsAt(1)},
      {":DeformConv", weightsAt(1)},
      {":QLinearConv", weightsAt(3)},
      {"com.microsoft:QLinearConv", weightsAt(3)},
      {":ConvTranspose", transposedConvolution},
      {":MatMul", plain},
      {":MatMulInteger", plain},
      {"com.microsoft:FusedConv", weightsAt(1)},
      {"com.microsoft:FusedMatMul", transposable},
      {"com.microsoft:FusedGemm", transposable},
      {"com.microsoft:MatMulIntegerToFloat", plain},
      {"com.microsoft:DynamicQuantizeMatMul", plain},
      {"com.microsoft:MatMulNBits",
       [](const NodeImporter &node) {
         return times(productOf(node.shape(0)), node.getInt("N", 0));
       }},
      {":QLinearMatMul", plain},
      {":Gemm", transposable},
      {"com.microsoft:QGemm", transposable},
      {":Einsum", einsum},
      {":Attention", onnxAttention},
      {"com.microsoft:Attention", packed(4)},
      {"com.microsoft:QAttention", packed(8)},
      {"com.microsoft:MultiHeadAttention", multiHeadAttention},
      {"com.microsoft:GroupQueryAttention", groupQueryAttention},
  };
  return table;
}

constexpr const char *kOperator = "millrace.operator";

} // namespace

int64_t macsOf(const onnx::NodeProto &proto, const NodeImporter &node) {
  const auto found = counts().find(handlerKey(normalDomain(proto), proto.op_type()));
  const bool isWhole = node.outputCount() > 0 && node.results().front().value;
  return found != counts().end() && isWhole ? found->second(node) : 0;
}

std::string operatorOf(const onnx::NodeProto &node) {
  for (const auto &entry : node.metadata_props())
    if (entry.key() == kOperator)
      return entry.value();
  const std::string_view domain = normalDomain(node);
  return (domain.empty() ? "" : std::string(domain) + ".") + node.op_type();
}

void setOperator(onnx::NodeProto &node, const std::string &operatorName) {
  for (const auto &entry : node.metadata_props())
    if (entry.key() == kOperator)
      return; // the outermost function is the model's own operator
  auto &entry = *node.add_metadata_props();
  entry.set_key(kOperator);
  entry.set_value(operatorName);
}

bool readsNumbers(const onnx::NodeProto &node) {
  return !normalDomain(node).empty() || (node.op_type() != "Shape" && node.op_type() != "Size");
}

} // namespace millrace::onnx_import
