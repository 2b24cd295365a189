// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product with its bias, activation and residual is one kernel: rows are rounded as they are read,
// weights where they are multiplied, and what follows works on the sums in registers.
// RUN: millrace opt %s --pass=fused-products-to-tile | FileCheck %s
// RUN: millrace opt %s --pass='fused-products-to-tile{type=bf16}' --pass=tensor-to-tile --pass=tile-to-hopper --ptx sm_80 | FileCheck %s --check-prefix=PTX
// RUN: not millrace opt %s --pass='fused-products-to-tile{type=f32}' 2>&1 | FileCheck %s --check-prefix=TYPE

#m = affine_map<(d0, d1) -> (d0, d1)>
#c = affine_map<(d0, d1) -> (d1)>

// CHECK: func.func @main
// CHECK-NOT: linalg.matmul
// CHECK: tile.launch @product_1(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : memref<70x40xf32>, memref<40x100xf32>, memref<100xf32>, memref<70x100xf32>, memref<70x100xf32>
// CHECK-NOT: linalg.generic
// CHECK: tile.kernel @product_1
// CHECK-SAME: lanes = 64 : i32, programs = 4 : i32
// CHECK: scf.for
// CHECK: %[[ROWS:.*]] = tile.load_rows %arg0{{.*}} -> vector<64x32xf32>
// CHECK: arith.truncf %[[ROWS]] : vector<64x32xf32> to vector<64x32xf16>
// CHECK: tile.compute_table{{ ?}}[%{{.*}}, %{{.*}}] upto{{ ?}}[100, 40] : vector<64x32xf16>
// CHECK: tile.load %arg1
// CHECK: arith.truncf {{.*}} : f32 to f16
// CHECK: tile.yield
// CHECK: tile.dot
// CHECK: tile.load_rows %arg2[%{{.*}}] along 0 {{.*}} -> vector<64x64xf32>
// CHECK: arith.addf
// CHECK: arith.maximumf
// CHECK: tile.load_rows %arg3
// CHECK: arith.addf
// CHECK: tile.store_rows
func.func @main(%a: tensor<70x40xf32>, %b: tensor<40x100xf32>, %bias: tensor<100xf32>, %r: tensor<70x100xf32>) -> tensor<70x100xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<70x100xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<70x100xf32>) -> tensor<70x100xf32>
  %x = linalg.matmul ins(%a, %b : tensor<70x40xf32>, tensor<40x100xf32>) outs(%f : tensor<70x100xf32>) -> tensor<70x100xf32>
  %y = linalg.generic {indexing_maps = [#m, #c, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %bias : tensor<70x100xf32>, tensor<100xf32>) outs(%e : tensor<70x100xf32>) {
  ^bb0(%0: f32, %1: f32, %o: f32):
    %2 = arith.addf %0, %1 : f32
    %3 = arith.maximumf %2, %z : f32
    linalg.yield %3 : f32
  } -> tensor<70x100xf32>
  %s = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%y, %r : tensor<70x100xf32>, tensor<70x100xf32>) outs(%e : tensor<70x100xf32>) {
  ^bb0(%0: f32, %1: f32, %o: f32):
    %2 = arith.addf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<70x100xf32>
  return %s : tensor<70x100xf32>
}

// PTX: .entry product_1
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32

// TYPE: type 'f32' of fused-products-to-tile; use bf16 or f16
