// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the verifier refuses, and in which words.
// RUN: millrace opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{has 100 threads; a CTA has multiples of 32 up to 1024}}
hopper.kernel @k() attributes {threads = 100 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has 2048 threads; a CTA has multiples of 32 up to 1024}}
hopper.kernel @k() attributes {threads = 2048 : i32, registers = 24 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has 100 registers per thread; use a multiple of 8 from 24 to 248, or 255}}
hopper.kernel @k() attributes {threads = 128 : i32, registers = 100 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{takes 168 x 512 = 86016 registers, and a multiprocessor has 65536; give each thread at most 128}}
hopper.kernel @k() attributes {threads = 512 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{takes 232449 bytes of shared memory, and a CTA may use 232448 (227 KiB)}}
hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 232449 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has clusters of 9 CTAs; 1 to 8 are supported}}
hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32, cluster = 9 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has argument 0 of type 'f64'; arguments are tensor maps, !llvm.ptr<1>, i32, i64 and f32}}
hopper.kernel @k(%a: f64) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has results; a kernel writes to global memory}}
hopper.kernel @k() -> i32 attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 0 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has no body}}
hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 0 : i32}

// -----

// expected-error @+1 {{has 12 columns; wgmma makes multiples of 8 between 8 and 256}}
hopper.kernel @k(%a: !hopper.accumulator<64x12xf32>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{an accumulator is 64 rows of fp32, as in <64x256xf32>}}
hopper.kernel @k(%a: !hopper.accumulator<32x8xf32>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has elements of type 'f64'; TMA moves bf16, f16 and f32 here}}
hopper.kernel @k(%a: !hopper.tensor_map<8x8xf64>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has a box of 257 x 64 elements; TMA moves 1 to 256 along each dimension}}
hopper.kernel @k(%a: !hopper.tensor_map<257x64xbf16>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has rows of 256 bytes; with swizzle 128 they have 128: 64 columns of 'bf16'}}
hopper.kernel @k(%a: !hopper.tensor_map<64x128xbf16, swizzle 128>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has swizzle 64; 128 is supported, or none}}
hopper.kernel @k(%a: !hopper.tensor_map<64x32xbf16, swizzle 64>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{has rows of 8 bytes; TMA moves multiples of 16}}
hopper.kernel @k(%a: !hopper.tensor_map<64x4xbf16>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

// expected-error @+1 {{a box has two dimensions, as in <128x64xbf16, swizzle 128>}}
hopper.kernel @k(%a: !hopper.tensor_map<64xbf16>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  // expected-error @+1 {{has count 0; a phase ends after 1 to 1048575 arrivals}}
  hopper.mbarrier_init %0 count 0
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %4 = arith.constant 4 : i32
  // expected-error @+1 {{has a barrier at 4, which is no multiple of 8}}
  hopper.mbarrier_init %4 count 1
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %end = arith.constant 65536 : i32
  // expected-error @+1 {{has a barrier of 8 bytes at 65536, and the kernel has 65536 bytes of shared memory}}
  hopper.mbarrier_wait %end parity %0
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  // expected-error @+1 {{expects 0 bytes; a phase counts 1 to 1048575}}
  hopper.mbarrier_arrive_expect %0 bytes 0
  hopper.return
}

// -----

hopper.kernel @k(%m: !hopper.tensor_map<64x64xbf16, swizzle 128>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %b = arith.constant 65528 : i32
  // expected-error @+1 {{expects 8192 bytes, and the 2 loads on this barrier bring 16384}}
  hopper.mbarrier_arrive_expect %b bytes 8192
  hopper.tma_load %m[%0, %0] to %0 signal %b : !hopper.tensor_map<64x64xbf16, swizzle 128>
  hopper.tma_load %m[%0, %0] to %0 signal %b : !hopper.tensor_map<64x64xbf16, swizzle 128>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  // expected-error @+1 {{is for clusters, and the kernel's have one CTA; set its attribute 'cluster'}}
  hopper.mbarrier_arrive %0 cta %0
  hopper.return
}

// -----

hopper.kernel @k(%m: !hopper.tensor_map<64x64xbf16, swizzle 128>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %x = arith.constant 512 : i32
  %b = arith.constant 65528 : i32
  // expected-error @+1 {{has a box at 512, which is no multiple of 1024}}
  hopper.tma_load %m[%0, %0] to %x signal %b : !hopper.tensor_map<64x64xbf16, swizzle 128>
  hopper.return
}

// -----

hopper.kernel @k(%m: !hopper.tensor_map<64x64xbf16>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %x = arith.constant 64 : i32
  %b = arith.constant 65528 : i32
  // expected-error @+1 {{has a box at 64, which is no multiple of 128}}
  hopper.tma_load %m[%0, %0] to %x signal %b : !hopper.tensor_map<64x64xbf16>
  hopper.return
}

// -----

hopper.kernel @k(%m: !hopper.tensor_map<64x64xbf16, swizzle 128>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %x = arith.constant 58368 : i32
  // expected-error @+1 {{has a box of 8192 bytes at 58368, and the kernel has 65536 bytes of shared memory}}
  hopper.tma_store %x to %m[%0, %0] : !hopper.tensor_map<64x64xbf16, swizzle 128>
  hopper.return
}

// -----

hopper.kernel @k(%m: !hopper.tensor_map<64x64xbf16, swizzle 128>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %b = arith.constant 65528 : i32
  %s = arith.constant 3 : i16
  // expected-error @+1 {{is for clusters, and the kernel's have one CTA}}
  hopper.tma_load %m[%0, %0] to %0 signal %b multicast %s : !hopper.tensor_map<64x64xbf16, swizzle 128>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{leaves 64 groups; 0 to 63 are supported}}
  hopper.tma_store_wait 64
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  // expected-error @+1 {{has stride 1000; a descriptor holds multiples of 16 up to 262128}}
  %d = hopper.matrix_descriptor %0 stride 1000
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %x = arith.constant 8 : i32
  // expected-error @+1 {{has an operand at 8, which is no multiple of 16}}
  %d = hopper.matrix_descriptor %x stride 1024
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{makes an accumulator that is not in flight}}
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32, in_flight>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x16xf32, in_flight>
  // expected-error @+1 {{reads an accumulator in flight; put hopper.wgmma_wait before it}}
  %v = hopper.accumulator_read %f[0] : !hopper.accumulator<64x16xf32, in_flight>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  // expected-error @+1 {{reads register 8 of 8}}
  %v = hopper.accumulator_read %a[8] : !hopper.accumulator<64x16xf32>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  // expected-error @+1 {{it hands accumulators over, so they are in flight}}
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x16xf32>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  // expected-error @+1 {{makes '!hopper.accumulator<64x32xf32, in_flight>' of '!hopper.accumulator<64x16xf32>'}}
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x32xf32, in_flight>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{takes 0 accumulators and returns 0; name each once on both sides}}
  hopper.wgmma_fence : () -> ()
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  // expected-error @+1 {{takes an accumulator that is not in flight; put hopper.wgmma_fence between the last write to it and this}}
  %m = hopper.wgmma %a, %d, %d bf16 : !hopper.accumulator<64x16xf32>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  // expected-error @+1 {{takes an accumulator that is not in flight; put hopper.wgmma_fence between the last write to it and this}}
  %m = hopper.wgmma_rs %a, [%0, %0, %0, %0], %d bf16 : !hopper.accumulator<64x16xf32>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x16xf32, in_flight>
  // expected-error @+1 {{multiplies 'f32'; bf16 and f16 are supported}}
  %m = hopper.wgmma %f, %d, %d f32 : !hopper.accumulator<64x16xf32, in_flight>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 64 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{needs whole warpgroups of 128 threads, and the kernel has 64 threads}}
  hopper.wgmma_commit
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 160 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  // expected-error @+1 {{needs whole warpgroups of 128 threads, and the kernel has 160 threads}}
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x16xf32, in_flight>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x16xf32, in_flight>
  // expected-error @+1 {{takes an accumulator that has 2 uses while it is in flight; use the result of the last operation that took it}}
  %m = hopper.wgmma %f, %d, %d bf16 : !hopper.accumulator<64x16xf32, in_flight>
  %o = hopper.wgmma_wait 0, %f : (!hopper.accumulator<64x16xf32, in_flight>) -> !hopper.accumulator<64x16xf32>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x16xf32, in_flight>
  // expected-error @+1 {{leaves 8 groups; 0 to 7 are supported}}
  %o = hopper.wgmma_wait 8, %f : (!hopper.accumulator<64x16xf32, in_flight>) -> !hopper.accumulator<64x16xf32, in_flight>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  // expected-error @+1 {{takes an accumulator that is not in flight; nothing is to be waited for}}
  %o = hopper.wgmma_wait 0, %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x16xf32>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  %f = hopper.wgmma_fence %a : (!hopper.accumulator<64x16xf32>) -> !hopper.accumulator<64x16xf32, in_flight>
  // expected-error @+1 {{leaves no group, and returns an accumulator in flight}}
  %o = hopper.wgmma_wait 0, %f : (!hopper.accumulator<64x16xf32, in_flight>) -> !hopper.accumulator<64x16xf32, in_flight>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %v = arith.constant 1.0 : f32
  // expected-error @+1 {{rounds to 'f32'; bf16 and f16 are supported}}
  %p = hopper.pack %v, %v f32
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %x = arith.constant 8 : i32
  // expected-error @+1 {{has a row at 8, which is no multiple of 16}}
  hopper.stmatrix %x, [%x, %x, %x, %x]
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{has number 0; named barriers are 1 to 15, and 0 is hopper.cta_barrier}}
  hopper.named_barrier 0 threads 128
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{has number 16; named barriers are 1 to 15, and 0 is hopper.cta_barrier}}
  hopper.named_barrier 16 threads 128
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{waits for 256 threads; a barrier takes multiples of 32 up to the CTA's 128}}
  hopper.named_barrier 1 threads 256
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{is for clusters, and the kernel's have one CTA; set its attribute 'cluster'}}
  hopper.cluster_arrive
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{is for clusters, and the kernel's have one CTA; set its attribute 'cluster'}}
  hopper.cluster_wait
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{asks for 20 registers; setmaxnreg takes multiples of 8 from 24 to 256}}
  hopper.set_max_registers decrease 20 warpgroups 1
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{is for 0 warpgroups; 1 to 8 fit a CTA}}
  hopper.set_max_registers decrease 40 warpgroups 0
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.cta_barrier
  // expected-error @+1 {{is not the first of its block; give each role a branch that begins with it}}
  hopper.set_max_registers decrease 40 warpgroups 1
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{makes 40 registers of the launch's 168, which is no increase}}
  hopper.set_max_registers increase 40 warpgroups 1
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 384 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{are for 1 warpgroups, and it has 3; every warpgroup changes its registers once}}
  hopper.set_max_registers decrease 40 warpgroups 1
  hopper.return
}

