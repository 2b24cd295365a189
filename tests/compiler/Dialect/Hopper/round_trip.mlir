// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text of every operation verifies, and prints as it was written.
// RUN: millrace opt %s -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: millrace opt %t.mlir | diff %t.mlir -

// CHECK: hopper.kernel @everything(%arg0: !hopper.tensor_map<64x64xbf16, swizzle 128>, %arg1: !hopper.tensor_map<8x32xf32>, %arg2: !llvm.ptr<1>, %arg3: i32)
// CHECK-SAME: cluster = 2 : i32, registers = 168 : i32, shared_memory = 65536 : i32, threads = 384 : i32
hopper.kernel @everything(%map: !hopper.tensor_map<64x64xbf16, swizzle 128>, %plain: !hopper.tensor_map<8x32xf32>, %pointer: !llvm.ptr<1>, %n: i32)
    attributes {threads = 384 : i32, registers = 168 : i32, shared_memory = 65536 : i32, cluster = 2 : i32} {
  %0 = arith.constant 0 : i32
  %bar = arith.constant 65528 : i32
  %mask = arith.constant 3 : i16
  // CHECK: %[[THREAD:.*]] = hopper.thread_id
  %thread = hopper.thread_id
  // CHECK-NEXT: hopper.warpgroup_id
  %warpgroup = hopper.warpgroup_id
  // CHECK-NEXT: %[[RANK:.*]] = hopper.cluster_rank
  %rank = hopper.cluster_rank
  // CHECK-NEXT: hopper.cta_id x
  %x = hopper.cta_id x
  // CHECK-NEXT: hopper.cta_id y
  %y = hopper.cta_id y
  // CHECK-NEXT: hopper.cta_id z
  %z = hopper.cta_id z
  // CHECK-NEXT: %[[ONE:.*]] = hopper.elect
  %one = hopper.elect
  // CHECK-NEXT: hopper.mbarrier_init %[[BAR:.*]] count 4
  hopper.mbarrier_init %bar count 4
  // CHECK-NEXT: hopper.fence_mbarrier_init
  hopper.fence_mbarrier_init
  // CHECK-NEXT: hopper.cluster_arrive
  hopper.cluster_arrive
  // CHECK-NEXT: hopper.cluster_wait
  hopper.cluster_wait
  // CHECK-NEXT: hopper.cta_barrier
  hopper.cta_barrier
  // CHECK-NEXT: scf.if %[[ONE]]
  scf.if %one {
    // CHECK-NEXT: hopper.set_max_registers decrease 40 warpgroups 1
    hopper.set_max_registers decrease 40 warpgroups 1
    // CHECK-NEXT: hopper.mbarrier_arrive_expect %[[BAR]] bytes 25600
    hopper.mbarrier_arrive_expect %bar bytes 25600
    // CHECK-NEXT: hopper.tma_load %arg0[%arg3, %[[ZERO:.*]]] to %[[ZERO]] signal %[[BAR]] : !hopper.tensor_map<64x64xbf16, swizzle 128>
    hopper.tma_load %map[%n, %0] to %0 signal %bar : !hopper.tensor_map<64x64xbf16, swizzle 128>
    // CHECK-NEXT: hopper.tma_load %arg0[%arg3, %[[ZERO]]] to %[[ZERO]] signal %[[BAR]] multicast %{{.*}} : !hopper.tensor_map<64x64xbf16, swizzle 128>
    hopper.tma_load %map[%n, %0] to %0 signal %bar multicast %mask : !hopper.tensor_map<64x64xbf16, swizzle 128>
    hopper.tma_load %plain[%n, %0] to %0 signal %bar : !hopper.tensor_map<8x32xf32>
  } else {
    // CHECK: hopper.set_max_registers increase 232 warpgroups 2
    hopper.set_max_registers increase 232 warpgroups 2
  }
  // CHECK: hopper.mbarrier_arrive %[[BAR]]{{$}}
  hopper.mbarrier_arrive %bar
  // CHECK-NEXT: hopper.mbarrier_arrive %[[BAR]] cta %[[RANK]]
  hopper.mbarrier_arrive %bar cta %rank
  // CHECK-NEXT: hopper.mbarrier_wait %[[BAR]] parity %[[ZERO]]
  hopper.mbarrier_wait %bar parity %0
  // CHECK-NEXT: %[[D:.*]] = hopper.matrix_descriptor %[[ZERO]] stride 1024
  %d = hopper.matrix_descriptor %0 stride 1024
  // CHECK-NEXT: %[[A:.*]] = hopper.accumulator_zero : !hopper.accumulator<64x8xf32>
  %a = hopper.accumulator_zero : !hopper.accumulator<64x8xf32>
  // CHECK-NEXT: %[[F:.*]]:2 = hopper.wgmma_fence %[[A]], %[[A]] : (!hopper.accumulator<64x8xf32>, !hopper.accumulator<64x8xf32>) -> (!hopper.accumulator<64x8xf32, in_flight>, !hopper.accumulator<64x8xf32, in_flight>)
  %f:2 = hopper.wgmma_fence %a, %a : (!hopper.accumulator<64x8xf32>, !hopper.accumulator<64x8xf32>) -> (!hopper.accumulator<64x8xf32, in_flight>, !hopper.accumulator<64x8xf32, in_flight>)
  // CHECK-NEXT: %[[S:.*]] = hopper.wgmma %[[F]]#0, %[[D]], %[[D]] bf16 : !hopper.accumulator<64x8xf32, in_flight>
  %s = hopper.wgmma %f#0, %d, %d bf16 : !hopper.accumulator<64x8xf32, in_flight>
  // CHECK-NEXT: %[[R:.*]] = hopper.wgmma_rs %[[F]]#1, [%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}], %[[D]] f16 : !hopper.accumulator<64x8xf32, in_flight>
  %r = hopper.wgmma_rs %f#1, [%0, %0, %n, %x], %d f16 : !hopper.accumulator<64x8xf32, in_flight>
  // CHECK-NEXT: hopper.wgmma_commit
  hopper.wgmma_commit
  // CHECK-NEXT: %[[W:.*]]:2 = hopper.wgmma_wait 1, %[[S]], %[[R]] : ({{.*}}) -> (!hopper.accumulator<64x8xf32>, !hopper.accumulator<64x8xf32, in_flight>)
  %w:2 = hopper.wgmma_wait 1, %s, %r : (!hopper.accumulator<64x8xf32, in_flight>, !hopper.accumulator<64x8xf32, in_flight>) -> (!hopper.accumulator<64x8xf32>, !hopper.accumulator<64x8xf32, in_flight>)
  // CHECK-NEXT: hopper.wgmma_wait 0
  %v = hopper.wgmma_wait 0, %w#1 : (!hopper.accumulator<64x8xf32, in_flight>) -> !hopper.accumulator<64x8xf32>
  // CHECK-NEXT: %[[X:.*]] = hopper.accumulator_read %[[W]]#0[3] : !hopper.accumulator<64x8xf32>
  %value = hopper.accumulator_read %w#0[3] : !hopper.accumulator<64x8xf32>
  // CHECK-NEXT: %[[P:.*]] = hopper.pack %[[X]], %[[X]] f16
  %p = hopper.pack %value, %value f16
  // CHECK-NEXT: hopper.exp2 %[[X]]
  %power = hopper.exp2 %value
  // CHECK-NEXT: %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} = hopper.mma[%[[P]], %[[P]], %[[P]], %[[P]]], [%[[P]], %[[P]]], [%[[X]], %[[X]], %[[X]], %[[X]]] bf16
  %products:4 = hopper.mma [%p, %p, %p, %p], [%p, %p], [%value, %value, %value, %value] bf16
  // CHECK-NEXT: hopper.stmatrix %[[ZERO]], [%[[P]], %[[P]], %[[P]], %[[P]]]
  hopper.stmatrix %0, [%p, %p, %p, %p]
  // CHECK-NEXT: hopper.fence_async
  hopper.fence_async
  // CHECK-NEXT: hopper.named_barrier 15 threads 256{{$}}
  hopper.named_barrier 15 threads 256
  // CHECK-NEXT: hopper.named_barrier 14 threads 256 after %[[P]], %[[P]]
  hopper.named_barrier 14 threads 256 after %p, %p
  // CHECK-NEXT: hopper.named_barrier_arrive 14 threads 256
  hopper.named_barrier_arrive 14 threads 256
  // CHECK-NEXT: %[[ALL:.*]] = hopper.accumulator_values %[[W]]#0 : !hopper.accumulator<64x8xf32> -> vector<4xf32>
  %all = hopper.accumulator_values %w#0 : !hopper.accumulator<64x8xf32> -> vector<4xf32>
  // CHECK-NEXT: hopper.accumulator_of %[[ALL]] : vector<4xf32> -> !hopper.accumulator<64x8xf32>
  %again = hopper.accumulator_of %all : vector<4xf32> -> !hopper.accumulator<64x8xf32>
  // CHECK-NEXT: hopper.tma_store %[[ZERO]] to %arg0[%arg3, %[[ZERO]]] : !hopper.tensor_map<64x64xbf16, swizzle 128>
  hopper.tma_store %0 to %map[%n, %0] : !hopper.tensor_map<64x64xbf16, swizzle 128>
  // CHECK-NEXT: hopper.tma_store_commit
  hopper.tma_store_commit
  // CHECK-NEXT: hopper.tma_store_wait 1 read
  hopper.tma_store_wait 1 read
  // CHECK-NEXT: hopper.tma_store_wait 0{{$}}
  hopper.tma_store_wait 0
  // CHECK-NEXT: hopper.return
  hopper.return
}

