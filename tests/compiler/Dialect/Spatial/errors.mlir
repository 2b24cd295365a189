// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the verifier refuses, and in which words.
// RUN: millrace opt %s --split-input-file --verify-diagnostics

spatial.graph "element type" {
  // expected-error @+1 {{has elements of type 'f64'; memory holds i8, ui8, i32, f16, bf16, f32, f8E4M3FN and f8E5M2}}
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf64>
}

// -----

spatial.graph "lanes" {
  // expected-error @+1 {{has its lanes in dimension 2 of 2}}
  %x = spatial.tensor input "x" lanes 2 : tensor<4x4xf16>
}

// -----

spatial.graph "shape" {
  // expected-error @+1 {{all extents must be known}}
  %x = spatial.tensor input "x" lanes 0 : tensor<?xf16>
}

// -----

spatial.graph "constant" {
  // expected-error @+1 {{with role constant needs data}}
  %x = spatial.tensor constant "x" lanes 0 : tensor<4xf16>
}

// -----

spatial.graph "data" {
  // expected-error @+1 {{with role input has data; only constants do}}
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf16> = dense<1.0>
}

// -----

spatial.graph "splat" {
  // expected-error @+1 {{is a splat, but its data has more than one value}}
  %x = spatial.tensor constant "x" lanes 0 splat : tensor<2xf16> = dense<[1.0, 2.0]>
}

// -----

spatial.graph "host loops" {
  // expected-error @+1 {{has a host loop of extent 4 over dimension 1 of 1 and the host's dimension 0 of 1}}
  %x = spatial.tensor input "x" lanes 0 host <"x" : "float" [4] loop 4 dim 1 by 1 host 0 by 1 start [0]> : tensor<4xf16>
}

// -----

spatial.graph "indices" {
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf16>
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf16>
  spatial.kernel "k" from "K" (%i = parallel 4) {
    // expected-error @+1 {{has 2 indices for 'x' of rank 1}}
    %0 = spatial.operand %x[%i, %i]
    %1 = spatial.read %0
    spatial.write %1 to %y[%i]
  }
}

// -----

spatial.graph "affine" {
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf16>
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf16>
  spatial.kernel "k" from "K" (%i = parallel 4) {
    // expected-error @+1 {{has an index that is no sum of loops times numbers}}
    %0 = spatial.operand %x[%i floordiv 2]
    %1 = spatial.read %0
    spatial.write %1 to %y[%i]
  }
}

// -----

spatial.graph "kinds" {
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf16>
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf16>
  spatial.kernel "k" from "K" (%i = running 4) {
    %0 = spatial.operand %x[%i]
    %1 = spatial.read %0
    // expected-error @+1 {{may not use loop 0, which is running}}
    spatial.write %1 to %y[%i]
  }
}

// -----

spatial.graph "formats" {
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf16>
  %w = spatial.tensor input "w" lanes 0 : tensor<4xi8>
  %y = spatial.tensor output "y" lanes 0 : tensor<1xf32>
  spatial.kernel "k" from "K" (%i = contracted 4, %j = parallel 1) {
    // expected-error @+1 {{multiplies 'f16' by 'i8'; both must be one MXM format}}
    spatial.term %x[%i] * %w[%i]
    %0 = spatial.accumulator
    spatial.write %0 to %y[%j]
  }
}

// -----

spatial.graph "operations" {
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  spatial.kernel "k" from "K" (%i = parallel 4) {
    %0 = spatial.immediate 0
    // expected-error @+1 {{names 'sum.f32', which no ALU does; docs/spec/isa.md lists the operations}}
    %1 = spatial.alu sum.f32(%0, %0)
    spatial.write %1 to %y[%i]
  }
}

// -----

spatial.graph "operands" {
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  spatial.kernel "k" from "K" (%i = parallel 4) {
    %0 = spatial.immediate 0
    // expected-error @+1 {{gives 1 operands to add.f32, which takes 2}}
    %1 = spatial.alu add.f32(%0)
    spatial.write %1 to %y[%i]
  }
}

// -----

