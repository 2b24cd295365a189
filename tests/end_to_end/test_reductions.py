# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every reduction over every set of axes gives on the machine what ONNX Runtime gives."""
import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import cycles_on_grid, run_millrace, save_model

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


@pytest.mark.parametrize("nodes, shape, most", [
    (["Tanh", "Softmax"], (40, 331), 3_200),  # 2,230,269 cycles when a row of a prime number of lanes was cut lane by lane
    (["Tanh", "Softmax"], (3, 2003), 5_000),  # refused
    (["Tanh", "Softmax"], (1, 50257), 16_000),
    (["ReduceMax"], (1, 4096), 1_700),  # refused for want of accumulator rows
])
def test_extremes_of_long_rows(millrace, tmp_path, nodes, shape, most):
    names = ["x", *(f"t{n}" for n in range(len(nodes) - 1)), "y"]
    made = [helper.make_node(op, [names[n]], [names[n + 1]], **({"axis": 1} if op == "Softmax" else {"axes": [1]} if "Re" in op else {}))
            for n, op in enumerate(nodes)]
    graph = helper.make_graph(made, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    inputs = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    assert cycles_on_grid(millrace, model, inputs, tmp_path, 2e-3) < most


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("axes, keeps", [((0, 1, 2), 0), ((1, 2), 1), ((0, 2), 0)])
def test_extremes_over_rows_and_lanes(millrace, tmp_path, op, axes, keeps):
    shape = (3, 24, 700)
    graph = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node(op, ["t"], ["m"], axes=list(axes), keepdims=keeps),
         helper.make_node("Sub", ["t", "m"] if keeps or len(axes) == 3 else ["m", "m"], ["y"])], "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    if not keeps and len(axes) < 3:
        graph.node[2].CopyFrom(helper.make_node("Identity", ["m"], ["y"]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    inputs = {"x": np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
    cycles_on_grid(millrace, model, inputs, tmp_path, 2e-3)
