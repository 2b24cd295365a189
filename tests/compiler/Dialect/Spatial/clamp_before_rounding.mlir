// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// RUN: millrace opt %s "--pass=func.func(clamp-before-rounding)" | FileCheck %s

#id = affine_map<(c) -> (c)>
#one = affine_map<(c) -> ()>

// A Relu between two roundings of one scheme: of x, which is rounded once.
// CHECK-LABEL: func.func @once
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<4xf32>
// CHECK: %[[RELU:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<4xf32>)
// CHECK: arith.maximumf
// CHECK: %[[Q:.*]] = linalg.generic {{.*}} ins(%[[RELU]],
// CHECK: math.roundeven
// CHECK-NOT: math.roundeven
// CHECK: return %[[Q]]
func.func @once(%x: tensor<4xf32>) -> tensor<4xi8> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %low = arith.constant -1.280000e+02 : f32
  %high = arith.constant 1.270000e+02 : f32
  %null = arith.constant 0.0 : f32
  %i = tensor.empty() : tensor<4xi8>
  %f = tensor.empty() : tensor<4xf32>
  %q = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%x, %s : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  %d = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%q, %s : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%d : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.maximumf %in, %null : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%r, %s : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  return %p : tensor<4xi8>
}

// Rounded to steps of 0.5, then to steps of 0.25: twice, for a number between two of the first steps
// is another of the second.
// CHECK-LABEL: func.func @twice
// CHECK: math.roundeven
// CHECK: arith.maximumf %{{.*}}, %cst
// CHECK: math.roundeven
// CHECK: return
func.func @twice(%x: tensor<4xf32>) -> tensor<4xi8> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %t = arith.constant dense<0.25> : tensor<f32>
  %low = arith.constant -1.280000e+02 : f32
  %high = arith.constant 1.270000e+02 : f32
  %null = arith.constant 0.0 : f32
  %i = tensor.empty() : tensor<4xi8>
  %f = tensor.empty() : tensor<4xf32>
  %q = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%x, %s : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  %d = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%q, %s : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%d : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.maximumf %in, %null : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%r, %t : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  return %p : tensor<4xi8>
}

// What a user named for a device stays.
// CHECK-LABEL: func.func @named
// CHECK: math.roundeven
// CHECK: arith.maximumf %{{.*}}, %cst
// CHECK: math.roundeven
// CHECK: return
func.func @named(%x: tensor<4xf32>) -> tensor<4xi8> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %low = arith.constant -1.280000e+02 : f32
  %high = arith.constant 1.270000e+02 : f32
  %null = arith.constant 0.0 : f32
  %i = tensor.empty() : tensor<4xi8>
  %f = tensor.empty() : tensor<4xf32>
  %q = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%x, %s : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize", millrace.device = "host"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  %d = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%q, %s : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%d : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.maximumf %in, %null : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%r, %s : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  return %p : tensor<4xi8>
}
