// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two kernels write lanes of a tensor, none of them few, which products sum and make anew, and a map reads some of its lanes: parts and slices are tensors of
// their own, moved. What one product alone sums is not worth it.
// RUN: millrace opt %s --pass=keep-whole | FileCheck %s

// CHECK: spatial.kernel "left"
// CHECK: spatial.write %{{.*}} to %z.part0[%p0, %p1]
// CHECK: spatial.kernel "right"
// CHECK: spatial.write %{{.*}} to %z.part1[%p0, %p1]
// CHECK: spatial.kernel "z"
// CHECK-NEXT: spatial.term %z.part0[%p0, %c2] * %[[LEFT:.*]][%p1, %c2]
// CHECK-NEXT: spatial.term %z.part1[%p0, %c3] * %{{.*}}[%p1, %c3]
// CHECK: spatial.kernel "one"
// CHECK-NEXT: spatial.term %z[%p0, %c2]
// CHECK: spatial.kernel "z2.slice"
// CHECK-NEXT: spatial.term %z2[%p0, %c2 + 190]
// CHECK: spatial.kernel "some"
// CHECK-NEXT: spatial.operand %z2.slice[%p0, %p1]
// CHECK: spatial.kernel "up"
// CHECK: spatial.write %{{.*}} to %v[%p0, %p1]
// CHECK: spatial.kernel "down"
// CHECK: spatial.write %{{.*}} to %v[%p0, %p1 + 190]
spatial.graph "whole" {
  %x = spatial.tensor input "x" lanes 1 host <"x" : "float" [4096, 580]> : tensor<4096x580xf16>
  %w = spatial.tensor constant "w" lanes 1 splat : tensor<580x580xf16> = dense<1.0>
  %z = spatial.tensor intermediate "z" lanes 1 : tensor<4096x580xf16>
  %z1 = spatial.tensor intermediate "z1" lanes 1 : tensor<4096x580xf16>
  %z2 = spatial.tensor intermediate "z2" lanes 1 : tensor<4096x580xf16>
  %v = spatial.tensor intermediate "v" lanes 1 : tensor<4096x580xf16>
  %y = spatial.tensor output "y" lanes 1 : tensor<4096x580xf16>
  %s = spatial.tensor output "s" lanes 1 : tensor<4096x180xf16>
  %u = spatial.tensor output "u" lanes 1 : tensor<4096x580xf16>
  spatial.kernel "left" from "Neg_0" (%i = parallel 4096, %c = parallel 190) {
    %o = spatial.operand %x[%i, %c]
    %b = spatial.read %o
    spatial.write %b to %z[%i, %c]
  }
  spatial.kernel "right" from "Neg_1" (%i = parallel 4096, %c = parallel 390) {
    %o = spatial.operand %x[%i, %c + 190]
    %b = spatial.read %o
    spatial.write %b to %z[%i, %c + 190]
  }
  spatial.kernel "one" from "Conv_0" (%i = parallel 4096, %c = parallel 580, %k = contracted 580) {
    spatial.term %z[%i, %k] * %w[%c, %k] macs 1
    %o = spatial.operand %z[%i, %c]
    %a = spatial.accumulator
    %r = spatial.read %o
    %h = spatial.alu cvt.f16.f32(%r)
    %t = spatial.alu add.f32(%a, %h)
    %b = spatial.alu cvt.f32.f16.fin(%t)
    spatial.write %b to %z1[%i, %c]
  }
  spatial.kernel "two" from "Conv_1" (%i = parallel 4096, %c = parallel 580, %k = contracted 580) {
    spatial.term %z1[%i, %k] * %w[%c, %k] macs 1
    %o = spatial.operand %z1[%i, %c]
    %a = spatial.accumulator
    %r = spatial.read %o
    %h = spatial.alu cvt.f16.f32(%r)
    %t = spatial.alu add.f32(%a, %h)
    %b = spatial.alu cvt.f32.f16.fin(%t)
    spatial.write %b to %z2[%i, %c]
  }
  spatial.kernel "three" from "Conv_2" (%i = parallel 4096, %c = parallel 580, %k = contracted 580) {
    spatial.term %z2[%i, %k] * %w[%c, %k] macs 1
    %a = spatial.accumulator
    %b = spatial.alu cvt.f32.f16.fin(%a)
    spatial.write %b to %y[%i, %c]
  }
  spatial.kernel "some" from "Neg_2" (%i = parallel 4096, %c = parallel 180) {
    %o = spatial.operand %z2[%i, %c + 190]
    %b = spatial.read %o
    spatial.write %b to %s[%i, %c]
  }
  spatial.kernel "up" from "Neg_3" (%i = parallel 4096, %c = parallel 190) {
    %o = spatial.operand %x[%i, %c]
    %b = spatial.read %o
    spatial.write %b to %v[%i, %c]
  }
  spatial.kernel "down" from "Neg_4" (%i = parallel 4096, %c = parallel 390) {
    %o = spatial.operand %x[%i, %c + 190]
    %b = spatial.read %o
    spatial.write %b to %v[%i, %c + 190]
  }
  spatial.kernel "once" from "Conv_3" (%i = parallel 4096, %c = parallel 580, %k = contracted 580) {
    spatial.term %v[%i, %k] * %w[%c, %k] macs 1
    %a = spatial.accumulator
    %b = spatial.alu cvt.f32.f16.fin(%a)
    spatial.write %b to %u[%i, %c]
  }
}
