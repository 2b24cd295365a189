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

#row = affine_map<(c) -> (c)>

// 4 x 6 as 3 x 8: neither lies within the other, and so integers are made, and taken, in 4 x 6.
// CHECK-LABEL: func.func @torn
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<4x6xf32>
// CHECK: %[[MADE:.*]] = linalg.generic {{.*}} ins(%[[X]] :
// CHECK: linalg.generic {{.*}} ins(%[[MADE]], {{.*}} : tensor<4x6xf32>, tensor<f32>)
// CHECK: arith.fptosi
// CHECK: linalg.generic {{.*}} : tensor<4x6xi8>, tensor<f32>)
// CHECK: arith.sitofp
// CHECK: tensor.collapse_shape %{{.*}} : tensor<4x6xf32> into tensor<24xf32>
// CHECK: tensor.expand_shape %{{.*}} : tensor<24xf32> into tensor<3x8xf32>
func.func @torn(%x: tensor<4x6xf32>) -> tensor<3x8xf32> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %empty = tensor.empty() : tensor<4x6xf32>
  %made = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%empty : tensor<4x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<4x6xf32>
  %flat = tensor.collapse_shape %made [[0, 1]] : tensor<4x6xf32> into tensor<24xf32>
  %torn = tensor.expand_shape %flat [[0, 1]] output_shape [3, 8] : tensor<24xf32> into tensor<3x8xf32>
  %integers = tensor.empty() : tensor<3x8xi8>
  %q = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel", "parallel"]}
      ins(%torn, %s : tensor<3x8xf32>, tensor<f32>) outs(%integers : tensor<3x8xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.fptosi %1 : f32 to i8
    linalg.yield %2 : i8
  } -> tensor<3x8xi8>
  %reals = tensor.empty() : tensor<3x8xf32>
  %d = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel", "parallel"]}
      ins(%q, %s : tensor<3x8xi8>, tensor<f32>) outs(%reals : tensor<3x8xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<3x8xf32>
  return %d : tensor<3x8xf32>
}

// A dimension that is cut alone stays cut.
// CHECK-LABEL: func.func @cut
// CHECK: tensor.expand_shape %{{.*}} : tensor<24xf32> into tensor<3x8xf32>
// CHECK: linalg.generic {{.*}} : tensor<3x8xf32>, tensor<f32>)
func.func @cut(%x: tensor<24xf32>) -> tensor<3x8xi8> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %empty = tensor.empty() : tensor<24xf32>
  %made = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel"]}
      ins(%x : tensor<24xf32>) outs(%empty : tensor<24xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<24xf32>
  %torn = tensor.expand_shape %made [[0, 1]] output_shape [3, 8] : tensor<24xf32> into tensor<3x8xf32>
  %integers = tensor.empty() : tensor<3x8xi8>
  %q = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel", "parallel"]}
      ins(%torn, %s : tensor<3x8xf32>, tensor<f32>) outs(%integers : tensor<3x8xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.fptosi %1 : f32 to i8
    linalg.yield %2 : i8
  } -> tensor<3x8xi8>
  return %q : tensor<3x8xi8>
}
