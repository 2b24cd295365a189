// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels formed from tensor-level text, held against the CPU's own run of the same text in fp32.
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/Former/Build.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"

#include "mlir/Parser/Parser.h"

#include <cmath>
#include <set>
#include <string>
#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

const char *const maps = R"(
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>
#id4 = affine_map<(n, c, y, x) -> (n, c, y, x)>
#chan = affine_map<(n, c, y, x) -> (c)>
)";

struct Formed {
  KernelGraph graph;
  double error = INFINITY; ///< relative L2 distance of all results from the fp32 run
};

/// Forms @main of `body`, evaluates it on random inputs and compares.
Formed form(const std::string &body, PrecisionOptions options = {}) {
  mlir::MLIRContext context;
  loadImportDialects(context);
  registerReferenceDialects(context);
  Formed formed;
  auto module = mlir::parseSourceString<mlir::ModuleOp>(maps + body, &context);
  if (!module) {
    ADD_FAILURE() << "the text does not parse";
    return formed;
  }
  auto reference = Reference::create(*module);
  auto graph = buildKernelGraph(*module, options);
  if (!reference || mlir::failed(graph)) {
    ADD_FAILURE() << (reference ? "no kernel graph" : reference.error());
    return formed;
  }
  formed.graph = std::move(*graph);
  std::vector<HostTensor> inputs;
  std::map<unsigned, TensorBytes> stored;
  std::set<std::string> seen; ///< names of inputs
  for (unsigned i = 0; i < formed.graph.tensors.size(); ++i) {
    const Tensor &tensor = formed.graph.tensors[i];
    if (tensor.role != TensorRole::Input)
      continue;
    if (tensor.hostExtent) { // from the table's last row on, and back past its first
      HostTensor ids = HostTensor::zeros(HostType::Int64, tensor.hostShape);
      stored[i].resize(4 * size_t(ids.elementCount()));
      for (int64_t k = 0; k < ids.elementCount(); ++k) {
        const auto index = int32_t(tensor.hostExtent - 1 - k % (2 * tensor.hostExtent));
        ids.as<int64_t>()[k] = index;
        std::memcpy(&stored[i][4 * size_t(k)], &index, 4);
      }
      inputs.push_back(ids);
      continue;
    }
    if (!seen.insert(tensor.hostName).second) { // one more layout of an input
      const HostTensor host = HostTensor::zeros(HostType::Float32, tensor.hostShape);
      stored[i] = encodeAll(tensor.type, randomValues(size_t(host.elementCount()), 11));
      continue;
    }
    HostTensor host = HostTensor::zeros(HostType::Float32, tensor.hostShape);
    std::vector<float> values = randomValues(size_t(host.elementCount()), 11);
    stored[i] = encodeAll(tensor.type, values);
    for (size_t k = 0; k < values.size(); ++k) // the reference starts from the same rounded values
      host.as<float>()[k] = decode(tensor.type, encode(tensor.type, values[k]));
    inputs.push_back(host);
  }
  auto want = reference->run(inputs);
  auto got = evaluate(formed.graph, stored);
  if (!want || !got) {
    ADD_FAILURE() << (want ? got.error() : want.error());
    return formed;
  }
  double error = 0, norm = 0;
  for (unsigned i = 0; i < formed.graph.tensors.size(); ++i) {
    const Tensor &tensor = formed.graph.tensors[i];
    if (tensor.role != TensorRole::Output)
      continue;
    for (int64_t k = 0; k < want->front().elementCount(); ++k) {
      uint32_t bits = 0;
      std::memcpy(&bits, &(*got)[i][size_t(k) * byteWidth(tensor.type)], byteWidth(tensor.type));
      double x = decode(tensor.type, bits), y = want->front().as<float>()[k];
      error += (x - y) * (x - y), norm += y * y;
    }
  }
  formed.error = std::sqrt(error / norm);
  return formed;
}

unsigned operations(const Kernel &kernel) {
  return unsigned(std::count_if(kernel.nodes.begin(), kernel.nodes.end(),
                                [](const Node &node) { return node.kind == Node::Kind::Op; }));
}

constexpr double kFp16 = 1e-3; ///< a few roundings to 11 bits

} // namespace

