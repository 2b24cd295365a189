// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A matrix product with bias and ReLU becomes one kernel, in the precision that is asked for.
// RUN: millrace opt %s --pass=form-kernels | FileCheck %s
// RUN: millrace opt %s "--pass=form-kernels{precision=bf16 machine=lp30}" | FileCheck %s --check-prefix=BF16
// RUN: not millrace opt %s "--pass=form-kernels{precision=int8}" 2>&1 | FileCheck %s --check-prefix=FLOAT
// RUN: not millrace opt %s "--pass=form-kernels{machine=lp31}" 2>&1 | FileCheck %s --check-prefix=MACHINE
// RUN: not millrace opt %s --pass=form-kernel 2>&1 | FileCheck %s --check-prefix=NAME

// CHECK: module attributes {millrace.facts = {inputs = ["x"], machine = "tsp-v1 {{[0-9a-f]+}}", precision = "fp16"}}
// CHECK: spatial.graph
// CHECK-DAG: %[[X:.*]] = spatial.tensor input "x" lanes 1 host <"x" : "float" [4, 8]> unbounded : tensor<4x8xf16>
// CHECK-DAG: %[[Y:.*]] = spatial.tensor output "y" lanes 1 host <"y" : "float" [4, 6]> unbounded : tensor<4x6xf16>
// CHECK-DAG: %[[W:.*]] = spatial.tensor constant "value" lanes 0 splat : tensor<8x6xf16> = dense<5.000000e-01>
// CHECK: spatial.kernel "Relu_1" from "Relu_1 Gemm_0" (%p0 = parallel 4, %p1 = parallel 6, %c2 = contracted 8)
// CHECK-NEXT: spatial.term %[[X]][%p0, %c2] * %[[W]][%c2, %p1] macs 192
// CHECK: spatial.alu max.f32
// CHECK-NEXT: %[[LAST:.*]] = spatial.alu cvt.f32.f16.fin
// CHECK-NEXT: spatial.write %[[LAST]] to %[[Y]][%p0, %p1]
// CHECK-NOT: func.func

// BF16: machine = "lp30 {{[0-9a-f]+}}", precision = "bf16"
// BF16: spatial.tensor input "x" lanes 1 host <"x" : "float" [4, 8]> unbounded : tensor<4x8xbf16>

// FLOAT: millrace: error: {{.*}}form_kernels.mlir:{{[0-9]+}}:1: int8 needs a quantised model
// MACHINE: unknown machine 'lp31'; did you mean 'lp30'?
// NAME: millrace: error: 'form-kernel' does not refer to a registered pass or pass pipeline; `millrace opt --list-passes` lists the passes
func.func @main(%x: tensor<4x8xf32> {onnx.name = "x", onnx.type = "float"})
    -> (tensor<4x6xf32> {onnx.name = "y", onnx.type = "float"}) {
  %w = arith.constant dense<0.5> : tensor<8x6xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x6xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  %product = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>)
      -> tensor<4x6xf32> loc("Gemm_0")
  %y = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%product : tensor<4x6xf32>) outs(%empty : tensor<4x6xf32>) {
    ^bb0(%a: f32, %out: f32):
      %relu = arith.maximumf %a, %zero : f32
      linalg.yield %relu : f32
    } -> tensor<4x6xf32> loc("Relu_1")
  return %y : tensor<4x6xf32>
}
