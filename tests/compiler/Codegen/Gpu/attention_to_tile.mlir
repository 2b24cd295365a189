// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention at the tensor level as one kernel: tokens before heads, as Q, K and V lie in memory, and
// a mask that is read with the scores.
// RUN: millrace opt %s --pass=attention-to-tile | FileCheck %s
// RUN: millrace opt %s --pass='attention-to-tile{type=bf16}' --pass=tensor-to-tile --pass=tile-to-hopper --ptx sm_80 | FileCheck %s --check-prefix=PTX
// RUN: not millrace opt %s --pass='attention-to-tile{type=f32}' 2>&1 | FileCheck %s --check-prefix=TYPE

// CHECK: func.func @main
// CHECK-NOT: math.exp
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: %[[Q:.*]] = bufferization.to_buffer %{{.*}} read_only : tensor<10x2x16xf16> to memref<10x2x16xf16>
// CHECK: %[[K:.*]] = bufferization.to_buffer %{{.*}} read_only : tensor<20x2x16xf16> to memref<20x2x16xf16>
// CHECK: %[[M:.*]] = bufferization.to_buffer %arg3 read_only : tensor<10x20xf32> to memref<10x20xf32>
// CHECK: tile.launch @attention_1(%[[Q]], %[[K]], %{{.*}}, %[[M]], %{{.*}})
// CHECK-NOT: linalg.generic
// CHECK: tile.kernel @attention_1
// CHECK-SAME: lanes = 64 : i32, programs = 2 : i32
// CHECK: scf.for
// CHECK: tile.load_table %arg1{{.*}} along[0, 2]
// CHECK: tile.load_rows %arg3{{.*}} along 1
// CHECK: tile.load_table %arg2{{.*}} along[2, 0]

// PTX: .entry attention_1
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32

// TYPE: error: {{.*}}type 'f32' of attention-to-tile; use bf16 or f16
#q = affine_map<(h, q, k, d) -> (q, h, d)>
#k = affine_map<(h, q, k, d) -> (k, h, d)>
#s = affine_map<(h, q, k, d) -> (h, q, k)>
#v = affine_map<(h, q, d, k) -> (k, h, d)>
#w = affine_map<(h, q, d, k) -> (h, q, k)>
#o = affine_map<(h, q, d, k) -> (q, h, d)>
#all = affine_map<(h, q, k) -> (h, q, k)>
#row = affine_map<(h, q, k) -> (h, q)>
#mask = affine_map<(h, q, k) -> (q, k)>
func.func @main(%q: tensor<10x2x16xf32>, %k: tensor<20x2x16xf32>, %v: tensor<20x2x16xf32>, %mask: tensor<10x20xf32>) -> tensor<10x2x16xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x10x20xf32>
  %er = tensor.empty() : tensor<2x10xf32>
  %eo = tensor.empty() : tensor<10x2x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x10x20xf32>) -> tensor<2x10x20xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<10x2x16xf32>, tensor<20x2x16xf32>) outs(%f : tensor<2x10x20xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x10x20xf32>
  %m = linalg.generic {indexing_maps = [#all, #mask, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %mask : tensor<2x10x20xf32>, tensor<10x20xf32>) outs(%e : tensor<2x10x20xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x10x20xf32>
  %fl = linalg.fill ins(%low : f32) outs(%er : tensor<2x10xf32>) -> tensor<2x10xf32>
  %most = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m : tensor<2x10x20xf32>) outs(%fl : tensor<2x10xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<2x10xf32>
  %exp = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %most : tensor<2x10x20xf32>, tensor<2x10xf32>) outs(%e : tensor<2x10x20xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x10x20xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<2x10xf32>) -> tensor<2x10xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%exp : tensor<2x10x20xf32>) outs(%fz : tensor<2x10xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<2x10xf32>
  %w = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%exp, %sum : tensor<2x10x20xf32>, tensor<2x10xf32>) outs(%e : tensor<2x10x20xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x10x20xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<10x2x16xf32>) -> tensor<10x2x16xf32>
  %out = linalg.generic {indexing_maps = [#w, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%w, %v : tensor<2x10x20xf32>, tensor<20x2x16xf32>) outs(%fo : tensor<10x2x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<10x2x16xf32>
  return %out : tensor<10x2x16xf32>
}
