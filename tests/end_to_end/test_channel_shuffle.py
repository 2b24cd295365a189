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


def units(groups: int, channels: int, extent: int, count: int) -> onnx.ModelProto:
    """ShuffleNet v2: half of the channels go on as they are, the others are convolved; what is joined is dealt out by groups."""
    each, half, nodes, constants = channels // groups, channels // 2, [], {}

    def add(op, *inputs, outputs=1, **attributes):
        names = [f"v{len(nodes)}.{i}" for i in range(outputs)]
        nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names if outputs > 1 else names[0]

    def constant(array):
        constants[f"c{len(constants)}"] = array
        return list(constants)[-1]

    def convolve(value, results, taken, window=1, **attributes):
        shape = (results, taken // attributes.get("group", 1), window, window)
        weights = NUMBERS.normal(0, np.prod(shape[1:]) ** -0.5, shape).astype(np.float32)
        return add("Conv", value, constant(weights), pads=[window // 2] * 4, **attributes)

    value = add("Relu", convolve("x", channels, 16, 3))
    for _ in range(count):
        kept, taken = add("Split", value, constant(np.int64([half, channels - half])), outputs=2, axis=1)
        taken = add("Relu", convolve(taken, half, half))
        taken = add("Relu", convolve(convolve(taken, half, half, 3, group=half), half, half))
        value = add("Concat", kept, taken, axis=1)
        value = add("Reshape", value, constant(np.int64([1, groups, each, extent, extent])))
        value = add("Reshape", add("Transpose", value, perm=[0, 2, 1, 3, 4]), constant(np.int64([1, channels, extent, extent])))
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["y"]))
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 16, extent, extent])],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, channels, 1, 1])],
                              [numpy_helper.from_array(array, name) for name, array in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("groups, channels, extent", [(2, 48, 28), (4, 48, 28), (2, 80, 20), (3, 36, 28)])
def test_shuffled_halves_lie_as_their_readers_like(millrace, tmp_path, groups, channels, extent):
    """What a sum takes of a shuffle are several runs of lanes, each of one half; both halves lie in layouts of their own."""
    inputs = {"x": NUMBERS.normal(0, 1, (1, 16, extent, extent)).astype(np.float32)}
    shuffled_ones, plain = (cycles_on_grid(millrace, units(g, channels, extent, 3), inputs, tmp_path, 2e-3) for g in (groups, 1))
    assert shuffled_ones < 1.6 * plain


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