TEST(Build, BiasAndReluJoinTheMatmul) {
  Formed formed = form(R"(
func.func @main(%x: tensor<5x32xf32>) -> tensor<5x16xf32> {
  %w = arith.constant dense<0.125> : tensor<32x16xf32>
  %b = arith.constant dense<[0., 1., -2., 3., 0., 1., -2., 3., 0., 1., -2., 3., 0., 1., -2., 3.]> : tensor<16xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x16xf32>) -> tensor<5x16xf32>
  %m = linalg.matmul ins(%x, %w : tensor<5x32xf32>, tensor<32x16xf32>) outs(%f : tensor<5x16xf32>) -> tensor<5x16xf32>
  %r = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %b : tensor<5x16xf32>, tensor<16xf32>) outs(%e : tensor<5x16xf32>) {
  ^bb0(%in: f32, %bias: f32, %out: f32):
    %s = arith.addf %in, %bias : f32
    %p = arith.maximumf %s, %zero : f32
    linalg.yield %p : f32
  } -> tensor<5x16xf32>
  return %r : tensor<5x16xf32>
})");
  EXPECT_EQ(formed.graph.kernels.size(), 1u);
  EXPECT_EQ(formed.graph.macs(), 5 * 32 * 16);
  EXPECT_LT(formed.error, kFp16);
}

TEST(Build, AffineMapsPerChannelFoldIntoTheWeights) {
  Formed formed = form(R"(
func.func @main(%x: tensor<1x16x6x6xf32>) -> tensor<1x2x6x6xf32> {
  %w = arith.constant dense<0.25> : tensor<2x16x1x1xf32>
  %mean = arith.constant dense<[1.0, -2.0]> : tensor<2xf32>
  %var = arith.constant dense<[4.0, 0.25]> : tensor<2xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x2x6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  %c = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x16x6x6xf32>, tensor<2x16x1x1xf32>) outs(%f : tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
  %n = linalg.generic {indexing_maps = [#id4, #chan, #chan, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %mean, %var : tensor<1x2x6x6xf32>, tensor<2xf32>, tensor<2xf32>) outs(%e : tensor<1x2x6x6xf32>) {
  ^bb0(%in: f32, %m: f32, %v: f32, %out: f32):
    %d = arith.subf %in, %m : f32
    %s = math.sqrt %v : f32
    %q = arith.divf %d, %s : f32
    linalg.yield %q : f32
  } -> tensor<1x2x6x6xf32>
  return %n : tensor<1x2x6x6xf32>
})");
  ASSERT_EQ(formed.graph.kernels.size(), 1u);
  EXPECT_EQ(operations(formed.graph.kernels[0]), 2u); // the shift, and the rounding to fp16
  EXPECT_LT(formed.error, kFp16);
}

TEST(Build, SoftmaxOverMoreLanesThanAVectorIsTakenInParts) {
  PrecisionOptions options;
  options.lanes = 32;
  Formed formed = form(
      R"(
func.func @main(%x: tensor<1x24xf32>) -> tensor<1x96xf32> {
  %w = arith.constant dense_resource<w> : tensor<24x96xf32>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<1x96xf32>
  %r = tensor.empty() : tensor<1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x96xf32>) -> tensor<1x96xf32>
  %f1 = linalg.fill ins(%low : f32) outs(%r : tensor<1xf32>) -> tensor<1xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%r : tensor<1xf32>) -> tensor<1xf32>
  %l = linalg.matmul ins(%x, %w : tensor<1x24xf32>, tensor<24x96xf32>) outs(%f : tensor<1x96xf32>) -> tensor<1x96xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%l : tensor<1x96xf32>) outs(%f1 : tensor<1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %g = arith.maximumf %out, %in : f32
    linalg.yield %g : f32
  } -> tensor<1xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%l, %m : tensor<1x96xf32>, tensor<1xf32>) outs(%e : tensor<1x96xf32>) {
  ^bb0(%in: f32, %g: f32, %out: f32):
    %d = arith.subf %in, %g : f32
    %q = math.exp %d : f32
    linalg.yield %q : f32
  } -> tensor<1x96xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<1x96xf32>) outs(%f0 : tensor<1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %g = arith.addf %out, %in : f32
    linalg.yield %g : f32
  } -> tensor<1xf32>
  %o = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %s : tensor<1x96xf32>, tensor<1xf32>) outs(%e : tensor<1x96xf32>) {
  ^bb0(%in: f32, %t: f32, %out: f32):
    %q = arith.divf %in, %t : f32
    linalg.yield %q : f32
  } -> tensor<1x96xf32>
  return %o : tensor<1x96xf32>
}
{-# dialect_resources: { builtin: { w: "0x04000000)" +
          [] {
            std::string hex; // 24 x 96 seeded weights, as the text of a dense resource
            for (float value : randomValues(24 * 96, 3))
              for (unsigned b = 0; b < 4; ++b) {
                char text[3];
                snprintf(text, sizeof text, "%02X", (bitsOf(value) >> 8 * b) & 0xff);
                hex += text;
              }
            return hex;
          }() +
          R"(" } } #-}
)",
      options);
  EXPECT_TRUE(formed.graph.hostCalls.empty());
  for (const Kernel &kernel : formed.graph.kernels)
    for (const Result &result : kernel.results) {
      const Tensor &tensor = formed.graph.tensors[result.access.tensor];
      EXPECT_LE(tensor.shape[tensor.laneDim], 32) << tensor.name;
    }
  EXPECT_LT(formed.error, 3 * kFp16); // logits of some units are rounded before exp
}

