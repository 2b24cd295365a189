# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Host steps hold tensors in the types of their functions, also where the model names no type."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import run_millrace, save_model

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5])
INDICES = helper.make_tensor_value_info("y", TensorProto.INT64, [3, 1])
ROWS = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])


def argmax() -> onnx.ModelProto:
    """An int64 result of the host that the grid passes on."""
    return helper.make_model(helper.make_graph([helper.make_node("ArgMax", ["x"], ["y"], axis=1)], "g", [X], [INDICES]),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def gather_of_argmax() -> onnx.ModelProto:
    """Indices that one host step makes and another uses."""
    table = numpy_helper.from_array(np.arange(20, dtype=np.float32).reshape(5, 4), "table")
    nodes = [helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
             helper.make_node("Gather", ["table", "best"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "g", [X], [ROWS], [table]),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("make", [argmax, gather_of_argmax])
def test_a_host_step_of_integers_gives_the_values_of_onnx_runtime(millrace, tmp_path, make):
    model, x = make(), np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", {"x": x}, tmp_path)
    np.testing.assert_array_equal(got.outputs["y"], expected)
