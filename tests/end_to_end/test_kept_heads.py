# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention whose queries and keys are normalised by head and turned by their positions: heads stay side by side through that."""
import numpy as np
import pytest

from families import Net, rotated
from oracle import judge_on_grid


def attention(draw: np.random.Generator, seed: int) -> tuple[object, dict]:
    """A drawn attention behind an embedding, perhaps with keys as a result, and its inputs."""
    depth = int(draw.choice([8, 16, 24, 32, 64]))
    groups = int(draw.integers(1, 7))
    heads = groups * int(draw.choice([1, 1, 1, 2, 3]))
    count = int(draw.choice([1, 7, 24, 64, 96]))
    width = 48
    g = Net(f"kept heads {seed}", seed)
    ids = g.input("ids", [1, count], np.int64)
    x = g.rms_norm(g.add("Gather", g.normal((50, width), 1.0), ids), width)
    norm = [lambda y: y, lambda y: g.rms_norm(y, depth), lambda y: g.layer_norm(y, depth)][draw.integers(3)]
    turn = [lambda y: y, lambda y: rotated(g, y, 3, count, depth)][min(1, draw.integers(4))]
    part = lambda number: g.heads(g.linear(x, width, number * depth, bias=bool(draw.integers(2))), count, number, depth)
    q, k, v = turn(norm(part(heads))), turn(norm(part(groups))), part(groups)
    g.output(g.add("Identity", k, name="keys"), [1, groups, count, depth]) if draw.integers(2) else None
    wide = []
    for y in (k, v):
        y = g.reshape(y, 1, groups, 1, count, depth)
        y = g.add("Expand", y, g.constant(np.int64([1, groups, heads // groups, count, depth])))
        wide.append(g.reshape(y, 1, heads, count, depth))
    y = g.joined(g.attend(q, *wide, depth), count, heads * depth)
    g.output(g.linear(y, heads * depth, width), [1, count, width])
    return g.model(), {"ids": draw.integers(0, 50, (1, count)).astype(np.int64)}


@pytest.mark.parametrize("seed, machine", [(seed, "tsp-v1") for seed in range(9)] +
                         [(seed, machine) for machine in ("tsp-small", "lp30", "mesh-4x4") for seed in (5, 8)])
def test_values_are_onnxruntimes(millrace, tmp_path, seed, machine):
    judge_on_grid(millrace, *attention(np.random.default_rng(seed), seed), tmp_path, machine)


def of_one_product(seed: int, heads: int, depth: int, value: int, count: int, *, norm: bool, bias: bool, apart: bool = False):
    """Attention whose queries, keys and values are made by one product, those of each head beside each other; `apart`: by three,
    with the same weights."""
    draw, width, each = np.random.default_rng(seed), 48, 2 * depth + value
    g = Net(f"one product {seed}", seed)
    x = g.layer_norm(g.add("Gather", g.normal((50, width), 1.0), g.input("ids", [1, count], np.int64)), width)
    weights = draw.standard_normal((width, heads, each)).astype(np.float32) / width**0.5
    offsets = draw.standard_normal((heads, each)).astype(np.float32) * 0.1
    bounds = ((0, depth), (depth, 2 * depth), (2 * depth, each))
    whole = None if apart else g.reshape(g.add("Add", g.add("MatMul", x, g.constant(weights.reshape(width, -1))),
                                               g.constant(offsets.reshape(-1))), 1, count, heads, each)
    parts = []
    for first, last in bounds:
        if apart:
            y = g.add("MatMul", x, g.constant(weights[:, :, first:last].reshape(width, -1)))
            y = g.add("Add", y, g.constant(offsets[:, first:last].reshape(-1)))
            y = g.reshape(y, 1, count, heads, last - first)
        else:
            y = g.slice(whole, first, last, 3)
        parts.append(g.transpose(y, 0, 2, 1, 3))
    q, k, v = parts
    if norm:
        q, k = g.rms_norm(q, depth), g.rms_norm(k, depth)
    scores = g.add("Mul", g.add("MatMul", q, g.transpose(k, 0, 1, 3, 2)), g.constant(np.float32(depth**-0.5)))
    if bias:
        scores = g.add("Add", scores, g.normal((heads, count, count), 0.5))
    y = g.joined(g.add("MatMul", g.add("Softmax", scores, axis=-1), v), count, heads * value)
    g.output(g.linear(y, heads * value, width), [1, count, width])
    return g.model(), {"ids": draw.integers(0, 50, (1, count)).astype(np.int64)}


@pytest.mark.parametrize("heads, depth, value, count", [(12, 16, 16, 49), (4, 16, 32, 64), (12, 16, 32, 49), (5, 32, 32, 30), (3, 64, 64, 20)])
@pytest.mark.parametrize("norm, bias", [(True, True), (False, False), (True, False)])
def test_heads_beside_each_other_in_one_product(millrace, tmp_path, heads, depth, value, count, norm, bias):
    """Columns of the weights are taken in another order, and heads lie in vectors as if they were made by three products."""
    cycles = {}
    for apart in (False, True):
        model, inputs = of_one_product(7, heads, depth, value, count, norm=norm, bias=bias, apart=apart)
        cycles[apart] = judge_on_grid(millrace, model, inputs, tmp_path)["mxm_alone_cycles"]
    assert cycles[False] <= 1.1 * cycles[True]