// -----

// The sum that ptxas accepts and the machine waits for: 40 + 240 + 240 of 3 x 168.
hopper.kernel @k(%n: i32) attributes {threads = 384 : i32, registers = 168 : i32, shared_memory = 0 : i32} {
  %0 = arith.constant 0 : i32
  %role = arith.cmpi eq, %n, %0 : i32
  scf.if %role {
    // expected-error @+1 {{and the others of 'k' want 66560 registers, and the launch takes 64512; it would wait for ever: lower a budget by 16 registers of one warpgroup}}
    hopper.set_max_registers decrease 40 warpgroups 1
  } else {
    hopper.set_max_registers increase 240 warpgroups 2
  }
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 32 : i32, registers = 168 : i32, shared_memory = 0 : i32} {
  %0 = arith.constant 0 : i32
  %v = arith.constant 1.0 : f32
  // expected-error @+1 {{multiplies 'f32'; bf16 and f16 are supported}}
  %d:4 = hopper.mma [%0, %0, %0, %0], [%0, %0], [%v, %v, %v, %v] f32
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  // expected-error @+1 {{has leading 100; a descriptor holds multiples of 16 up to 262128}}
  %d = hopper.matrix_descriptor %0 stride 1024 leading 100
  hopper.return
}

// -----

hopper.kernel @k(%map: !hopper.tensor_map<64x64xbf16, swizzle 128, outer 2>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  // expected-error @+1 {{has 1 indices of outer dimensions, and '!hopper.tensor_map<64x64xbf16, swizzle 128, outer 2>' takes 2}}
  hopper.tma_load %map[%0, %0] of [%0] to %0 signal %0 : !hopper.tensor_map<64x64xbf16, swizzle 128, outer 2>
  hopper.return
}

