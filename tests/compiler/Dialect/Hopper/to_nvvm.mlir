// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations become upstream's; what those lack is inline PTX that is tied to its accumulator.
// RUN: millrace opt %s --pass=hopper-to-nvvm | FileCheck %s

// CHECK: llvm.mlir.global external @hopper_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
// CHECK: llvm.func @places(%arg0: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, llvm.noundef, nvvm.grid_constant}, %arg1: i32)
// CHECK-SAME: nvvm.cluster_dim = array<i32: 2, 1, 1>, nvvm.kernel, nvvm.maxnreg = 168 : i32, nvvm.minctasm = 1 : i32, nvvm.reqntid = array<i32: 384, 1, 1>
hopper.kernel @places(%map: !hopper.tensor_map<64x64xbf16, swizzle 128>, %n: i32)
    attributes {threads = 384 : i32, registers = 168 : i32, shared_memory = 65536 : i32, cluster = 2 : i32} {
  %0 = arith.constant 0 : i32
  %bar = arith.constant 65528 : i32
  %mask = arith.constant 3 : i16
  // CHECK: %[[TID:.*]] = nvvm.read.ptx.sreg.tid.x
  // CHECK: %[[WG:.*]] = llvm.lshr %[[TID]], %{{.*}} : i32
  // CHECK: nvvm.shfl.sync idx %{{.*}}, %[[WG]]
  %warpgroup = hopper.warpgroup_id
  // CHECK: nvvm.read.ptx.sreg.cluster.ctarank
  %rank = hopper.cluster_rank
  // CHECK: nvvm.read.ptx.sreg.ctaid.y
  %y = hopper.cta_id y
  %at = arith.addi %y, %warpgroup : i32
  // CHECK: %[[ONE:.*]] = nvvm.elect.sync -> i1
  %one = hopper.elect
  // CHECK: nvvm.mbarrier.init %{{.*}}, %{{.*}} : !llvm.ptr<3>, i32
  hopper.mbarrier_init %bar count 4
  // CHECK: nvvm.fence.mbarrier.init
  hopper.fence_mbarrier_init
  // CHECK: nvvm.cluster.arrive {aligned}
  hopper.cluster_arrive
  // CHECK: nvvm.cluster.wait {aligned}
  hopper.cluster_wait
  // CHECK: scf.if %[[ONE]]
  scf.if %one {
    // CHECK: nvvm.setmaxregister decrease 40
    hopper.set_max_registers decrease 40 warpgroups 1
    // CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}} : !llvm.ptr<3>, i32
    hopper.mbarrier_arrive_expect %bar bytes 24576
    // PTX names the innermost coordinate first.
    // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %arg0, %{{.*}}, box[%{{.*}}, %arg1] : !llvm.ptr<7>, !llvm.ptr
    hopper.tma_load %map[%n, %0] to %0 signal %bar : !hopper.tensor_map<64x64xbf16, swizzle 128>
    // CHECK: multicast_mask = %{{.*}} : !llvm.ptr<7>, !llvm.ptr
    hopper.tma_load %map[%n, %0] to %0 signal %bar multicast %mask : !hopper.tensor_map<64x64xbf16, swizzle 128>
  } else {
    // CHECK: nvvm.setmaxregister increase 232
    hopper.set_max_registers increase 232 warpgroups 2
  }
  // CHECK: nvvm.mbarrier.arrive %{{.*}} : !llvm.ptr<3>
  hopper.mbarrier_arrive %bar
  // CHECK: %[[REMOTE:.*]] = nvvm.mapa %{{.*}} : !llvm.ptr<3> -> !llvm.ptr<7>
  // CHECK: nvvm.mbarrier.arrive %[[REMOTE]] {scope = #nvvm.mem_scope<cluster>} : !llvm.ptr<7>
  hopper.mbarrier_arrive %bar cta %rank
  // CHECK: nvvm.mbarrier.try_wait.parity
  hopper.mbarrier_wait %bar parity %at
  // CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
  hopper.fence_async
  // CHECK: nvvm.barrier{{$}}
  hopper.cta_barrier
  // CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %{{.*}}
  hopper.named_barrier 1 threads 256
  // CHECK: nvvm.cp.async.bulk.tensor.global.shared.cta %arg0, %{{.*}}, box[%{{.*}}, %arg1]
  hopper.tma_store %0 to %map[%n, %0] : !hopper.tensor_map<64x64xbf16, swizzle 128>
  // CHECK: nvvm.cp.async.bulk.commit.group
  hopper.tma_store_commit
  // CHECK: nvvm.cp.async.bulk.wait_group 0 {read}
  hopper.tma_store_wait 0 read
  // CHECK: llvm.return
  hopper.return
}

