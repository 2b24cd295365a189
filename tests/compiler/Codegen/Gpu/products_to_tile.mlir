// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What multiplies 16-bit tensors that were widened multiplies them as they are, on tensor cores;
// products of fp32 stay as they were.
// RUN: millrace opt %s --pass=narrow-products | FileCheck %s --check-prefix=NARROW
// RUN: millrace opt %s --pass=tensor-to-tile | FileCheck %s
// RUN: millrace opt %s --pass=tensor-to-tile --pass=tile-to-hopper --ptx sm_80 | FileCheck %s --check-prefix=PTX

#i = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#j = affine_map<(d0, d1) -> (d0, d1)>

// NARROW-LABEL: func.func @widened
// NARROW: tensor.collapse_shape %arg0 {{.*}} : tensor<2x35x40xf16> into tensor<70x40xf16>
// NARROW: linalg.generic {{.*}} ins(%{{.*}}, %arg1 : tensor<70x40xf16>, tensor<40x100xf16>)
// NARROW: arith.extf
// NARROW: arith.extf
// NARROW: arith.mulf
// CHECK-LABEL: func.func @widened
// CHECK: tile.launch @product_1
func.func @widened(%a: tensor<2x35x40xf16>, %b: tensor<40x100xf16>) -> tensor<70x100xf32> {
  %z = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<2x35x40xf32>
  %1 = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a : tensor<2x35x40xf16>) outs(%0 : tensor<2x35x40xf32>) {
  ^bb0(%x: f16, %o: f32):
    %w = arith.extf %x : f16 to f32
    linalg.yield %w : f32
  } -> tensor<2x35x40xf32>
  %2 = tensor.empty() : tensor<40x100xf32>
  %3 = linalg.generic {indexing_maps = [#j, #j], iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<40x100xf16>) outs(%2 : tensor<40x100xf32>) {
  ^bb0(%x: f16, %o: f32):
    %w = arith.extf %x : f16 to f32
    linalg.yield %w : f32
  } -> tensor<40x100xf32>
  %4 = tensor.collapse_shape %1 [[0, 1], [2]] : tensor<2x35x40xf32> into tensor<70x40xf32>
  %5 = tensor.empty() : tensor<70x100xf32>
  %6 = linalg.fill ins(%z : f32) outs(%5 : tensor<70x100xf32>) -> tensor<70x100xf32>
  %7 = linalg.matmul ins(%4, %3 : tensor<70x40xf32>, tensor<40x100xf32>) outs(%6 : tensor<70x100xf32>) -> tensor<70x100xf32>
  return %7 : tensor<70x100xf32>
}

// NARROW-LABEL: func.func @wide
// NARROW: linalg.matmul
// CHECK-LABEL: func.func @wide
// CHECK-NOT: @product
// CHECK: return
func.func @wide(%a: tensor<70x40xf32>, %b: tensor<40x100xf32>) -> tensor<70x100xf32> {
  %z = arith.constant 0.0 : f32
  %5 = tensor.empty() : tensor<70x100xf32>
  %6 = linalg.fill ins(%z : f32) outs(%5 : tensor<70x100xf32>) -> tensor<70x100xf32>
  %7 = linalg.matmul ins(%a, %b : tensor<70x40xf32>, tensor<40x100xf32>) outs(%6 : tensor<70x100xf32>) -> tensor<70x100xf32>
  return %7 : tensor<70x100xf32>
}

// Two tiles of 64 rows and two of 64 columns, 32 products at a time.
// CHECK: tile.kernel @product_1
// CHECK-SAME: lanes = 64 : i32, programs = 4 : i32
// CHECK: tile.load_rows {{.*}} along 1 where {{.*}} -> vector<64x64xf32>
// CHECK: scf.for
// CHECK: tile.load_rows {{.*}} along 1 where {{.*}} -> vector<64x32xf16>
// CHECK: tile.load_table {{.*}} along[1, 0] {{.*}} -> vector<64x32xf16>
// CHECK: tile.dot
// CHECK: tile.store_rows

// PTX: .entry product_1
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
