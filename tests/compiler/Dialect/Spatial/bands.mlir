// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel's points are those of each term: as many contracted loops as a sum over bands has are no larger kernel.
// RUN: millrace opt %s | FileCheck %s

// CHECK: spatial.kernel "bands" from "Conv_0" (%p0 = parallel 1000
spatial.graph "bands" {
  %x = spatial.tensor input "x" lanes 1 : tensor<1000x1000xf16>
  %w = spatial.tensor constant "w" lanes 1 splat : tensor<16x1000xf16> = dense<1.000000e+00>
  %y = spatial.tensor output "y" lanes 1 : tensor<1000x16xf32>
  spatial.kernel "bands" from "Conv_0" (%p0 = parallel 1000, %n = parallel 16, %c1 = contracted 1000, %c2 = contracted 1000, %c3 = contracted 1000, %c4 = contracted 1000, %c5 = contracted 1000, %c6 = contracted 1000, %c7 = contracted 1000, %c8 = contracted 1000) {
    spatial.term %x[%p0, %c1] * %w[%n, %c1]
    spatial.term %x[%p0, %c2] * %w[%n, %c2]
    spatial.term %x[%p0, %c3] * %w[%n, %c3]
    spatial.term %x[%p0, %c4] * %w[%n, %c4]
    spatial.term %x[%p0, %c5] * %w[%n, %c5]
    spatial.term %x[%p0, %c6] * %w[%n, %c6]
    spatial.term %x[%p0, %c7] * %w[%n, %c7]
    spatial.term %x[%p0, %c8] * %w[%n, %c8]
    %0 = spatial.accumulator
    spatial.write %0 to %y[%p0, %n]
  }
}
