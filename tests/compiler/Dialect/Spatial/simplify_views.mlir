// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Channels that are joined with the rows of an image before they are moved are a dimension of
// their own again; dimensions that stay neighbours are moved as one.
// RUN: millrace opt %s "--pass=func.func(simplify-views)" | FileCheck %s

// CHECK-LABEL: func.func @patches
// CHECK-SAME: (%[[X:.*]]: tensor<1x8x4x6xf32>
// CHECK: %[[CUT:.*]] = tensor.expand_shape %{{.*}} output_shape [8, 2, 2, 3, 2] : tensor<8x4x6xf32> into tensor<8x2x2x3x2xf32>
// CHECK: %[[MOVED:.*]] = linalg.transpose ins(%[[CUT]] : tensor<8x2x2x3x2xf32>) outs(%{{.*}} : tensor<2x2x2x3x8xf32>) permutation = [2, 4, 1, 3, 0]
// CHECK: %[[JOINED:.*]] = tensor.collapse_shape %[[MOVED]] {{.*}} into tensor<4x6x8xf32>
// CHECK: return %[[JOINED]]
func.func @patches(%x: tensor<1x8x4x6xf32>) -> tensor<4x6x8xf32> {
  %joined = tensor.collapse_shape %x [[0, 1, 2, 3]] : tensor<1x8x4x6xf32> into tensor<192xf32>
  %cut = tensor.expand_shape %joined [[0, 1, 2, 3]] output_shape [16, 2, 3, 2] : tensor<192xf32> into tensor<16x2x3x2xf32>
  %none = tensor.empty() : tensor<16x3x2x2xf32>
  %moved = linalg.transpose ins(%cut : tensor<16x2x3x2xf32>) outs(%none : tensor<16x3x2x2xf32>) permutation = [0, 2, 1, 3]
  %again = tensor.collapse_shape %moved [[0, 1, 2, 3]] : tensor<16x3x2x2xf32> into tensor<192xf32>
  %pixels = tensor.expand_shape %again [[0, 1, 2]] output_shape [8, 6, 4] : tensor<192xf32> into tensor<8x6x4xf32>
  %empty = tensor.empty() : tensor<4x6x8xf32>
  %tokens = linalg.transpose ins(%pixels : tensor<8x6x4xf32>) outs(%empty : tensor<4x6x8xf32>) permutation = [2, 1, 0]
  return %tokens : tensor<4x6x8xf32>
}

// Extents that are no multiples of each other stay as they are.
// CHECK-LABEL: func.func @windows_of_seven
// CHECK: tensor.collapse_shape
// CHECK: tensor.expand_shape
// CHECK: linalg.transpose
func.func @windows_of_seven(%x: tensor<8x7xf32>) -> tensor<4x14xf32> {
  %joined = tensor.collapse_shape %x [[0, 1]] : tensor<8x7xf32> into tensor<56xf32>
  %cut = tensor.expand_shape %joined [[0, 1]] output_shape [14, 4] : tensor<56xf32> into tensor<14x4xf32>
  %none = tensor.empty() : tensor<4x14xf32>
  %moved = linalg.transpose ins(%cut : tensor<14x4xf32>) outs(%none : tensor<4x14xf32>) permutation = [1, 0]
  return %moved : tensor<4x14xf32>
}
