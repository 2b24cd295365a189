// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is computed between two transposes of which the second undoes the first is computed without them where a convolution follows: maps with
// constants per channel, concatenations, padding, slices. A sum that takes the image as it was takes a transpose of it. Others stay as they are.
// RUN: millrace opt %s "--pass=func.func(cancel-transposes)" | FileCheck %s

#all = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d0, 0, 0, d3)>
#kept = affine_map<(d0, d1, d2, d3) -> (d0, d3)>

// CHECK: #[[CHANNEL:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, 0, 0, d1)>
// CHECK-LABEL: func.func @image
// CHECK-SAME: (%[[X:[a-z0-9]+]]: tensor<1x4x6x5xf32>{{.*}}, %[[W:[a-z0-9]+]]: tensor<8x8x3x3xf32>{{.*}}, %[[SCALE:[a-z0-9]+]]: tensor<1x1x1x4xf32>
// CHECK: %[[SCALED:.*]] = linalg.generic {indexing_maps = [#{{.*}}, #[[CHANNEL]], #{{.*}}]{{.*}} ins(%[[X]], %[[SCALE]] : tensor<1x4x6x5xf32>, tensor<1x1x1x4xf32>)
// CHECK: %[[BACK:.*]] = linalg.transpose ins(%[[SCALED]] : tensor<1x4x6x5xf32>) {{.*}} permutation = [0, 2, 3, 1]
// CHECK: %[[JOINED:.*]] = tensor.concat dim(1) %[[SCALED]], %[[X]]
// CHECK: %[[CUT:.*]] = tensor.extract_slice %[[JOINED]][0, 0, 1, 0] [1, 8, 5, 5] [1, 1, 1, 1]
// CHECK: %[[PADDED:.*]] = tensor.pad %[[CUT]] low[0, 0, 1, 0] high[0, 0, 2, 3]
// CHECK: linalg.conv_2d_nchw_fchw ins(%[[PADDED]], %[[W]]
// CHECK: linalg.generic {{.*}}"reduction"{{.*}} ins(%[[BACK]] : tensor<1x6x5x4xf32>)
func.func @image(%x: tensor<1x4x6x5xf32>, %w: tensor<8x8x3x3xf32>, %scale: tensor<1x1x1x4xf32>) -> (tensor<1x8x6x6xf32>, tensor<1x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<1x6x5x4xf32>
  %turned = linalg.transpose ins(%x : tensor<1x4x6x5xf32>) outs(%none : tensor<1x6x5x4xf32>) permutation = [0, 2, 3, 1]
  %scaled = linalg.generic {indexing_maps = [#all, #channel, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%turned, %scale : tensor<1x6x5x4xf32>, tensor<1x1x1x4xf32>) outs(%none : tensor<1x6x5x4xf32>) {
  ^bb0(%a: f32, %b: f32, %unused: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<1x6x5x4xf32>
  %joined = tensor.concat dim(3) %scaled, %turned : (tensor<1x6x5x4xf32>, tensor<1x6x5x4xf32>) -> tensor<1x6x5x8xf32>
  %cut = tensor.extract_slice %joined[0, 1, 0, 0] [1, 5, 5, 8] [1, 1, 1, 1] : tensor<1x6x5x8xf32> to tensor<1x5x5x8xf32>
  %padded = tensor.pad %cut low[0, 1, 0, 0] high[0, 2, 3, 0] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  } : tensor<1x5x5x8xf32> to tensor<1x8x8x8xf32>
  %there = tensor.empty() : tensor<1x8x8x8xf32>
  %image = linalg.transpose ins(%padded : tensor<1x8x8x8xf32>) outs(%there : tensor<1x8x8x8xf32>) permutation = [0, 3, 1, 2]
  %room = tensor.empty() : tensor<1x8x6x6xf32>
  %begin = linalg.fill ins(%zero : f32) outs(%room : tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %y = linalg.conv_2d_nchw_fchw ins(%image, %w : tensor<1x8x8x8xf32>, tensor<8x8x3x3xf32>) outs(%begin : tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %few = tensor.empty() : tensor<1x4xf32>
  %start = linalg.fill ins(%zero : f32) outs(%few : tensor<1x4xf32>) -> tensor<1x4xf32>
  %sums = linalg.generic {indexing_maps = [#all, #kept], iterator_types = ["parallel", "reduction", "reduction", "parallel"]} ins(%scaled : tensor<1x6x5x4xf32>) outs(%start : tensor<1x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<1x4xf32>
  return %y, %sums : tensor<1x8x6x6xf32>, tensor<1x4xf32>
}

// CHECK-LABEL: func.func @others
// CHECK: linalg.transpose
// CHECK: linalg.transpose
// CHECK: return
func.func @others(%x: tensor<1x4x6x5xf32>, %y: tensor<1x6x5x4xf32>) -> tensor<1x4x6x5xf32> {
  %none = tensor.empty() : tensor<1x6x5x4xf32>
  %turned = linalg.transpose ins(%x : tensor<1x4x6x5xf32>) outs(%none : tensor<1x6x5x4xf32>) permutation = [0, 2, 3, 1]
  %sum = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%turned, %y : tensor<1x6x5x4xf32>, tensor<1x6x5x4xf32>) outs(%none : tensor<1x6x5x4xf32>) {
  ^bb0(%a: f32, %b: f32, %unused: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<1x6x5x4xf32>
  %there = tensor.empty() : tensor<1x4x6x5xf32>
  %back = linalg.transpose ins(%sum : tensor<1x6x5x4xf32>) outs(%there : tensor<1x4x6x5xf32>) permutation = [0, 3, 1, 2]
  return %back : tensor<1x4x6x5xf32>
}
