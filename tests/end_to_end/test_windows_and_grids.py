# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that are parted into windows of one size, then into a grid of another (MaxViT), stay on the grid: no index of one is a
multiple of the other's, so that the image between them is stored once."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import cycles_on_grid, relative_l2, run_millrace, save_model

node = helper.make_node


@pytest.mark.parametrize("extent, window, channels", [(28, 7, 24), (12, 3, 40), (24, 8, 16), (20, 4, 64)])
def test_windows_become_a_grid(millrace, tmp_path, extent, window, channels):
    """The last case nests: 20 is 5 windows of 4 and a grid of 4 by 5."""
    count, cells = extent // window, window
    step, draw = extent // cells, np.random.default_rng(extent)
    shapes = {"windows": [1, channels, count, window, count, window], "rows": [1, count * count, window * window, channels],
              "apart": [1, count, count, window, window, channels], "image": [1, channels, extent, extent],
              "cells": [1, channels, cells, step, cells, step], "grid": [1, step * step, cells * cells, channels]}
    weights = {"w0": draw.standard_normal((channels, channels, 1, 1)), "w1": draw.standard_normal((channels, channels)),
               "w2": draw.standard_normal((channels, 8))}
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("Reshape", ["a", "windows"], ["b"]), node("Transpose", ["b"], ["c"], perm=[0, 2, 4, 3, 5, 1]),
             node("Reshape", ["c", "rows"], ["d"]), node("MatMul", ["d", "w1"], ["e"]), node("Relu", ["e"], ["f"]),
             node("Reshape", ["f", "apart"], ["g"]), node("Transpose", ["g"], ["h"], perm=[0, 5, 1, 3, 2, 4]),
             node("Reshape", ["h", "image"], ["i"]), node("Reshape", ["i", "cells"], ["j"]),
             node("Transpose", ["j"], ["k"], perm=[0, 3, 5, 2, 4, 1]), node("Reshape", ["k", "grid"], ["l"]),
             node("LayerNormalization", ["l", "gain"], ["m"]), node("MatMul", ["m", "w2"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, extent, extent])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.float32(value / channels**0.5), name) for name, value in weights.items()] +
                              [numpy_helper.from_array(np.ones(channels, np.float32), "gain")] +
                              [numpy_helper.from_array(np.int64(shape), name) for name, shape in shapes.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 3e-3) < 12 * extent * extent


def on_grid(millrace, tmp_path, nodes, shape, constants):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(value if value.dtype == np.int64 else np.float32(value), name)
                               for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 3e-3)


def test_a_pool_over_a_part_of_the_channels(millrace, tmp_path):
    """Res2Net: the last of four parts is averaged, the others are filtered one after the other. The host pooled."""
    draw = np.random.default_rng(1)
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("Relu", ["a"], ["b"]), node("Split", ["b"], ["p0", "p1", "p2"], axis=1, num_outputs=3),
             node("Conv", ["p0", "w1"], ["c"], pads=[1] * 4), node("Relu", ["c"], ["d"]), node("Add", ["d", "p1"], ["e"]),
             node("Conv", ["e", "w1"], ["f"], pads=[1] * 4),
             node("AveragePool", ["p2"], ["g"], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
             node("Concat", ["d", "f", "g"], ["h"], axis=1), node("Conv", ["h", "w2"], ["y"])]
    assert on_grid(millrace, tmp_path, nodes, [1, 16, 14, 14],
                   {"w0": draw.standard_normal((42, 16, 1, 1)) / 4, "w1": draw.standard_normal((14, 14, 3, 3)) / 11,
                    "w2": draw.standard_normal((8, 42, 1, 1)) / 6}) < 6_000


def test_a_pool_over_pixels_in_a_row(millrace, tmp_path):
    """NextViT: windows of 16 of 28 x 28 pixels that have become a row; they end within lines. The host pooled."""
    draw = np.random.default_rng(2)
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("Reshape", ["a", "row"], ["b"]),
             node("AveragePool", ["b"], ["c"], kernel_shape=[16], strides=[16]), node("Transpose", ["c"], ["d"], perm=[0, 2, 1]),
             node("MatMul", ["d", "w1"], ["y"])]
    assert on_grid(millrace, tmp_path, nodes, [1, 16, 28, 28],
                   {"w0": draw.standard_normal((48, 16, 1, 1)) / 4, "w1": draw.standard_normal((48, 8)) / 7,
                    "row": np.int64([1, 48, 784])}) < 12_000


