// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is quantised between a view that joins dimensions and the one that cuts them again is
// quantised in the shape that was joined; sums are over all of its dimensions. Where what is
// joined is read otherwise, it stays.
// RUN: millrace opt %s "--pass=func.func(expand-joined)" | FileCheck %s

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#scalar = affine_map<(d0, d1) -> ()>
// CHECK-DAG: #[[$ALL:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[$ROW:.*]] = affine_map<(d0, d1, d2) -> (d0)>

// CHECK-LABEL: func.func @normalised
// CHECK-SAME: (%[[X:.*]]: tensor<2x4x8xf32>
// CHECK-NOT: collapse_shape
// CHECK: linalg.generic {indexing_maps = [#[[$ALL]], #[[$ROW]]], iterator_types = ["parallel", "reduction", "reduction"]} ins(%[[X]] : tensor<2x4x8xf32>) outs(%{{.*}} : tensor<2xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[X]], %{{.*}}, %{{.*}} : tensor<2x4x8xf32>, tensor<2xf32>, tensor<f32>) outs(%{{.*}} : tensor<2x4x8xi8>) attrs = {millrace.quant = "quantize"}
// CHECK-NOT: expand_shape
func.func @normalised(%x: tensor<2x4x8xf32>, %scale: tensor<f32>) -> tensor<2x4x8xi8> {
  %zero = arith.constant 0.0 : f32
  %joined = tensor.collapse_shape %x [[0], [1, 2]] : tensor<2x4x8xf32> into tensor<2x32xf32>
  %none = tensor.empty() : tensor<2xf32>
  %begin = linalg.fill ins(%zero : f32) outs(%none : tensor<2xf32>) -> tensor<2xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%joined : tensor<2x32xf32>) outs(%begin : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<2xf32>
  %empty = tensor.empty() : tensor<2x32xi8>
  %rounded = linalg.generic {indexing_maps = [#all, #row, #scalar, #all], iterator_types = ["parallel", "parallel"]} ins(%joined, %sum, %scale : tensor<2x32xf32>, tensor<2xf32>, tensor<f32>) outs(%empty : tensor<2x32xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %s: f32, %by: f32, %out: i8):
    %0 = arith.subf %in, %s : f32
    %1 = arith.divf %0, %by : f32
    %2 = math.roundeven %1 : f32
    %3 = arith.fptosi %2 : f32 to i8
    linalg.yield %3 : i8
  } -> tensor<2x32xi8>
  %cut = tensor.expand_shape %rounded [[0], [1, 2]] output_shape [2, 4, 8] : tensor<2x32xi8> into tensor<2x4x8xi8>
  return %cut : tensor<2x4x8xi8>
}

// CHECK-LABEL: func.func @cut_otherwise
// CHECK: collapse_shape
func.func @cut_otherwise(%x: tensor<2x4x8xf32>, %scale: tensor<f32>) -> tensor<2x8x4xi8> {
  %joined = tensor.collapse_shape %x [[0], [1, 2]] : tensor<2x4x8xf32> into tensor<2x32xf32>
  %empty = tensor.empty() : tensor<2x32xi8>
  %rounded = linalg.generic {indexing_maps = [#all, #scalar, #all], iterator_types = ["parallel", "parallel"]} ins(%joined, %scale : tensor<2x32xf32>, tensor<f32>) outs(%empty : tensor<2x32xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %by: f32, %out: i8):
    %1 = arith.divf %in, %by : f32
    %2 = math.roundeven %1 : f32
    %3 = arith.fptosi %2 : f32 to i8
    linalg.yield %3 : i8
  } -> tensor<2x32xi8>
  %cut = tensor.expand_shape %rounded [[0], [1, 2]] output_shape [2, 8, 4] : tensor<2x32xi8> into tensor<2x8x4xi8>
  return %cut : tensor<2x8x4xi8>
}