// CHECK-LABEL: llvm.func @tensor_cores
hopper.kernel @tensor_cores() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  // 2^62 (swizzle) + 64 * 2^32 (stride) + 2^16 (leading offset).
  // CHECK: llvm.mlir.constant(4611686293305360384 : i64)
  %d = hopper.matrix_descriptor %0 stride 1024
  // CHECK: llvm.mlir.zero : !llvm.struct<(f32, f32, f32, f32)>
  %a = hopper.accumulator_zero : !hopper.accumulator<64x8xf32>
  // CHECK: nvvm.wgmma.fence.aligned
  %f:2 = hopper.wgmma_fence %a, %a : (!hopper.accumulator<64x8xf32>, !hopper.accumulator<64x8xf32>) -> (!hopper.accumulator<64x8xf32, in_flight>, !hopper.accumulator<64x8xf32, in_flight>)
  // CHECK: nvvm.wgmma.mma_async
  // CHECK-SAME: <m = 64, n = 8, k = 16>, D[<f32>, <one>], A[<bf16>, <one>, <row>], B[<bf16>, <one>, <col>]
  %s = hopper.wgmma %f#0, %d, %d bf16 : !hopper.accumulator<64x8xf32, in_flight>
  // CHECK: llvm.inline_asm has_side_effects asm_dialect = att "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, {$8, $9, $10, $11}, $12, p, 1, 1, 0; }", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,l"
  %r = hopper.wgmma_rs %f#1, [%0, %0, %0, %0], %d f16 : !hopper.accumulator<64x8xf32, in_flight>
  // CHECK: nvvm.wgmma.commit.group.sync.aligned
  hopper.wgmma_commit
  // Only what is complete goes through the wait.
  // CHECK: llvm.inline_asm has_side_effects asm_dialect = att "wgmma.wait_group.sync.aligned 1;", "=f,=f,=f,=f,0,1,2,3"
  %w:2 = hopper.wgmma_wait 1, %s, %r : (!hopper.accumulator<64x8xf32, in_flight>, !hopper.accumulator<64x8xf32, in_flight>) -> (!hopper.accumulator<64x8xf32>, !hopper.accumulator<64x8xf32, in_flight>)
  // CHECK: nvvm.wgmma.wait.group.sync.aligned 1
  %u = hopper.wgmma_wait 1, %w#1 : (!hopper.accumulator<64x8xf32, in_flight>) -> !hopper.accumulator<64x8xf32, in_flight>
  // CHECK: "wgmma.wait_group.sync.aligned 0;"
  %v = hopper.wgmma_wait 0, %u : (!hopper.accumulator<64x8xf32, in_flight>) -> !hopper.accumulator<64x8xf32>
  // CHECK: llvm.insertvalue %{{.*}}[3] : !llvm.struct<(f32, f32, f32, f32)>
  // CHECK-NEXT: %[[X:.*]] = llvm.extractvalue %{{.*}}[3] : !llvm.struct<(f32, f32, f32, f32)>
  %x = hopper.accumulator_read %v[3] : !hopper.accumulator<64x8xf32>
  %z = hopper.accumulator_read %w#0[0] : !hopper.accumulator<64x8xf32>
  // CHECK: llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %{{.*}} : (f32) -> f32
  %y = hopper.exp2 %z
  // The first value is the low half, which PTX names last.
  // CHECK: nvvm.convert.f32x2.to.bf16x2 %{{.*}}, %[[X]] {rnd = #nvvm.fp_rnd_mode<rn>} : vector<2xbf16>
  %p = hopper.pack %x, %y bf16
  // CHECK: nvvm.convert.f32x2.to.f16x2 %[[X]], %{{.*}} {rnd = #nvvm.fp_rnd_mode<rn>} : vector<2xf16>
  %q = hopper.pack %y, %x f16
  // CHECK: llvm.inline_asm has_side_effects asm_dialect = att "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13}, {$0, $1, $2, $3};", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r" %[[X]], %{{.*}}, %[[X]], %{{.*}}, %{{.*}}
  %m:4 = hopper.mma [%p, %q, %p, %q], [%p, %q], [%x, %y, %x, %y] f16
  // CHECK: nvvm.stmatrix %{{.*}} {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>}
  hopper.stmatrix %0, [%p, %q, %p, %q]
  hopper.return
}
