// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A normalisation per channel of what no contraction makes is one multiplication and one addition.
// RUN: millrace opt %s "--pass=func.func(fold-channels)" | FileCheck %s

#id = affine_map<(c, x) -> (c, x)>
#channel = affine_map<(c, x) -> (c)>

// (x - [1, 2]) / [2, 4] * [3, 5] + [1, 1] = x * [1.5, 1.25] + [-0.5, -1.5]
// CHECK-LABEL: func.func @normalised
// CHECK-SAME: (%[[X:.*]]: tensor<2x3xf32>
// CHECK-DAG: %[[SCALE:.*]] = arith.constant dense<[1.500000e+00, 1.250000e+00]> : tensor<2xf32>
// CHECK-DAG: %[[SHIFT:.*]] = arith.constant dense<[-5.000000e-01, -1.500000e+00]> : tensor<2xf32>
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[SCALE]], %[[SHIFT]] : tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>)
// CHECK: arith.mulf
// CHECK-NEXT: arith.addf
// CHECK-NEXT: linalg.yield
// CHECK-NOT: linalg.generic
// CHECK: return %[[Y]]
func.func @normalised(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %mean = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %deviation = arith.constant dense<[2.0, 4.0]> : tensor<2xf32>
  %gamma = arith.constant dense<[3.0, 5.0]> : tensor<2xf32>
  %beta = arith.constant dense<[1.0, 1.0]> : tensor<2xf32>
  %empty = tensor.empty() : tensor<2x3xf32>
  %normal = linalg.generic {indexing_maps = [#id, #channel, #channel, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean, %deviation : tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) outs(%empty : tensor<2x3xf32>) {
  ^bb0(%in: f32, %m: f32, %d: f32, %out: f32):
    %0 = arith.subf %in, %m : f32
    %1 = arith.divf %0, %d : f32
    linalg.yield %1 : f32
  } -> tensor<2x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #channel, #channel, #id], iterator_types = ["parallel", "parallel"]}
      ins(%normal, %gamma, %beta : tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) outs(%empty : tensor<2x3xf32>) {
  ^bb0(%in: f32, %g: f32, %b: f32, %out: f32):
    %0 = arith.mulf %in, %g : f32
    %1 = arith.addf %0, %b : f32
    linalg.yield %1 : f32
  } -> tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}

// Two operations are as few as there can be; a value that two read stays.
// CHECK-LABEL: func.func @read_twice
// CHECK: arith.subf
// CHECK: arith.divf
// CHECK: arith.mulf
func.func @read_twice(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %mean = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %deviation = arith.constant dense<[2.0, 4.0]> : tensor<2xf32>
  %empty = tensor.empty() : tensor<2x3xf32>
  %normal = linalg.generic {indexing_maps = [#id, #channel, #channel, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean, %deviation : tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) outs(%empty : tensor<2x3xf32>) {
  ^bb0(%in: f32, %m: f32, %d: f32, %out: f32):
    %0 = arith.subf %in, %m : f32
    %1 = arith.divf %0, %d : f32
    linalg.yield %1 : f32
  } -> tensor<2x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #channel, #id], iterator_types = ["parallel", "parallel"]}
      ins(%normal, %mean : tensor<2x3xf32>, tensor<2xf32>) outs(%empty : tensor<2x3xf32>) {
  ^bb0(%in: f32, %g: f32, %out: f32):
    %0 = arith.mulf %in, %g : f32
    linalg.yield %0 : f32
  } -> tensor<2x3xf32>
  return %normal, %y : tensor<2x3xf32>, tensor<2x3xf32>
}
