# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices of channels that convolutions take, sums of pixels weighed by a softmax over all of them, and matrices put together from
blocks that are multiplied: none of these lies in short rows."""
import json
import random

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph import save
from test_attention_over_pixels import judged

node = helper.make_node


def model_of(nodes, shape, constants):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def parted(parts, extent, windows, seed=0):
    """Channels that are rectified, cut into `parts`, each multiplied by weights of its own, and put together again."""
    draw = np.random.default_rng(seed)
    channels = sum(parts)
    constants = {"w": np.float32(draw.standard_normal((channels, 16, 1, 1)) / 4), "d": np.float32(draw.standard_normal((channels, 1, 3, 3)) / 3),
                 "parts": np.int64(parts)}
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Relu", ["a"], ["r"]),
             node("Conv", ["r", "d"], ["f"], group=channels, pads=[1] * 4), node("Add", ["f", "r"], ["s"]),
             node("Split", ["s", "parts"], [f"s{i}" for i in range(len(parts))], axis=1)]
    for i, part in enumerate(parts):
        window = windows[i % len(windows)]
        constants[f"w{i}"] = np.float32(draw.standard_normal((24, part, window, window)) / window / part ** 0.5)
        nodes.append(node("Conv", [f"s{i}", f"w{i}"], [f"c{i}"], pads=[window // 2] * 4))
    nodes.append(node("Concat", [f"c{i}" for i in range(len(parts))], ["y"], axis=1))
    return model_of(nodes, [1, 16, extent, extent], constants)


@pytest.mark.parametrize("parts, extent, windows, most", [((8, 8), 56, [1], 6_000), ((20, 12, 4), 40, [1], 6_600)], ids=str)
def test_products_of_slices_read_whole_rows(millrace, tmp_path, parts, extent, windows, most):
    """Cut beforehand, a row held one pixel: 13,684 cycles, and 10,101."""
    assert judged(millrace, tmp_path, parted(parts, extent, windows))["measured_cycles"] < most


@pytest.mark.parametrize("window", [1, 3])
def test_slices_of_one_channel_do_not_turn_the_others(millrace, tmp_path, window):
    """Which then lay in rows of one element: 36,949 cycles for windows of three."""
    assert judged(millrace, tmp_path, parted([1, 14, 6, 22], 17, [window], 1011))["measured_cycles"] < 15_000


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4", "lp30"])
@pytest.mark.parametrize("seed", range(3))
def test_drawn_slices(millrace, tmp_path, seed, machine):
    draw = random.Random(seed)
    judged(millrace, tmp_path, parted([draw.randint(1, 24) for _ in range(draw.randint(2, 4))], draw.randint(3, 20), [draw.choice([1, 3]) for _ in range(2)], seed), machine)


def contexts(sizes, channels, seed=0):
    """Blocks that add to each pixel what all of them are on average, weighed by a softmax; between them images shrink."""
    draw = np.random.default_rng(seed)
    constants, nodes, value = {}, [], "x"

    def add(op, *inputs, **attributes):
        nodes.append(node(op, list(inputs), [f"n{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def constant(array):
        constants[f"c{len(constants)}"] = array
        return f"c{len(constants) - 1}"

    def weights(*shape):
        return constant(np.float32(draw.standard_normal(shape) / np.prod(shape[1:]) ** 0.5))

    for size in sizes:
        value = add("Relu", add("Conv", value, weights(channels, channels, 3, 3), pads=[1] * 4))
        scores = add("Reshape", add("Conv", value, weights(1, channels, 1, 1)), constant(np.int64([1, 1, size * size])))
        pixels = add("Unsqueeze", add("Reshape", value, constant(np.int64([1, channels, size * size]))), constant(np.int64([1])))
        context = add("MatMul", pixels, add("Unsqueeze", add("Softmax", scores, axis=-1), constant(np.int64([3]))))
        context = add("Conv", add("Reshape", context, constant(np.int64([1, channels, 1, 1]))), weights(channels, channels, 1, 1))
        value = add("Add", value, context)
        if size != sizes[-1]:
            value = add("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])
    nodes[-1].output[0] = "y"
    return model_of(nodes, [1, channels, sizes[0], sizes[0]], constants)


def test_pixels_lie_along_the_lanes_in_whole_vectors(millrace, tmp_path):
    """Not a row of an image in each vector, which took 17,338 cycles."""
    assert judged(millrace, tmp_path, contexts([32, 16, 8], 160))["measured_cycles"] < 16_800


@pytest.mark.parametrize("machine, sizes, channels", [("tsp-v1", [24, 12, 6], 40), ("lp30", [16, 8], 32), ("mesh-4x4", [8, 4], 24)], ids=str)
def test_contexts_of_other_sizes(millrace, tmp_path, machine, sizes, channels):
    judged(millrace, tmp_path, contexts(sizes, channels), machine)


def blocks(rows, width, parts, seed=0):
    """Matrices of which each `parts`-th of the columns comes from a product of its own, times what they are cut out of."""
    draw = np.random.default_rng(seed)
    constants, nodes = {}, []
    for i in range(parts):
        constants[f"w{i}"] = np.float32(draw.standard_normal((width, width // parts)) / width ** 0.5)
        nodes += [node("MatMul", ["x", f"w{i}"], [f"p{i}"]), node("Tanh", [f"p{i}"], [f"t{i}"])]
    nodes += [node("Concat", [f"t{i}" for i in range(parts)], ["m"], axis=-1), node("Transpose", ["x"], ["xt"], perm=[0, 2, 1]), node("MatMul", ["m", "xt"], ["y"])]
    return model_of(nodes, [4, rows, width], constants)


@pytest.mark.parametrize("machine, rows, width, parts", [("tsp-v1", 64, 64, 8), ("tsp-v1", 10, 60, 5), ("tsp-v1", 7, 300, 30), ("lp30", 24, 40, 4), ("mesh-4x4", 12, 16, 8)])
def test_blocks_that_are_multiplied(millrace, tmp_path, machine, rows, width, parts):
    judged(millrace, tmp_path, blocks(rows, width, parts), machine)


def test_products_meet_whole_vectors(call, tmp_path):
    """Not eight lanes at a time, 64 times as often: as first scheduled, since a search helps a single product most."""
    cycles = {}
    for parts in [1, 8]:
        save(blocks(64, 64, parts), tmp_path / "blocks.onnx")
        call("run", tmp_path / "blocks.onnx", "-p", "fp16", "--effort", 0, "--cycles-only", "--json", "r.json")
        cycles[parts] = json.loads((tmp_path / "r.json").read_text())["measured_cycles"]
    assert cycles[8] < 8 * cycles[1], cycles


@pytest.mark.parametrize("machine", ["tsp-v1", "tsp-small", "mesh-4x4"])
@pytest.mark.parametrize("lanes, first, gates, width", [(700, 330, 4, 100), (33, 30, 3, 400), (320, 318, 2, 64), (900, 319, 3, 330)], ids=str)
def test_a_lane_that_scales_all_others_is_brought_to_them_alone(millrace, tmp_path, lanes, first, gates, width, machine):
    """Few lanes of a product, each a scale of its own of 50 rows: all lanes, brought into all, took 18,372 cycles instead of 480."""
    draw = np.random.default_rng(1012)
    constants = {"w": np.float32(draw.standard_normal((64, lanes)) / 8), "v": np.float32(draw.standard_normal((64, width)) / 8), "axis": np.int64([2])}
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Tanh", ["m"], ["all"]), node("MatMul", ["x", "v"], ["r0"])]
    for i in range(gates):
        constants |= {f"from{i}": np.int64([first + i]), f"to{i}": np.int64([first + i + 1])}
        nodes += [node("Slice", ["all", f"from{i}", f"to{i}", "axis"], [f"g{i}"]), node("Mul", [f"r{i}", f"g{i}"], [f"p{i}"]),
                  node("Tanh", [f"p{i}"], [f"r{i + 1}"])]
    constants["h"] = np.float32(draw.standard_normal((lanes, 16)) / 30)
    nodes += [node("MatMul", ["all", "h"], ["others"]), node("ReduceMean", [f"r{gates}", "axis"], ["mean"]),
              node("Add", ["others", "mean"], ["y"])]
    report = judged(millrace, tmp_path, model_of(nodes, [1, 50, 64], constants), machine=machine)
    assert report["measured_cycles"] < 8_000
