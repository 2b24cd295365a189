# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of channels normalised together, in the forms that exporters write, on every kind of shape."""
import subprocess

import numpy as np
import pytest
from onnx import helper

from oracle import save_model
from test_masks_and_windows import check, model_of

NUMBERS = np.random.default_rng(8)
node = helper.make_node


def normal(*shape):
    return NUMBERS.standard_normal(shape).astype(np.float32)


FINITE = [node("Clip", ["x", "low", "high"], ["a"])]  # of what may be infinite, a value per row is the host's to spread
BOUNDS = {"low": np.float32(-8), "high": np.float32(8)}


def reshaped(shape, groups, scale, bias):
    """As PyTorch exports torch.nn.GroupNorm to opsets before 21."""
    nodes = [node("Reshape", ["a", "groups"], ["r"]), node("InstanceNormalization", ["r", "scale", "bias"], ["i"], epsilon=1e-5),
             node("Reshape", ["i", "whole"], ["n"])]
    return nodes, {"groups": np.int64([0, groups, -1]), "whole": np.int64(shape), "scale": scale, "bias": bias}


# channels, groups, pixels: groups of two, of many, of one channel each, of all; a tensor in several tiles of lanes
SHAPES = [(64, 32, (16, 24)), (40, 5, (9, 13)), (48, 48, (8, 8)), (32, 1, (10, 10)), (480, 32, (6, 7)), (24, 4, (300,)), (16, 2, ())]


@pytest.mark.parametrize("channels,groups,pixels", SHAPES)
@pytest.mark.parametrize("images", [1, 3])
def test_groups_of_channels(millrace, tmp_path, channels, groups, pixels, images):
    if not pixels and images == 3:
        pytest.skip("the same as many rows")
    shape = (images, channels, *pixels)
    nodes, constants = reshaped(shape, groups, 1 + normal(groups) / 4, normal(groups) / 4)
    report = check(millrace, tmp_path, [*FINITE, *nodes, node("Mul", ["n", "gamma"], ["y"])], {"x": normal(*shape)},
                   {**constants, **BOUNDS, "gamma": normal(channels, *[1] * len(pixels))})
    assert report["host_ops"] == []


@pytest.mark.parametrize("channels,groups,pixels", [*SHAPES[:4], SHAPES[-1]])
def test_the_operation(millrace, tmp_path, channels, groups, pixels):
    """GroupNormalization: a scale for each channel. ONNX refuses that of opsets before 21, with one for each group."""
    nodes = [*FINITE, node("GroupNormalization", ["a", "scale", "bias"], ["y"], num_groups=groups, epsilon=1e-3)]
    report = check(millrace, tmp_path, nodes, {"x": normal(2, channels, *pixels)},
                   {"scale": normal(channels), "bias": normal(channels), **BOUNDS}, opset=21)
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


def test_groups_that_do_not_divide_the_channels(millrace, tmp_path):
    nodes = [node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=5)]
    model = model_of(nodes, {"x": normal(1, 12, 4, 4)}, {"scale": normal(12), "bias": normal(12)}, opset=21)
    done = subprocess.run([millrace, "compile", save_model(model, tmp_path), "-o", tmp_path / "p.mrp"], capture_output=True, text=True)
    assert done.returncode == 3 and "num_groups 5 does not divide its 12 channels" in done.stderr
    assert not (tmp_path / "p.mrp").exists()
