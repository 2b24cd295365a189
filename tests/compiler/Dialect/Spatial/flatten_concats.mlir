// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts of parts along one dimension are put together at once; along another they stay.
// RUN: millrace opt %s "--pass=func.func(flatten-concats)" | FileCheck %s

// CHECK-LABEL: func.func @grown
// CHECK-SAME: (%[[A:[a-z0-9]+]]: tensor<2x3xf32>{{.*}}, %[[B:[a-z0-9]+]]: tensor<2x4xf32>
// CHECK: tensor.concat dim(1) %[[A]], %[[B]], %[[A]]
// CHECK-SAME: -> tensor<2x10xf32>
func.func @grown(%a: tensor<2x3xf32>, %b: tensor<2x4xf32>) -> tensor<2x10xf32> {
  %two = tensor.concat dim(1) %a, %b : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  %all = tensor.concat dim(1) %two, %a : (tensor<2x7xf32>, tensor<2x3xf32>) -> tensor<2x10xf32>
  return %all : tensor<2x10xf32>
}

// CHECK-LABEL: func.func @across
// CHECK: %[[BESIDE:.*]] = tensor.concat dim(1)
// CHECK: tensor.concat dim(0) %[[BESIDE]], %[[BESIDE]]
func.func @across(%a: tensor<2x3xf32>, %b: tensor<2x4xf32>) -> tensor<4x7xf32> {
  %two = tensor.concat dim(1) %a, %b : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  %all = tensor.concat dim(0) %two, %two : (tensor<2x7xf32>, tensor<2x7xf32>) -> tensor<4x7xf32>
  return %all : tensor<4x7xf32>
}
