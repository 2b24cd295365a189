// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel of an attention from the command line: at the tile level, as a GPU thread, as PTX; and
// what is refused.
// RUN: millrace opt %s --pass='build-attention{name=attend query-heads=8 key-heads=2 queries=100 keys=130 causal=true window=40 scale=0.125 softcap=30 sinks=true}' -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: millrace opt %t.mlir --pass=tile-to-hopper --pass=canonicalize --pass=cse | FileCheck %s --check-prefix=THREAD
// RUN: millrace opt %t.mlir --pass=tile-to-hopper --ptx sm_80 | FileCheck %s --check-prefix=PTX
// RUN: millrace opt %t.mlir --pass=tile-to-loops | FileCheck %s --check-prefix=LOOPS
// RUN: not millrace opt %s --pass='build-attention{query-heads=3 key-heads=2}' 2>&1 | FileCheck %s --check-prefix=HEADS
// RUN: not millrace opt %s --pass='build-attention{type=f32}' 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not millrace opt %t.mlir --pass='build-attention{name=attend}' 2>&1 | FileCheck %s --check-prefix=NAME

// Four heads share one of K and V: 400 rows, 64 a program, for two heads of K.
// CHECK: tile.kernel @attend(%arg0: memref<1x8x100x64xf16>, %arg1: memref<1x2x130x64xf16>, %arg2: memref<1x2x130x64xf16>, %arg3: memref<8xf32>, %arg4: memref<1x8x100x64xf32>)
// CHECK-SAME: lanes = 64 : i32, programs = 14 : i32
// CHECK: tile.load_rows %arg0
// CHECK: tile.load %arg3
// CHECK: scf.for
// CHECK: tile.load_table %arg1{{.*}} along[2, 3]
// CHECK: tile.dot
// CHECK: math.tanh
// CHECK: tile.reduce_rows maximumf
// CHECK: tile.reduce_rows addf
// CHECK: tile.load_table %arg2{{.*}} along[3, 2]
// CHECK: tile.dot
// CHECK: tile.store_rows %{{.*}}, %arg4

// Of 32 keys and 64 elements of depth: 4 x 4 products, then 8 x 2. Scores do not leave registers.
// THREAD: hopper.kernel @attend
// THREAD-SAME: threads = 128 : i32
// THREAD: scf.for
// THREAD-COUNT-16: hopper.mma
// THREAD-COUNT-8: hopper.shuffle_xor
// THREAD-COUNT-16: hopper.mma
// THREAD-NOT: hopper.mma
// THREAD-NOT: hopper.shared_store

// PTX: .entry attend
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32

// LOOPS: func.func private @attend
// LOOPS: math.tanh

// HEADS: error: {{.*}}attention has query heads: 3; give a multiple of the 2 key heads
// TYPE: error: {{.*}}type 'f32' of build-attention; use bf16 or f16
// NAME: error: {{.*}}the module has 'attend' already; choose another name
module {}
