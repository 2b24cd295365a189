// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text of every operation verifies, and prints as it was written.
// RUN: millrace opt %s -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: millrace opt %t.mlir | diff %t.mlir -

// CHECK: spatial.graph "everything" {
spatial.graph "everything" {
  // CHECK-NEXT: %x = spatial.tensor input "x" lanes 1 host <"x" : "float" [1, 3, 4] loop 4 dim 0 by 1 host 2 by 1 loop 3 dim 1 by 1 host 1 by 1 start [0, 0, -1] scale 2.500000e-01 zero -2 fill 254> : tensor<4x3xi8>
  %x = spatial.tensor input "x" lanes 1
      host <"x" : "float" [1, 3, 4] loop 4 dim 0 by 1 host 2 by 1 loop 3 dim 1 by 1 host 1 by 1
            start [0, 0, -1] scale 2.500000e-01 zero -2 fill 254> : tensor<4x3xi8>
  // CHECK-NEXT: %w = spatial.tensor constant "w" lanes 1 splat : tensor<5x3xi8> = dense<-3>
  %w = spatial.tensor constant "w" lanes 1 splat : tensor<5x3xi8> = dense<-3>
  // CHECK-NEXT: %bias = spatial.tensor constant "bias" lanes 0 : tensor<5xi32> = dense<[1, 2, 3, 4, -5]>
  %bias = spatial.tensor constant "bias" lanes 0 : tensor<5xi32> = dense<[1, 2, 3, 4, -5]>
  // CHECK-NEXT: %sums = spatial.tensor intermediate "sums" lanes 1 : tensor<4x5xi32>
  %sums = spatial.tensor intermediate "sums" lanes 1 : tensor<4x5xi32>
  // CHECK-NEXT: %greatest = spatial.tensor output "greatest" lanes 0 host <"greatest" : "float" [5]> : tensor<5xi32>
  %greatest = spatial.tensor output "greatest" lanes 0 host <"greatest" : "float" [5]> : tensor<5xi32>
  // CHECK-NEXT: %copy = spatial.tensor output "copy" lanes 0 host <"copy" : "int32" [5]> : tensor<5xi32>
  %copy = spatial.tensor output "copy" lanes 0 host <"copy" : "int32" [5]> : tensor<5xi32>
  // CHECK-NEXT: spatial.kernel "matmul" from "MatMul_0 Add_1" (%p0 = parallel 4, %p1 = parallel 5, %c2 = contracted 3) attributes {number = 1 : i64} {
  spatial.kernel "matmul" from "MatMul_0 Add_1" (%row = parallel 4, %column = parallel 5, %k = contracted 3)
      attributes {number = 1 : i64} {
    // CHECK-NEXT: spatial.term %x[%p0 * 2 - 1, -%c2 + 2] pad 7 * %w[%p1, %c2] macs 60
    spatial.term %x[2 * %row - 1, 2 - %k] pad 7 * %w[%column, %k] macs 60
    // CHECK-NEXT: %0 = spatial.operand %bias[%p1]
    %0 = spatial.operand %bias[%column]
    // CHECK-NEXT: %1 = spatial.accumulator
    %1 = spatial.accumulator
    // CHECK-NEXT: %2 = spatial.read %0
    %2 = spatial.read %0
    // CHECK-NEXT: %3 = spatial.alu add.i32(%1, %2)
    %3 = spatial.alu add.i32(%1, %2)
    // CHECK-NEXT: %4 = spatial.immediate 0xFFFFFFFF
    %4 = spatial.immediate 4294967295
    // CHECK-NEXT: %5 = spatial.alu max.i32(%3, %4)
    %5 = spatial.alu max.i32(%3, %4)
    // CHECK-NEXT: spatial.write %5 to %sums[%p0, %p1]
    spatial.write %5 to %sums[%row, %column]
  }
  // CHECK: spatial.kernel "max" from "ReduceMax_2" (%p0 = parallel 5, %r1 = running 4) attributes {number = 0 : i64} {
  spatial.kernel "max" from "ReduceMax_2" (%column = parallel 5, %row = running 4)
      attributes {number = 0 : i64} {
    %0 = spatial.operand %sums[%row, %column]
    %1 = spatial.read %0
    // CHECK: spatial.reduce max.i32(%1)
    %2 = spatial.reduce max.i32(%1)
    spatial.write %2 to %greatest[%column]
  }
  // CHECK: spatial.call "Identity_3" @identity(%greatest) to(%copy) {device = "gpu"}
  spatial.call "Identity_3" @identity(%greatest) to(%copy) {device = "gpu"}
}
// CHECK: module @host
module @host {
  func.func @identity(%x: tensor<5xi32>) -> tensor<5xi32> {
    return %x : tensor<5xi32>
  }
}
