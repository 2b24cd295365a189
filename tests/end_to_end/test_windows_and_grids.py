# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that are parted into windows of one size, then into a grid of another (MaxViT), stay on the grid: no index of one is a
multiple of the other's, so that the image between them is stored once."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import cycles_on_grid

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
