// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fences and waits that a neighbour makes needless go; others stay.
// RUN: millrace opt %s --pass=canonicalize | FileCheck %s

// CHECK-LABEL: hopper.kernel @repeated
hopper.kernel @repeated() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 1024 : i32} {
  // CHECK-NEXT: hopper.fence_mbarrier_init
  // CHECK-NEXT: hopper.fence_async
  // CHECK-NEXT: hopper.cta_barrier
  // CHECK-NEXT: hopper.fence_async
  hopper.fence_mbarrier_init
  hopper.fence_mbarrier_init
  hopper.fence_async
  hopper.fence_async
  hopper.cta_barrier
  hopper.fence_async
  // CHECK-NEXT: hopper.tma_store_wait 1
  hopper.tma_store_wait 1
  hopper.tma_store_wait 1 read
  hopper.tma_store_wait 2
  // CHECK-NEXT: hopper.tma_store_wait 0 read
  hopper.tma_store_wait 0 read
  // A wait for writes waits for more than one for reads.
  // CHECK-NEXT: hopper.tma_store_wait 0{{$}}
  hopper.tma_store_wait 0
  // CHECK-NEXT: hopper.return
  hopper.return
}

// CHECK-LABEL: hopper.kernel @fences
hopper.kernel @fences() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 1024 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x8xf32>
  // CHECK: %[[F:.*]] = hopper.wgmma_fence
  // CHECK-NEXT: %[[M:.*]] = hopper.wgmma %[[F]]
  // CHECK-NEXT: %[[G:.*]] = hopper.wgmma_fence %[[M]]
  // CHECK-NEXT: hopper.wgmma %[[G]]
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x8xf32>) -> !hopper.accumulator<64x8xf32, in_flight>
  %g = hopper.wgmma_fence %f : (!hopper.accumulator<64x8xf32, in_flight>) -> !hopper.accumulator<64x8xf32, in_flight>
  %m = hopper.wgmma %g, %d, %d bf16 : !hopper.accumulator<64x8xf32, in_flight>
  %h = hopper.wgmma_fence %m : (!hopper.accumulator<64x8xf32, in_flight>) -> !hopper.accumulator<64x8xf32, in_flight>
  %n = hopper.wgmma %h, %d, %d bf16 : !hopper.accumulator<64x8xf32, in_flight>
  hopper.wgmma_commit
  %r = hopper.wgmma_wait 0, %n : (!hopper.accumulator<64x8xf32, in_flight>) -> !hopper.accumulator<64x8xf32>
  hopper.return
}
