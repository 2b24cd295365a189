// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A constant whose lanes must move is laid out once, however often it is used: here every third element of a row.
// RUN: millrace opt %s --pass=form-kernels | FileCheck %s

// CHECK-COUNT-1: spatial.tensor constant "value.moved" lanes 1 : tensor<4x2xf32>
// CHECK-NOT: spatial.tensor constant
// CHECK-COUNT-1: spatial.operand %value.moved[%p0, %p1]
// CHECK-NOT: spatial.operand %value
// CHECK: spatial.write
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<4x2xf32> {onnx.name = "x", onnx.type = "float"})
    -> (tensor<4x2xf32> {onnx.name = "y", onnx.type = "float"}) {
  %rows = arith.constant dense<[[0.0, 1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0, 9.0],
                                [1.5, 2.5, 3.5, 4.5, 5.5], [6.5, 7.5, 8.5, 9.5, 1.25]]> : tensor<4x5xf32>
  %third = tensor.extract_slice %rows[0, 1] [4, 2] [1, 3] : tensor<4x5xf32> to tensor<4x2xf32>
  %empty = tensor.empty() : tensor<4x2xf32>
  %sum = linalg.add ins(%x, %third : tensor<4x2xf32>, tensor<4x2xf32>) outs(%empty : tensor<4x2xf32>) -> tensor<4x2xf32>
  %y = linalg.mul ins(%sum, %third : tensor<4x2xf32>, tensor<4x2xf32>) outs(%empty : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}
