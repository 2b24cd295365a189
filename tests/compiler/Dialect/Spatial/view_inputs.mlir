// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every other column, from the last one on, and the channels last: the host writes what the map reads as a tensor of its own, in the order of the
// map's result. What reads the whole image elsewhere stays. More than three times the image in all is not written.
// RUN: millrace opt %s --pass=view-inputs | FileCheck %s

// CHECK: %[[VIEW:.*]] = spatial.tensor input "x.view" lanes 0 host <"x" : "float" [6, 8, 3]
// CHECK-SAME: loop 3 dim 0 by 1 host 2 by 1 loop 6 dim 1 by 1 host 0 by 1 loop 4 dim 2 by 1 host 1 by -2 start [0, 7, 0]
// CHECK-SAME: tensor<3x6x4xf16>
// CHECK: spatial.kernel "map"
// CHECK-NEXT: spatial.operand %[[VIEW]][%p0, %p1, %p2]
// CHECK: spatial.kernel "all"
// CHECK-NEXT: spatial.operand %x[%p0, %p1, %p2]
// CHECK: spatial.kernel "repeated"
// CHECK-NEXT: spatial.operand %z.view[0, %p1, %p2]
// CHECK: spatial.kernel "often"
// CHECK-NEXT: spatial.operand %q[%p0, %p1]
// CHECK-NEXT: spatial.operand %q[%p0, -%p1 + 2]
// CHECK-NEXT: spatial.operand %q[-%p0 + 8, %p1]
// CHECK-NEXT: spatial.operand %q[-%p0 + 8, -%p1 + 2]
spatial.graph "views" {
  %x = spatial.tensor input "x" lanes 2 host <"x" : "float" [6, 8, 3]> : tensor<6x8x3xf16>
  %z = spatial.tensor input "z" lanes 1 host <"z" : "float" [9, 3]> : tensor<9x3xf16>
  %q = spatial.tensor input "q" lanes 1 host <"q" : "float" [9, 3]> : tensor<9x3xf16>
  %s = spatial.tensor output "s" lanes 1 : tensor<9x3xf32>
  %y = spatial.tensor output "y" lanes 0 : tensor<3x6x4xf16>
  %a = spatial.tensor output "a" lanes 2 : tensor<6x8x3xf16>
  %r = spatial.tensor output "r" lanes 2 : tensor<40x9x2xf16>
  spatial.kernel "map" from "Neg_0" (%c = parallel 3, %i = parallel 6, %j = parallel 4) {
    %o = spatial.operand %x[%i, -2 * %j + 7, %c]
    %b = spatial.read %o
    spatial.write %b to %y[%c, %i, %j]
  }
  spatial.kernel "all" from "Neg_1" (%i = parallel 6, %j = parallel 8, %c = parallel 3) {
    %o = spatial.operand %x[%i, %j, %c]
    %b = spatial.read %o
    spatial.write %b to %a[%i, %j, %c]
  }
  spatial.kernel "repeated" from "Neg_2" (%k = parallel 40, %i = parallel 9, %c = parallel 2) {
    %o = spatial.operand %z[%i, %c + 1]
    %b = spatial.read %o
    spatial.write %b to %r[%k, %i, %c]
  }
  spatial.kernel "often" from "Add_3" (%i = parallel 9, %c = parallel 3) {
    %o0 = spatial.operand %q[%i, %c]
    %o1 = spatial.operand %q[%i, -1 * %c + 2]
    %o2 = spatial.operand %q[-1 * %i + 8, %c]
    %o3 = spatial.operand %q[-1 * %i + 8, -1 * %c + 2]
    %b0 = spatial.read %o0
    %f0 = spatial.alu cvt.f16.f32(%b0)
    %b1 = spatial.read %o1
    %f1 = spatial.alu cvt.f16.f32(%b1)
    %b2 = spatial.read %o2
    %f2 = spatial.alu cvt.f16.f32(%b2)
    %b3 = spatial.read %o3
    %f3 = spatial.alu cvt.f16.f32(%b3)
    %s0 = spatial.alu add.f32(%f0, %f1)
    %s1 = spatial.alu add.f32(%f2, %f3)
    %all = spatial.alu add.f32(%s0, %s1)
    spatial.write %all to %s[%i, %c]
  }
}