def test_a_pool_over_windows_that_become_an_image(millrace, tmp_path):
    """HaloNet: attention in windows of 7 x 7, whose heads become channels of an image, averaged 2 x 2. Rows of one lane each
    took 73,412 cycles."""
    draw = np.random.default_rng(3)
    nodes = [node("MatMul", ["p", "x"], ["a"]), node("Transpose", ["a"], ["b"], perm=[0, 3, 2, 1]), node("Reshape", ["b", "parts"], ["c"]),
             node("Transpose", ["c"], ["d"], perm=[0, 3, 1, 4, 2]), node("Reshape", ["d", "image"], ["e"]),
             node("AveragePool", ["e"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    assert on_grid(millrace, tmp_path, nodes, [4, 4, 121, 72],
                   {"p": draw.random((4, 4, 49, 121)) / 60, "parts": np.int64([288, 7, 7, 2, 2]), "image": np.int64([1, 288, 14, 14])}) < 3_000


def test_a_softmax_over_all_pixels_weighs_them(millrace, tmp_path):
    """GCNet: one channel's softmax over 32 x 32 pixels, and the sum of pixels with it. The host made the softmax."""
    draw = np.random.default_rng(4)
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("Relu", ["a"], ["b"]), node("Conv", ["b", "w1"], ["c"]), node("Reshape", ["c", "row"], ["d"]),
             node("Softmax", ["d"], ["e"], axis=2), node("Transpose", ["e"], ["f"], perm=[0, 2, 1]), node("Reshape", ["b", "pixels"], ["g"]),
             node("MatMul", ["g", "f"], ["h"]), node("Reshape", ["h", "column"], ["i"]), node("Add", ["b", "i"], ["y"])]
    assert on_grid(millrace, tmp_path, nodes, [1, 16, 32, 32],
                   {"w0": draw.standard_normal((24, 16, 1, 1)) / 4, "w1": draw.standard_normal((1, 24, 1, 1)) / 5,
                    "row": np.int64([1, 1, 1024]), "pixels": np.int64([1, 24, 1024]), "column": np.int64([1, 24, 1, 1])}) < 12_000


@pytest.mark.parametrize("machine", ["tsp-v1", "lp30"])
@pytest.mark.parametrize("name", ["focus", "waveform"])
def test_parts_of_an_input_are_put_together_by_the_host(millrace, tmp_path, name, machine):
    """A row of one channel for each of 40,000 samples with reflected ends, or of 12 for each pixel of an image whose rows and columns are dealt in turn: the
    host writes them as the convolution takes them. The first took 48,960 cycles and had 293 MiB at half a minute, the second no room at 416 x 416."""
    draw = np.random.default_rng(4)
    constants, nodes = {}, []
    if name == "focus":
        shape, parts = [1, 3, 96, 128], []
        constants |= {"end": np.int64([1000, 1000]), "axes": np.int64([2, 3]), "two": np.int64([2, 2]), "w": (draw.standard_normal((16, 12, 3, 3)) / 10).astype(np.float32)}
        for y, x in ((0, 0), (1, 0), (0, 1), (1, 1)):
            constants[f"at{y}{x}"] = np.int64([y, x])
            nodes.append(helper.make_node("Slice", ["x", f"at{y}{x}", "end", "axes", "two"], [f"s{y}{x}"]))
            parts.append(f"s{y}{x}")
        nodes += [helper.make_node("Concat", parts, ["c"], axis=1), helper.make_node("Conv", ["c", "w"], ["y"], pads=[1, 1, 1, 1])]
    else:
        shape = [1, 1, 40000]
        constants |= {"ends": np.int64([0, 0, 200, 0, 0, 200]), "w": (draw.standard_normal((64, 1, 400)) / 20).astype(np.float32)}
        nodes += [helper.make_node("Pad", ["x", "ends"], ["p"], mode="reflect"), helper.make_node("Conv", ["p", "w"], ["y"], strides=[160])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(value, key) for key, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path)
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) < 2e-3
    assert got.report["predicted_cycles"] == got.report["measured_cycles"] < (3_000 if name == "focus" else 1_500)
