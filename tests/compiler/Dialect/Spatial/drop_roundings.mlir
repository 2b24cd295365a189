// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// RUN: millrace opt %s "--pass=func.func(drop-roundings)" | FileCheck %s

#id = affine_map<(c) -> (c)>
#one = affine_map<(c) -> ()>

// x * tanh(x) of integers in steps of 0.5: tanh is not rounded to steps of 0.01, which reach 1.27,
// and so not clamped either.
// CHECK-LABEL: func.func @gate
// CHECK: %[[X:.*]] = linalg.generic {{.*}}millrace.quant = "dequantize"
// CHECK: %[[TANH:.*]] = linalg.generic {{.*}} ins(%[[X]] :
// CHECK: math.tanh
// CHECK-NOT: math.roundeven
// CHECK-NOT: arith.m{{ax|in}}imumf
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[TANH]] :
// CHECK: arith.mulf
// CHECK: return
func.func @gate(%q: tensor<4xi8>) -> tensor<4xf32> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %t = arith.constant dense<0.01> : tensor<f32>
  %low = arith.constant -1.280000e+02 : f32
  %high = arith.constant 1.270000e+02 : f32
  %i = tensor.empty() : tensor<4xi8>
  %f = tensor.empty() : tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%q, %s : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.tanh %in : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%g, %t : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  %d = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%p, %t : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %d : tensor<4xf32>, tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// Steps of 0.005 reach 0.635 only: clamped to that.
// CHECK-LABEL: func.func @clamped
// CHECK: math.tanh
// CHECK-NOT: math.roundeven
// CHECK: arith.maximumf %{{.*}}, %[[LEAST:.*]] :
// CHECK: arith.minimumf %{{.*}}, %[[MOST:.*]] :
// CHECK-NOT: math.roundeven
// CHECK: return
func.func @clamped(%q: tensor<4xi8>) -> tensor<4xf32> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %t = arith.constant dense<0.005> : tensor<f32>
  %low = arith.constant -1.280000e+02 : f32
  %high = arith.constant 1.270000e+02 : f32
  %i = tensor.empty() : tensor<4xi8>
  %f = tensor.empty() : tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%q, %s : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.tanh %in : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%g, %t : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  %d = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%p, %t : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%d : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// What somebody else reads, too, stays rounded.
// CHECK-LABEL: func.func @read
// CHECK: math.tanh
// CHECK: math.roundeven
// CHECK: math.exp
func.func @read(%q: tensor<4xi8>) -> (tensor<4xf32>, tensor<4xi8>) {
  %s = arith.constant dense<0.5> : tensor<f32>
  %t = arith.constant dense<0.01> : tensor<f32>
  %low = arith.constant -1.280000e+02 : f32
  %high = arith.constant 1.270000e+02 : f32
  %i = tensor.empty() : tensor<4xi8>
  %f = tensor.empty() : tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%q, %s : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.tanh %in : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%g, %t : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  %d = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%p, %t : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%d : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %y, %p : tensor<4xf32>, tensor<4xi8>
}

// So does what a user named, for fp32.
// CHECK-LABEL: func.func @named
// CHECK: math.tanh
// CHECK: math.roundeven
// CHECK: math.exp
func.func @named(%q: tensor<4xi8>) -> tensor<4xf32> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %t = arith.constant dense<0.01> : tensor<f32>
  %low = arith.constant -1.280000e+02 : f32
  %high = arith.constant 1.270000e+02 : f32
  %i = tensor.empty() : tensor<4xi8>
  %f = tensor.empty() : tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%q, %s : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.tanh %in : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%g, %t : tensor<4xf32>, tensor<f32>) outs(%i : tensor<4xi8>) attrs = {millrace.quant = "quantize"} {
  ^bb0(%in: f32, %scale: f32, %out: i8):
    %0 = arith.divf %in, %scale : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.maximumf %1, %low : f32
    %3 = arith.minimumf %2, %high : f32
    %4 = arith.fptosi %3 : f32 to i8
    linalg.yield %4 : i8
  } -> tensor<4xi8>
  %d = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]} ins(%p, %t : tensor<4xi8>, tensor<f32>) outs(%f : tensor<4xf32>) attrs = {millrace.keep_fp32, millrace.quant = "dequantize"} {
  ^bb0(%in: i8, %scale: f32, %out: f32):
    %0 = arith.sitofp %in : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%d : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}