TEST(Build, TransposedOperandsNeedNoKernel) {
  Formed formed = form(R"(
func.func @main(%x: tensor<6x16xf32>) -> tensor<6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %t0 = tensor.empty() : tensor<16x6xf32>
  %t = linalg.transpose ins(%x : tensor<6x16xf32>) outs(%t0 : tensor<16x6xf32>) permutation = [1, 0]
  %e = tensor.empty() : tensor<6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x6xf32>) -> tensor<6x6xf32>
  %m = linalg.matmul ins(%x, %t : tensor<6x16xf32>, tensor<16x6xf32>) outs(%f : tensor<6x6xf32>) -> tensor<6x6xf32>
  return %m : tensor<6x6xf32>
})");
  EXPECT_EQ(formed.graph.kernels.size(), 1u);
  EXPECT_LT(formed.error, kFp16);
}

TEST(Build, PartsOfAConcatenationWriteOneTensor) {
  Formed formed = form(R"(
func.func @main(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %a = arith.constant dense<0.5> : tensor<16x8xf32>
  %b = arith.constant dense<-0.25> : tensor<16x8xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %m = linalg.matmul ins(%x, %a : tensor<4x16xf32>, tensor<16x8xf32>) outs(%f : tensor<4x8xf32>) -> tensor<4x8xf32>
  %n = linalg.matmul ins(%x, %b : tensor<4x16xf32>, tensor<16x8xf32>) outs(%f : tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = tensor.concat dim(1) %m, %n : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>
  return %c : tensor<4x16xf32>
})");
  ASSERT_EQ(formed.graph.kernels.size(), 2u);
  EXPECT_EQ(formed.graph.kernels[0].results[0].access.tensor,
            formed.graph.kernels[1].results[0].access.tensor);
  EXPECT_LT(formed.error, kFp16);
}

/// Four channels of a group are one result's lanes, sixteen channels those of all that comes after
/// them: a gate reads them twice.
TEST(Build, ChannelsOfGroupsLieAlongTheLanesTogether) {
  Formed formed = form(R"(
func.func @main(%x: tensor<1x16x6x5xf32>) -> tensor<1x16x6x5xf32> {
  %w = arith.constant dense<[[[1., 2., -1., 0.5], [0.5, 1., 3., -2.], [-1., 0.25, 2., 1.], [2., 1., -1., 3.]],
                             [[0.5, 2., 1., 1.], [1., -1., 0.5, 2.], [3., 1., -2., 1.], [1., 2., 0.5, -1.]],
                             [[2., -1., 1., 0.5], [1., 1., 1., -2.], [0.5, 2., 1., 1.], [-1., 3., 1., 2.]],
                             [[1., 1., 2., -1.], [2., 0.5, 1., 1.], [-2., 1., 1., 3.], [1., 0.5, 2., 1.]]]> : tensor<4x4x4xf32>
  %zero = arith.constant 0.0 : f32
  %part = arith.constant 0.125 : f32
  %g = tensor.expand_shape %x [[0], [1, 2], [3], [4]] output_shape [1, 4, 4, 6, 5] : tensor<1x16x6x5xf32> into tensor<1x4x4x6x5xf32>
  %e = tensor.empty() : tensor<1x4x4x6x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x4x6x5xf32>) -> tensor<1x4x4x6x5xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(n, g, k, y, x, c) -> (n, g, c, y, x)>, affine_map<(n, g, k, y, x, c) -> (g, k, c)>,
                                        affine_map<(n, g, k, y, x, c) -> (n, g, k, y, x)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%g, %w : tensor<1x4x4x6x5xf32>, tensor<4x4x4xf32>) outs(%f : tensor<1x4x4x6x5xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %p = arith.mulf %in, %m : f32
    %s = arith.addf %out, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x4x4x6x5xf32>
  %j = tensor.collapse_shape %c [[0], [1, 2], [3], [4]] : tensor<1x4x4x6x5xf32> into tensor<1x16x6x5xf32>
  %e4 = tensor.empty() : tensor<1x16x6x5xf32>
  %r = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%j : tensor<1x16x6x5xf32>) outs(%e4 : tensor<1x16x6x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %zero : f32
    linalg.yield %m : f32
  } -> tensor<1x16x6x5xf32>
  %e2 = tensor.empty() : tensor<1x16xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<1x16xf32>) -> tensor<1x16xf32>
  %a = linalg.generic {indexing_maps = [#id4, affine_map<(n, c, y, x) -> (n, c)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%r : tensor<1x16x6x5xf32>) outs(%f2 : tensor<1x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.addf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<1x16xf32>
  %y = linalg.generic {indexing_maps = [#id4, affine_map<(n, c, y, x) -> (n, c)>, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%r, %a : tensor<1x16x6x5xf32>, tensor<1x16xf32>) outs(%e4 : tensor<1x16x6x5xf32>) {
  ^bb0(%in: f32, %gate: f32, %out: f32):
    %h = arith.mulf %gate, %part : f32
    %m = arith.mulf %in, %h : f32
    linalg.yield %m : f32
  } -> tensor<1x16x6x5xf32>
  return %y : tensor<1x16x6x5xf32>
})");
  EXPECT_TRUE(formed.graph.hostCalls.empty());
  EXPECT_EQ(formed.graph.kernels.size(), 3u); // groups, their sum, the product of both
  for (const Tensor &tensor : formed.graph.tensors)
    if (tensor.role == TensorRole::Intermediate) {
      EXPECT_EQ(tensor.laneDim, 1u) << tensor.name;
    }
  EXPECT_LT(formed.error, kFp16);
}

TEST(Build, AWideMaximumWindowIsCutByDimension) {
  Formed formed = form(R"(
func.func @main(%x: tensor<1x8x9x9xf32>) -> tensor<1x8x7x7xf32> {
  %low = arith.constant 0xFF800000 : f32
  %k = tensor.empty() : tensor<3x3xf32>
  %e = tensor.empty() : tensor<1x8x7x7xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  %p = linalg.pooling_nchw_max ins(%x, %k : tensor<1x8x9x9xf32>, tensor<3x3xf32>) outs(%f : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  return %p : tensor<1x8x7x7xf32>
})");
  ASSERT_EQ(formed.graph.kernels.size(), 2u);
  EXPECT_EQ(operations(formed.graph.kernels[0]), 3u + 2 + 1); // widen, compare, narrow
  EXPECT_EQ(formed.error, 0);
}

TEST(Build, AConvolutionWithAScaleIsOneKernel) {
  Formed formed = form(R"(
func.func @main(%x: tensor<1x3x16x16xf32>) -> tensor<1x8x14x14xf32> {
  %w = arith.constant dense<[0., 1., -2., 3., 0.5, 1., -2., 3.]> : tensor<8xf32>
  %zero = arith.constant 0.0 : f32
  %k0 = tensor.empty() : tensor<8x3x3x3xf32>
  %k = arith.constant dense<0.125> : tensor<8x3x3x3xf32>
  %e = tensor.empty() : tensor<1x8x14x14xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8x14x14xf32>) -> tensor<1x8x14x14xf32>
  %c = linalg.conv_2d_nchw_fchw ins(%x, %k : tensor<1x3x16x16xf32>, tensor<8x3x3x3xf32>) outs(%f : tensor<1x8x14x14xf32>) -> tensor<1x8x14x14xf32>
  %s = linalg.generic {indexing_maps = [#id4, #chan, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %w : tensor<1x8x14x14xf32>, tensor<8xf32>) outs(%e : tensor<1x8x14x14xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %d = arith.mulf %in, %m : f32
    linalg.yield %d : f32
  } -> tensor<1x8x14x14xf32>
  return %s : tensor<1x8x14x14xf32>
})");
  ASSERT_EQ(formed.graph.kernels.size(), 1u);
  EXPECT_EQ(formed.graph.macs(), 8 * 14 * 14 * 3 * 9);
  EXPECT_LT(formed.error, kFp16);
}

/// Five tokens look rows of a table up; `then` makes %y : tensor<5x3xf32> of %rows and %ids.
std::string embedding(const std::string &then) {
  return R"(func.func @main(%ids: tensor<5xi64> {onnx.name = "ids", onnx.type = "int64"}) -> tensor<5x3xf32> {
  %table = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [0.5, 0.25, 2.5]]> : tensor<4x3xf32>
  %zero = arith.constant 0 : i64
  %four = arith.constant 4 : i64
  %e = tensor.empty() : tensor<5x3xf32>
)" + then +
         R"(
  return %y : tensor<5x3xf32>
})";
}

