# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normalisations of groups of channels, written as PyTorch writes them, take one sum for a group and not one for each pixel."""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from oracle import cycles_on_grid

NUMBERS = np.random.default_rng(3)


def grouped(channels: int, extent: int, groups: int, behind: str) -> onnx.ModelProto:
    """A convolution, then Reshape, InstanceNormalization of the groups, Reshape and an affine map of the channels, then `behind`."""
    constants = {
        "filters": NUMBERS.normal(0, 0.3, (channels, 3, 3, 3)).astype(np.float32),
        "merged": np.int64([0, groups, -1]), "ones": np.ones(groups, np.float32), "zeros": np.zeros(groups, np.float32),
        "parted": np.int64([1, channels, extent, extent]),
        "scale": NUMBERS.normal(1, 0.3, (1, channels, 1, 1)).astype(np.float32),
        "shift": NUMBERS.normal(0, 0.3, (1, channels, 1, 1)).astype(np.float32),
    }
    nodes = [helper.make_node("Conv", ["x", "filters"], ["convolved"], pads=[1] * 4),
             helper.make_node("Reshape", ["convolved", "merged"], ["together"]),
             helper.make_node("InstanceNormalization", ["together", "ones", "zeros"], ["normal"], epsilon=1e-5),
             helper.make_node("Reshape", ["normal", "parted"], ["apart"]),
             helper.make_node("Mul", ["apart", "scale"], ["scaled"]), helper.make_node("Add", ["scaled", "shift"], ["shifted"])]
    if behind == "pool":  # PoolFormer: what the neighbours' mean differs by
        nodes += [helper.make_node("AveragePool", ["shifted"], ["mean"], kernel_shape=[3, 3], pads=[1] * 4),
                  helper.make_node("Sub", ["mean", "shifted"], ["y"])]
    else:
        nodes += [helper.make_node(behind, ["shifted"], ["y"])]
    shape = [1, channels, extent, extent]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, extent, extent])],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("channels, extent, groups, behind, most", [
    (64, 28, 1, "pool", 40_000),  # 784 pixels of 64 channels: with a sum for each pixel, millions
    (64, 28, 1, "Relu", 30_000),
    (48, 16, 4, "Relu", 60_000),
    (32, 12, 32, "Relu", 20_000),  # a group for each channel
])
def test_a_group_is_summed_once(millrace, tmp_path, channels, extent, groups, behind, most):
    model = grouped(channels, extent, groups, behind)
    inputs = {"x": NUMBERS.normal(0, 1, (1, 3, extent, extent)).astype(np.float32)}
    assert cycles_on_grid(millrace, model, inputs, tmp_path, 3e-3) < most
