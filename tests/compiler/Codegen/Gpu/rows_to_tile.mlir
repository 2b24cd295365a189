// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What works row by row is one kernel: rows that a thread block's registers hold are read once,
// longer ones in a loop, short ones by a lane each; what another order would change is not fused.
// RUN: millrace opt %s --pass=rows-to-tile | FileCheck %s
// RUN: millrace opt %s --pass=rows-to-tile --pass=tile-to-hopper | FileCheck %s --check-prefix=THREAD

#m = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
#r = affine_map<(d0, d1) -> (d0)>

// The mean of a row is taken off. The sums are not stored, as nobody reads them afterwards.
// CHECK-LABEL: func.func @long
// CHECK-NOT: linalg
// CHECK-NOT: memref.alloc
// CHECK: tile.launch @rows_1
// CHECK: return
func.func @long(%x: memref<6x2000xf32>, %y: memref<6x2000xf32>) {
  %z = arith.constant 0.0 : f32
  %n = arith.constant 2000.0 : f32
  %s = memref.alloc() : memref<6xf32>
  linalg.fill ins(%z : f32) outs(%s : memref<6xf32>)
  linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<6x2000xf32>) outs(%s : memref<6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : memref<6x2000xf32>, memref<6xf32>) outs(%y : memref<6x2000xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %b, %n : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  }
  memref.dealloc %s : memref<6xf32>
  return
}

// Each lane has a row, so that sums keep their order.
// CHECK-LABEL: func.func @short
// CHECK: tile.launch @rows_2
func.func @short(%x: memref<100x5xf32>, %s: memref<100xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%s : memref<100xf32>)
  linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<100x5xf32>) outs(%s : memref<100xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  }
  return
}

// The second operation writes turned what the first reads: other rows would be lost.
// CHECK-LABEL: func.func @turned
// CHECK: tile.launch @rows_3
// CHECK: linalg.generic
func.func @turned(%x: memref<64x64xf32>, %s: memref<64xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%s : memref<64xf32>)
  linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<64x64xf32>) outs(%s : memref<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %o, %a : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#r, #t], iterator_types = ["parallel", "parallel"]}
      ins(%s : memref<64xf32>) outs(%x : memref<64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// What a loop leaves for its next round is stored.
// CHECK-LABEL: func.func @again
// CHECK: scf.for
// CHECK: linalg.copy
// CHECK: tile.launch @rows_3
func.func @again(%x: memref<64x64xf32>, %y: memref<64xf32>) {
  %z = arith.constant 0.0 : f32
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %2 = arith.constant 2 : index
  %s = memref.alloc() : memref<64xf32>
  linalg.fill ins(%z : f32) outs(%s : memref<64xf32>)
  scf.for %i = %0 to %2 step %1 {
    linalg.copy ins(%s : memref<64xf32>) outs(%y : memref<64xf32>)
    linalg.fill ins(%z : f32) outs(%s : memref<64xf32>)
    linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
        ins(%x : memref<64x64xf32>) outs(%s : memref<64xf32>) {
    ^bb0(%a: f32, %o: f32):
      %v = arith.maximumf %o, %a : f32
      linalg.yield %v : f32
    }
  }
  memref.dealloc %s : memref<64xf32>
  return
}

// A private function may be called with one memory for both: what lies there is not known.
// CHECK-LABEL: func.func private @inner
// CHECK: linalg.generic
func.func private @inner(%x: memref<64x64xf32>, %s: memref<64xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%s : memref<64xf32>)
  linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<64x64xf32>) outs(%s : memref<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.maximumf %o, %a : f32
    linalg.yield %v : f32
  }
  return
}

// A product of matrices is no work on rows.
// CHECK-LABEL: func.func @product
// CHECK: linalg.matmul
func.func @product(%x: memref<64x64xf32>, %y: memref<64x64xf32>, %o: memref<64x64xf32>) {
  linalg.matmul ins(%x, %y : memref<64x64xf32>, memref<64x64xf32>) outs(%o : memref<64x64xf32>)
  return
}

// More than the registers of a multiprocessor: each reduction reads its row again.
// CHECK-LABEL: func.func @longest
// CHECK: tile.launch @rows_4
func.func @longest(%x: memref<6x200000xf32>, %y: memref<6x200000xf32>, %s: memref<6xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%s : memref<6xf32>)
  linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<6x200000xf32>) outs(%s : memref<6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : memref<6x200000xf32>, memref<6xf32>) outs(%y : memref<6x200000xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.divf %a, %b : f32
    linalg.yield %1 : f32
  }
  return
}

// What the sum is of is a result, too: it is stored ahead of the reduction, and kept no longer than
// that is needed.
// CHECK-LABEL: func.func @early
// CHECK: tile.launch @rows_5
func.func @early(%x: memref<6x2048xf32>, %e: memref<6x2048xf32>, %s: memref<6xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%s : memref<6xf32>)
  linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<6x2048xf32>) outs(%e : memref<6x2048xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%e : memref<6x2048xf32>) outs(%s : memref<6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  }
  return
}

// All of the row is read ahead of the sum, and not again.
// CHECK: tile.kernel @rows_1
// CHECK-SAME: lanes = 1024 : i32, programs = 6 : i32, tile.registers = 64 : i32
// CHECK-NOT: scf.for
// CHECK-COUNT-2: tile.load
// CHECK: arith.select
// CHECK: tile.reduce addf
// CHECK-NOT: tile.load
// CHECK-COUNT-2: tile.store
// CHECK: tile.kernel @rows_2
// CHECK-SAME: lanes = 128 : i32, programs = 1 : i32
// CHECK: scf.for
// CHECK-NOT: tile.reduce
// CHECK: tile.store
// CHECK: tile.kernel @rows_3
// CHECK-SAME: lanes = 64 : i32, programs = 64 : i32
// CHECK: tile.reduce maximumf
// CHECK: tile.kernel @rows_4
// CHECK-SAME: lanes = 1024 : i32, programs = 6 : i32
// CHECK: scf.for
// CHECK: tile.reduce addf
// The division is one for each row, with products and what they leave over for its elements.
// CHECK: arith.divf
// CHECK: scf.for
// CHECK: tile.load
// CHECK: math.fma
// CHECK-NOT: arith.divf
// CHECK: tile.store
// CHECK: tile.kernel @rows_5
// CHECK-COUNT-2: tile.load
// CHECK-COUNT-2: tile.store
// CHECK: tile.reduce addf

// Four neighbouring elements of a row are one access.
// THREAD: hopper.kernel @rows_1
// THREAD-SAME: threads = 256 : i32, tile.programs = 6 : i32
// THREAD: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// THREAD-COUNT-5: hopper.shuffle_xor
