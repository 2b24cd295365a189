// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two rows of 32 lanes become three, each a sum of both times its own factors; turned as the
// product's result was. Eight lanes are no more than a product of them would have.
// RUN: millrace opt %s "--pass=func.func(mix-rows)" | FileCheck %s

// CHECK-DAG: #[[$ROW:.*]] = affine_map<(d0, d1, d2) -> (0, d1, d2)>
// CHECK-DAG: #[[$RESULT:.*]] = affine_map<(d0, d1, d2) -> (d0)>

// CHECK-LABEL: func.func @heads
// CHECK-SAME: (%[[X:.*]]: tensor<2x5x32xf32>
// CHECK-NOT: linalg.matmul
// CHECK-DAG: %[[A:.*]] = tensor.extract_slice %[[X]][0, 0, 0] [1, 5, 32]
// CHECK-DAG: %[[B:.*]] = tensor.extract_slice %[[X]][1, 0, 0] [1, 5, 32]
// CHECK-DAG: %[[F:.*]] = arith.constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]>
// CHECK-DAG: %[[G:.*]] = arith.constant dense<[4.000000e+00, 5.000000e+00, 6.000000e+00]>
// CHECK: %[[MIXED:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[B]], %[[F]], %[[G]] : {{.*}}) outs(%{{.*}} : tensor<3x5x32xf32>)
// CHECK: linalg.transpose ins(%[[MIXED]] : tensor<3x5x32xf32>) outs(%{{.*}} : tensor<5x32x3xf32>) permutation = [1, 2, 0]
// CHECK: tensor.collapse_shape {{.*}} into tensor<160x3xf32>
func.func @heads(%x: tensor<2x5x32xf32>) -> tensor<160x3xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %none = tensor.empty() : tensor<5x32x2xf32>
  %turned = linalg.transpose ins(%x : tensor<2x5x32xf32>) outs(%none : tensor<5x32x2xf32>) permutation = [1, 2, 0]
  %flat = tensor.collapse_shape %turned [[0, 1], [2]] : tensor<5x32x2xf32> into tensor<160x2xf32>
  %empty = tensor.empty() : tensor<160x3xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<160x3xf32>) -> tensor<160x3xf32>
  %product = linalg.matmul ins(%flat, %w : tensor<160x2xf32>, tensor<2x3xf32>) outs(%init : tensor<160x3xf32>) -> tensor<160x3xf32>
  return %product : tensor<160x3xf32>
}

// CHECK-LABEL: func.func @few_lanes
// CHECK: linalg.matmul
func.func @few_lanes(%x: tensor<2x5x8xf32>) -> tensor<40x3xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %none = tensor.empty() : tensor<5x8x2xf32>
  %turned = linalg.transpose ins(%x : tensor<2x5x8xf32>) outs(%none : tensor<5x8x2xf32>) permutation = [1, 2, 0]
  %flat = tensor.collapse_shape %turned [[0, 1], [2]] : tensor<5x8x2xf32> into tensor<40x2xf32>
  %empty = tensor.empty() : tensor<40x3xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<40x3xf32>) -> tensor<40x3xf32>
  %product = linalg.matmul ins(%flat, %w : tensor<40x2xf32>, tensor<2x3xf32>) outs(%init : tensor<40x3xf32>) -> tensor<40x3xf32>
  return %product : tensor<40x3xf32>
}