// -----

hopper.kernel @k(%map: !hopper.tensor_map<64x64xbf16, swizzle 128, outer 1>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %0 = arith.constant 0 : i32
  // expected-error @+1 {{stores to matrices of a tensor with outer dimensions; give a map of one}}
  hopper.tma_store %0 to %map[%0, %0] : !hopper.tensor_map<64x64xbf16, swizzle 128, outer 1>
  hopper.return
}

// -----

// expected-error @+1 {{has 4 outer dimensions; TMA moves boxes of tensors of at most 5 dimensions}}
hopper.kernel @k(%map: !hopper.tensor_map<64x64xbf16, swizzle 128, outer 4>) attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  %a = hopper.accumulator_zero : !hopper.accumulator<64x16xf32>
  // expected-error @+1 {{has 'vector<4xf32>' for the 8 registers of a thread}}
  %v = hopper.accumulator_values %a : !hopper.accumulator<64x16xf32> -> vector<4xf32>
  hopper.return
}

// -----

hopper.kernel @k() attributes {threads = 128 : i32, registers = 168 : i32, shared_memory = 65536 : i32} {
  // expected-error @+1 {{has number 16; named barriers are 1 to 15, and 0 is hopper.cta_barrier}}
  hopper.named_barrier_arrive 16 threads 128
  hopper.return
}
