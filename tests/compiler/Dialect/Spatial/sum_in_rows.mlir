// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is compared with the greatest of four elements, in 400 columns, is summed as it lies. 16
// columns fill no vector.
// RUN: millrace opt %s "--pass=func.func(sum-in-rows)" | FileCheck %s

#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#most = affine_map<(d0, d1, d2) -> (d0, d2)>

// CHECK-LABEL: func.func @long_rows
// CHECK: arith.maximumf
// CHECK-NOT: linalg.conv
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel"]} ins(%{{.*}}, %{{.*}} : tensor<1x4x400xf32>, tensor<4xf32>)
// CHECK: arith.mulf
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "parallel"]}
// CHECK: arith.addf
// CHECK: tensor.expand_shape {{.*}} into tensor<1x1x400xf32>
func.func @long_rows(%x: tensor<1x4x400xf32>) -> tensor<1x1x400xf32> {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<[[[0.0], [1.0], [2.0], [3.0]]]> : tensor<1x4x1xf32>
  %row = tensor.empty() : tensor<1x400xf32>
  %begin = linalg.fill ins(%low : f32) outs(%row : tensor<1x400xf32>) -> tensor<1x400xf32>
  %greatest = linalg.generic {indexing_maps = [#all, #most], iterator_types = ["parallel", "reduction", "parallel"]} ins(%x : tensor<1x4x400xf32>) outs(%begin : tensor<1x400xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %out, %in : f32
    linalg.yield %m : f32
  } -> tensor<1x400xf32>
  %none = tensor.empty() : tensor<1x4x400xf32>
  %less = linalg.generic {indexing_maps = [#all, #most, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %greatest : tensor<1x4x400xf32>, tensor<1x400xf32>) outs(%none : tensor<1x4x400xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %d = arith.subf %in, %m : f32
    linalg.yield %d : f32
  } -> tensor<1x4x400xf32>
  %empty = tensor.empty() : tensor<1x1x400xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x1x400xf32>) -> tensor<1x1x400xf32>
  %sum = linalg.conv_1d_ncw_fcw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>} ins(%less, %w : tensor<1x4x400xf32>, tensor<1x4x1xf32>) outs(%init : tensor<1x1x400xf32>) -> tensor<1x1x400xf32>
  return %sum : tensor<1x1x400xf32>
}

// CHECK-LABEL: func.func @short_rows
// CHECK: linalg.conv_1d_ncw_fcw
func.func @short_rows(%x: tensor<1x4x16xf32>) -> tensor<1x1x16xf32> {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<[[[0.0], [1.0], [2.0], [3.0]]]> : tensor<1x4x1xf32>
  %row = tensor.empty() : tensor<1x16xf32>
  %begin = linalg.fill ins(%low : f32) outs(%row : tensor<1x16xf32>) -> tensor<1x16xf32>
  %greatest = linalg.generic {indexing_maps = [#all, #most], iterator_types = ["parallel", "reduction", "parallel"]} ins(%x : tensor<1x4x16xf32>) outs(%begin : tensor<1x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %out, %in : f32
    linalg.yield %m : f32
  } -> tensor<1x16xf32>
  %none = tensor.empty() : tensor<1x4x16xf32>
  %less = linalg.generic {indexing_maps = [#all, #most, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %greatest : tensor<1x4x16xf32>, tensor<1x16xf32>) outs(%none : tensor<1x4x16xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %d = arith.subf %in, %m : f32
    linalg.yield %d : f32
  } -> tensor<1x4x16xf32>
  %empty = tensor.empty() : tensor<1x1x16xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x1x16xf32>) -> tensor<1x1x16xf32>
  %sum = linalg.conv_1d_ncw_fcw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>} ins(%less, %w : tensor<1x4x16xf32>, tensor<1x4x1xf32>) outs(%init : tensor<1x1x16xf32>) -> tensor<1x1x16xf32>
  return %sum : tensor<1x1x16xf32>
}
