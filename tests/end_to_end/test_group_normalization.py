# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of channels normalised together, in the forms that exporters write, on every kind of shape."""
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from oracle import cycles_on_grid, save_model
from test_masks_and_windows import check, model_of

NUMBERS = np.random.default_rng(8)
node = helper.make_node


def normal(*shape):
    return NUMBERS.standard_normal(shape).astype(np.float32)


FINITE = [node("Cast", ["x"], ["f"], to=onnx.TensorProto.FLOAT), node("Mul", ["f", "step"], ["a"])]  # neither infinite nor NaN
STEP = {"step": np.float32(1 / 32)}


def bytes_of(*shape):
    return NUMBERS.normal(0, 32, shape).clip(-128, 127).astype(np.int8)


def reshaped(shape, groups, scale, bias):
    """As PyTorch exports torch.nn.GroupNorm to opsets before 21."""
    nodes = [node("Reshape", ["a", "groups"], ["r"]), node("InstanceNormalization", ["r", "scale", "bias"], ["i"], epsilon=1e-5),
             node("Reshape", ["i", "whole"], ["n"])]
    return nodes, {"groups": np.int64([0, groups, -1]), "whole": np.int64(shape), "scale": scale, "bias": bias}


# channels, groups, pixels: groups of two, of many, of one channel each, of all; a tensor in several tiles of lanes
SHAPES = [(64, 32, (16, 24)), (40, 5, (9, 13)), (48, 48, (8, 8)), (32, 1, (10, 10)), (480, 32, (6, 7)), (24, 4, (300,)), (16, 2, ())]


@pytest.mark.parametrize("images,channels,groups,pixels", [*((1, *shape) for shape in SHAPES), *((3, *shape) for shape in SHAPES[:-1])])
def test_groups_of_channels(millrace, tmp_path, images, channels, groups, pixels):
    shape = (images, channels, *pixels)
    nodes, constants = reshaped(shape, groups, 1 + normal(groups) / 4, normal(groups) / 4)
    report = check(millrace, tmp_path, [*FINITE, *nodes, node("Mul", ["n", "gamma"], ["y"])], {"x": bytes_of(*shape)},
                   {**constants, **STEP, "gamma": normal(channels, *[1] * len(pixels))})
    assert report["host_ops"] == []


@pytest.mark.parametrize("channels,groups,pixels", [*SHAPES[:4], SHAPES[-1]])
def test_the_operation(millrace, tmp_path, channels, groups, pixels):
    """GroupNormalization: a scale for each channel. ONNX refuses that of opsets before 21, with one for each group."""
    nodes = [*FINITE, node("GroupNormalization", ["a", "scale", "bias"], ["y"], num_groups=groups, epsilon=1e-3)]
    report = check(millrace, tmp_path, nodes, {"x": bytes_of(2, channels, *pixels)},
                   {"scale": normal(channels), "bias": normal(channels), **STEP}, opset=21)
    assert report["host_ops"] == []


def test_statistics_keep_fp32(millrace, tmp_path):
    """Channels whose means are far from the group's, and far from 0: squares lie beyond fp16."""
    offsets = 300 * normal(1, 32, 1, 1)
    nodes, constants = reshaped((1, 32, 20, 20), 4, np.ones(4, np.float32), np.zeros(4, np.float32))
    check(millrace, tmp_path, [node("Add", ["x", "offsets"], ["a"]), *nodes, node("Mul", ["n", "gamma"], ["y"])],
          {"x": normal(1, 32, 20, 20)}, {**constants, "offsets": offsets, "gamma": normal(32, 1, 1)})


def test_convolutions_around_groups_stay_packed(millrace, tmp_path):
    """Statistics of channels lie in every slot of a row of several pixels: the convolutions behind them take 1.9 vectors a pixel
    where a row of one pixel needs 8.7."""
    channels, extent = 64, 32
    nodes, constants = reshaped((1, channels, extent, extent), 32, np.ones(32, np.float32), np.zeros(32, np.float32))
    weights = {f"w{i}": normal(channels, ins, 3, 3) / np.float32(ins**0.5 * 3) for i, ins in ((0, 4), (1, channels), (2, channels))}
    nodes = [node("Conv", ["x", "w0"], ["a"], pads=[1] * 4), *nodes, node("Mul", ["n", "gamma"], ["g"]), node("Sigmoid", ["g"], ["s"]),
             node("Mul", ["g", "s"], ["b"]), node("Conv", ["b", "w1"], ["c"], pads=[1] * 4), node("Relu", ["c"], ["d"]),
             node("Conv", ["d", "w2"], ["y"], pads=[1] * 4)]
    report = check(millrace, tmp_path, nodes, {"x": normal(1, 4, extent, extent)}, {**weights, **constants, "gamma": normal(channels, 1, 1)})
    large = [kernel["mxm_vectors"] for kernel in report["kernels"] if kernel["macs"] > 1e7]
    assert sum(large[:1]) < 2.2 * extent * extent


def test_an_infinity_spoils_its_own_group_alone(millrace, tmp_path):
    x = normal(1, 12, 3, 5)
    x[0, 4, 1, 2] = np.inf
    nodes = [node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=3)]
    check(millrace, tmp_path, nodes, {"x": x}, {"scale": normal(12), "bias": normal(12)}, opset=21)


def test_groups_that_do_not_divide_the_channels(millrace, tmp_path):
    nodes = [node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=5)]
    model = model_of(nodes, {"x": normal(1, 12, 4, 4)}, {"scale": normal(12), "bias": normal(12)}, opset=21)
    done = subprocess.run([millrace, "compile", save_model(model, tmp_path), "-o", tmp_path / "p.mrp"], capture_output=True, text=True)
    assert done.returncode == 3 and "num_groups 5 does not divide its 12 channels" in done.stderr
    assert not (tmp_path / "p.mrp").exists()


def grouped(channels: int, extent: int, groups: int, behind: str) -> onnx.ModelProto:
    """A convolution, then Reshape, InstanceNormalization of the groups, Reshape and an affine map of the channels, then `behind`."""
    constants = {
        "filters": NUMBERS.normal(0, 0.3, (channels, 3, 3, 3)).astype(np.float32),
        "merged": np.int64([0, groups, -1]), "ones": np.ones(groups, np.float32), "zeros": np.zeros(groups, np.float32),
        "parted": np.int64([1, channels, extent, extent]),
        "scale": NUMBERS.normal(1, 0.3, (1, channels, 1, 1)).astype(np.float32),
        "shift": NUMBERS.normal(0, 0.3, (1, channels, 1, 1)).astype(np.float32),
    }
    nodes = [node("Conv", ["x", "filters"], ["convolved"], pads=[1] * 4),
             node("Reshape", ["convolved", "merged"], ["together"]),
             node("InstanceNormalization", ["together", "ones", "zeros"], ["normal"], epsilon=1e-5),
             node("Reshape", ["normal", "parted"], ["apart"]),
             node("Mul", ["apart", "scale"], ["scaled"]), node("Add", ["scaled", "shift"], ["shifted"])]
    if behind == "pool":  # PoolFormer: what the neighbours' mean differs by
        nodes += [node("AveragePool", ["shifted"], ["mean"], kernel_shape=[3, 3], pads=[1] * 4),
                  node("Sub", ["mean", "shifted"], ["y"])]
    else:
        nodes += [node(behind, ["shifted"], ["y"])]
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