// Boxes of a tensor of four dimensions, and operands whose rows are neighbours in memory.
// CHECK-LABEL: hopper.kernel @transposed(%arg0: !hopper.tensor_map<128x64xf16, swizzle 128, outer 2>, %arg1: i32)
hopper.kernel @transposed(%map: !hopper.tensor_map<128x64xf16, swizzle 128, outer 2>, %n: i32)
    attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 32776 : i32} {
  // CHECK: %[[ZERO:.*]] = arith.constant 0
  %0 = arith.constant 0 : i32
  %bar = arith.constant 32768 : i32
  // CHECK: hopper.tma_load %arg0[%arg1, %[[ZERO]]] of[%[[ZERO]], %arg1] to %[[ZERO]] signal %{{.*}} : !hopper.tensor_map<128x64xf16, swizzle 128, outer 2>
  hopper.tma_load %map[%n, %0] of [%0, %n] to %0 signal %bar : !hopper.tensor_map<128x64xf16, swizzle 128, outer 2>
  // CHECK: %[[D:.*]] = hopper.matrix_descriptor %[[ZERO]] stride 1024 leading 16384
  %d = hopper.matrix_descriptor %0 stride 1024 leading 16384
  %z = hopper.accumulator_zero : !hopper.accumulator<64x128xf32>
  %f = hopper.wgmma_fence %z : (!hopper.accumulator<64x128xf32>) -> !hopper.accumulator<64x128xf32, in_flight>
  // CHECK: hopper.wgmma %{{.*}}, %[[D]] transposed, %[[D]] transposed f16
  %s = hopper.wgmma %f, %d transposed, %d transposed f16 : !hopper.accumulator<64x128xf32, in_flight>
  // CHECK: hopper.wgmma_rs %{{.*}}, [%arg1, %arg1, %arg1, %arg1], %[[D]] transposed f16
  %r = hopper.wgmma_rs %s, [%n, %n, %n, %n], %d transposed f16 : !hopper.accumulator<64x128xf32, in_flight>
  hopper.wgmma_commit
  %w = hopper.wgmma_wait 0, %r : (!hopper.accumulator<64x128xf32, in_flight>) -> !hopper.accumulator<64x128xf32>
  hopper.return
}