/// rows[i] = table[INDEX of %i]
std::string lookUp(const std::string &ids, const std::string &result) {
  return result +
         R"( = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins()" +
         ids + R"( : tensor<5xi64>) outs(%e : tensor<5x3xf32>) {
  ^bb0(%i: i64, %o: f32):
    %sum = arith.addi %i, %four : i64
    %less = arith.cmpi slt, %i, %zero : i64
    %wrapped = arith.select %less, %sum, %i : i64
    %at = arith.index_cast %wrapped : i64 to index
    %lane = linalg.index 1 : index
    %value = tensor.extract %table[%at, %lane] : tensor<4x3xf32>
    linalg.yield %value : f32
  } -> tensor<5x3xf32>
)";
}

size_t lookups(const KernelGraph &graph) {
  size_t count = 0;
  for (const Kernel &kernel : graph.kernels)
    for (const Access &operand : kernel.operands)
      count += operand.lookup.has_value();
  return count;
}

TEST(Build, RowsOfATableAreLookedUpInTheKernelThatAddsThem) {
  Formed formed = form(embedding(lookUp("%ids", "%rows") + R"(
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<5x3xf32>) outs(%e : tensor<5x3xf32>) {
  ^bb0(%in: f32, %o: f32):
    %s = math.tanh %in : f32
    linalg.yield %s : f32
  } -> tensor<5x3xf32>)"));
  EXPECT_TRUE(formed.graph.hostCalls.empty());
  EXPECT_EQ(formed.graph.kernels.size(), 1u);
  EXPECT_EQ(lookups(formed.graph), 1u);
  EXPECT_LT(formed.error, kFp16);
}

