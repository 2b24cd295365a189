// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel of a matrix product from the command line: at the hopper level, as LLVM's dialect, as
// PTX; and what is refused.
// RUN: millrace opt %s --pass='build-gemm{name=product tile-m=64 tile-n=64 stages=2 consumers=1 bias=true}' -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: millrace opt %t.mlir --pass=canonicalize --pass=cse --ptx sm_90a | FileCheck %s --check-prefix=PTX
// RUN: millrace opt %t.mlir --pass=hopper-to-nvvm --ptx sm_90a | FileCheck %s --check-prefix=PTX
// RUN: millrace opt %t.mlir --pass=hopper-to-nvvm --pass=hopper-lower-to-llvm | FileCheck %s --check-prefix=LLVM
// RUN: not millrace opt %t.mlir --ptx sm_90 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not millrace opt %s --pass='build-gemm{stages=9}' 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not millrace opt %s --pass='build-gemm{type=f64}' 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not millrace opt %t.mlir --pass='build-gemm{name=product}' 2>&1 | FileCheck %s --check-prefix=NAME

// CHECK: hopper.kernel @product(%arg0: !hopper.tensor_map<64x64xbf16, swizzle 128>, %arg1: !hopper.tensor_map<64x64xbf16, swizzle 128>, %arg2: !hopper.tensor_map<64x64xbf16, swizzle 128>, %arg3: !llvm.ptr<1>, %arg4: i32, %arg5: i32)
// CHECK: hopper.set_max_registers decrease 40 warpgroups 1
// CHECK: hopper.mbarrier_arrive_expect %{{.*}} bytes 16384
// CHECK-COUNT-2: hopper.tma_load
// CHECK: hopper.set_max_registers increase 240 warpgroups 1
// CHECK-COUNT-4: hopper.wgmma %
// CHECK: scf.for
// CHECK-COUNT-4: hopper.wgmma %
// CHECK: hopper.wgmma_wait 1
// CHECK: hopper.wgmma_wait 0
// CHECK: llvm.load
// CHECK-COUNT-4: hopper.stmatrix
// CHECK: hopper.tma_store %

// PTX: .target sm_90a
// PTX: .entry product(
// PTX: .maxnreg 240
// PTX: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16

// LLVM-NOT: {{hopper\.|scf\.|arith\.}}
// LLVM: llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n64k16

// CHIP: error: {{.*}}kernel 'product': the operation 'nvvm.{{.*}}' needs sm_90a, and PTX is made for sm_90
// STAGES: error: {{.*}}9 stages of 32768 bytes and a tile of C take 327824 bytes of shared memory, and a CTA may use 232448; use at most 6 stages
// TYPE: error: {{.*}}type 'f64' of build-gemm; use bf16 or f16
// NAME: error: {{.*}}the module has 'product' already; choose another name
module {}
