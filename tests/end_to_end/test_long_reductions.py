# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions of more products than an MXM plane has accumulators: global pooling of large images, many keys, whole groups."""
import numpy as np
import pytest

from families import Net
from oracle import judge_on_grid


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("rows, columns, machine", [(64, 64, "tsp-v1"), (37, 41, "tsp-v1"), (1, 1511, "mesh-4x4"), (48, 30, "lp30"),
                                                    (30, 40, "tsp-small")])
def test_pooling_of_what_a_convolution_gives(millrace, tmp_path, op, rows, columns, machine):
    g = Net("pooled", 1)
    g.output(g.add("Flatten", g.add(op, g.conv(g.input("x", [1, 16, rows, columns]), 16, 32, 1))), [1, 32])
    x = np.random.default_rng(2).standard_normal((1, 16, rows, columns)).astype(np.float32)
    judge_on_grid(millrace, g.model(), {"x": x + 1}, tmp_path, machine) # not around 0, where a sum says nothing


@pytest.mark.parametrize("queries, keys, machine", [(40, 1500, "mesh-4x4"), (1500, 1500, "tsp-v1"), (16, 1511, "mesh-4x4")])
def test_attention_to_many_keys(millrace, tmp_path, queries, keys, machine):
    g, depth, heads = Net("many keys", 1), 32, 2
    width = heads * depth
    x, memory = g.input("x", [1, queries, width]), g.input("memory", [1, keys, width])
    q = g.heads(g.linear(x, width, width), queries, heads, depth)
    k, v = (g.heads(g.linear(memory, width, width), keys, heads, depth) for _ in range(2))
    g.output(g.joined(g.attend(q, k, v, depth), queries, width), [1, queries, width])
    draw = np.random.default_rng(3)
    judge_on_grid(millrace, g.model(), {"x": draw.standard_normal((1, queries, width)).astype(np.float32),
                                           "memory": draw.standard_normal((1, keys, width)).astype(np.float32)}, tmp_path, machine)


@pytest.mark.parametrize("channels, part, size", [(224, 48, 7), (320, 68, 4), (96, 32, 9)])
def test_norms_of_part_of_the_channels(millrace, tmp_path, channels, part, size):
    """One group of all channels of a part is summed along channels, as they lie: without a copy along the columns of the image."""
    g = Net("norm of a part", 4)
    x = g.conv(g.input("x", [1, 8, size, size]), 8, channels, 3)
    y = g.add("InstanceNormalization", g.reshape(g.slice(x, 0, part, 1), 1, 1, -1), g.constant(np.float32([1])),
              g.constant(np.float32([0])), epsilon=1e-5)
    y = g.conv(g.reshape(y, 1, part, size, size), part, part, 1)
    y = g.relu(g.add("Concat", y, g.slice(x, part, channels, 1), axis=1))
    x = g.add("Add", x, g.conv(y, channels, channels, 1))
    g.output(g.conv(x, channels, 16, 1), [1, 16, size, size])
    draw = np.random.default_rng(5)
    report = judge_on_grid(millrace, g.model(), {"x": draw.standard_normal((1, 8, size, size)).astype(np.float32)}, tmp_path)
    assert not [kernel["name"] for kernel in report["cycle_account"]["kernels"] if "transposed" in (kernel["name"] or "")]


def test_tokens_are_enlarged_as_an_image(millrace, tmp_path):
    """Rows of pixels that tokens hold side by side are summed over: a copy has them in a dimension of their own."""
    g, width, rows, columns = Net("enlarged tokens", 6), 384, 16, 12
    x = g.add("Gather", g.normal((50, width), 1.0), g.input("ids", [1, rows * columns], np.int64))
    x = g.layer_norm(g.add("Add", x, g.mlp(g.layer_norm(x, width), width, 2 * width)), width)
    image = g.relu(g.reshape(g.transpose(x, 0, 2, 1), 1, width, rows, columns))
    large = g.add("Resize", image, "", g.constant(np.float32([1, 1, 4, 4])), mode="linear")
    g.output(g.conv(large, width, 2, 3), [1, 2, 4 * rows, 4 * columns])
    report = judge_on_grid(millrace, g.model(), {"ids": np.random.default_rng(7).integers(0, 50, (1, rows * columns))}, tmp_path)
    element = rows * columns * width # vectors, if each has one of its own: in five sweeps, at two engines
    assert report["mxm_alone_cycles"] < 5 * element / 2


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4"])
def test_weights_with_a_norm_of_their_own_are_constants(millrace, tmp_path, machine):
    """What maps make of constants is a constant, however large: groups of channels are then read where they lie."""
    channels, groups, taps, length = 384, 8, 240, 12 # 4.4 million weights
    g = Net("weight norm", 8)
    direction = g.normal((channels, channels // groups, taps), 1.0)
    norm = g.add("ReduceL2", direction, axes=[0, 1])
    weights = g.add("Mul", direction, g.add("Div", g.uniform((1, 1, taps), 0.5, 1.5), norm))
    x = g.transpose(g.linear(g.input("x", [1, length, 32]), 32, channels), 0, 2, 1)
    y = g.add("Conv", x, weights, group=groups, pads=[taps // 2, taps // 2 - 1])
    y = g.add("Add", x, g.gelu(y))
    g.output(g.linear(g.transpose(y, 0, 2, 1), channels, 16), [1, length, 16])
    draw = np.random.default_rng(9)
    report = judge_on_grid(millrace, g.model(), {"x": draw.standard_normal((1, length, 32)).astype(np.float32)}, tmp_path, machine)
    assert not [kernel["name"] for kernel in report["cycle_account"]["kernels"] if ".lanes" in (kernel["name"] or "")]
