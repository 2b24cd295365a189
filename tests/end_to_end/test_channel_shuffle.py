# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A permutation of channels takes one pass over the rows, not one for every few lanes."""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import probe
from oracle import cycles_on_grid, relative_l2, run_millrace, save_model
from quantize import quantize

NUMBERS = np.random.default_rng(11)


def shuffled(groups: int, channels: int, extent: int, halves: bool) -> onnx.ModelProto:
    """ShuffleNet: channels of two convolutions are dealt out by groups (Reshape, Transpose, Reshape), then windows are taken of
    each; a half of the channels, or all, are the result."""
    each = channels // groups
    constants = {
        "first": NUMBERS.normal(0, 0.3, (channels // 2, 16, 1, 1)).astype(np.float32),
        "second": NUMBERS.normal(0, 0.3, (channels - channels // 2, 16, 1, 1)).astype(np.float32),
        "parted": np.int64([1, groups, each, extent, extent]), "joined": np.int64([1, channels, extent, extent]),
        "halves": np.int64([channels // 2, channels - channels // 2]),
    }
    nodes = [helper.make_node("Conv", ["x", "first"], ["one"]), helper.make_node("Conv", ["x", "second"], ["other"]),
             helper.make_node("Relu", ["one"], ["rectified"]), helper.make_node("Concat", ["rectified", "other"], ["convolved"], axis=1),
             helper.make_node("Reshape", ["convolved", "parted"], ["apart"]),
             helper.make_node("Transpose", ["apart"], ["turned"], perm=[0, 2, 1, 3, 4]),
             helper.make_node("Reshape", ["turned", "joined"], ["all"])]
    if halves:
        nodes.append(helper.make_node("Split", ["all", "halves"], ["rest", "taken"], axis=1))
    nodes.append(helper.make_node("MaxPool", ["taken" if halves else "all"], ["y"], kernel_shape=[3, 3], pads=[1] * 4))
    shape = [1, channels // 2 if halves else channels, extent, extent]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 16, extent, extent])],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("groups, channels, halves", ((2, 48, False), (2, 48, True), (3, 60, False), (8, 64, False), (2, 400, True)))
def test_a_shuffle_takes_one_pass(millrace, tmp_path, groups, channels, halves):
    extent = 14
    model = shuffled(groups, channels, extent, halves)
    inputs = {"x": NUMBERS.normal(0, 1, (1, 16, extent, extent)).astype(np.float32)}
    assert cycles_on_grid(millrace, model, inputs, tmp_path, 1e-3) < 9_000


def test_a_quantised_shuffle_moves_integers(millrace, tmp_path):
    """Quantisers round behind each Reshape and Transpose, with one scheme: nothing is left of that."""
    model = shuffled(2, 48, 14, halves=True)
    inputs = probe.seeded_inputs(model)
    int8 = quantize(model)
    assert sum(node.op_type == "QuantizeLinear" for node in int8.graph.node) >= 6
    expected = probe.run(int8, inputs)["y"]
    got = run_millrace(millrace, save_model(int8, tmp_path), "tsp-v1", "int8", inputs, tmp_path, ["--exact-qdq"])
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], expected) < 2e-2
    assert got.report["measured_cycles"] < 2_100
