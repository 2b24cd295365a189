// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lanes with rows: products, elementwise work on rows, and what combines them; back as text, as
// loops of a CPU, as a GPU thread.
// RUN: millrace opt %s | millrace opt - | FileCheck %s --check-prefix=TEXT
// RUN: millrace opt %s --pass=tile-to-loops | FileCheck %s --check-prefix=LOOPS
// RUN: millrace opt %s --pass=tile-to-hopper | FileCheck %s --check-prefix=THREAD
// RUN: millrace opt %s --pass=tile-to-hopper --ptx sm_80 | FileCheck %s --check-prefix=PTX
// RUN: millrace opt %s --pass=tile-to-hopper --ptx sm_100 | FileCheck %s --check-prefix=PTX

// TEXT: tile.load_rows %{{.*}}[%{{.*}}, %{{.*}}] along 1 where %{{.*}} : (memref<30x16xf16>, vector<32xindex>, index, vector<32xi1>) -> vector<32x16xf16>
// TEXT: tile.load_table %{{.*}}[%{{.*}}, %{{.*}}] along[0, 1] : (memref<20x16xf16>, index, index) -> vector<24x16xf16>
// TEXT: tile.dot %{{.*}}, %{{.*}}, %{{.*}} : vector<32x16xf16>, vector<24x16xf16>, vector<32x24xf32>
// TEXT: tile.columns : vector<32x24xi32>
// TEXT: tile.reduce_rows maximumf %{{.*}} : vector<32x24xf32> -> vector<32xf32>
// TEXT: tile.spread %{{.*}} : vector<32xf32> -> vector<32x24xf32>
// TEXT: tile.store_rows %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}] along 1 where %{{.*}} : vector<32x24xf32>, memref<30x20xf32>, vector<32xindex>, index, vector<32xi1>

// One loop over lanes; in it loops over what is read and multiplied.
// LOOPS: func.func private @scores
// LOOPS: arith.mulf
// LOOPS: arith.addf
// LOOPS: vector.load

// Two warps have sixteen lanes each, a thread two of them; four threads share a row.
// THREAD: hopper.kernel @scores
// THREAD-SAME: threads = 64 : i32
// THREAD: llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> vector<2xf16>
// THREAD-COUNT-3: hopper.mma
// THREAD-NOT: hopper.mma
// THREAD: hopper.shuffle_xor %{{.*}} mask 1
// THREAD: hopper.shuffle_xor %{{.*}} mask 2
// THREAD: llvm.store %{{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<1>

// PTX: .visible .entry scores(
// PTX: ld.global{{.*}}b32
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// PTX: shfl.sync.bfly.b32
tile.kernel @scores(%q: memref<30x16xf16>, %k: memref<20x16xf16>, %y: memref<30x20xf32>)
    attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  %lane = tile.iota : vector<32xindex>
  %end = arith.constant dense<30> : vector<32xindex>
  %inside = arith.cmpi ult, %lane, %end : vector<32xindex>
  %rows = tile.load_rows %q[%lane, %0] along 1 where %inside
      : (memref<30x16xf16>, vector<32xindex>, index, vector<32xi1>) -> vector<32x16xf16>
  %table = tile.load_table %k[%0, %0] along [0, 1] : (memref<20x16xf16>, index, index) -> vector<24x16xf16>
  %zero = arith.constant dense<0.0> : vector<32x24xf32>
  %s = tile.dot %rows, %table, %zero : vector<32x16xf16>, vector<24x16xf16>, vector<32x24xf32>
  %column = tile.columns : vector<32x24xi32>
  %n = arith.constant dense<20> : vector<32x24xi32>
  %isKey = arith.cmpi ult, %column, %n : vector<32x24xi32>
  %low = arith.constant dense<0xFF800000> : vector<32x24xf32>
  %t = arith.select %isKey, %s, %low : vector<32x24xi1>, vector<32x24xf32>
  %most = tile.reduce_rows maximumf %t : vector<32x24xf32> -> vector<32xf32>
  %m = tile.spread %most : vector<32xf32> -> vector<32x24xf32>
  %d = arith.subf %t, %m : vector<32x24xf32>
  tile.store_rows %d, %y[%lane, %0] along 1 where %inside
      : vector<32x24xf32>, memref<30x20xf32>, vector<32xindex>, index, vector<32xi1>
  tile.return
}