TEST(Build, RowsThatAProductWantsAlongTheOtherDimensionAreGatheredAndTurned) {
  // y = m^T rows, m of 5 x 5: the rows' own dimension is contracted.
  Formed formed = form(embedding(lookUp("%ids", "%rows") + R"(
  %m = arith.constant dense<[[1.0, 0.5, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 3.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], [4.0, 0.0, 0.0, 0.0, 1.0]]> : tensor<5x5xf32>
  %c = arith.constant 0.0 : f32
  %init = linalg.fill ins(%c : f32) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>
  %y = linalg.matmul ins(%m, %rows : tensor<5x5xf32>, tensor<5x3xf32>) outs(%init : tensor<5x3xf32>) -> tensor<5x3xf32>)"));
  EXPECT_TRUE(formed.graph.hostCalls.empty());
  EXPECT_EQ(lookups(formed.graph), 1u);
  EXPECT_LT(formed.error, kFp16);
}

TEST(Build, IndicesThatAreComputedStayOnTheHost) {
  mlir::MLIRContext context;
  loadImportDialects(context);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(maps + embedding(R"(
  %f = tensor.empty() : tensor<5xi64>
  %twice = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%ids : tensor<5xi64>) outs(%f : tensor<5xi64>) {
  ^bb0(%in: i64, %o: i64):
    %s = arith.addi %in, %in : i64
    linalg.yield %s : i64
  } -> tensor<5xi64>
)" + lookUp("%twice", "%y")),
                                                        &context);
  ASSERT_TRUE(module);
  auto graph = buildKernelGraph(*module, {});
  ASSERT_TRUE(succeeded(graph));
  EXPECT_EQ(graph->hostCalls.size(), 1u);
  EXPECT_EQ(lookups(*graph), 0u);
}

TEST(Build, AFloatModelInInt8NamesTheRecipe) {
  mlir::MLIRContext context;
  loadImportDialects(context);
  std::string message;
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) { message = diagnostic.str(); });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }",
      &context);
  PrecisionOptions options;
  options.precision = Precision::Int8;
  EXPECT_TRUE(mlir::failed(buildKernelGraph(*module, options)));
  EXPECT_THAT(message, testing::HasSubstr("models/recipes/quantize.py"));
}
