// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A window of three, twice the point at its centre and half of the image itself are one window. What
// others take as well stays as it is.
// RUN: millrace opt %s "--pass=func.func(add-branches)" | FileCheck %s

#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// CHECK-LABEL: func.func @one
// CHECK: %[[WEIGHTS:.*]] = arith.constant dense<{{\[\[}}1.000000e+00, 4.500000e+00, 3.000000e+00]]> : tensor<1x3xf32>
// CHECK-COUNT-1: linalg.depthwise_conv_1d_ncw_cw
// CHECK-SAME: %[[WEIGHTS]]
// CHECK-NOT: linalg
// CHECK: return
func.func @one(%x: tensor<1x1x8xf32>) -> tensor<1x1x8xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant dense<[[[0.5]]]> : tensor<1x1x1xf32>
  %window = arith.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %point = arith.constant dense<[[2.0]]> : tensor<1x1xf32>
  %none = tensor.empty() : tensor<1x1x8xf32>
  %begin = linalg.fill ins(%zero : f32) outs(%none : tensor<1x1x8xf32>) -> tensor<1x1x8xf32>
  %padded = tensor.pad %x low[0, 0, 1] high[0, 0, 1] {
  ^bb0(%i: index, %j: index, %k: index):
    tensor.yield %zero : f32
  } : tensor<1x1x8xf32> to tensor<1x1x10xf32>
  %a = linalg.depthwise_conv_1d_ncw_cw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>} ins(%padded, %window : tensor<1x1x10xf32>, tensor<1x3xf32>) outs(%begin : tensor<1x1x8xf32>) -> tensor<1x1x8xf32>
  %b = linalg.depthwise_conv_1d_ncw_cw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>} ins(%x, %point : tensor<1x1x8xf32>, tensor<1x1xf32>) outs(%begin : tensor<1x1x8xf32>) -> tensor<1x1x8xf32>
  %c = linalg.generic {indexing_maps = [#all, affine_map<(d0, d1, d2) -> (0, d1, 0)>, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %half : tensor<1x1x8xf32>, tensor<1x1x1xf32>) outs(%none : tensor<1x1x8xf32>) {
  ^bb0(%in: f32, %by: f32, %unused: f32):
    %s = arith.mulf %in, %by : f32
    linalg.yield %s : f32
  } -> tensor<1x1x8xf32>
  %ab = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%a, %b : tensor<1x1x8xf32>, tensor<1x1x8xf32>) outs(%none : tensor<1x1x8xf32>) {
  ^bb0(%l: f32, %r: f32, %unused: f32):
    %s = arith.addf %l, %r : f32
    linalg.yield %s : f32
  } -> tensor<1x1x8xf32>
  %abc = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%c, %ab : tensor<1x1x8xf32>, tensor<1x1x8xf32>) outs(%none : tensor<1x1x8xf32>) {
  ^bb0(%l: f32, %r: f32, %unused: f32):
    %s = arith.addf %l, %r : f32
    linalg.yield %s : f32
  } -> tensor<1x1x8xf32>
  return %abc : tensor<1x1x8xf32>
}

// CHECK-LABEL: func.func @two
// CHECK-COUNT-2: linalg.depthwise_conv_1d_ncw_cw
func.func @two(%x: tensor<1x1x8xf32>) -> (tensor<1x1x8xf32>, tensor<1x1x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %point = arith.constant dense<[[2.0]]> : tensor<1x1xf32>
  %other = arith.constant dense<[[3.0]]> : tensor<1x1xf32>
  %none = tensor.empty() : tensor<1x1x8xf32>
  %begin = linalg.fill ins(%zero : f32) outs(%none : tensor<1x1x8xf32>) -> tensor<1x1x8xf32>
  %a = linalg.depthwise_conv_1d_ncw_cw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>} ins(%x, %point : tensor<1x1x8xf32>, tensor<1x1xf32>) outs(%begin : tensor<1x1x8xf32>) -> tensor<1x1x8xf32>
  %b = linalg.depthwise_conv_1d_ncw_cw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>} ins(%x, %other : tensor<1x1x8xf32>, tensor<1x1xf32>) outs(%begin : tensor<1x1x8xf32>) -> tensor<1x1x8xf32>
  %ab = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%a, %b : tensor<1x1x8xf32>, tensor<1x1x8xf32>) outs(%none : tensor<1x1x8xf32>) {
  ^bb0(%l: f32, %r: f32, %unused: f32):
    %s = arith.addf %l, %r : f32
    linalg.yield %s : f32
  } -> tensor<1x1x8xf32>
  return %ab, %b : tensor<1x1x8xf32>, tensor<1x1x8xf32>
}
