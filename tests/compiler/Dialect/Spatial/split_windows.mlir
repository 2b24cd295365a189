// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rewriting alone: a 2 x 2 maximum becomes a pass along each dimension. What it made is for its
// machine: another rewriting for another machine is refused.
// RUN: millrace opt %s --pass=split-windows | FileCheck %s
// RUN: not millrace opt %s --pass=split-windows "--pass=clip-running{machine=lp30}" 2>&1 | FileCheck %s --check-prefix=OTHER

// CHECK: spatial.kernel "pool.columns" from "MaxPool_0" (%p0 = parallel 8, %p1 = parallel 4, %p2 = parallel 16) attributes {number = 1 : i64} {
// CHECK-NEXT: spatial.operand %x[%p0, %p1 * 2, %p2]
// CHECK-NEXT: spatial.operand %x[%p0, %p1 * 2 + 1, %p2]
// CHECK-NOT: spatial.operand
// CHECK: spatial.kernel "pool" from "MaxPool_0" (%p0 = parallel 4, %p1 = parallel 4, %p2 = parallel 16) attributes {number = 0 : i64} {
// CHECK-NEXT: spatial.operand %pool.columns[%p0 * 2, %p1, %p2]
// CHECK-NEXT: spatial.operand %pool.columns[%p0 * 2 + 1, %p1, %p2]
// CHECK-NOT: spatial.operand
// OTHER: millrace: error: {{.*}}split_windows.mlir: the kernels were made for machine tsp-v1 {{[0-9a-f]+}}, not for lp30
spatial.graph "maximum" {
  %x = spatial.tensor input "x" lanes 2 : tensor<8x8x16xf16>
  %y = spatial.tensor output "y" lanes 2 : tensor<4x4x16xf16>
  spatial.kernel "pool" from "MaxPool_0" (%i = parallel 4, %j = parallel 4, %c = parallel 16) {
    %o0 = spatial.operand %x[2 * %i + 0, 2 * %j + 0, %c]
    %o1 = spatial.operand %x[2 * %i + 0, 2 * %j + 1, %c]
    %o2 = spatial.operand %x[2 * %i + 1, 2 * %j + 0, %c]
    %o3 = spatial.operand %x[2 * %i + 1, 2 * %j + 1, %c]
    %b0 = spatial.read %o0
    %f0 = spatial.alu cvt.f16.f32(%b0)
    %b1 = spatial.read %o1
    %f1 = spatial.alu cvt.f16.f32(%b1)
    %b2 = spatial.read %o2
    %f2 = spatial.alu cvt.f16.f32(%b2)
    %b3 = spatial.read %o3
    %f3 = spatial.alu cvt.f16.f32(%b3)
    %m0 = spatial.alu max.f32(%f0, %f1)
    %m1 = spatial.alu max.f32(%m0, %f2)
    %m2 = spatial.alu max.f32(%m1, %f3)
    %r = spatial.alu cvt.f32.f16(%m2)
    spatial.write %r to %y[%i, %j, %c]
  }
}
