// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations become calls with their operands, then their numbers; accumulators become their numbers.
// RUN: millrace opt %s --pass=hopper-to-emulator | FileCheck %s

// CHECK-DAG: llvm.func @millrace_emulate_wgmma(i64, i64, i64, i32, i32, i32) -> i64
// CHECK-DAG: llvm.func @millrace_emulate_tma_load(!llvm.ptr, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32)
// CHECK-LABEL: llvm.func @k(%arg0: !llvm.ptr)
hopper.kernel @k(%map: !hopper.tensor_map<32x64xbf16, swizzle 128>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %bar = arith.constant 65528 : i32
  // CHECK: %[[ELECTED:.*]] = llvm.call @millrace_emulate_elect() : () -> i32
  // CHECK: %[[ONE:.*]] = llvm.trunc %[[ELECTED]] : i32 to i1
  %one = hopper.elect
  // CHECK: scf.if %[[ONE]]
  scf.if %one {
    // CHECK-DAG: %[[ROWS:.*]] = llvm.mlir.constant(32 : i32)
    // CHECK-DAG: %[[COLUMNS:.*]] = llvm.mlir.constant(64 : i32)
    // CHECK-DAG: %[[BYTES:.*]] = llvm.mlir.constant(2 : i32)
    // CHECK-DAG: %[[SWIZZLE:.*]] = llvm.mlir.constant(128 : i32)
    // CHECK-DAG: %[[NONE:.*]] = llvm.mlir.constant(-1 : i32)
    // CHECK: llvm.call @millrace_emulate_tma_load(%arg0, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[NONE]], %{{.*}}, %{{.*}}, %{{.*}}, %[[ROWS]], %[[COLUMNS]], %[[BYTES]], %[[SWIZZLE]], %{{.*}})
    hopper.tma_load %map[%0, %0] to %0 signal %bar : !hopper.tensor_map<32x64xbf16, swizzle 128>
  }
  // CHECK: llvm.call @millrace_emulate_mbarrier_wait(%{{.*}}, %{{.*}}) : (i32, i32) -> ()
  hopper.mbarrier_wait %bar parity %0
  %d = hopper.matrix_descriptor %0 stride 1024
  // CHECK: %[[COUNT:.*]] = llvm.mlir.constant(8 : i32)
  // CHECK: %[[A:.*]] = llvm.call @millrace_emulate_accumulator_zero(%[[COUNT]]) : (i32) -> i64
  %a = hopper.accumulator_zero : !hopper.accumulator<64x8xf32>
  // CHECK: llvm.call @millrace_emulate_wgmma_fence()
  // CHECK: %[[F:.*]] = llvm.call @millrace_emulate_accumulator_hand_over(%[[A]])
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x8xf32>) -> !hopper.accumulator<64x8xf32, in_flight>
  // CHECK: %[[F16:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: %[[M:.*]] = llvm.call @millrace_emulate_wgmma(%[[F]], %{{.*}}, %{{.*}}, %[[F16]], %{{.*}}, %{{.*}})
  %m = hopper.wgmma %f, %d, %d f16 : !hopper.accumulator<64x8xf32, in_flight>
  // CHECK: llvm.call @millrace_emulate_wgmma_commit()
  hopper.wgmma_commit
  // CHECK: llvm.call @millrace_emulate_wgmma_wait(%{{.*}}) : (i32) -> ()
  // CHECK: %[[R:.*]] = llvm.call @millrace_emulate_accumulator_take_back(%[[M]])
  %r = hopper.wgmma_wait 0, %m : (!hopper.accumulator<64x8xf32, in_flight>) -> !hopper.accumulator<64x8xf32>
  // CHECK: llvm.call @millrace_emulate_accumulator_read(%[[R]], %{{.*}}) : (i64, i32) -> f32
  %x = hopper.accumulator_read %r[2] : !hopper.accumulator<64x8xf32>
  // CHECK: llvm.call @millrace_emulate_exp2(%{{.*}}) : (f32) -> f32
  %y = hopper.exp2 %x
  %p = hopper.pack %x, %y bf16
  // CHECK: llvm.call @millrace_emulate_mma(
  // CHECK-COUNT-4: llvm.call @millrace_emulate_mma_sum(%{{.*}}) : (i32) -> f32
  %s:4 = hopper.mma [%p, %p, %p, %p], [%p, %p], [%x, %x, %x, %x] bf16
  hopper.stmatrix %0, [%p, %p, %p, %p]
  // CHECK: llvm.return
  hopper.return
}
