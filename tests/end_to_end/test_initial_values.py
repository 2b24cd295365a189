# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sum, product or extreme begins with what the tensor level says, not with what does not matter."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from oracle import run_millrace, save_model

BODY = """
func.func @main(%x: tensor<4x8xf32> {{onnx.name = "x", onnx.type = "float"}},
                %b: tensor<{shape}xf32> {{onnx.name = "b", onnx.type = "float"}})
    -> (tensor<{shape}xf32> {{onnx.name = "y", onnx.type = "float"}}) {{
  {lines}
  return %y : tensor<{shape}xf32>
}}
"""
REDUCE = """%y = linalg.reduce ins(%x : tensor<4x8xf32>) outs({init} : tensor<{kept}xf32>) dimensions = [{axis}]
  (%a: f32, %c: f32) {{
    %r = arith.{combine} %c, %a : f32
    linalg.yield %r : f32
  }}"""
FILL = """%two = arith.constant 2.0 : f32
  %empty = tensor.empty() : tensor<{kept}xf32>
  %init = linalg.fill ins(%two : f32) outs(%empty : tensor<{kept}xf32>) -> tensor<{kept}xf32>
  """
NUMPY = {"addf": np.add, "maximumf": np.maximum, "minimumf": np.minimum}


@pytest.mark.parametrize("combine", NUMPY)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("isConstant", [True, False])
def test_a_reduction_begins_with_its_initial_values(combine, axis, isConstant, millrace, tmp_path):
    kept = 8 if axis == 0 else 4
    init = "%init" if isConstant else "%b"
    lines = (FILL if isConstant else "") + REDUCE
    text = BODY.format(shape=kept, lines=lines.format(kept=kept, axis=axis, combine=combine, init=init))
    (tmp_path / "model.mlir").write_text(text)
    numbers = np.random.default_rng(0)
    x, b = numbers.standard_normal((4, 8)).astype(np.float32), numbers.standard_normal(kept).astype(np.float32)
    begin = np.full(kept, 2, np.float32) if isConstant else b
    got = run_millrace(millrace, tmp_path / "model.mlir", "tsp-v1", "fp16", {"x": x, "b": b}, tmp_path,
                       ["--from", "tensor"])
    assert np.allclose(got.outputs["y"], NUMPY[combine](begin, NUMPY[combine].reduce(x, axis)), 2e-3, 5e-3)


def test_a_product_begins_with_its_bias(millrace, tmp_path):
    lines = """%w = arith.constant dense<0.5> : tensor<8x4xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x4xf32>) outs(%b : tensor<4x4xf32>) -> tensor<4x4xf32>"""
    (tmp_path / "model.mlir").write_text(BODY.format(shape="4x4", lines=lines))
    numbers = np.random.default_rng(0)
    x, b = (numbers.standard_normal(shape).astype(np.float32) for shape in [(4, 8), (4, 4)])
    got = run_millrace(millrace, tmp_path / "model.mlir", "tsp-v1", "fp16", {"x": x, "b": b}, tmp_path,
                       ["--from", "tensor"])
    assert np.allclose(got.outputs["y"], b + x.sum(1, keepdims=True) / 2, 2e-3, 5e-3)

@pytest.mark.parametrize("values", [[-4, -3, -2, -1], [1, 2, 3, 7], [-1, 0, 2, 5], [0, 0, 0, 0]])
@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 4, 1)])
def test_a_range_that_is_quantised_dynamically_holds_zero(values, shape, millrace, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])], "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, shape),
         helper.make_tensor_value_info("scale", TensorProto.FLOAT, []),
         helper.make_tensor_value_info("zero", TensorProto.UINT8, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = np.float32(values).reshape(shape)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = dict(zip(["y", "scale", "zero"], session.run(None, {"x": x})))
    if not x.any():  # ONNX Runtime divides by the scale 0; with any other one the integers are 0
        expected["scale"] = np.float32(1)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", {"x": x}, tmp_path)
    assert np.array_equal(got.outputs["zero"], expected["zero"])
    assert np.allclose(got.outputs["scale"], expected["scale"], 1e-3)
    assert np.array_equal(got.outputs["y"], expected["y"])
