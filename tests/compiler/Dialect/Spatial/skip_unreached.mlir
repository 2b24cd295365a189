// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Of what is at least 0 a minimum that begins with 0 is 0, or NaN where the maximum is: that is
// asked. Of what may be less, it is looked for.
// RUN: millrace opt %s "--pass=func.func(skip-unreached)" | FileCheck %s

#all = affine_map<(d0) -> (d0)>
#none = affine_map<(d0) -> ()>
#scalar = affine_map<() -> ()>

// CHECK-LABEL: func.func @behind_a_relu
// CHECK: %[[MAX:.*]] = linalg.generic {{.*}} iterator_types = ["reduction"]
// CHECK: arith.maximumf
// CHECK-NOT: iterator_types = ["reduction"]
// CHECK: %[[MIN:.*]] = linalg.generic {{.*}} ins(%[[MAX]] : tensor<f32>)
// CHECK: %[[BOUND:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: arith.minimumf %{{.*}}, %[[BOUND]]
// CHECK: return %[[MAX]], %[[MIN]]
func.func @behind_a_relu(%x: tensor<64xf32>) -> (tensor<f32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64xf32>
  %relu = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel"]} ins(%x : tensor<64xf32>) outs(%empty : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.maximumf %in, %zero : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %none = tensor.empty() : tensor<f32>
  %begin = linalg.fill ins(%zero : f32) outs(%none : tensor<f32>) -> tensor<f32>
  %greatest = linalg.generic {indexing_maps = [#all, #none], iterator_types = ["reduction"]} ins(%relu : tensor<64xf32>) outs(%begin : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.maximumf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %least = linalg.generic {indexing_maps = [#all, #none], iterator_types = ["reduction"]} ins(%relu : tensor<64xf32>) outs(%begin : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.minimumf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %greatest, %least : tensor<f32>, tensor<f32>
}

// CHECK-LABEL: func.func @of_anything
// CHECK: arith.maximumf
// CHECK: iterator_types = ["reduction"]
// CHECK: arith.minimumf
func.func @of_anything(%x: tensor<64xf32>) -> (tensor<f32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<f32>
  %begin = linalg.fill ins(%zero : f32) outs(%none : tensor<f32>) -> tensor<f32>
  %greatest = linalg.generic {indexing_maps = [#all, #none], iterator_types = ["reduction"]} ins(%x : tensor<64xf32>) outs(%begin : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.maximumf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %least = linalg.generic {indexing_maps = [#all, #none], iterator_types = ["reduction"]} ins(%x : tensor<64xf32>) outs(%begin : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.minimumf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %greatest, %least : tensor<f32>, tensor<f32>
}
