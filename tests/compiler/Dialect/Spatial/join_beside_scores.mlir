// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scores of 12 pixels for 20 that are cut into rows and columns to meet what is known of rows: that
// is repeated and joined, and the scores stay whole. What is no product of two run-time values is
// cut as before.
// RUN: millrace opt %s "--pass=func.func(join-beside-scores)" | FileCheck %s

#whole = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#rows = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>

// CHECK-LABEL: func.func @scores
// CHECK: %[[SCORES:.*]] = linalg.matmul
// CHECK-NOT: tensor.expand_shape %[[SCORES]]
// CHECK: %[[ROWS:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<3x4x5xf32>) outs(%{{.*}} : tensor<3x4x5x4xf32>)
// CHECK: %[[JOINED:.*]] = tensor.collapse_shape %[[ROWS]]
// CHECK: linalg.generic {{.*}} ins(%[[SCORES]], %[[JOINED]] : tensor<12x20xf32>, tensor<12x20xf32>)
// CHECK: arith.addf
// CHECK-NOT: tensor.collapse_shape
// CHECK: return
func.func @scores(%q: tensor<12x8xf32>, %k: tensor<8x20xf32>, %known: tensor<3x4x5xf32>) -> tensor<12x20xf32> {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<12x20xf32>
  %begin = linalg.fill ins(%zero : f32) outs(%none : tensor<12x20xf32>) -> tensor<12x20xf32>
  %scores = linalg.matmul ins(%q, %k : tensor<12x8xf32>, tensor<8x20xf32>) outs(%begin : tensor<12x20xf32>) -> tensor<12x20xf32>
  %cut = tensor.expand_shape %scores [[0, 1], [2, 3]] output_shape [3, 4, 5, 4] : tensor<12x20xf32> into tensor<3x4x5x4xf32>
  %all = tensor.empty() : tensor<3x4x5x4xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #rows, #whole], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cut, %known : tensor<3x4x5x4xf32>, tensor<3x4x5xf32>) outs(%all : tensor<3x4x5x4xf32>) {
  ^bb0(%a: f32, %b: f32, %unused: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<3x4x5x4xf32>
  %joined = tensor.collapse_shape %sum [[0, 1], [2, 3]] : tensor<3x4x5x4xf32> into tensor<12x20xf32>
  return %joined : tensor<12x20xf32>
}

// CHECK-LABEL: func.func @others
// CHECK: tensor.expand_shape %{{.*}} {{.*}} into tensor<3x4x5x4xf32>
// CHECK: tensor.collapse_shape
func.func @others(%x: tensor<12x20xf32>, %known: tensor<3x4x5xf32>) -> tensor<12x20xf32> {
  %cut = tensor.expand_shape %x [[0, 1], [2, 3]] output_shape [3, 4, 5, 4] : tensor<12x20xf32> into tensor<3x4x5x4xf32>
  %all = tensor.empty() : tensor<3x4x5x4xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #rows, #whole], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cut, %known : tensor<3x4x5x4xf32>, tensor<3x4x5xf32>) outs(%all : tensor<3x4x5x4xf32>) {
  ^bb0(%a: f32, %b: f32, %unused: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<3x4x5x4xf32>
  %joined = tensor.collapse_shape %sum [[0, 1], [2, 3]] : tensor<3x4x5x4xf32> into tensor<12x20xf32>
  return %joined : tensor<12x20xf32>
}
