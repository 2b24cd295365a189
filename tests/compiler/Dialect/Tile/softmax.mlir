// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One kernel with every operation but the launch: back as text, as loops of a CPU and as a GPU thread.
// RUN: millrace opt %s | millrace opt - | FileCheck %s --check-prefix=TEXT
// RUN: millrace opt %s --pass=tile-to-loops | FileCheck %s --check-prefix=LOOPS
// RUN: millrace opt %s --pass=tile-to-hopper --pass=cse | FileCheck %s --check-prefix=THREAD
// RUN: millrace opt %s --pass=tile-to-hopper --ptx sm_80 | FileCheck %s --check-prefix=PTX
// RUN: millrace opt %s --pass=tile-to-hopper --ptx sm_100 | FileCheck %s --check-prefix=PTX

// TEXT: tile.kernel @softmax(%{{.*}}: memref<5x1000xf32>, %{{.*}}: memref<5x1000xf32>) attributes {lanes = 1024 : i32, programs = 5 : i32}
// TEXT: tile.load %{{.*}}[%{{.*}}, %{{.*}}] where %{{.*}} else %{{.*}} : (memref<5x1000xf32>, index, vector<1024xindex>, vector<1024xi1>, f32) -> vector<1024xf32>
// TEXT: tile.reduce maximumf %{{.*}} : vector<1024xf32>
// TEXT: tile.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}] where %{{.*}} : vector<1024xf32>, memref<5x1000xf32>, index, vector<1024xindex>, vector<1024xi1>

// Three loops over lanes, as lanes meet twice; each reduction is one more.
// LOOPS: func.func private @softmax
// LOOPS: scf.for
// LOOPS: memref.load %arg0
// LOOPS: arith.maximumf
// LOOPS: math.exp
// LOOPS: arith.addf
// LOOPS: memref.store %{{.*}}, %arg1

// A thread has four lanes, which are one access of 16 bytes.
// THREAD: hopper.kernel @softmax(%{{.*}}: !llvm.ptr<1>, %{{.*}}: !llvm.ptr<1>)
// THREAD-SAME: threads = 256 : i32, tile.programs = 5 : i32
// THREAD: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// THREAD-COUNT-5: hopper.shuffle_xor
// THREAD: hopper.shared_store
// THREAD: hopper.cta_barrier
// THREAD-COUNT-8: hopper.shared_load
// THREAD: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>

// PTX: .visible .entry softmax(
// PTX: ld.global{{.*}}.{{v4.b32|v2.b64}}
// PTX: shfl.sync.bfly.b32
// PTX: bar.sync
// PTX: st.global{{.*}}.{{v4.b32|v2.b64}}
tile.kernel @softmax(%x: memref<5x1000xf32>, %y: memref<5x1000xf32>)
    attributes {lanes = 1024 : i32, programs = 5 : i32} {
  %row = tile.program_id
  %column = tile.iota : vector<1024xindex>
  %n = arith.constant 1000 : index
  %end = tile.broadcast %n : vector<1024xindex>
  %inside = arith.cmpi ult, %column, %end : vector<1024xindex>
  %low = arith.constant 0xFF800000 : f32
  %v = tile.load %x[%row, %column] where %inside else %low
      : (memref<5x1000xf32>, index, vector<1024xindex>, vector<1024xi1>, f32) -> vector<1024xf32>
  %most = tile.reduce maximumf %v : vector<1024xf32>
  %m = tile.broadcast %most : vector<1024xf32>
  %d = arith.subf %v, %m : vector<1024xf32>
  %e = math.exp %d : vector<1024xf32>
  %sum = tile.reduce addf %e : vector<1024xf32>
  %s = tile.broadcast %sum : vector<1024xf32>
  %q = arith.divf %e, %s : vector<1024xf32>
  tile.store %q, %y[%row, %column] where %inside
      : vector<1024xf32>, memref<5x1000xf32>, index, vector<1024xindex>, vector<1024xi1>
  tile.return
}
