// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts that are dequantised by schemes of their own, and read elsewhere too, are joined as integers.
// RUN: millrace opt %s "--pass=func.func(view-integers)" | FileCheck %s

#id = affine_map<(c, x) -> (c, x)>
#one = affine_map<(c, x) -> ()>

// (p - 3) * 0.5 and (q + 4) * 0.25
// CHECK-LABEL: func.func @shared
// CHECK-SAME: (%[[P:[a-z0-9]*]]: tensor<1x2xi8>{{.*}}, %[[Q:[a-z0-9]*]]: tensor<1x2xi8>
// CHECK: %[[JOINED:.*]] = tensor.concat dim(0) %[[P]], %[[Q]] : (tensor<1x2xi8>, tensor<1x2xi8>) -> tensor<2x2xi8>
// CHECK-DAG: %[[SCALE:.*]] = arith.constant dense<[5.000000e-01, 2.500000e-01]> : tensor<2xf32>
// CHECK-DAG: %[[SHIFT:.*]] = arith.constant dense<[-1.500000e+00, 1.000000e+00]> : tensor<2xf32>
// CHECK: %[[BOTH:.*]] = linalg.generic {{.*}} ins(%[[JOINED]], %[[SCALE]], %[[SHIFT]] :
// CHECK: arith.sitofp
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: arith.addf
// CHECK: return %{{.*}}, %[[BOTH]]
func.func @shared(%p: tensor<1x2xi8>, %q: tensor<1x2xi8>) -> (tensor<1x2xf32>, tensor<2x2xf32>) {
  %s = arith.constant dense<0.5> : tensor<f32>
  %z = arith.constant dense<3> : tensor<i8>
  %t = arith.constant dense<0.25> : tensor<f32>
  %w = arith.constant dense<-4> : tensor<i8>
  %empty = tensor.empty() : tensor<1x2xf32>
  %a = linalg.generic {indexing_maps = [#id, #one, #one, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %s, %z : tensor<1x2xi8>, tensor<f32>, tensor<i8>) outs(%empty : tensor<1x2xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %zero: i8, %out: f32):
    %0 = arith.extsi %zero : i8 to i32
    %1 = arith.extsi %in : i8 to i32
    %2 = arith.subi %1, %0 : i32
    %3 = arith.sitofp %2 : i32 to f32
    %4 = arith.mulf %3, %scale : f32
    linalg.yield %4 : f32
  } -> tensor<1x2xf32>
  %b = linalg.generic {indexing_maps = [#id, #one, #one, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q, %t, %w : tensor<1x2xi8>, tensor<f32>, tensor<i8>) outs(%empty : tensor<1x2xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %zero: i8, %out: f32):
    %0 = arith.extsi %zero : i8 to i32
    %1 = arith.extsi %in : i8 to i32
    %2 = arith.subi %1, %0 : i32
    %3 = arith.sitofp %2 : i32 to f32
    %4 = arith.mulf %3, %scale : f32
    linalg.yield %4 : f32
  } -> tensor<1x2xf32>
  %both = tensor.concat dim(0) %a, %b : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  return %a, %both : tensor<1x2xf32>, tensor<2x2xf32>
}

// Parts that nothing else reads are rounded where they are made.
// CHECK-LABEL: func.func @alone
// CHECK: tensor.concat dim(0) %{{.*}}, %{{.*}} : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
func.func @alone(%p: tensor<1x2xi8>, %b: tensor<1x2xf32>) -> tensor<2x2xf32> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %empty = tensor.empty() : tensor<1x2xf32>
  %a = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %s : tensor<1x2xi8>, tensor<f32>) outs(%empty : tensor<1x2xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<1x2xf32>
  %both = tensor.concat dim(0) %a, %b : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  return %both : tensor<2x2xf32>
}
