# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every reduction over every set of axes gives on the machine what ONNX Runtime gives."""
import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import run_millrace, save_model

SHAPES = [(7,), (4, 8), (1, 8), (3, 1, 4), (2, 3, 4, 5)]
OPERATIONS = ["ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceL2", "ReduceLogSumExp"]


def reduction(op, shape, axes) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "axes"], ["y"], name="reduction")], "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(axes), "axes")])
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_reduction_over_any_axes(op, machine, millrace, tmp_path):
    numbers = np.random.default_rng(0)
    shapes = SHAPES if machine == "tsp-v1" else SHAPES[:2]
    for shape in shapes:
        for count in range(1, len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), count):
                model = reduction(op, shape, axes)
                inputs = {"x": (numbers.standard_normal(shape) + 0.5).astype(np.float32)}
                expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
                got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path)
                assert got.report["predicted_cycles"] == got.report["measured_cycles"]
                # relative to the greatest summand: a mean may come near zero
                scale = max(np.linalg.norm(expected), np.abs(inputs["x"]).max())
                error = np.linalg.norm(got.outputs["y"] - expected) / scale
                assert error <= 2e-3, f"{shape} over {axes}: {error}"