spatial.graph "reduction" {
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  spatial.kernel "k" from "K" (%i = parallel 4) {
    %0 = spatial.immediate 0
    // expected-error @+1 {{reduces by 'exp.f32', which is no operation of two operands}}
    %1 = spatial.reduce exp.f32(%0)
    spatial.write %1 to %y[%i]
  }
}

// -----

spatial.graph "order in a kernel" {
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf32>
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  spatial.kernel "k" from "K" (%i = parallel 4) {
    %0 = spatial.immediate 0
    // expected-error @+1 {{stands too late: a kernel has terms, then operands, then the epilogue, then writes}}
    %1 = spatial.operand %x[%i]
    spatial.write %0 to %y[%i]
  }
}

// -----

spatial.graph "calls" {
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf32>
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  // expected-error @+1 {{names @missing, which is no function of the module @host}}
  spatial.call "c" @missing(%x) to(%y)
}

// -----

spatial.graph "arguments of calls" {
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf32>
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  // expected-error @+1 {{gives 2 tensors for 1 to @copy, which takes 1 for 1}}
  spatial.call "c" @copy(%x, %x) to(%y)
}
module @host {
  func.func @copy(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

spatial.graph "devices of calls" {
  %x = spatial.tensor input "x" lanes 0 : tensor<4xf32>
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  // expected-error @+1 {{runs on 'tpu'; use "cpu" or "gpu", or leave it out}}
  spatial.call "c" @copy(%x) to(%y) {device = "tpu"}
}
module @host {
  func.func @copy(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

spatial.graph "foreign operations" {
  // expected-error @+1 {{is no part of a kernel graph}}
  %x = arith.constant 1 : i32
}

// -----

spatial.graph "foreign operations in kernels" {
  %y = spatial.tensor output "y" lanes 0 : tensor<4xi32>
  spatial.kernel "k" from "K" (%i = parallel 4) {
    // expected-error @+1 {{is no part of a kernel}}
    %0 = arith.constant 1 : i32
    spatial.write %0 to %y[%i]
  }
}

// -----

spatial.graph "size" {
  // expected-error @+1 {{has more elements than any machine holds}}
  %x = spatial.tensor input "x" lanes 0 : tensor<1000000000x1000000000x1000000000xf16>
}

// -----

spatial.graph "points" {
  %y = spatial.tensor output "y" lanes 0 : tensor<4xi32>
  // expected-error @+1 {{has more points than any machine computes}}
  spatial.kernel "k" from "K" (%i = parallel 4, %j = contracted 1000000000, %k = contracted 1000000000) {
    %0 = spatial.immediate 0
    spatial.write %0 to %y[%i]
  }
}

// -----

spatial.graph "numbers" {
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  // expected-error @+1 {{has number 1 of 1}}
  spatial.kernel "k" from "K" (%i = parallel 4) attributes {number = 1 : i64} {
    %0 = spatial.immediate 0
    spatial.write %0 to %y[%i]
  }
}

// -----

// expected-error @+1 {{is wrong: kernel 'k' writes 'y' twice at element 0}}
spatial.graph "points written twice" {
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  spatial.kernel "k" from "K" (%i = parallel 4, %j = parallel 2) {
    %0 = spatial.immediate 0
    spatial.write %0 to %y[%i]
  }
}

// -----

// expected-error @+1 {{is wrong: output 'y' lacks element 3}}
spatial.graph "points never written" {
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  spatial.kernel "k" from "K" (%i = parallel 3) {
    %0 = spatial.immediate 0
    spatial.write %0 to %y[%i]
  }
}

// -----

// expected-error @+1 {{is wrong: kernel 'second' reads 'middle' before all of it is written}}
spatial.graph "order of kernels" {
  %middle = spatial.tensor intermediate "middle" lanes 0 : tensor<4xf32>
  %y = spatial.tensor output "y" lanes 0 : tensor<4xf32>
  spatial.kernel "second" from "B" (%i = parallel 4) {
    %0 = spatial.operand %middle[%i]
    %1 = spatial.read %0
    spatial.write %1 to %y[%i]
  }
  spatial.kernel "first" from "A" (%i = parallel 4) {
    %0 = spatial.immediate 0
    spatial.write %0 to %middle[%i]
  }
}
