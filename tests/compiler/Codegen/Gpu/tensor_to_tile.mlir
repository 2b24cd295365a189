// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whatever linalg holds becomes kernels; elementwise chains become one; equal kernels are shared.
// RUN: millrace opt %s --pass=tensor-to-tile | FileCheck %s
// RUN: millrace opt %s --pass=tensor-to-tile --pass=tile-to-hopper --ptx sm_90a | FileCheck %s --check-prefix=PTX

#id = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @chain
// CHECK: tile.launch @map_1
// CHECK-NOT: linalg
func.func @chain(%x: tensor<256xf32>, %y: tensor<256xf32>) -> tensor<256xf32> {
  %e = tensor.empty() : tensor<256xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<256xf32>, tensor<256xf32>) outs(%e : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<256xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%0 : tensor<256xf32>) outs(%e : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.mulf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<256xf32>
  return %1 : tensor<256xf32>
}

// An index that is data reads no other than its tensor's elements.
// CHECK-LABEL: func.func @gather
// CHECK: tile.launch @gather_
func.func @gather(%x: tensor<7xf32>, %at: tensor<100xi64>) -> tensor<100xf32> {
  %e = tensor.empty() : tensor<100xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%at : tensor<100xi64>) outs(%e : tensor<100xf32>) {
  ^bb0(%a: i64, %o: f32):
    %i = arith.index_cast %a : i64 to index
    %v = tensor.extract %x[%i] : tensor<7xf32>
    linalg.yield %v : f32
  } -> tensor<100xf32>
  return %0 : tensor<100xf32>
}

// CHECK: tile.kernel @map_1
// CHECK-SAME: lanes = 256 : i32, programs = 1 : i32
// CHECK: arith.addf %{{.*}} : vector<256xf32>
// CHECK: arith.mulf %{{.*}} : vector<256xf32>
// CHECK: tile.kernel @gather_
// CHECK-SAME: lanes = 128 : i32, programs = 1 : i32
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: tile.load %{{.*}} where

// PTX: .entry map_1
// PTX: ld.global{{.*}}.v4
// PTX: .entry gather_
